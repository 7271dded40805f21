"""When to sync the CommitLog: pure decisions (spec 6.2, 6.3)."""

from dataclasses import dataclass

from towline.limits import PAGE


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """SYNC_FLUSH: whatever was appended is synced at once; what arrives meanwhile shares the next sync."""

    def due(self, appended: int, flushed: int, now_ms: int) -> bool:
        return appended > flushed

    def sleep_ms(self, now_ms: int) -> int:
        return 1 << 30

    def synced(self, now_ms: int, thorough: bool) -> "GroupCommit":
        return self


@dataclass(frozen=True, slots=True)
class FlushRealTime:
    """ASYNC_FLUSH: every `interval_ms` when `least_pages` are dirty, thoroughly every `thorough_ms`."""

    interval_ms: int
    least_pages: int
    thorough_ms: int
    last_ms: int = 0
    last_thorough_ms: int = 0

    def due(self, appended: int, flushed: int, now_ms: int) -> bool:
        if appended <= flushed or now_ms - self.last_ms < self.interval_ms:
            return False
        return self._thorough(now_ms) or appended // PAGE - flushed // PAGE >= self.least_pages

    def sleep_ms(self, now_ms: int) -> int:
        return max(1, self.last_ms + self.interval_ms - now_ms)

    def synced(self, now_ms: int, thorough: bool) -> "FlushRealTime":
        last_thorough = now_ms if thorough or self._thorough(now_ms) else self.last_thorough_ms
        return FlushRealTime(self.interval_ms, self.least_pages, self.thorough_ms, now_ms, last_thorough)

    def _thorough(self, now_ms: int) -> bool:
        return now_ms - self.last_thorough_ms >= self.thorough_ms


@dataclass(frozen=True, slots=True)
class QueueFlush:
    """FlushConsumeQueueService: which queues are synced in a round (spec 6.5)."""

    least_pages: int
    thorough_ms: int

    def thorough(self, last_thorough_ms: int, now_ms: int) -> bool:
        return now_ms - last_thorough_ms >= self.thorough_ms
