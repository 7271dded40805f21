"""CommitRealTimeService: copies the transient pool's buffers into the segment files (spec 6.3, 6.4)."""

import errno
from typing import Final

from towline.errors import SyncFailed
from towline.log.files.mapped_file import MappedFile
from towline.node.process.context import Node
from towline.node.store.transient_pool import TransientPool, copy_committed
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Counter, Duty, Position, State
from towline.runtime.settings_model import BrokerRole

from .open_segments import OpenSegments
from .policy import CommitRealTime

_ENDING: Final = (State.STOPPING, State.STOPPED)


class Committer:
    """The owner of COMMITTED where the pool is on. COMMITTED is always behind a whole record, or at a segment's end."""

    def __init__(self, node: Node, pool: TransientPool) -> None:
        settings, now = node.settings, node.clock.monotonic_ms()
        self._pool, self._clock, self._line = pool, node.clock, node.line
        self._committed = node.writer(Position.COMMITTED)
        self._segments = OpenSegments(node.store.commitlog, pool.size, commits=True)
        self._put = node.positions.duty(Duty.PUT)
        self._policy = CommitRealTime(
            settings.commit_interval_commit_log,
            # Every request of a SYNC_MASTER waits for bytes that no slave can have before they are committed.
            0 if settings.broker_role is BrokerRole.SYNC_MASTER else settings.commit_commit_log_least_pages,
            settings.commit_commit_log_thorough_interval,
            timed=not settings.wake_commit_when_put_message,
            last_ms=now,
            last_thorough_ms=now,
            segment_size=pool.size,
        )
        self._doorbells = node.ringer(Duty.REPUT, Duty.SEND, Duty.ALLOCATE)
        self._buffer: tuple[int, MappedFile] | None = None
        self._timestamp = 0  # store time of a record that is surely committed, with everything before it

    def written(self) -> tuple[int, int]:
        """The end of what the segment files hold, and the store time of a record in it. Any thread may call it."""
        timestamp = self._timestamp  # read first, as it is stored last
        return self._committed.get(), timestamp

    def cycle(self, appended: int, timestamp: int, *, all_of_it: bool) -> int:
        """Commits when it is due, or at once what a writer that has exited left behind; returns the bytes copied.

        `timestamp` is the store time of some record before `appended`. Raises SyncFailed when a file cannot be written.
        """
        start, now_ms = self._committed.get(), self._clock.monotonic_ms()
        at_once = appended > start and (all_of_it or self._put.state in _ENDING)
        if not (at_once or self._policy.due(appended, start, now_ms)):
            return 0
        self._commit(appended, timestamp)
        self._policy = self._policy.after(now_ms)
        return appended - start

    def _commit(self, end: int, timestamp: int) -> None:
        """Copies [COMMITTED, end) and publishes it, segment by segment."""
        for segment, start, stop in self._segments.ranges(self._committed.get(), end):
            base = start - start % self._pool.size
            try:
                copy_committed(self._buffer_of(base), segment.fd, start - base, stop - base)
                if ARMED:
                    reach("flush.in_commit")
            except OSError as error:
                number = error.errno or errno.EIO
                raise SyncFailed(str(segment.mapped.path), start - base, stop - base, number, str(error)) from error
            self._committed.advance(stop)
            self._line.count(Counter.BYTES, stop - start)
            self._doorbells.ring()
        self._timestamp = timestamp

    def sleep_ms(self, appended: int) -> int:
        return self._policy.sleep_ms(appended, self._committed.get(), self._clock.monotonic_ms())

    def _buffer_of(self, base: int) -> MappedFile:
        if self._buffer is None or self._buffer[0] != base:
            if self._buffer is not None:
                self._buffer[1].release()
            self._buffer = base, self._pool.open(base, writable=False)
        return self._buffer[1]
