"""The duty cycle of flush: one msync over [flushed, appended), which every request that waits shares."""

import gc
from typing import ClassVar

from towline.errors import SyncFailed
from towline.limits import SLEEP_MAX_MS
from towline.log.mapped_file_queue import MappedFileQueue
from towline.node.context import Node
from towline.runtime.doorbell import Doorbell
from towline.runtime.positions import Counter, Duty, Position, State
from towline.runtime.settings_model import FlushDiskType

from .housekeeping import Housekeeper
from .policy import FlushRealTime, GroupCommit


class FlushAgent:
    duty: ClassVar[Duty] = Duty.FLUSH

    def __init__(self, node: Node) -> None:
        self._node = node
        settings = node.settings
        self._policy: GroupCommit | FlushRealTime
        if settings.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            self._policy = GroupCommit()
        else:
            self._policy = FlushRealTime(
                settings.flush_interval_commit_log,
                settings.flush_commit_log_least_pages,
                settings.flush_commit_log_thorough_interval,
            )
        self._line = node.line
        self._flushed = node.writer(Position.FLUSHED)
        self._committed = node.writer(Position.COMMITTED)
        self._failed = node.writer(Position.SYNC_FAILED)

    def on_start(self, bell: Doorbell) -> None:
        self._bell = bell
        node = self._node
        size = node.settings.mapped_file_size_commit_log
        self._segments = MappedFileQueue(node.store.commitlog, size, writable=True)
        self._segments.load()
        self._ringer = node.ringer(Duty.PUT, Duty.RECEIVE, Duty.REPUT, Duty.SEND)
        self._housekeeper = Housekeeper(node)
        self._housekeeper.start()
        gc.freeze()

    def do_work(self) -> int:
        now = self._node.clock.monotonic_ms()
        appended, flushed = self._node.positions.get(Position.APPENDED), self._join(self._flushed.get())
        if self._failed.get() or not self._policy.due(appended, flushed, now):
            return 0
        self._sync(flushed, appended)
        self._policy = self._policy.synced(now, thorough=False)
        return 1

    def sleep_ms(self) -> int:
        return min(SLEEP_MAX_MS, self._policy.sleep_ms(self._node.clock.monotonic_ms()))

    def wait(self, timeout_ms: int) -> bool:
        return self._bell.wait(timeout_ms)

    def drain(self) -> bool:
        """The writer has gone: everything is synced, queues included, and the state files say so."""
        appended, flushed = self._node.positions.get(Position.APPENDED), self._join(self._flushed.get())
        if appended > flushed and not self._failed.get():
            self._sync(flushed, appended)
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

    def _sync(self, start: int, end: int) -> None:
        """A segment is synced to its end before its successor; `end` was read before the first sync (H5)."""
        self._line.state = State.SYNCING
        timestamp = self._node.positions.get(Position.STORE_TIMESTAMP)
        size = self._node.settings.mapped_file_size_commit_log
        try:
            while start < end:
                segment = self._segments.find(start)
                if segment is None:
                    self._segments.refresh()
                    segment = self._segments.find(start)
                assert segment is not None, f"bytes at {start} were published without a segment"
                base = start - start % size
                stop = min(end, base + size)
                segment.sync(start - base, stop - base)
                rolled = stop == base + size
                start = stop
                self._committed.advance(stop)
                self._flushed.advance(stop)
                self._housekeeper.note(timestamp, rolled=rolled)
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


def build(node: Node) -> FlushAgent:
    return FlushAgent(node)
