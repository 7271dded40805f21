"""Dispatch to IndexFiles. A full disk pauses indexing while queues go on; missed records are scanned again (H7)."""

import logging

from towline.clock import Clock
from towline.errors import DiskFull
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader, store_time
from towline.log.commitlog.dispatch import Batch, DispatchScan
from towline.log.queues.index_service import IndexService

RETRY_MS = 1000


class IndexDispatcher:
    """Writes the index. `position` is its end in the log, which trails DISPATCHED only while the disk is full."""

    name = "index"

    def __init__(
        self, service: IndexService, log: CommitLogReader, clock: Clock, logger: logging.Logger, position: int
    ) -> None:
        """Entries that a killed reput left beyond `position` are cut before the first put (docs/decisions/0003)."""
        self._service = service
        self._log = log
        self._clock = clock
        self._logger = logger
        self._retry_at = 0
        self._opened = False
        self._missed: DispatchScan | None = None
        self.position = position

    def put(self, batch: Batch) -> None:
        if batch.start == self.position and self._clock.monotonic_ms() >= self._retry_at:
            self._index(batch)

    def catch_up(self, dispatched: int) -> int:
        """Indexes one batch that a full disk kept out; returns 0 when nothing is missing or it is too early."""
        if self.position >= dispatched or self._clock.monotonic_ms() < self._retry_at:
            return 0
        if self._missed is None:
            self._missed = DispatchScan(self._log, QueueDirectory())
        batch = self._missed.read(self.position, dispatched)
        self._index(batch)
        done = int(self.position == batch.end)
        if self.position == dispatched:
            self._missed = None
        return done

    @property
    def paused(self) -> bool:
        """Whether a full disk prevents indexing."""
        return self._retry_at > 0

    def delete_expired(self, log_min: int) -> list[str]:
        """Removes index files without records in the log; returns their names."""
        if not self._opened:
            self._service.refresh()
        return self._service.delete_expired(log_min)

    def close(self) -> None:
        self._service.close()

    def _index(self, batch: Batch) -> None:
        try:
            if not self._opened:
                self._service.load()
                self._service.cut(self.position, lambda offset: store_time(self._log, offset))
                self._opened = True
            self._service.put(batch.log, batch.rows, batch.keys)
        except DiskFull as error:
            self._retry_at = self._clock.monotonic_ms() + RETRY_MS
            self._logger.error("indexing pauses at %d: %s", self.position, error)
            return
        self._retry_at = 0
        self.position = batch.end
