"""IndexService: the IndexFiles of a store, `index/<17 digits of local time>`, oldest first (spec 4.2-4.5).

One process writes (reput, before it recovery); readers list the directory with each query.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.errors import DiskFull
from towline.format.files.index_file import HEADER_SIZE, Header, decode_header, file_name, key_hash
from towline.kernels.scan import index as kernels
from towline.kernels.scan.index import (
    BEGIN_PHYSICAL_OFFSET,
    BEGIN_TIMESTAMP,
    END_PHYSICAL_OFFSET,
    END_TIMESTAMP,
    INDEX_COUNT,
)
from towline.log.files.mapped_file import PendingUnmaps
from towline.log.files.segment_files import sync_directory

from .index_file import IndexFile

QUERY_COUNT: Final = 64  # maxMsgsNumBatch: offsets of one answer
_KEYS_AT_ONCE: Final = 65_536
_HEADS_PER_KEY: Final = 4
_NAME_FORMAT: Final = "%Y%m%d%H%M%S"
_SECONDS_DIGITS: Final = 14


class IndexService:
    """`load` first. A writer puts; a reader queries. `slots` and `indexes` must be what the files were made with."""

    def __init__(
        self,
        directory: Path,
        slots: int,
        indexes: int,
        *,
        writable: bool = False,
        between: Callable[[str], None] | None = None,
    ) -> None:
        """`between` is called between the steps of a put: see `IndexFile.put`."""
        assert slots > 0
        assert indexes > 1, "entry 0 is never used"
        self.directory, self.slots, self.indexes, self.writable = directory, slots, indexes, writable
        self._files: dict[str, IndexFile | None] = {}  # by name, oldest first; None while not mapped
        self._dirty: set[str] = set()
        self._between = between
        self._unmaps = PendingUnmaps()
        self._state = np.zeros(kernels.STATE_SIZE, dtype=np.int64)  # the header of the active file, for the kernels
        self._heads: npt.NDArray[np.int32] = np.zeros(_KEYS_AT_ONCE * _HEADS_PER_KEY if writable else 0, dtype=np.int32)

    def load(self) -> None:
        """Reads the directory; other names than decimal numbers are skipped. Raises SegmentSizeMismatch, DiskFull."""
        if self.writable:
            self.directory.mkdir(parents=True, exist_ok=True)
        self.refresh()
        self._take_header()

    def refresh(self) -> None:
        """Picks up files that appeared or went away."""
        names = [path.name for path in self.directory.iterdir()] if self.directory.is_dir() else []
        found = sorted(name for name in names if name.isascii() and name.isdecimal())
        for name in self._files.keys() - set(found):
            self._forget(name)
        self._files = {name: self._files.get(name) for name in found}

    @property
    def names(self) -> tuple[str, ...]:
        """File names, oldest first."""
        return tuple(self._files)

    def file(self, name: str) -> IndexFile:
        """The mapped file of that name."""
        found = self._files[name]
        if found is None:
            path = self.directory / name
            found = IndexFile.open(path, self.slots, self.indexes, writable=self.writable)
            self._files[name] = found
        return found

    def follow(self, end_timestamp: int, end_physical_offset: int) -> None:
        """After `load` of an empty directory: its first file follows one of elsewhere that ends so (spec 4.2)."""
        assert not self._files
        self._state[END_TIMESTAMP], self._state[END_PHYSICAL_OFFSET] = end_timestamp, end_physical_offset

    def put(self, log: npt.NDArray[np.uint8], rows: npt.NDArray[np.void], keys: npt.NDArray[np.void]) -> None:
        """Indexes all keys of a dispatch scan: `rows` and `keys` of a Batch, `log` the array in which they stand.

        Raises DiskFull before anything was put: indexing pauses and the same batch is tried again. A batch cut short
        by a kill is removed by `cut` at the next start.
        """
        assert self.writable
        fresh = self._make_room(len(keys))
        first = 0
        while first < len(keys):
            if not self._files or self._state[INDEX_COUNT] >= self.indexes:
                self._roll(*fresh.pop(0))
            name = next(reversed(self._files))
            self._dirty.add(name)
            some = keys[: first + _KEYS_AT_ONCE]
            first += self.file(name).put(self._state, log, rows, some, first, self._heads, self._between)

    def query(self, topic: str, key: str, begin: int, end: int, limit: int = QUERY_COUNT) -> list[int]:
        """Log offsets of records of that topic and key, or of another with the same hash, newest first (spec 4.5).

        Stored within [begin, end] ms, as precisely as the whole seconds of the entries allow; at most `limit`.
        """
        self.refresh()
        hashed = key_hash(topic, key)
        found: list[int] = []
        for name in reversed(self._files):
            try:
                file = self.file(name)
            except FileNotFoundError:  # expired meanwhile
                continue
            header = file.header
            if header.index_count > 1:
                if header.begin_timestamp <= end and header.end_timestamp >= begin:
                    found += file.query(hashed, begin, end, limit - len(found))
                if len(found) >= limit or header.begin_timestamp < begin:
                    break
        return found

    def cut(self, physical_offset: int, time_of: Callable[[int], int]) -> int:
        """Removes every entry of a record at `physical_offset` or later, and what a killed writer left. How many files.

        The last file that keeps an entry is repaired, the ones behind it are removed; see `IndexFile.cut`.
        """
        assert self.writable
        self._remove_unfinished()
        removed = 0
        names = list(self._files)
        for number, name in reversed(list(enumerate(names))):
            file = self.file(name)
            self._dirty.add(name)
            floor = self._header(names[number - 1]).end_physical_offset if number else 0
            if file.cut(physical_offset, time_of, floor):
                break
            self._remove(name)
            removed += 1
        if removed:
            sync_directory(self.directory)
        self._take_header()
        return removed

    def drop_after(self, end_timestamp: int) -> int:
        """Removes files that end later: after an unclean stop of a broker they may not be on the disk (spec 8.5)."""
        unsafe = [name for name in self._files if self.file(name).header.end_timestamp > end_timestamp]
        for name in unsafe:
            self._remove(name)
        if unsafe:
            sync_directory(self.directory)
        self._take_header()
        return len(unsafe)

    def delete_expired(self, log_min: int) -> list[str]:
        """Removes leading files of which no record is in the log any more, never the last (spec 4.3). Their names.

        Nothing is mapped for it; `refresh` before the first `load` is enough.
        """
        removed = []
        for name in list(self._files)[:-1]:
            if self._header(name).end_physical_offset >= log_min:
                break
            self._remove(name)
            removed.append(name)
        return removed

    def sync(self) -> None:
        """Makes what was put durable. Raises SyncFailed."""
        for name in sorted(self._dirty & self._files.keys()):
            self.file(name).sync()
        self._dirty.clear()
        self._unmaps.sweep()

    def close(self) -> bool:
        """Unmaps every file. False while bytes of one are still referenced."""
        for name in list(self._files):
            self._forget(name)
        return self._unmaps.sweep() == 0

    def _make_room(self, count: int) -> list[tuple[str, IndexFile]]:
        """Makes the files that `count` more entries will need, so that a full disk is met before the first is put."""
        last = next(reversed(self._files), None)
        room = self.indexes - int(self._state[INDEX_COUNT]) if last else 0
        fresh: list[tuple[str, IndexFile]] = []
        try:
            while room < count:
                last = _name_after(last)
                fresh.append((last, IndexFile.create(self.directory / last, self.slots, self.indexes)))
                room += self.indexes - 1
        except DiskFull:
            for _, file in fresh:
                self._unmaps.add(file.mapped)
                file.path.unlink()
            raise
        return fresh

    def _roll(self, name: str, file: IndexFile) -> None:
        """Goes on in a new file. Its first entry's time counts from the end of the file before (spec 4.2)."""
        self._files[name] = file
        state = self._state
        state[BEGIN_TIMESTAMP], state[BEGIN_PHYSICAL_OFFSET] = state[END_TIMESTAMP], state[END_PHYSICAL_OFFSET]
        state[END_PHYSICAL_OFFSET + 1 :] = 0
        state[INDEX_COUNT] = 1

    def _take_header(self) -> None:
        """The active file's header is where the next put goes on."""
        self._state[:] = 0
        self._state[INDEX_COUNT] = 1
        if not self._files or not self.writable:
            return
        header = self.file(next(reversed(self._files))).header
        self._state[BEGIN_TIMESTAMP] = header.begin_timestamp
        self._state[END_TIMESTAMP] = header.end_timestamp
        self._state[BEGIN_PHYSICAL_OFFSET] = header.begin_physical_offset
        self._state[END_PHYSICAL_OFFSET] = header.end_physical_offset
        self._state[kernels.HASH_SLOT_COUNT] = header.hash_slot_count
        self._state[INDEX_COUNT] = header.index_count

    def _header(self, name: str) -> Header:
        """Of a file that need not be mapped."""
        with (self.directory / name).open("rb") as file:
            return decode_header(file.read(HEADER_SIZE))

    def _remove(self, name: str) -> None:
        self._forget(name)
        (self.directory / name).unlink(missing_ok=True)

    def _remove_unfinished(self) -> None:
        for path in self.directory.glob("*.new"):
            path.unlink()

    def _forget(self, name: str) -> None:
        file = self._files.pop(name, None)
        self._dirty.discard(name)
        if file is not None:
            self._unmaps.add(file.mapped)


def _name_after(last: str | None) -> str:
    """A name for now, but always behind `last`: the clock's local time may go back, and names give the order."""
    now = datetime.now()
    if last is not None and file_name(now) <= last:
        seconds = datetime.strptime(last[:_SECONDS_DIGITS], _NAME_FORMAT)
        now = seconds + timedelta(milliseconds=int(last[_SECONDS_DIGITS:] or 0) + 1)
    return file_name(now)
