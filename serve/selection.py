"""What a pull gets, decided from numbers alone: the queue's bounds, its entries, and the limits (spec 10.1, 10.2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from towline.format.files.consume_queue import FILLER_RECORD_SIZE
from towline.format.wire.frames import Pull
from towline.format.wire.status import GetStatus

Entries: TypeAlias = npt.NDArray[np.void]  # dtype consume_queue.ENTRY
Integers: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Mask: TypeAlias = npt.NDArray[np.bool_]

# Nothing is there yet, and to ask again at the same offset is right: such a pull may be held.
_NOT_YET: Final = {GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.OFFSET_OVERFLOW_BADLY}


@dataclass(frozen=True, slots=True)
class Limits:
    """Most records and most record bytes of one answer; the first record comes whatever its size."""

    count: int
    size: int


class Passing(Protocol):
    """What a pull's expression says of many records."""

    def possible(self, pull: Pull, entries: Entries, rows: Mask) -> Mask:
        """`rows` without the entries that are certain not to pass, told without a look at the log."""

    def keep(self, segment: Bytes, starts: Integers, sizes: Integers) -> Mask:
        """Which of the first records pass, of as many as this pull may still look at; they begin at these bytes of the
        segment. The first call is about one record at least.
        """


@dataclass(frozen=True, slots=True)
class Chosen:
    """Entries that a pull wants: their queue offsets, places in the log and sizes, all in order.

    `after` is the queue offset up to which was looked.
    """

    offsets: Integers
    physical: Integers
    sizes: Integers
    after: int

    def __len__(self) -> int:
        return len(self.offsets)

    def first(self, count: int) -> "Chosen":
        return Chosen(self.offsets[:count], self.physical[:count], self.sizes[:count], self.after)

    def where(self, kept: Mask) -> "Chosen":
        return Chosen(self.offsets[kept], self.physical[kept], self.sizes[kept], self.after)


def chosen_of(entries: Entries, kept: Mask, offset: int) -> Chosen:
    """The entries where `kept` is true; the first of all is number `offset` of its queue."""
    rows = np.flatnonzero(kept)
    found = entries if len(rows) == len(entries) else entries[rows]
    physical, sizes = found["physical_offset"].astype(np.int64), found["record_size"].astype(np.int64)
    return Chosen(rows + offset, physical, sizes, offset + len(entries))


def joined(found: Sequence[Chosen], after: int) -> Chosen:
    """All of them, one behind the other."""
    if len(found) == 1:
        return Chosen(found[0].offsets, found[0].physical, found[0].sizes, after)
    none = np.empty(0, dtype=np.int64)
    columns = [(each.offsets, each.physical, each.sizes) for each in found] or [(none, none, none)]
    offsets, physical, sizes = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Chosen(offsets, physical, sizes, after)


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


def matching(entries: Entries, codes: tuple[int, ...], tags_codes: Integers | None = None) -> Mask:
    """Which entries are of a message with one of these tag hashes (no hashes: any). A filler never is.

    The low 32 bits of the tags code are compared, of `tags_codes` where the entries do not hold them. Tags with equal
    hashes pass together; the reader compares the tags.
    """
    real: Mask = entries["record_size"] != FILLER_RECORD_SIZE
    if not codes:
        return real
    found: Integers = entries["tags_code"].astype(np.int64) if tags_codes is None else tags_codes
    low = found.astype(np.int32)
    return real & np.isin(low, np.array(codes, dtype=np.int64).astype(np.int32))


def fitting(physical: Integers, sizes: Integers, border: int, limits: Limits) -> int:
    """How many leading records fit one answer: all begin before `border`, within the limits, but at least one."""
    before = int(np.searchsorted(physical, border))
    within = int(np.searchsorted(np.cumsum(sizes[:before]), limits.size, side="right"))
    return max(1, min(before, within, limits.count))


def adjoining(physical: Integers, sizes: Integers) -> bool:
    """Whether the records stand back to back in the log."""
    return bool((physical[1:] == physical[:-1] + sizes[:-1]).all())
