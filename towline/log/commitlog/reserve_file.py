"""The `reserve` file: blocks kept in the store root, freed when the disk is full.

Then state files, queues and a clean stop still work. An eighth stays for the next start: who fills the disk also takes
what a running node gives up, and without room for its first state file a start is refused. A broker of RocketMQ does
not read the file.
"""

import os
from pathlib import Path
from typing import Final

from towline.errors import DiskFull, SyncFailed
from towline.log.files.segment_files import reserve, sync_directory

from .cleaning import DiskUse

NAME: Final = "reserve"
START_SHARE: Final = 8  # of how many parts one is kept for a start


class ReserveFile:
    """`size` bytes in the store root; 0: none is kept."""

    def __init__(self, store: Path, size: int) -> None:
        self.path, self.size = store / NAME, size

    @property
    def held(self) -> bool:
        """The file is there, with all its blocks."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return False
        return self.size > 0 and found.st_size == self.size and 512 * found.st_blocks >= self.size

    def make(self) -> bool:
        """Whether it is held now. Where there is no room for all of it, the start's share is kept. Never raises."""
        if self.held:
            return True
        try:
            if not self.size:
                self.path.unlink(missing_ok=True)
                return False
            try:
                self._become(self.size)
                return True
            except DiskFull:
                self._become(self._share)
        except (DiskFull, SyncFailed, OSError):
            pass
        return False

    def give_up(self) -> bool:
        """Frees its blocks but for the start's share. Whether there was anything to free. Never raises."""
        try:
            if not self.path.exists() or self.path.stat().st_size <= self._share:
                return False
            self._become(self._share)
        except (DiskFull, SyncFailed, OSError):  # what was freed is free all the same
            return False
        return True

    def give_up_when_full(self) -> bool:
        """For a start, which needs room for its first state file: frees all of it where less than its size is left."""
        if disk_use(self.path.parent).available >= self.size or not self.path.exists():
            return False
        self.path.unlink()
        sync_directory(self.path.parent)
        return True

    @property
    def _share(self) -> int:
        return self.size // START_SHARE

    def _become(self, size: int) -> None:
        """Gives the file this size, with all its blocks. Raises DiskFull, SyncFailed, OSError."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(fd, size)
            reserve(fd, 0, size)
            os.fsync(fd)
        finally:
            os.close(fd)
        sync_directory(self.path.parent)


def disk_use(path: Path) -> DiskUse:
    """The file system on which `path` lies."""
    found = os.statvfs(path)
    return DiskUse((found.f_blocks - found.f_bfree) * found.f_frsize, found.f_bavail * found.f_frsize)
