"""FlushRealTimeService and GroupCommitService: sync the segment files to disk (spec 6.3)."""

import threading
import time
from collections.abc import Callable
from typing import Final

from towline.errors import SyncFailed
from towline.limits import REST_MAX_MS
from towline.node.process.context import Node
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Counter, Duty, Position, State
from towline.runtime.settings import Settings
from towline.runtime.settings_model import FlushDiskType
from towline.runtime.stage_times import Stage, StageTimes

from .housekeeping import Housekeeper
from .open_segments import OpenSegments
from .policy import FlushRealTime, GroupCommit

JOIN_MAX_S: Final = 10.0
# Whoever is woken at each of thousands of syncs a second takes a core from those who wait for the next one.
WAKE_EVERY_NS: Final = 1_000_000
SLAVE_CHECK_EVERY_NS: Final = 5_000_000  # between two checks whether a slave is connected


class Syncer:
    """The owner of FLUSHED, and without a pool of COMMITTED, which is then the same. For one thread at a time."""

    def __init__(self, node: Node, housekeeper: Housekeeper, *, pooled: bool) -> None:
        self._node, self._housekeeper, self._pooled = node, housekeeper, pooled
        self._line = node.line
        self._flushed = node.writer(Position.FLUSHED)
        self._committed = node.writer(Position.COMMITTED)
        self._failed = node.writer(Position.SYNC_FAILED)
        self._size = node.settings.mapped_file_size_commit_log
        self._segments = OpenSegments(node.store.commitlog, self._size, commits=False)
        self._segments.refresh(self._flushed.get())
        self._seen_allocated = -1
        self._policy = policy_of(node.settings, node.clock.monotonic_ms(), pooled=pooled)
        self._times = StageTimes(node.positions, Stage.FLUSH)
        brokers = (Duty.ROCKETMQ_HA,) if node.settings.rocketmq_ha_acks else ()
        self._doorbells = node.ringer(Duty.PUT, Duty.RECEIVE, *brokers)  # who acknowledges, and whom put waits for
        self._sender_doorbell = node.ringer(Duty.SEND)
        self._others_doorbells = node.ringer(Duty.REPUT, Duty.SEND)
        self._others_owed = self._slave_connected = False
        self._others_woke_ns = self._slaves_checked_ns = 0

    def cycle(self, written: int, timestamp: int, *, all_of_it: bool = False) -> int:
        """Syncs [FLUSHED, written) when it is due. `timestamp` is the store time of some record before `written`."""
        if self._others_owed:
            self._wake_others(time.monotonic_ns())
        flushed = self._skip_to_log_min(self._flushed.get())
        self._open_new_segments(flushed)
        now = self._node.clock.monotonic_ms()
        wanted = all_of_it or self._node.positions.get(Position.SYNC_WANTED) > flushed
        due = written > flushed if wanted else self._policy.due(written, flushed, now)
        if self._failed.get() or not due:
            return 0
        self.sync(flushed, written, timestamp)
        self._policy = self._policy.after(now)
        return 1

    def sleep_ms(self, written: int) -> int:
        due_ms = self._policy.sleep_ms(written, self._flushed.get(), self._node.clock.monotonic_ms())
        return min(1 if self._others_owed else REST_MAX_MS, due_ms)

    def sync(self, start: int, end: int, timestamp: int) -> None:
        """Syncs [start, end), each segment to its end before the next; `end` was read before the first sync (H5)."""
        self._line.say(State.SYNCING)
        began_ns = time.monotonic_ns()
        self._line.turn_began_ns = began_ns  # with a pool another thread beats meanwhile
        try:
            for segment, first, stop in self._segments.ranges(start, end):
                base = first - first % self._size
                if ARMED:
                    reach("flush.before_sync")
                segment.mapped.sync(first - base, stop - base)
                if ARMED:
                    reach("flush.after_sync")
                if not self._pooled:
                    self._committed.advance(stop)
                self._flushed.advance(stop)
                self._housekeeper.log_synced(timestamp if stop == end else 0, rolled=stop == base + self._size)
        except SyncFailed as error:
            self.fail(error)
        self._line.turn_began_ns = 0
        self._line.say(State.RUNNING)
        self._line.count(Counter.SYNCS)
        self._times.add(time.monotonic_ns() - began_ns)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        """Wakes the processes that wait for FLUSHED: those with waiting clients at once, the others at intervals."""
        self._doorbells.ring()
        now_ns = time.monotonic_ns()
        if now_ns - self._slaves_checked_ns >= SLAVE_CHECK_EVERY_NS:
            self._slaves_checked_ns = now_ns
            self._slave_connected = any(slave.connected for slave in self._node.positions.slaves())
        if self._slave_connected:
            self._sender_doorbell.ring()
        self._wake_others(now_ns)

    def _wake_others(self, now_ns: int) -> None:
        self._others_owed = now_ns - self._others_woke_ns < WAKE_EVERY_NS
        if not self._others_owed:
            self._others_woke_ns = now_ns
            self._others_doorbells.ring()

    def fail(self, error: SyncFailed) -> None:
        """Stops syncing for good: the kernel takes pages whose sync failed for clean, so nothing can be promised
        (H5)."""
        self._failed.advance(1)
        self._node.log.critical("%s", error)
        self._housekeeper.sync_failed()

    def _skip_to_log_min(self, flushed: int) -> int:
        """Moves FLUSHED to the log's beginning where an empty slave joined in the middle of its master's log."""
        low = self._node.positions.get(Position.LOG_MIN)
        if flushed >= low:
            return flushed
        if not self._pooled:
            self._committed.advance(low)
        self._flushed.advance(low)
        return low

    def _open_new_segments(self, flushed: int) -> None:
        """Opens segments long before their first sync: a write-back error reaches only those who have the file open
        (H5)."""
        allocated = self._node.positions.get(Position.ALLOCATED)
        if allocated != self._seen_allocated:
            self._seen_allocated = allocated
            self._segments.refresh(flushed)


