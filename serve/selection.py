"""What a pull gets, decided from numbers alone: the queue's bounds, its entries, and the limits (spec 10.1, 10.2)."""

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from towline.format.consume_queue import FILLER_RECORD_SIZE
from towline.format.status import GetStatus

Entries: TypeAlias = npt.NDArray[np.void]  # dtype consume_queue.ENTRY
Integers: TypeAlias = npt.NDArray[np.int64]

# Nothing is there yet, and to ask again at the same offset is right: such a pull may be held.
_NOT_YET: Final = {GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.OFFSET_OVERFLOW_BADLY}


@dataclass(frozen=True, slots=True)
class Limits:
    """Most records and most record bytes of one answer; the first record comes whatever its size."""

    count: int
    size: int


def outside(low: int, high: int, offset: int, *, corrects: bool) -> tuple[GetStatus, int] | None:
    """(status, next offset) for an offset at which the queue [low, high) has nothing; None if it has.

    A node that does not correct (a slave, unless the settings say so) leaves the offset as it was asked: it may only be
    behind its master.
    """
    if high == 0:
        return GetStatus.NO_MESSAGE_IN_QUEUE, 0 if corrects else offset
    if offset < low:
        return GetStatus.OFFSET_TOO_SMALL, low if corrects else offset
    if offset == high:
        return GetStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > high:
        return GetStatus.OFFSET_OVERFLOW_BADLY, high if corrects else offset
    return None


def may_wait(status: GetStatus, offset: int, next_offset: int) -> bool:
    """Whether a pull for `offset` with this outcome can be held until a message arrives."""
    return status in _NOT_YET and next_offset == offset


def matching(entries: Entries, codes: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Which entries are of a message with one of these tag hashes (no hashes: any). A filler never is.

    The low 32 bits of the tags code are compared. Tags with equal hashes pass together; the reader compares the tags.
    """
    real: npt.NDArray[np.bool_] = entries["record_size"] != FILLER_RECORD_SIZE
    if not codes:
        return real
    low = entries["tags_code"].astype(np.int64).astype(np.int32)
    return real & np.isin(low, np.array(codes, dtype=np.int64).astype(np.int32))


def fitting(physical: Integers, sizes: Integers, border: int, limits: Limits) -> int:
    """How many leading records fit one answer: all begin before `border`, within the limits, but at least one."""
    before = int(np.searchsorted(physical, border))
    within = int(np.searchsorted(np.cumsum(sizes[:before]), limits.size, side="right"))
    return max(1, min(before, within, limits.count))


def adjoining(physical: Integers, sizes: Integers) -> bool:
    """Whether the records stand back to back in the log."""
    return bool((physical[1:] == physical[:-1] + sizes[:-1]).all())
