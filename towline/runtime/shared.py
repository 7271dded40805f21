"""A file in shared memory that several processes map: the one module that maps positions and tables.

Words are signed 64-bit in the machine's order and are stored and read only through a cast view, so that no reader ever
sees half a value (measured: `struct.pack_into` clears its target first, and one read in six saw the hole).

A file is as long as it may ever become, and sparse. A page counts only when it is reserved: where the file system is
full, as a container's 64 MiB may be, a store to another one, and even a load, ends the process by SIGBUS.
"""

import errno
import mmap
import os
from pathlib import Path
from typing import Final

from towline.errors import PositionsUnusable, RuntimeDirectoryFull

STEP: Final = 64 << 10  # bytes that are reserved at once
_REPLACED: Final = "is of an earlier start of the node: another one has taken its place"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class SharedWords:
    """`words[i]` is one aligned 64-bit store or load; `view` is the same memory as bytes.

    Only what was reserved may be touched: `create` reserves `reserved` bytes, a writer more with `reserve`.
    """

    def __init__(self, path: Path, fd: int, mapping: mmap.mmap, reserved: int = 0) -> None:
        """Of the file that is open as `fd`, which is not needed any more."""
        self.path = path
        self._mapping = mapping
        self._file, self._reserved = _file_of(fd), reserved
        self.view = memoryview(mapping)
        self.words = self.view.cast("q")

    @classmethod
    def create(cls, path: Path, size: int, reserved: int) -> "SharedWords":
        """A new zeroed file of `size` bytes. An older one keeps its readers and loses its name.

        Raises RuntimeDirectoryFull, and then the older one keeps its name too.
        """
        fresh = path.with_name(path.name + ".new")
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, size)
            _reserve(path, fd, 0, reserved)
            made = cls(path, fd, mmap.mmap(fd, size), reserved)
        except RuntimeDirectoryFull:
            fresh.unlink()
            raise
        finally:
            os.close(fd)
        fresh.replace(path)
        return made

    @classmethod
    def open(cls, path: Path, *, writable: bool = True) -> "SharedWords":
        fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            return cls(path, fd, mmap.mmap(fd, os.fstat(fd).st_size, access=access))
        finally:
            os.close(fd)

    def reserve(self, end: int) -> None:
        """Everything below byte `end` may be touched from now on.

        Raises RuntimeDirectoryFull, and PositionsUnusable where a later start of the node has made another file.
        """
        if end <= self._reserved:
            return
        upto = min(end + -end % STEP, len(self.view))
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise PositionsUnusable(str(self.path), _REPLACED) from None
        try:
            if _file_of(fd) != self._file:
                raise PositionsUnusable(str(self.path), _REPLACED)
            _reserve(self.path, fd, self._reserved, upto)
        finally:
            os.close(fd)
        self._reserved = upto

    def close(self) -> None:
        self.words.release()
        self.view.release()
        self._mapping.close()


def _file_of(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _reserve(path: Path, fd: int, start: int, end: int) -> None:
    try:
        os.posix_fallocate(fd, start, end - start)
    except OSError as error:
        if error.errno in _FULL:
            raise RuntimeDirectoryFull(str(path), end - start) from None
        raise
