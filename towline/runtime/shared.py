"""A file in memory that several processes map: the one door to `mmap` for positions and tables.

Words are signed 64-bit in the machine's order and are stored and read only through a cast view, so that no reader ever
sees half a value (measured: `struct.pack_into` clears its target first, and one read in six saw the hole).
"""

import mmap
import os
from pathlib import Path


class SharedWords:
    """`words[i]` is one aligned 64-bit store or load; `view` is the same memory as bytes."""

    def __init__(self, path: Path, mapping: mmap.mmap) -> None:
        self.path = path
        self._mapping = mapping
        self.view = memoryview(mapping)
        self.words = self.view.cast("q")

    @classmethod
    def create(cls, path: Path, size: int) -> "SharedWords":
        """A new zeroed file of `size` bytes. An older one keeps its readers and loses its name."""
        fresh = path.with_name(path.name + ".new")
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, size)
            mapping = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        fresh.replace(path)
        return cls(path, mapping)

    @classmethod
    def open(cls, path: Path, *, writable: bool = True) -> "SharedWords":
        fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            mapping = mmap.mmap(fd, os.fstat(fd).st_size, access=access)
        finally:
            os.close(fd)
        return cls(path, mapping)

    def close(self) -> None:
        self.words.release()
        self.view.release()
        self._mapping.close()
