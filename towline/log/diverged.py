"""`diverged/`: bytes that recovery or a truncation cuts off the log are copied here first, never deleted.

Copied, never moved: the segment may be mapped, and stays in its place. A file is named by the log offset of its first
byte, the time in epoch ms, and what it is: `00000000000000004260-1700000000123.log`.
"""

import os
from pathlib import Path
from typing import Final

from towline.errors import DiskFull, StoreNotWritable
from towline.limits import MIB

from .segment_files import FULL_ERRNOS, segment_name, sync_directory, sync_file

_COPY_STEP: Final = MIB


class Diverged:
    def __init__(self, store: Path) -> None:
        self.directory = store / "diverged"

    def keep(self, segment: Path, base: int, start: int, end: int, now_ms: int) -> Path:
        """Copies the log's bytes [start, end), all in the segment of `base`, and syncs the copy. Returns its path.

        Zero pages at the end of a range are worth no copy: the caller cuts them off. An existing copy is not touched:
        the name gets a number. Raises DiskFull, StoreNotWritable, SyncFailed.
        """
        assert base <= start < end
        self.directory.mkdir(exist_ok=True)
        target = self._free_name(start, now_ms)
        try:
            _copy(segment, start - base, end - base, target)
        except OSError as error:
            target.unlink(missing_ok=True)
            if error.errno in FULL_ERRNOS:
                raise DiskFull(str(target), end - start) from error
            raise StoreNotWritable(str(target), error.strerror or str(error)) from error
        sync_file(target)
        sync_directory(self.directory)
        sync_directory(self.directory.parent)
        return target

    def _free_name(self, start: int, now_ms: int) -> Path:
        stem = f"{segment_name(start)}-{now_ms}"
        path, number = self.directory / f"{stem}.log", 1
        while path.exists():
            number += 1
            path = self.directory / f"{stem}-{number}.log"
        return path


def _copy(source: Path, start: int, end: int, target: Path) -> None:
    """Raises OSError, also when `source` is shorter than `end`."""
    with source.open("rb") as reader, target.open("xb") as writer:
        at = start
        while at < end:
            chunk = os.pread(reader.fileno(), min(_COPY_STEP, end - at), at)
            if not chunk:
                raise OSError(f"{source} ends at byte {at}, {end} were to be kept")
            writer.write(chunk)
            at += len(chunk)
