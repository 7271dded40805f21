"""Closes deleted files so that their disk blocks are freed."""

from typing import Final

from towline.log.commitlog.commit_log import CommitLogReader

from .consume_queue import ConsumeQueueFiles

SWEEP_MS: Final = 1000


class FileReleaser:
    """`release` is called once per duty cycle. Times are ms of a monotonic clock."""

    def __init__(self, log: CommitLogReader, queues: ConsumeQueueFiles) -> None:
        self._log, self._queues = log, queues
        self._log_min = -1
        self._swept_ms = 0

    def release(self, log_min: int, now_ms: int) -> None:
        """Closes segments below the log's minimum, deleted files, and files that were not read lately."""
        if log_min != self._log_min:
            self._log_min = log_min
            self._log.release_below(log_min)
            self._log.refresh()
        if now_ms - self._swept_ms >= SWEEP_MS:
            self._swept_ms = now_ms
            self._log.queue.sweep()
            self._queues.close_removed()
        self._log.release_idle(now_ms)
