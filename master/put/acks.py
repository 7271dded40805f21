"""When a stored request may be answered, and with what: pure, decided from positions and the time alone."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from towline.format.wire.status import PutStatus


@dataclass(frozen=True, slots=True)
class Promise:
    """What PUT_OK means under the settings: on this disk, and/or on the in-sync slaves."""

    flushed: bool
    replicated: bool
    flush_timeout_ms: int
    slave_timeout_ms: int


class Answers(Protocol):
    """PUT_OK to requests that were stored, encoded, and how it gets to who sent them."""

    def send(self, first: int, count: int, status: PutStatus) -> None:
        """To so many of them, from number `first` on; another status is told instead."""
        ...


@dataclass(slots=True)
class Stored:
    """Requests that were stored in one call and wait for their answers since `stored_ms`.

    `ends` are the log's ends behind each of them. Times are monotonic; they came at `arrived_ms`.
    """

    ends: Sequence[int]
    stored_ms: int
    answers: Answers
    arrived_ms: Sequence[int]


@dataclass(frozen=True, slots=True)
class Progress:
    """Positions as read once per turn, and how long no slave has been connected (0 while one is).

    `leads`: this node may acknowledge (H19). `fenced`: it never will again, because another epoch was promised.
    """

    flushed: int
    replicated: int
    slaveless_ms: int
    leads: bool = True
    fenced: bool = False


def verdict(promise: Promise, end: int, stored_ms: int, progress: Progress, now_ms: int) -> PutStatus | None:
    """The status to answer with, None while it still waits. Both waits run side by side; the slave's failure wins.

    Without leadership nothing is promised, wherever it lies: FLUSH_SLAVE_TIMEOUT, in time or, once fenced, at once.
    """
    waited = now_ms - stored_ms
    if progress.fenced or not progress.leads:
        over = progress.fenced or waited >= promise.slave_timeout_ms
        return PutStatus.FLUSH_SLAVE_TIMEOUT if over else None
    flushed = not promise.flushed or progress.flushed >= end
    replicated = not promise.replicated or progress.replicated >= end
    if flushed and replicated:
        return PutStatus.PUT_OK
    flush_over = flushed or waited >= promise.flush_timeout_ms
    slave_over = replicated or max(waited, progress.slaveless_ms) >= promise.slave_timeout_ms
    if not (flush_over and slave_over):
        return None
    if replicated:
        return PutStatus.FLUSH_DISK_TIMEOUT
    return PutStatus.SLAVE_NOT_AVAILABLE if progress.slaveless_ms else PutStatus.FLUSH_SLAVE_TIMEOUT


class Waiting:
    """Stored requests in the order of the log, which is the order in which they can be answered."""

    def __init__(self, promise: Promise) -> None:
        self._promise = promise
        self._queue: deque[Stored] = deque()
        self._first = 0  # of the oldest ones, the first that has no answer
        self._count = 0
        self.end = 0  # of the log behind the last one that was added

    def __len__(self) -> int:
        """Requests."""
        return self._count

    def add(self, stored: Stored) -> None:
        assert stored.ends[0] > self.end
        self.end = stored.ends[-1]
        self._count += len(stored.ends)
        self._queue.append(stored)

    def release(self, progress: Progress, now_ms: int) -> Iterator[tuple[Stored, int, int, PutStatus]]:
        """Those that can be answered now, of each so many from one on; the first that must wait keeps all behind it."""
        while self._queue:
            stored, first = self._queue[0], self._first
            status = verdict(self._promise, stored.ends[first], stored.stored_ms, progress, now_ms)
            if status is None:
                return
            last = self._alike(stored.ends, first, progress)
            self._first = last
            self._count -= last - first
            if last == len(stored.ends):
                self._queue.popleft()
                self._first = 0
            yield stored, first, last - first, status

    def _alike(self, ends: Sequence[int], first: int, progress: Progress) -> int:
        """The first one behind `first` of which another verdict is possible: they were stored at the same time."""
        last = len(ends)
        for asked, reached in (
            (self._promise.flushed, progress.flushed),
            (self._promise.replicated, progress.replicated),
        ):
            if asked and ends[first] <= reached < ends[last - 1]:
                last = bisect_right(ends, reached, first, last)
        return last

    def due_ms(self, now_ms: int) -> int:
        """Until the oldest request's next time-out; large when none waits."""
        if not self._queue:
            return 1 << 30
        stored_ms, promise = self._queue[0].stored_ms, self._promise
        ends = (stored_ms + promise.flush_timeout_ms, stored_ms + promise.slave_timeout_ms)
        return min((end - now_ms for end in ends if end > now_ms), default=1)
