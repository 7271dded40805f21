"""A file of fixed length mapped into memory: the only module of the log that maps files.

A file is written through its mapping only where its blocks are reserved, else a full disk ends the process with SIGBUS
(hazard H7; `segment_files.create_segment` and `segment_files.reserve`). Nobody shortens a file that may be mapped.
"""

import errno
import mmap
import os
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.errors import SegmentSizeMismatch, StoreNotWritable, SyncFailed
from towline.limits import PAGE

from . import memory

ADVICE_WILL_NEED: Final = mmap.MADV_WILLNEED
ADVICE_RANDOM: Final = mmap.MADV_RANDOM
ADVICE_DONT_NEED: Final = mmap.MADV_DONTNEED
ADVICE_LARGE_PAGES: Final = mmap.MADV_HUGEPAGE


class MappedFile:
    """One mapping of one file. `array` and `view` are its `size` bytes, read-only unless `writable`.

    Keep an array or a slice across calls that may close the file, never the MappedFile: a closed one has no bytes, but
    bytes that are still held stay mapped.
    """

    __slots__ = ("_array", "_map", "_view", "path", "size", "writable")

    def __init__(self, path: Path, size: int, mapped: mmap.mmap, *, writable: bool) -> None:
        self.path, self.size, self.writable = path, size, writable
        self._map: mmap.mmap | None = mapped
        self._array: npt.NDArray[np.uint8] | None = np.frombuffer(mapped, dtype=np.uint8)
        self._view: memoryview | None = memoryview(mapped)

    @classmethod
    def open(cls, path: Path, size: int, *, writable: bool) -> "MappedFile":
        """Maps the `size` bytes of `path`. Raises SegmentSizeMismatch for any other length, OSError if missing."""
        fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            length = os.fstat(fd).st_size
            if length != size:
                raise SegmentSizeMismatch(str(path), length, size)
            mapped = mmap.mmap(fd, size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        finally:
            os.close(fd)
        return cls(path, size, mapped, writable=writable)

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        assert self._array is not None, f"{self.path} was released"
        return self._array

    @property
    def view(self) -> memoryview:
        assert self._view is not None, f"{self.path} was released"
        return self._view

    @property
    def is_open(self) -> bool:
        return self._map is not None

    def sync(self, start: int, end: int) -> None:
        """msync of [start, end), rounded outwards to pages. Raises SyncFailed with file and errno.

        msync, not fdatasync: that would also write every page populated ahead and make each fault again (H6). Other
        threads run meanwhile.
        """
        assert self.writable, f"{self.path} is mapped read-only: its sync would silently do nothing"
        start, size = self._pages(start, end)
        if size == 0:
            return
        try:
            memory.sync(self.array[start : start + size])
        except OSError as error:
            raise SyncFailed(
                str(self.path), start, start + size, error.errno or errno.EIO, os.strerror(error.errno or errno.EIO)
            ) from error

    def populate(self, start: int, end: int) -> bool:
        """Makes the pages of [start, end) present and writable, so that writing them does not fault.

        Other threads run meanwhile. False where the kernel cannot (before Linux 5.14): pages then fault one
        by one, which is only slower.
        Raises StoreNotWritable if a page cannot be had, which a write would answer with SIGBUS.
        """
        assert self.writable, f"{self.path} is mapped read-only"
        start, size = self._pages(start, end)
        if size == 0:
            return True
        try:
            memory.madvise(self.array[start : start + size], memory.POPULATE_WRITE)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise StoreNotWritable(str(self.path), f"populate of {size} bytes at {start}: {error}") from error
            return False
        return True

    def advise(self, option: int, start: int = 0, end: int | None = None) -> None:
        """madvise of [start, end), by default the whole file, with one of the ADVICE options. Raises OSError."""
        start, size = self._pages(start, self.size if end is None else end)
        if size:
            memory.madvise(self.array[start : start + size], option)

    def prefer_large_pages(self) -> None:
        """What is brought into memory through this mapping comes in large pages where the system has them."""
        try:
            memory.madvise(self.array, ADVICE_LARGE_PAGES)
        except OSError as error:
            if error.errno != errno.EINVAL:  # that is the answer where it has none
                raise

    def drop_pages(self, start: int, end: int) -> None:
        """Takes the whole pages of [start, end) out of this mapping; they stay in the page cache, written as they are.

        Other threads run meanwhile. Touched again, a page comes back by a fault. Locked pages stay.
        """
        first, last = start + -start % PAGE, end - end % PAGE
        if first >= last:
            return
        try:
            memory.madvise(self.array[first:last], ADVICE_DONT_NEED)
        except OSError as error:
            if error.errno != errno.EINVAL:  # that is the answer for locked pages
                raise

    def resident(self, start: int, end: int) -> int:
        """How many pages of those that hold [start, end) are in the page cache, of whichever process."""
        start, size = self._pages(start, end)
        return memory.resident_pages(self.array[start : start + size]) if size else 0

    def lock(self, start: int, end: int) -> None:
        """Brings [start, end) into memory and keeps it there until `unlock` or `release`. Raises OSError."""
        start, size = self._pages(start, end)
        if size:
            memory.lock(self.array[start : start + size])

    def unlock(self, start: int, end: int) -> None:
        """Raises OSError."""
        start, size = self._pages(start, end)
        if size:
            memory.unlock(self.array[start : start + size])

    def release(self) -> bool:
        """Unmaps the file. False while its bytes are referenced, as by a queued frame (H20): call it again later."""
        self._array = None
        try:
            if self._view is not None:
                self._view.release()
                self._view = None
            if self._map is not None:
                self._map.close()
                self._map = None
        except BufferError:
            return False
        return True

    def _mapped(self) -> mmap.mmap:
        assert self._map is not None, f"{self.path} was released"
        return self._map

    def _pages(self, start: int, end: int) -> tuple[int, int]:
        """The whole pages that hold [start, end): first byte and size, within the file."""
        assert 0 <= start <= end <= self.size, f"[{start}, {end}) is not within the {self.size} bytes of {self.path}"
        first = start - start % PAGE
        last = min(self.size, end + -end % PAGE)
        return (first, last - first) if end > start else (first, 0)


class PendingUnmaps:
    """Closed mappings whose bytes are still referenced. `sweep` unmaps those that are not any more."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[MappedFile] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, mapped: MappedFile) -> None:
        """Releases `mapped`, now or in a later sweep."""
        self.sweep()
        if not mapped.release():
            self._waiting.append(mapped)

    def sweep(self) -> int:
        """Tries again for all that wait. Returns how many still wait."""
        self._waiting = [mapped for mapped in self._waiting if not mapped.release()]
        return len(self._waiting)
