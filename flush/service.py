"""The duty cycle of flush: one msync over [flushed, written), which every request that waits shares.

Written is what the segment files hold: APPENDED, or with a transient pool COMMITTED, which is then published here too.
"""

import gc
from typing import ClassVar

from towline.errors import SyncFailed
from towline.limits import SLEEP_MAX_MS
from towline.node.context import Node
from towline.node.transient import pool_of
from towline.runtime.doorbell import Doorbell
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Counter, Duty, Position, State
from towline.runtime.settings import Settings
from towline.runtime.settings_model import FlushDiskType

from .committing import Committer
from .housekeeping import Housekeeper
from .policy import FlushRealTime, GroupCommit
from .segments import OpenSegments


class FlushAgent:
    duty: ClassVar[Duty] = Duty.FLUSH

    def __init__(self, node: Node) -> None:
        self._node = node
        self._line = node.line
        self._flushed = node.writer(Position.FLUSHED)
        self._committed = node.writer(Position.COMMITTED)
        self._failed = node.writer(Position.SYNC_FAILED)
        self._seen_allocated = -1
        self._commit_failed = False

    def on_start(self, bell: Doorbell) -> None:
        self._bell = bell
        node = self._node
        pool = pool_of(node)
        size = node.settings.mapped_file_size_commit_log
        self._segments = OpenSegments(node.store.commitlog, size, commits=pool is not None)
        self._segments.look(self._flushed.get())
        self._committer = None if pool is None else Committer(node, pool, self._segments)
        self._policy = policy_of(node.settings, pooled=pool is not None)
        self._ringer = node.ringer(Duty.PUT, Duty.RECEIVE, Duty.REPUT, Duty.SEND)
        self._housekeeper = Housekeeper(node)
        self._housekeeper.start()
        gc.freeze()

    def do_work(self) -> int:
        now = self._node.clock.monotonic_ms()
        flushed = self._join(self._flushed.get())
        self._open_new_segments(flushed)
        timestamp, appended = self._newest(), self._node.positions.get(Position.APPENDED)
        copied = self._commit(appended, timestamp, now)
        written, timestamp = self._written(appended, timestamp)
        if self._failed.get() or not self._policy.due(written, flushed, now):
            return copied
        self._sync(flushed, written, timestamp)
        self._policy = self._policy.after(now)
        return 1

    def sleep_ms(self) -> int:
        now, appended = self._node.clock.monotonic_ms(), self._node.positions.get(Position.APPENDED)
        written, _ = self._written(appended, 0)
        longest = min(SLEEP_MAX_MS, self._policy.sleep_ms(written, self._flushed.get(), now))
        return longest if self._committer is None else min(longest, self._committer.sleep_ms(appended, now))

    def wait(self, timeout_ms: int) -> bool:
        return self._bell.wait(timeout_ms)

    def drain(self) -> bool:
        """The writer has gone: everything is committed and synced, queues included, and the state files say so."""
        flushed = self._join(self._flushed.get())
        timestamp, appended = self._newest(), self._node.positions.get(Position.APPENDED)
        self._commit(appended, timestamp, self._node.clock.monotonic_ms(), all_of_it=True)
        written, timestamp = self._written(appended, timestamp)
        if written > flushed and not self._failed.get():
            self._sync(flushed, written, timestamp)
        self._housekeeper.finish()
        return True

    def on_close(self) -> None:
        if hasattr(self, "_housekeeper"):
            self._housekeeper.stop()

    def _join(self, flushed: int) -> int:
        """Where an empty slave has joined its master's log in the middle, nothing below was ever here."""
        low = self._node.positions.get(Position.LOG_MIN)
        if flushed >= low:
            return flushed
        self._committed.advance(low)
        self._flushed.advance(low)
        return low

    def _open_new_segments(self, flushed: int) -> None:
        """Long before the first sync, as errors of write-back are told only to whoever has the file open (H5)."""
        allocated = self._node.positions.get(Position.ALLOCATED)
        if allocated != self._seen_allocated:
            self._seen_allocated = allocated
            self._segments.look(flushed)

    def _newest(self) -> int:
        """Store time of a record that lies before APPENDED as it is read after this: both are stored in that order.

        A receiver publishes no time of its own, so on a slave it is that of the newest dispatched record.
        """
        positions = self._node.positions
        return max(positions.get(Position.STORE_TIMESTAMP), positions.get(Position.DISPATCHED_TIMESTAMP))

    def _written(self, appended: int, timestamp: int) -> tuple[int, int]:
        """What the segment files hold, and the store time of a record in it."""
        if self._committer is None:
            return appended, timestamp
        return self._committed.get(), self._committer.timestamp

    def _commit(self, appended: int, timestamp: int, now: int, *, all_of_it: bool = False) -> int:
        """Bytes that were committed. A commit that failed is not tried again by this process."""
        if self._committer is None or self._commit_failed:
            return 0
        try:
            return self._committer.turn(appended, timestamp, now, all_of_it=all_of_it)
        except SyncFailed as error:
            self._commit_failed = True
            self._fail(error)
            return 0

    def _sync(self, start: int, end: int, timestamp: int) -> None:
        """A segment is synced to its end before its successor; `end` was read before the first sync (H5)."""
        self._line.state = State.SYNCING
        size = self._node.settings.mapped_file_size_commit_log
        try:
            for segment, first, stop in self._segments.pieces(start, end):
                base = first - first % size
                if ARMED:
                    reach("flush.before_sync")
                segment.mapped.sync(first - base, stop - base)
                if ARMED:
                    reach("flush.after_sync")
                if self._committer is None:
                    self._committed.advance(stop)
                self._flushed.advance(stop)
                self._housekeeper.note(timestamp if stop == end else 0, rolled=stop == base + size)
        except SyncFailed as error:
            self._fail(error)
        self._line.state = State.RUNNING
        self._line.count(Counter.SYNCS)
        self._ringer.ring()

    def _fail(self, error: SyncFailed) -> None:
        """Pages that failed to sync are clean to the kernel now: nothing more may be promised (H5)."""
        self._failed.advance(1)
        self._node.log.critical("%s", error)
        self._housekeeper.sync_failed()


def policy_of(settings: Settings, *, pooled: bool) -> GroupCommit | FlushRealTime:
    """When the segment files are synced. Under ASYNC_FLUSH a put, or a commit, ends the pause only if it wakes us."""
    if settings.flush_disk_type is FlushDiskType.SYNC_FLUSH:
        return GroupCommit()
    return FlushRealTime(
        settings.flush_interval_commit_log,
        settings.flush_commit_log_least_pages,
        settings.flush_commit_log_thorough_interval,
        timed=settings.flush_commit_log_timed or not (pooled or settings.wake_flush_when_put_message),
    )


def build(node: Node) -> FlushAgent:
    return FlushAgent(node)
