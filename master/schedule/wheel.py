"""The messages that wait for a time, in memory: the next ones sorted, the others as they arrived; 32 bytes each."""

from typing import Final

import numpy as np
import numpy.typing as npt

ROW: Final = np.dtype(
    [("due", "i8"), ("offset", "i8"), ("position", "i8"), ("size", "i4"), ("unused", "i4")]
)  # time in epoch ms, queue offset, place in the log, bytes
Waiting = npt.NDArray[np.void]  # of ROW
NEAR: Final = 16_384  # rows that are sorted at once
_LATEST: Final = 1 << 62
_BLOCK_BITS: Final = 12


class Wheel:
    """Rows in the order of (due, offset). Rows added later have greater offsets where times are equal."""

    def __init__(self) -> None:
        self._near = np.zeros(0, dtype=ROW)  # sorted: all that are due before `_near_end`
        self._near_end = 0
        self._far = np.zeros(0, dtype=ROW)  # the first `_far_count` of them
        self._far_count = 0
        self._far_due = _LATEST  # the earliest of them

    def __len__(self) -> int:
        return len(self._near) + self._far_count

    def add(self, rows: Waiting) -> None:
        near = rows["due"] < self._near_end
        if near.any():
            self._insert(rows[near])
            rows = rows[~near]
        self._append(rows)

    def pop(self, until_ms: int, count: int) -> Waiting:
        """Removes and returns the first rows that are due at `until_ms`, at most `count`."""
        while len(self._near) < count and self._far_due <= until_ms:
            self._approach()
        count = min(count, int(np.searchsorted(self._near["due"], until_ms, side="right")))
        taken, self._near = self._near[:count], self._near[count:]
        return taken

    def put_back(self, rows: Waiting) -> None:
        """Puts popped rows back, as long as nothing due after them was popped."""
        self.add(rows)
        self._near = self._near[np.lexsort((self._near["offset"], self._near["due"]))]

    def until(self, due: int, offset: int) -> Waiting:
        """The rows that come no later than (due, offset), in any order."""
        near, far = self._near, self._far[: self._far_count]
        return np.concatenate((near[until(near, due, offset)], far[until(far, due, offset)]))

    def lowest_until(self, due: int, offset: int) -> int | None:
        """The lowest queue offset of those that come no later than (due, offset)."""
        found = lowest_until(self._near, due, offset)
        if self._far_due > due:
            return found
        far = lowest_until(self._far[: self._far_count], due, offset)
        return far if found is None or (far is not None and far < found) else found

    def next_due(self) -> int | None:
        """The time of the next row; None when nothing waits."""
        if len(self._near):
            return int(self._near["due"][0])
        return self._far_due if self._far_count else None

    def keep(self, count: int, after_ms: int) -> int | None:
        """Evicts the rows that are due last and later than `after_ms`, until about `count` are left.

        Returns the time from which on all rows were evicted; None when none were.
        """
        dues = self._far["due"][: self._far_count]
        wanted = max(0, count - len(self._near))
        if wanted >= len(dues):
            return None
        since = max(after_ms, self._far_due, int(np.partition(dues, wanted)[wanted]) - 1) + 1
        stays = dues < since
        if stays.all():
            return None
        self._keep_far(stays)
        return since

    def drop_below(self, below: int) -> None:
        """Drops the rows before this queue offset."""
        self._near = self._near[self._near["offset"] >= below]
        if self._far_count:
            self._keep_far(self._far["offset"][: self._far_count] >= below)

    def _insert(self, rows: Waiting) -> None:
        rows = rows[np.lexsort((rows["offset"], rows["due"]))]
        self._near = np.insert(self._near, np.searchsorted(self._near["due"], rows["due"], side="right"), rows)
        if len(self._near) > 4 * NEAR:
            end = int(self._near["due"][NEAR])
            count = int(np.searchsorted(self._near["due"], end, side="left"))
            rest, self._near, self._near_end = self._near[count:], self._near[:count].copy(), end
            self._append(rest)

    def _append(self, rows: Waiting) -> None:
        if not len(rows):
            return
        end = self._far_count + len(rows)
        if end > len(self._far):
            grown = np.zeros(max(end, 2 * len(self._far)), dtype=ROW)
            grown[: self._far_count] = self._far[: self._far_count]
            self._far = grown
        self._far[self._far_count : end] = rows
        self._far_count = end
        self._far_due = min(self._far_due, int(rows["due"].min()))

    def _approach(self) -> None:
        """Moves the earliest of the far rows, with all of the same time, to the near ones."""
        dues = self._far["due"][: self._far_count]
        place = min(NEAR, len(dues)) - 1
        self._near_end = int(np.partition(dues, place)[place]) + 1
        near = dues < self._near_end
        rows = self._far[: self._far_count][near]
        rows = rows[np.lexsort((rows["offset"], rows["due"]))]
        self._near = np.concatenate((self._near, rows))
        self._keep_far(~near)

    def _keep_far(self, stays: npt.NDArray[np.bool_]) -> None:
        rows = self._far[: self._far_count][stays]
        self._far_count = len(rows)
        if 4 * len(rows) < len(self._far):
            self._far = rows
        else:
            self._far[: len(rows)] = rows
        self._far_due = int(rows["due"].min()) if len(rows) else _LATEST


def until(rows: Waiting, due: int, offset: int) -> npt.NDArray[np.bool_]:
    """Which rows come no later than (due, offset)."""
    found: npt.NDArray[np.bool_] = (rows["due"] < due) | ((rows["due"] == due) & (rows["offset"] <= offset))
    return found


def lowest_until(rows: Waiting, due: int, offset: int) -> int | None:
    """The lowest queue offset of the rows that come no later than (due, offset)."""
    found = until(rows, due, offset)
    return int(rows["offset"][found].min()) if found.any() else None


class Blocks:
    """Counts queue offsets that come and go, and knows the lowest to within a block of 4,096."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._cut = 0
        self.total = 0

    def add(self, offsets: npt.NDArray[np.int64]) -> None:
        self._move(offsets, 1)

    def remove(self, offsets: npt.NDArray[np.int64]) -> None:
        self._move(offsets[offsets >= self._cut], -1)

    def cut(self, below: int) -> int:
        """Removes every block that begins before `below`; returns how many offsets it held."""
        gone = sum(self._counts.pop(block) for block in list(self._counts) if block << _BLOCK_BITS < below)
        self._cut = max(self._cut, below)
        self.total -= gone
        return gone

    def lowest(self) -> int | None:
        return min(self._counts) << _BLOCK_BITS if self._counts else None

    def _move(self, offsets: npt.NDArray[np.int64], sign: int) -> None:
        blocks, counts = np.unique(offsets >> _BLOCK_BITS, return_counts=True)
        self.total += sign * len(offsets)
        for block, count in zip(blocks.tolist(), counts.tolist(), strict=True):
            left = self._counts.pop(block, 0) + sign * count
            assert left >= 0
            if left:
                self._counts[block] = left


def begin_of_block(offset: int) -> int:
    return offset >> _BLOCK_BITS << _BLOCK_BITS
