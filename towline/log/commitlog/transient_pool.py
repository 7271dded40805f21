"""The transient store pool: buffers of one segment each in shared memory, to which the log's writer appends (spec 6.4).

    pool/free/*           zeroed; the writer takes one by renaming it
    pool/taken/<base>     stands in for the segment of that base; COMMITTED tells how much the segment's file holds
    pool/used/<base>      wholly committed and given back; to be zeroed before it is free again (H1)
    pool/owner.json       whose they are: written last, so that a pool without it was never used

A taken buffer holds the bytes that were appended while it was taken, at the offsets they have in the segment. One
process takes, one gives back; a rename moves a buffer, which whoever has it mapped does not notice. The blocks are
reserved when the pool is made, so that nobody who writes to a buffer meets SIGBUS (H7).
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from towline.errors import NotInLog
from towline.limits import MIB
from towline.log.files.mapped_file import MappedFile
from towline.log.files.segment_files import reserve, segment_base, segment_name

from .commit_log import CommitLogReader
from .dispatch import Batch, DispatchScan

COPY_STEP: Final = 4 * MIB


class TransientPool:
    """The buffers in one directory, `size` bytes each."""

    def __init__(self, root: Path, size: int) -> None:
        self.root, self.size = root, size
        self.free, self.taken, self.used = (root / name for name in ("free", "taken", "used"))

    def create(self, count: int) -> None:
        """`count` free buffers with reserved blocks. Raises DiskFull when there is no room for all of them."""
        for directory in (self.root, self.free, self.taken, self.used):
            directory.mkdir(mode=0o700, exist_ok=True)
        for number in range(count):
            path = self.free / f"new-{number}"
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                reserve(fd, 0, self.size)
            finally:
                os.close(fd)

    def path_of(self, base: int) -> Path:
        """The buffer that was taken for the segment of `base`; it need not exist."""
        return self.taken / segment_name(base)

    def bases(self) -> list[int]:
        """Segments for which a buffer is taken, in order."""
        found = [segment_base(path.name) for path in self.taken.iterdir()]
        return sorted(base for base in found if base is not None)

    def take(self, base: int) -> bool:
        """Makes a free buffer the one of the segment `base`; at once if it has one. False if none is free."""
        target = self.path_of(base)
        if target.exists():
            return True
        for path in sorted(self.free.iterdir()):
            path.rename(target)  # one process takes, and no two segments have one base: nothing is replaced
            return True
        return False

    def open(self, base: int, *, writable: bool) -> MappedFile:
        """Maps the buffer taken for `base`. Raises FileNotFoundError if there is none."""
        return MappedFile.open(self.path_of(base), self.size, writable=writable)

    def give_back(self, base: int) -> Path:
        """The buffer of a segment that is wholly committed goes to `used/`; its new path."""
        target = self.used / segment_name(base)
        self.path_of(base).rename(target)
        return target

    def set_free(self, used: Path) -> None:
        """`used`, a file in `used/`, is all zeros again and may be taken."""
        used.rename(self.free / used.name)

    def files(self) -> list[Path]:
        """Every buffer, whatever its state."""
        return [path for directory in (self.free, self.taken, self.used) for path in directory.iterdir()]


def copy_committed(buffer: MappedFile, fd: int, start: int, end: int) -> None:
    """Copies bytes [start, end) of a buffer into the segment file open at `fd`, by pwrite: an error is one, no SIGBUS.

    Raises OSError; what was copied by then is copied again the next time.
    """
    while start < end:
        start += os.pwrite(fd, buffer.view[start : min(start + COPY_STEP, end)], start)


class AppendedScan:
    """Reads the log up to APPENDED as its resuming writer must (H11): files up to COMMITTED, buffers from there on.

    `read` is that of DispatchScan. COMMITTED is always behind a whole record, or at the end of a segment.
    """

    def __init__(self, files: DispatchScan, buffers: DispatchScan, size: int, committed: Callable[[], int]) -> None:
        self._files, self._buffers, self._size, self._committed = files, buffers, size, committed

    def read(self, start: int, end: int) -> Batch:
        """Raises NotInLog when neither a file nor a buffer holds `start`."""
        border = start - start % self._size + self._size
        while True:
            committed = self._committed()
            if start < committed:
                return self._files.read(start, min(end, committed))
            try:
                batch = self._buffers.read(start, end)
            except (NotInLog, FileNotFoundError):
                if self._committed() < border:
                    raise
                continue
            if self._committed() < border:  # else the buffer went back meanwhile, and may have been zeroed under us
                return batch


def buffered(pool: TransientPool) -> CommitLogReader:
    """The taken buffers as a log of their own: each byte at its offset, those that were committed before it missing."""
    return CommitLogReader(pool.taken, pool.size)