class SyncThread:
    """Syncs on its own thread where there is a pool: a slow disk then blocks no commits and no reader of them."""

    def __init__(self, syncer: Syncer, written: Callable[[], tuple[int, int]]) -> None:
        """`written` returns the end of what the segment files hold, and the store time of a record in it."""
        self._syncer, self._written = syncer, written
        self._wake = threading.Event()
        self._stopped = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="syncing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def cycle(self, *, all_of_it: bool = False) -> int:
        written, timestamp = self._written()
        return self._syncer.cycle(written, timestamp, all_of_it=all_of_it)

    def wake(self) -> None:
        """Wakes the thread after a commit."""
        self._wake.set()

    def check(self) -> None:
        """Raises the error that ended the thread, so that the process exits and is started again."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_MAX_S)

    def _run(self) -> None:
        try:
            while not self._stopped:
                if not self.cycle():
                    self._wake.wait(self._syncer.sleep_ms(self._written()[0]) / 1000)
                    self._wake.clear()
        except BaseException as error:
            self._error = error


def policy_of(settings: Settings, now_ms: int, *, pooled: bool) -> GroupCommit | FlushRealTime:
    """The policy of syncs. Under ASYNC_FLUSH a put or a commit ends the pause only if it wakes flush.

    The first pause begins now: after a kill much may be unsynced, and its sync would delay the start.
    """
    if settings.flush_disk_type is FlushDiskType.SYNC_FLUSH:
        return GroupCommit()
    return FlushRealTime(
        settings.flush_interval_commit_log,
        settings.flush_commit_log_least_pages,
        settings.flush_commit_log_thorough_interval,
        timed=settings.flush_commit_log_timed or not (pooled or settings.wake_flush_when_put_message),
        last_ms=now_ms,
        last_thorough_ms=now_ms,
    )
