"""Decides from positions and time when a stored request is acknowledged, and with which status."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from towline.format.wire.status import PutStatus
from towline.runtime.settings import Settings
from towline.runtime.settings_model import FlushDiskType


@dataclass(frozen=True, slots=True)
class AckPolicy:
    """The settings behind PUT_OK: whether it needs a sync of this disk, the in-sync slaves, or both."""

    flushed: bool
    replicated: bool
    flush_timeout_ms: int
    slave_timeout_ms: int


def ack_policy(settings: Settings) -> AckPolicy:
    return AckPolicy(
        flushed=settings.flush_disk_type is FlushDiskType.SYNC_FLUSH,
        replicated=settings.waits_for_slaves,
        flush_timeout_ms=settings.sync_flush_timeout,
        slave_timeout_ms=settings.slave_timeout,
    )


class Answers(Protocol):
    """Encoded PUT_OK answers of stored requests, and the way to their senders."""

    def send(self, first: int, count: int, status: PutStatus) -> None:
        """Sends `count` answers from number `first` on, with `status` in place of PUT_OK."""
        ...


@dataclass(slots=True)
class PendingBatch:
    """Requests that one call has stored and that are not acknowledged yet.

    `ends` are the log's ends behind each request. Times are monotonic; `received_ms` is one per request.
    """

    ends: Sequence[int]
    stored_ms: int
    answers: Answers
    received_ms: Sequence[int]


@dataclass(frozen=True, slots=True)
class Progress:
    """The positions as read once per cycle. `slaveless_ms`: for how long no slave has been connected, 0 while one is.

    `leads`: this node may acknowledge (H19). `fenced`: it never may again, because another epoch was promised.
    """

    flushed: int
    replicated: int
    slaveless_ms: int
    leads: bool = True
    fenced: bool = False


def ack_status(policy: AckPolicy, end: int, stored_ms: int, progress: Progress, now_ms: int) -> PutStatus | None:
    """The status to answer with, or None while the request still waits for the disk or the slaves.

    Both waits run side by side; when both fail the slave's status is sent. A node that does not lead acknowledges
    nothing: it answers FLUSH_SLAVE_TIMEOUT, at the time-out or, once fenced, at once.
    """
    waited = now_ms - stored_ms
    if progress.fenced or not progress.leads:
        over = progress.fenced or waited >= policy.slave_timeout_ms
        return PutStatus.FLUSH_SLAVE_TIMEOUT if over else None
    flushed = not policy.flushed or progress.flushed >= end
    replicated = not policy.replicated or progress.replicated >= end
    if flushed and replicated:
        return PutStatus.PUT_OK
    flush_over = flushed or waited >= policy.flush_timeout_ms
    slave_over = replicated or max(waited, progress.slaveless_ms) >= policy.slave_timeout_ms
    if not (flush_over and slave_over):
        return None
    if replicated:
        return PutStatus.FLUSH_DISK_TIMEOUT
    return PutStatus.SLAVE_NOT_AVAILABLE if progress.slaveless_ms else PutStatus.FLUSH_SLAVE_TIMEOUT


class PendingAcks:
    """Stored requests in the order of the log, which is also the order of their acknowledgements."""

    def __init__(self, policy: AckPolicy) -> None:
        self._policy = policy
        self._queue: deque[PendingBatch] = deque()
        self._first = 0  # of the oldest ones, the first that has no answer
        self._count = 0
        self.end = 0  # of the log behind the last one that was added

    def __len__(self) -> int:
        """The number of requests."""
        return self._count

    def add(self, stored: PendingBatch) -> None:
        """Behind those that wait: what was stored before them, and is asked for again, ends where the last of them
        does."""
        assert stored.ends[0] >= self.end
        self.end = stored.ends[-1]
        self._count += len(stored.ends)
        self._queue.append(stored)

    def release(self, progress: Progress, now_ms: int) -> Iterator[tuple[PendingBatch, int, int, PutStatus]]:
        """Yields (batch, first, count, status) of requests that can be answered now; one that must wait blocks all
        behind it."""
        while self._queue:
            stored, first = self._queue[0], self._first
            status = ack_status(self._policy, stored.ends[first], stored.stored_ms, progress, now_ms)
            if status is None:
                return
            last = self._same_status_end(stored.ends, first, progress)
            self._first = last
            self._count -= last - first
            if last == len(stored.ends):
                self._queue.popleft()
                self._first = 0
            yield stored, first, last - first, status

    def _same_status_end(self, ends: Sequence[int], first: int, progress: Progress) -> int:
        """The first request behind `first` whose status may differ; all of a batch were stored at the same time."""
        last = len(ends)
        for asked, reached in (
            (self._policy.flushed, progress.flushed),
            (self._policy.replicated, progress.replicated),
        ):
            if asked and ends[first] <= reached < ends[last - 1]:
                last = bisect_right(ends, reached, first, last)
        return last

    def due_ms(self, now_ms: int) -> int:
        """Milliseconds until the next time-out of the oldest request; a large number when none waits."""
        if not self._queue:
            return 1 << 30
        stored_ms, policy = self._queue[0].stored_ms, self._policy
        ends = (stored_ms + policy.flush_timeout_ms, stored_ms + policy.slave_timeout_ms)
        return min((end - now_ms for end in ends if end > now_ms), default=1)
