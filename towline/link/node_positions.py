"""The positions of a node on this machine, for a client to read: the words that the node's welcome names."""

import mmap
import os
from pathlib import Path


class NodePositions:
    """A read-only mapping of the node's positions file: `words[i]` is one load of 64 bits. Used by one thread."""

    def __init__(self, path: Path, identity: tuple[int, int]) -> None:
        """`identity` is device and inode of the node's own file. Raises OSError, also where `path` is another file."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) != identity:
                raise FileNotFoundError(f"{path} is not the node's")
            self._mapping = mmap.mmap(descriptor, found.st_size, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        self._view = memoryview(self._mapping)
        self.words = self._view.cast("q")

    def close(self) -> None:
        self.words.release()
        self._view.release()
        self._mapping.close()
