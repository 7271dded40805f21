"""Small files of the store root: how one is replaced whole, and the `abort` file."""

import os
from pathlib import Path
from typing import Final

from towline.errors import DiskFull, StoreNotWritable, SyncFailed

from .segment_files import FULL_ERRNOS, sync_directory, sync_file

ABORT_NAME: Final = "abort"


def write_new(path: Path, data: bytes) -> None:
    """Writes and syncs a file, not its directory. Raises DiskFull, StoreNotWritable, SyncFailed."""
    try:
        path.write_bytes(data)
    except OSError as error:
        if error.errno in FULL_ERRNOS:
            raise DiskFull(str(path), len(data)) from error
        raise StoreNotWritable(str(path), error.strerror or str(error)) from error
    sync_file(path)


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the file at `path` by one that holds `data`: after a crash it is the old file or the new one, whole.

    Not for a file that somebody has mapped or keeps open. Raises DiskFull, StoreNotWritable, SyncFailed.
    """
    staged = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        write_new(staged, data)
    except (DiskFull, StoreNotWritable, SyncFailed):
        staged.unlink(missing_ok=True)  # half a file on a full disk
        raise
    staged.replace(path)
    sync_directory(path.parent)


class AbortFile:
    """`abort` stands in the store root while a node runs: a start that finds it follows an unclean stop (spec 1.2)."""

    def __init__(self, store: Path) -> None:
        self.path = store / ABORT_NAME

    def create(self, pid: int) -> None:
        """Writes `pid` in decimal digits, durably. Raises DiskFull, StoreNotWritable, SyncFailed."""
        write_new(self.path, str(pid).encode())
        sync_directory(self.path.parent)

    def exists(self) -> bool:
        return self.path.exists()

    def remove(self) -> None:
        """The stop was clean: every record is in its queue (spec 8.3) and everything is synced."""
        self.path.unlink(missing_ok=True)
        sync_directory(self.path.parent)
