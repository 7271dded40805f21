"""Policies of commits and syncs of the CommitLog: pure decisions (spec 6.2, 6.3)."""

from dataclasses import dataclass, replace
from typing import Final, Self

from towline.limits import PAGE

FAR_MS: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """SYNC_FLUSH: appended bytes are synced at once; bytes that arrive meanwhile share the next sync."""

    def due(self, end: int, done: int, now_ms: int) -> bool:
        return end > done

    def sleep_ms(self, end: int, done: int, now_ms: int) -> int:
        return FAR_MS

    def after(self, now_ms: int) -> Self:
        return self


@dataclass(frozen=True, slots=True)
class TimedPolicy:
    """Due every `interval_ms` with `least_pages` to do, and every `thorough_ms` with any byte.

    `timed`: the interval is full. Otherwise it ends as soon as there are enough pages: the appender wakes flush.
    """

    interval_ms: int
    least_pages: int
    thorough_ms: int
    timed: bool = True
    last_ms: int = 0
    last_thorough_ms: int = 0

    def due(self, end: int, done: int, now_ms: int) -> bool:
        if end <= done or (self.timed and not self._over(now_ms)):
            return False
        return self._thorough(now_ms) or end // PAGE - done // PAGE >= self.least_pages

    def sleep_ms(self, end: int, done: int, now_ms: int) -> int:
        """Milliseconds until it is due by the clock, with what there is now."""
        if end <= done:
            return FAR_MS
        thorough = max(self.last_thorough_ms + self.thorough_ms, self.last_ms + self.interval_ms * self.timed)
        enough = end // PAGE - done // PAGE >= self.least_pages
        return max(1, (self.last_ms + self.interval_ms if enough else thorough) - now_ms)

    def after(self, now_ms: int) -> Self:
        """The policy after a run at that time."""
        last_thorough_ms = now_ms if self._thorough(now_ms) else self.last_thorough_ms
        return replace(self, last_ms=now_ms, last_thorough_ms=last_thorough_ms)

    def _over(self, now_ms: int) -> bool:
        return now_ms - self.last_ms >= self.interval_ms

    def _thorough(self, now_ms: int) -> bool:
        return now_ms - self.last_thorough_ms >= self.thorough_ms


@dataclass(frozen=True, slots=True)
class FlushRealTime(TimedPolicy):
    """ASYNC_FLUSH: the policy of FlushRealTimeService."""


@dataclass(frozen=True, slots=True)
class CommitRealTime(TimedPolicy):
    """Transient pool: the policy of CommitRealTimeService. A full segment is due at once: the writer may wait for its
    buffer."""

    segment_size: int = 1 << 30

    def due(self, end: int, done: int, now_ms: int) -> bool:
        full = end // self.segment_size > done // self.segment_size
        return full or TimedPolicy.due(self, end, done, now_ms)


@dataclass(frozen=True, slots=True)
class QueueFlush:
    """The policy of FlushConsumeQueueService: which queues are synced in a round (spec 6.5)."""

    interval_ms: int
    least_pages: int
    thorough_ms: int
    last_ms: int = 0
    last_thorough_ms: int = 0

    def due(self, now_ms: int) -> bool:
        return now_ms - self.last_ms >= self.interval_ms

    def thorough(self, now_ms: int) -> bool:
        """Whether every queue is due, however little of it is dirty."""
        return now_ms - self.last_thorough_ms >= self.thorough_ms

    def least_bytes(self, *, thorough: bool) -> int:
        """The dirty bytes from which a queue is worth a sync."""
        return 1 if thorough else max(1, self.least_pages * PAGE)

    def after(self, now_ms: int, *, thorough: bool) -> Self:
        return replace(self, last_ms=now_ms, last_thorough_ms=now_ms if thorough else self.last_thorough_ms)
