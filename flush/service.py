"""The duty cycle of flush: one msync over [flushed, written), which every request that waits shares.

Written is what the segment files hold: APPENDED. With a transient pool it is COMMITTED, which this process moves in its
duty cycle, while a thread of its own syncs.
"""

import gc
from typing import ClassVar

from towline.errors import SyncFailed
from towline.limits import REST_MAX_MS
from towline.node.process.context import Node
from towline.node.store.transient_pool import pool_of
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Duty, Position

from .committing import Committer
from .housekeeping import Housekeeper
from .syncing import Syncer, SyncThread


class FlushAgent:
    """The duty cycle of flush."""

    duty: ClassVar[Duty] = Duty.FLUSH

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pooled: PooledFlush | None = None

    def on_start(self, bell: Doorbell) -> None:
        self._bell = bell
        node = self._node
        pool = pool_of(node)
        self._housekeeper = Housekeeper(node)
        self._syncer = Syncer(node, self._housekeeper, pooled=pool is not None)
        if pool is not None:
            self._pooled = PooledFlush(Committer(node, pool), self._syncer)
            self._pooled.syncing.start()
        self._housekeeper.start()
        gc.freeze()

    def do_work(self) -> int:
        timestamp, appended = self._newest(), self._node.positions.get(Position.APPENDED)
        if self._pooled is not None:
            return self._pooled.cycle(appended, timestamp)
        return self._syncer.cycle(appended, timestamp)

    def sleep_ms(self) -> int:
        appended = self._node.positions.get(Position.APPENDED)
        if self._pooled is not None:
            return min(REST_MAX_MS, self._pooled.committer.sleep_ms(appended))
        return self._syncer.sleep_ms(appended)

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        return self._bell.wait(timeout_ms, rest)

    def drain(self) -> bool:
        """Commits and syncs everything after the writer has exited, queues included, and writes the state files."""
        timestamp, appended = self._newest(), self._node.positions.get(Position.APPENDED)
        if self._pooled is not None:
            self._pooled.cycle(appended, timestamp, all_of_it=True)
            self._pooled.syncing.stop()
            self._pooled.syncing.cycle(all_of_it=True)
        else:
            self._syncer.cycle(appended, timestamp, all_of_it=True)
        self._housekeeper.finish()
        return True

    def on_close(self) -> None:
        if hasattr(self, "_housekeeper"):
            self._housekeeper.stop()
        if self._pooled is not None:
            self._pooled.syncing.stop()

    def _newest(self) -> int:
        """The store time of a record before APPENDED as it is read afterwards: both are stored in that order.

        A receiver publishes no store time, so on a slave it is that of the newest dispatched record.
        """
        positions = self._node.positions
        return max(positions.get(Position.STORE_TIMESTAMP), positions.get(Position.DISPATCHED_TIMESTAMP))


class PooledFlush:
    """Commits and syncs where the log is appended to a transient pool."""

    def __init__(self, committer: Committer, syncer: Syncer) -> None:
        self.committer = committer
        self._syncer = syncer
        self.syncing = SyncThread(syncer, committer.written)
        self._failed = False

    def cycle(self, appended: int, timestamp: int, *, all_of_it: bool = False) -> int:
        """Commits what is due; returns the bytes copied. A failed commit is not tried again by this process."""
        self.syncing.check()
        if self._failed:
            return 0
        try:
            copied = self.committer.cycle(appended, timestamp, all_of_it=all_of_it)
        except SyncFailed as error:
            self._failed = True
            self._syncer.fail(error)
            return 0
        if copied:
            self.syncing.wake()
        return copied


def build(node: Node) -> FlushAgent:
    return FlushAgent(node)
