"""The `reserve` file: blocks kept in the store root, freed when the disk is full.

Then state files, queues and a clean stop still work. A broker of RocketMQ does not read the file.
"""

import os
from pathlib import Path
from typing import Final

from towline.errors import DiskFull, SyncFailed
from towline.log.files.segment_files import create_segment, sync_directory

from .cleaning import DiskUse

NAME: Final = "reserve"


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
        """Whether it is held now. What has another size, or was cut short by a kill, is made anew. Never raises."""
        if self.held:
            return True
        try:
            self.path.unlink(missing_ok=True)
            if self.size:
                create_segment(self.path.parent, self.size, NAME)
        except (DiskFull, SyncFailed, OSError):
            return False
        return self.size > 0

    def give_up(self) -> bool:
        """Frees its blocks. Whether there was anything to free."""
        if not self.path.exists():
            return False
        self.path.unlink()
        sync_directory(self.path.parent)
        return True

    def give_up_when_full(self) -> bool:
        """For a start: nothing of the node runs yet, and the first state file needs room."""
        return disk_use(self.path.parent).available < self.size and self.give_up()


def disk_use(path: Path) -> DiskUse:
    """The file system on which `path` lies."""
    found = os.statvfs(path)
    return DiskUse((found.f_blocks - found.f_bfree) * found.f_frsize, found.f_bavail * found.f_frsize)
