"""Warm-up of a segment: its pages are brought into memory before the log's writer comes to them (spec 6.1).

RocketMQ writes a zero into each page. Here the segment is in the log already and its writer may be in it, so no byte is
touched: populating makes the pages present and dirty as a write would, and leaves their bytes alone.
"""

from pathlib import Path
from typing import Final

from towline.limits import MIB

from .advice import Advice
from .mapped_file import MappedFile
from .page_cache import advise_file

STEP: Final = 4 * MIB


class WarmUp:
    """One segment of `size` bytes, STEP bytes at a time from `begin` on. Holds a mapping until `release`."""

    def __init__(
        self, path: Path, size: int, *, begin: int = 0, sync_bytes: int = 0, lock: bool = False, large: bool = False
    ) -> None:
        """`sync_bytes`: write out whenever so many were populated. 0: never. `lock`: keep in memory until `release`.
        `large`: in large pages, which a sync writes out as a whole.

        Written pages do not count against the kernel's limits of dirty pages, at which it would stop the log's writer
        as well; and reserved blocks become written ones, which a later sync need not note in the journal.
        """
        self.size, self.at = size, begin
        self._sync_bytes = sync_bytes
        self._synced = begin
        self._lock = lock
        self.lock_error: OSError | None = None
        self._mapped = MappedFile.open(path, size, writable=True)
        if large:
            self._mapped.prefer_large_pages()
        advise_file(path, Advice.WILL_NEED, begin)

    def step(self, writer_at: int = 0) -> bool:
        """One step. `writer_at`: what lies before it needs no warming any more. False when nothing was left to do.

        Raises SyncFailed, StoreNotWritable. A page that cannot be locked ends the locking: see `lock_error`.
        """
        if writer_at > self.at:
            self.at = self._synced = min(writer_at, self.size)
        if self.at >= self.size:
            return False
        end = min(self.at + STEP, self.size)
        self._mapped.populate(self.at, end)
        self._lock_pages(self.at, end)
        self.at = end
        # Under the writer's hands a sync would protect the pages it is writing to, and each would fault again (H6).
        if self._sync_bytes and not writer_at and (end - self._synced >= self._sync_bytes or end == self.size):
            self._mapped.sync(self._synced, end)
            self._synced = end
        return True

    def release(self) -> None:
        """Unmaps the segment and unlocks it; its pages stay in memory as long as the kernel likes."""
        self._mapped.release()

    def _lock_pages(self, start: int, end: int) -> None:
        if self._lock and self.lock_error is None:
            try:
                self._mapped.lock(start, end)
            except OSError as error:
                self.lock_error = error


def warm(path: Path, size: int, *, sync_bytes: int = STEP) -> None:
    """All steps at once."""
    warming = WarmUp(path, size, sync_bytes=sync_bytes)
    try:
        while warming.step():
            pass
    finally:
        warming.release()
