"""How long batches took in each stage of a node, as histograms in the positions file.

A stage belongs to one duty, which alone writes its words: one per bucket, then the sum in ns. A batch costs two stores.

    append      put: one call of the append, from its begin until what it stored can be seen; one of APPENDS_TIMED is
                timed, and stands for all of them, as a single put pays for each store
    receive     receive: slices of the master taken together, until they are in the log
    flush       flush: one sync of the log
    replicate   send: from the moment at which it saw bytes in the log until the in-sync set holds them
    dispatch    reput: one batch, from the scan until its queues and index are written
    serve       serve: one turn that answered somebody
"""

import time
from collections import deque
from enum import Enum
from typing import Final

from .positions import STAGES_AT, STAGES_LINES, Duty, Positions

BOUNDS_US: Final = tuple(4**power for power in range(12))  # upper ends of the buckets, 1 us to 4.2 s; one more is open
_BUCKETS: Final = len(BOUNDS_US) + 1
_WORDS: Final = 16  # of a stage: its buckets and the sum
_SUM: Final = _BUCKETS
_WAITING_MAX: Final = 256
APPENDS_TIMED: Final = 8
assert _BUCKETS + 1 <= _WORDS


class Stage(Enum):
    """Label, place, duty."""

    APPEND = ("append", 0, Duty.PUT)
    RECEIVE = ("receive", 1, Duty.RECEIVE)
    FLUSH = ("flush", 2, Duty.FLUSH)
    REPLICATE = ("replicate", 3, Duty.SEND)
    DISPATCH = ("dispatch", 4, Duty.REPUT)
    SERVE = ("serve", 5, Duty.SERVE)

    def __init__(self, label: str, place: int, duty: Duty) -> None:
        self.label, self.place, self.duty = label, place, duty


assert len(Stage) * _WORDS <= STAGES_LINES * 8


class StageTimes:
    """The times of one stage: `add` is its duty's alone."""

    def __init__(self, positions: Positions, stage: Stage) -> None:
        self._words = positions.words
        self._at = STAGES_AT * 8 + stage.place * _WORDS

    def add(self, ns: int, batches: int = 1) -> None:
        """A batch took so long, or each of so many."""
        power = (max(ns, 1) - 1) // 1_000  # whole us below it: a bound belongs to the bucket beneath
        self._words[self._at + min((power.bit_length() + 1) // 2, _BUCKETS - 1)] += batches
        self._words[self._at + _SUM] += ns * batches

    def counts(self) -> list[int]:
        """Batches by bucket: at most the first bound, ..., above the last one."""
        return [int(count) for count in self._words[self._at : self._at + _BUCKETS]]

    @property
    def sum_ns(self) -> int:
        return int(self._words[self._at + _SUM])


class Crossings:
    """When ends of the log were seen, until something has passed them; what comes too fast to be kept is left out."""

    def __init__(self, times: StageTimes) -> None:
        self._times = times
        self._waiting: deque[tuple[int, int]] = deque()

    def saw(self, end: int) -> None:
        """The log is so long now."""
        waiting = self._waiting
        if (not waiting or end > waiting[-1][0]) and len(waiting) < _WAITING_MAX:
            waiting.append((end, time.monotonic_ns()))

    def passed(self, offset: int) -> None:
        """Adds the time of each end up to `offset`."""
        waiting = self._waiting
        if not waiting or waiting[0][0] > offset:
            return
        now_ns = time.monotonic_ns()
        while waiting and waiting[0][0] <= offset:
            self._times.add(now_ns - waiting.popleft()[1])
