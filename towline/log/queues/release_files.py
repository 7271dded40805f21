"""Closes deleted files so that their disk blocks are freed."""

from typing import Final

from towline.log.commitlog.commit_log import CommitLogReader

from .consume_queue import ConsumeQueueFiles

SWEEP_MS: Final = 1000


class FileReleaser:
    """`turn` once per turn of the process. Times are ms of a clock that never goes back."""

    def __init__(self, log: CommitLogReader, queues: ConsumeQueueFiles) -> None:
        self._log, self._queues = log, queues
        self._log_min = -1
        self._swept_ms = 0

    def turn(self, log_min: int, now_ms: int) -> None:
        """Of segments below the log's minimum, of files that were deleted, and of what was not read lately."""
        if log_min != self._log_min:
            self._log_min = log_min
            self._log.release_below(log_min)
            self._log.refresh()
        if now_ms - self._swept_ms >= SWEEP_MS:
            self._swept_ms = now_ms
            self._log.queue.sweep()
            self._queues.close_removed()
        self._log.let_go(now_ms)
