"""Decisions on where a queue begins by the retention of its topic: at a time, or with so many bytes. Pure.

What they read they are given: times of entries, and their sizes in bounded steps.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

STEP_ENTRIES: Final = 65_536  # at most in one step
DROP_ENTRIES: Final = 64  # read in front at least

Sizes = npt.NDArray[np.int64]
ReadSizes = Callable[[int, int], Sizes]  # of so many entries of one file from a number on: their bytes in the log


def first_unexpired(low: int, high: int, is_expired: Callable[[int], bool]) -> int:
    """The first number of [low, high) that is not expired, `high` if all are. What follows such a one is not either.

    The first is looked at first: most of the time it is the answer.
    """
    if low >= high or not is_expired(low):
        return low
    low += 1
    while low < high:
        middle = (low + high) // 2
        if is_expired(middle):
            low = middle + 1
        else:
            high = middle
    return low


class SizeWindow:
    """The newest entries of one queue, as many as have at most `limit` bytes together, and always the newest one.

    `advance` does one step, which reads entries of one file. First come those before the end, backwards, then in each
    look those that were put since; and what is too much goes in front. So an entry is read twice. Only where the log
    takes entries out of it, which the limit would have left, the rest is read again.
    """

    def __init__(self, limit: int, per_file: int) -> None:
        self.limit = limit
        self._per_file = per_file
        self._low = self._high = -1  # the entries [low, high) have `total` bytes
        self._total = 0
        self._is_full = False  # nothing more comes in front

    def advance(self, low: int, high: int, read: ReadSizes) -> int | None:
        """One step for a queue of [low, high); the first number to keep, or None while there is more to read."""
        if self._low < low or self._high > high:
            self._low = self._high = high
            self._total, self._is_full = 0, False
        if self._high < high:
            self._add_behind(high, read)
        elif not self._is_full and self._low > low:
            self._add_in_front(low, read)
        elif self._exceeds():
            self._drop(read)
        self._is_full = self._is_full or self._low == low
        done = self._high == high and self._is_full and not self._exceeds()
        return self._low if done else None

    def _exceeds(self) -> bool:
        return self._total > self.limit and self._low < self._high - 1

    def _add_behind(self, high: int, read: ReadSizes) -> None:
        count = min(STEP_ENTRIES, high - self._high, self._per_file - self._high % self._per_file)
        self._total += int(read(self._high, count).sum())
        self._high += count

    def _add_in_front(self, low: int, read: ReadSizes) -> None:
        start = max(low, self._low - STEP_ENTRIES, (self._low - 1) // self._per_file * self._per_file)
        totals = self._total + np.cumsum(read(start, self._low - start)[::-1])
        fits = int(np.searchsorted(totals, self.limit, side="right"))
        if self._low == self._high:
            fits = max(fits, 1)  # the newest
        self._is_full = fits < len(totals)
        self._low -= fits
        self._total = int(totals[fits - 1]) if fits else self._total

    def _drop(self, read: ReadSizes) -> None:
        held, room = self._high - 1 - self._low, self._per_file - self._low % self._per_file
        about = 2 * held * (self._total - self.limit) // self._total + DROP_ENTRIES
        totals = self._total - np.cumsum(read(self._low, min(about, STEP_ENTRIES, held, room)))
        count = min(len(totals), int((totals > self.limit).sum()) + 1)
        self._low += count
        self._total = int(totals[count - 1])
