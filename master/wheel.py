"""What waits for a time, in memory: slots of a second, the near ones sorted.

32 bytes for each that waits, however far away: a slot is a run of rows that nobody looks at before its time.
"""

from heapq import heappop, heappush
from typing import Final

import numpy as np
import numpy.typing as npt

ROW: Final = np.dtype(
    [("due", "i8"), ("offset", "i8"), ("position", "i8"), ("size", "i4"), ("unused", "i4")]
)  # time in epoch ms, queue offset, place in the log, bytes
Waiting = npt.NDArray[np.void]  # of ROW
SLOT_MS: Final = 1000
_BLOCK_BITS: Final = 12


class Wheel:
    """Rows in the order of (due, offset)."""

    def __init__(self) -> None:
        self._slots: dict[int, bytearray] = {}
        self._order: list[int] = []  # a heap of the slots
        self._near = np.zeros(0, dtype=ROW)
        self._near_end = 0  # the first slot that is not near
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, rows: Waiting) -> None:
        self._count += len(rows)
        slots = rows["due"] // SLOT_MS
        near = slots < self._near_end
        if near.any():
            self._merge(rows[near])
            rows, slots = rows[~near], slots[~near]
        if not len(rows):
            return
        order = np.argsort(slots, kind="stable")
        rows, slots = rows[order], slots[order]
        starts = np.flatnonzero(np.append(True, slots[1:] != slots[:-1]))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
            self._slot(int(slots[start])).extend(rows[start:stop].tobytes())

    def take(self, until_ms: int, count: int) -> Waiting:
        """The first that are due at `until_ms`, at most `count`; they are taken out."""
        while self._order and self._order[0] * SLOT_MS <= until_ms:
            slot = heappop(self._order)
            self._near_end = slot + 1
            self._merge(np.frombuffer(self._slots.pop(slot), dtype=ROW))
        count = min(count, int(np.searchsorted(self._near["due"], until_ms, side="right")))
        taken, self._near = self._near[:count], self._near[count:]
        self._count -= count
        return taken

    def near(self) -> Waiting:
        """Those whose slot has come; what is due before the newest taken is among them."""
        return self._near

    def next_due(self) -> int | None:
        """When the next is due, at the earliest; None when nothing waits."""
        if len(self._near):
            return int(self._near["due"][0])
        return self._order[0] * SLOT_MS if self._order else None

    def _slot(self, number: int) -> bytearray:
        found = self._slots.get(number)
        if found is None:
            found = self._slots[number] = bytearray()
            heappush(self._order, number)
        return found

    def _merge(self, rows: Waiting) -> None:
        rows = np.concatenate((self._near, rows))
        self._near = rows[np.lexsort((rows["offset"], rows["due"]))]


class Blocks:
    """The lowest of many queue offsets that come and go, to within a block of 4,096."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, offsets: npt.NDArray[np.int64]) -> None:
        self._move(offsets, 1)

    def remove(self, offsets: npt.NDArray[np.int64]) -> None:
        self._move(offsets, -1)

    def lowest(self) -> int | None:
        return min(self._counts) << _BLOCK_BITS if self._counts else None

    def _move(self, offsets: npt.NDArray[np.int64], sign: int) -> None:
        blocks, counts = np.unique(offsets >> _BLOCK_BITS, return_counts=True)
        for block, count in zip(blocks.tolist(), counts.tolist(), strict=True):
            left = self._counts.pop(block, 0) + sign * count
            assert left >= 0
            if left:
                self._counts[block] = left
