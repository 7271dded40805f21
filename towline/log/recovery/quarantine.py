"""`diverged/`: bytes that recovery, a repair or a truncation removes are kept here, never deleted.

Bytes of the log are copied: the segment may be mapped, and stays in its place. The copy is named by the log offset of
its first byte and the time in epoch ms: `00000000000000004260-1700000000123.log`. Any other file, and a directory of
queues or index that was built anew, is moved here under its own name and the time: `topics.json-1700000000123`.
"""

import os
from pathlib import Path
from typing import Final

from towline.errors import DiskFull, StoreNotWritable
from towline.limits import MIB
from towline.log.files.segment_files import FULL_ERRNOS, segment_name, sync_directory, sync_file

_COPY_STEP: Final = MIB


class Quarantine:
    def __init__(self, store: Path) -> None:
        self.directory = store / "diverged"

    def keep(self, segment: Path, base: int, start: int, end: int, now_ms: int) -> Path:
        """Copies the log's bytes [start, end), all in the segment of `base`, and syncs the copy. Returns its path.

        Zero pages at the end of a range are worth no copy: the caller cuts them off. An existing copy is not touched:
        the name gets a number. Raises DiskFull, StoreNotWritable, SyncFailed.
        """
        assert base <= start < end
        target = self._free_name(f"{segment_name(start)}-{now_ms}", ".log")
        return self._kept(segment, start - base, end - base, target)

    def keep_again(self, segment: Path, base: int, start: int, end: int, now_ms: int) -> Path:
        """The same under the one name of `now_ms`: a copy that was begun and never finished is made anew."""
        target = self.directory / f"{segment_name(start)}-{now_ms}.log"
        target.unlink(missing_ok=True)
        return self._kept(segment, start - base, end - base, target)

    def _kept(self, source: Path, start: int, end: int, target: Path) -> Path:
        self.directory.mkdir(exist_ok=True)
        try:
            _copy(source, start, end, target)
        except OSError as error:
            target.unlink(missing_ok=True)
            if error.errno in FULL_ERRNOS:
                raise DiskFull(str(target), end - start) from error
            raise StoreNotWritable(str(target), error.strerror or str(error)) from error
        sync_file(target)
        sync_directory(self.directory)
        sync_directory(self.directory.parent)
        return target

    def keep_file(self, path: Path, now_ms: int) -> Path:
        """Copies a file that is about to be written anew. Returns the copy's path; raises like `keep`."""
        return self._kept(path, 0, path.stat().st_size, self._free_name(f"{path.name}-{now_ms}", ""))

    def take(self, path: Path, now_ms: int) -> Path:
        """Moves a file or a directory here, durably, whole and with nothing left behind. Returns where it stands."""
        self.directory.mkdir(exist_ok=True)
        target = self._free_name(f"{path.name}-{now_ms}", "")
        path.rename(target)
        for changed in (self.directory, path.parent, self.directory.parent):
            sync_directory(changed)
        return target

    def _free_name(self, stem: str, suffix: str) -> Path:
        path, number = self.directory / f"{stem}{suffix}", 1
        while path.exists():
            number += 1
            path = self.directory / f"{stem}-{number}{suffix}"
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
