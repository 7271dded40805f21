"""A directory of segment files that together are one stream of bytes (spec 1.1).

Places are found by the base offsets in the file names, never by an index into the list: leading files are deleted, and
a stream may begin anywhere.
"""

import stat
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from towline.errors import ForeignFile, SegmentSizeMismatch
from towline.limits import MIB

from .mapped_file import MappedFile, PendingUnmaps
from .segment_files import segment_base, segment_name, sync_directory

LEAVE_STEP: Final = 16 * MIB  # taken out of the page tables at once: 0.3 ms
OPEN_MAX: Final = 64  # mappings a reader keeps; more only costs file descriptors and page tables


def list_segments(directory: Path, size: int, *, remove_empty_last: bool = False) -> list[int]:
    """Base offsets of the segments of `directory` in order; sub-directories are skipped, a missing directory is empty.

    A zero-length last file is what a crash between create and reserve leaves: it does not count, and is removed if
    asked. Raises SegmentSizeMismatch for any other length, ForeignFile for a name that is no offset of this stream.
    """
    if not directory.is_dir():
        return []
    lengths = [(path, length) for path in sorted(directory.iterdir()) if (length := _length(path)) is not None]
    if lengths and lengths[-1][1] == 0 and segment_base(lengths[-1][0].name) is not None:
        empty, _ = lengths.pop()
        if remove_empty_last:
            empty.unlink()
            sync_directory(directory)
    return [_checked_base(path, length, size) for path, length in lengths]


class MappedFileQueue:
    """The segments of one directory, `size` bytes each, opened when first asked for. Not loaded until `load`."""

    def __init__(self, directory: Path, size: int, *, writable: bool = False, open_max: int = OPEN_MAX) -> None:
        assert size > 0
        assert open_max > 0
        self.directory, self.size, self.writable = directory, size, writable
        self._open_max = open_max
        self.on_open: Callable[[int, MappedFile], None] | None = None  # called with base and mapping of what is opened
        self._bases: list[int] = []
        self._open: OrderedDict[int, MappedFile] = OrderedDict()  # the last one was used last
        self._used: set[int] = set()  # asked for since the last `age`
        self._idle: dict[int, int] = {}  # open, not asked for: up to where it is out of the page tables
        self._unmaps = PendingUnmaps()

    def load(self) -> None:
        """Reads the directory by the load rules of `list_segments`. Only a writable queue removes anything."""
        self._take(list_segments(self.directory, self.size, remove_empty_last=self.writable))

    def refresh(self) -> bool:
        """Picks up files that appeared or went away since. Whether there were any. Raises like `load`."""
        before = self._bases
        self._take(list_segments(self.directory, self.size))
        return self._bases != before

    def adopt(self, bases: list[int]) -> None:
        """Uses these files as the stream, for a caller that listed the directory by rules of its own."""
        self._take(bases)

    @property
    def bases(self) -> tuple[int, ...]:
        """Base offsets in order."""
        return tuple(self._bases)

    @property
    def min_offset(self) -> int:
        """First byte of the stream; 0 without files."""
        return self._bases[0] if self._bases else 0

    @property
    def end(self) -> int:
        """End of the last file, written or not; 0 without files."""
        return self._bases[-1] + self.size if self._bases else 0

    def base_of(self, offset: int) -> int | None:
        """Base of the file that holds `offset`; None if none does."""
        index = bisect_right(self._bases, offset) - 1
        if index < 0 or offset >= self._bases[index] + self.size:
            return None
        return self._bases[index]

    def path_of(self, base: int) -> Path:
        return self.directory / segment_name(base)

    def find(self, offset: int) -> MappedFile | None:
        """The mapped file that holds `offset`; None if none does.

        It may be closed by the call for the `open_max`th other file: keep its array or a slice, not the file.
        """
        base = self.base_of(offset)
        if base is None:
            return None
        mapped = self._open.get(base)
        if mapped is None:
            try:
                mapped = MappedFile.open(self.path_of(base), self.size, writable=self.writable)
            except FileNotFoundError:  # deleted since the directory was read
                self._bases.remove(base)
                return None
            self._open[base] = mapped
            if self.on_open is not None:
                self.on_open(base, mapped)
            while len(self._open) > self._open_max:
                self._unmaps.add(self._open.popitem(last=False)[1])
        self._open.move_to_end(base)
        self._used.add(base)
        return mapped

    def remove(self, base: int) -> None:
        """Unlinks the file of `base` durably. Readers that mapped it keep their bytes."""
        assert self.writable, f"{self.directory} was opened for reading"
        self._bases.remove(base)
        self._close(base)
        self.path_of(base).unlink()
        sync_directory(self.directory)

    def release_below(self, offset: int) -> None:
        """Unmaps files that end at or before `offset`: a deleted file's blocks are freed once it is not mapped."""
        for base in [base for base in self._open if base + self.size <= offset]:
            self._close(base)
        self.sweep()

    def age(self) -> None:
        """Marks files that were not read since the last call as idle: see `unmap_idle`."""
        self._idle = {base: self._idle.get(base, 0) for base in self._open if base not in self._used}
        self._used.clear()
        self.sweep()

    def unmap_idle(self) -> bool:
        """Unmaps idle files, a step at a time: 1 GiB at once would take 20 ms. False when nothing is left to do.

        Pages that a process maps cannot be dropped from the page cache.
        """
        for base, at in self._idle.items():
            mapped = self._open.get(base)
            if mapped is None or base in self._used or at >= self.size:
                del self._idle[base]
                if mapped is not None and base not in self._used:
                    self._close(base)
            else:
                end = min(at + LEAVE_STEP, self.size)
                mapped.drop_pages(at, end)
                self._idle[base] = end
            return True
        return False

    def drop_pages(self, base: int, start: int, end: int) -> None:
        """Drops bytes of a file from the page tables, if it is mapped."""
        mapped = self._open.get(base)
        if mapped is not None:
            mapped.drop_pages(start, end)

    def close(self) -> bool:
        """Unmaps everything. False while bytes are still referenced; `sweep` tries again."""
        for base in list(self._open):
            self._close(base)
        return self.sweep() == 0

    def sweep(self) -> int:
        """Unmaps closed files whose bytes are not referenced any more. Returns how many still are."""
        return self._unmaps.sweep()

    def _take(self, bases: list[int]) -> None:
        for base in self._open.keys() - set(bases):
            self._close(base)
        self._bases = bases

    def _close(self, base: int) -> None:
        mapped = self._open.pop(base, None)
        if mapped is not None:
            self._unmaps.add(mapped)


def _length(path: Path) -> int | None:
    """None for a sub-directory, and for a file that was deleted since the directory was read."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return None if stat.S_ISDIR(found.st_mode) else found.st_size


def _checked_base(path: Path, length: int, size: int) -> int:
    base = segment_base(path.name)
    if base is None:
        raise ForeignFile(str(path), "is not named by 20 decimal digits, so it is no segment")
    if length != size:
        raise SegmentSizeMismatch(str(path), length, size)
    if base % size:
        raise ForeignFile(str(path), f"is named by an offset that is no multiple of the segment size {size}")
    return base
