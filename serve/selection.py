"""Selects what a pull gets from numbers alone: the queue's bounds, its entries, and the limits (spec 10.1, 10.2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from towline.format.files.consume_queue import FILLER_RECORD_SIZE
from towline.format.wire.frames import Pull
from towline.format.wire.status import GetStatus
from towline.node.store.pull_rules import Limits

Entries: TypeAlias = npt.NDArray[np.void]  # dtype consume_queue.ENTRY
Integers: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Mask: TypeAlias = npt.NDArray[np.bool_]

# Nothing is there yet, and to ask again at the same offset is right: such a pull may be held.
_NOT_YET: Final = {GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.OFFSET_OVERFLOW_BADLY}


class RecordFilter(Protocol):
    """The expression of a pull, applied to many records."""

    def possible(self, pull: Pull, entries: Entries, rows: Mask) -> Mask:
        """`rows` without the entries that certainly do not match, without reading the log."""

    def keep(self, segment: Bytes, starts: Integers, sizes: Integers) -> Mask:
        """Which of the first records match, of as many as this pull may still evaluate; the first call covers one at
        least.

        The records begin at `starts` in the segment.
        """


@dataclass(frozen=True, slots=True)
class ChosenEntries:
    """The entries that a pull wants: queue offsets, places in the log and sizes, all in order.

    `after` is the queue offset up to which entries were checked.
    """

    offsets: Integers
    physical: Integers
    sizes: Integers
    after: int

    def __len__(self) -> int:
        return len(self.offsets)

    def first(self, count: int) -> "ChosenEntries":
        return ChosenEntries(self.offsets[:count], self.physical[:count], self.sizes[:count], self.after)

    def where(self, kept: Mask) -> "ChosenEntries":
        return ChosenEntries(self.offsets[kept], self.physical[kept], self.sizes[kept], self.after)


def chosen_of(entries: Entries, kept: Mask, offset: int) -> ChosenEntries:
    """The entries where `kept` is true; `offset` is the queue offset of the first entry."""
    rows = np.flatnonzero(kept)
    found = entries if len(rows) == len(entries) else entries[rows]
    physical, sizes = found["physical_offset"].astype(np.int64), found["record_size"].astype(np.int64)
    return ChosenEntries(rows + offset, physical, sizes, offset + len(entries))


def joined(found: Sequence[ChosenEntries], after: int) -> ChosenEntries:
    """Joins chosen entries, one behind the other."""
    if len(found) == 1:
        return ChosenEntries(found[0].offsets, found[0].physical, found[0].sizes, after)
    none = np.empty(0, dtype=np.int64)
    columns = [(each.offsets, each.physical, each.sizes) for each in found] or [(none, none, none)]
    offsets, physical, sizes = (np.concatenate(column) for column in zip(*columns, strict=True))
    return ChosenEntries(offsets, physical, sizes, after)


def outside(low: int, high: int, offset: int, *, corrects: bool) -> tuple[GetStatus, int] | None:
    """(status, next offset) for an offset at which the queue [low, high) has no message; None if it has one.

    A node that does not correct offsets (a slave, unless the settings say so) keeps the offset as it was asked: it may
    only be behind its master.
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
    """Whether a pull for `offset` with this result can be held until a message arrives."""
    return status in _NOT_YET and next_offset == offset


def matching(entries: Entries, codes: tuple[int, ...], tags_codes: Integers | None = None) -> Mask:
    """Which entries have one of these tag hashes (no hashes: any). A filler never matches.

    The low 32 bits of the tags code are compared, taken from `tags_codes` where entries do not hold them. Tags with
    equal hashes pass together; the reader compares the tags.
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
