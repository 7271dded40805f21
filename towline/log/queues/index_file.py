"""One IndexFile, mapped: its blocks are reserved when it is made or opened for writing (spec 4, hazards H7, H13).

Write order: entries, slots, header, and in the header the count last. A reader takes entries below the count only, so
whatever a killed writer left behind the count is never seen, and `cut` removes it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.format.files import index_file
from towline.format.files.index_file import ENTRY, ENTRY_LAYOUT, ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, Header
from towline.kernels.scan import index as kernels
from towline.log.files.first_word import WORD_SIZE, store_first_word
from towline.log.files.mapped_file import MappedFile
from towline.log.files.segment_files import create_segment, publish, reserve

_ENTRIES_AT_ONCE: Final = 800_000  # of one kernel call: 16 MB
_SLOTS_AT_ONCE: Final = 4_000_000
_UNFINISHED: Final = ".new"  # no decimal number, so a broker skips such a name


class IndexFile:
    """`slots` and `indexes` are the numbers the file was made with; it holds `indexes` - 1 entries."""

    def __init__(self, mapped: MappedFile, slots: int, indexes: int) -> None:
        self.mapped, self.slots, self.indexes = mapped, slots, indexes
        self.path = mapped.path

    @classmethod
    def open(cls, path: Path, slots: int, indexes: int, *, writable: bool) -> "IndexFile":
        """Raises SegmentSizeMismatch, and DiskFull when the blocks of a file to be written cannot be reserved."""
        size = index_file.file_size(slots, indexes)
        mapped = MappedFile.open(path, size, writable=writable)
        if writable:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                reserve(fd, 0, size)
            finally:
                os.close(fd)
        return cls(mapped, slots, indexes)

    @classmethod
    def create(cls, path: Path, slots: int, indexes: int) -> "IndexFile":
        """A new file, published whole. Raises DiskFull, with nothing left behind."""
        size = index_file.file_size(slots, indexes)
        unfinished = path.name + _UNFINISHED
        (path.parent / unfinished).unlink(missing_ok=True)
        publish(create_segment(path.parent, size, unfinished), path)
        return cls.open(path, slots, indexes, writable=True)

    @property
    def header(self) -> Header:
        return index_file.decode_header(self.mapped.view[:HEADER_SIZE])

    @property
    def entries(self) -> npt.NDArray[np.void]:
        """All entries, dtype ENTRY, by number; 0 is never used."""
        return self.mapped.array[index_file.entry_at(self.slots, 0) :].view(ENTRY)

    def put(
        self,
        state: npt.NDArray[np.int64],
        log: npt.NDArray[np.uint8],
        rows: npt.NDArray[np.void],
        keys: npt.NDArray[np.void],
        first: int,
        heads: npt.NDArray[np.int32],
        between: Callable[[str], None] | None = None,
    ) -> int:
        """Puts keys[first:] of a dispatch scan as far as there is room; returns how many.

        `state` is the header as kernels take it (STATE_SIZE numbers), `heads` their scratch. `between` is called
        before the slots are written and before the header is, for tests that end the process there.
        """
        file = self.mapped.array
        count = int(
            kernels.put_entries(file, self.slots, self.indexes, state, log, rows, keys, first, len(keys), heads)
        )
        if count:
            if between is not None:
                between("slots")
            kernels.put_slots(file, state, heads)
            if between is not None:
                between("header")
            self.store_header(Header(*(int(number) for number in state[: kernels.INDEX_COUNT + 1])))
        return count

    def cut(self, physical_offset: int, time_of: Callable[[int], int], floor: int = 0) -> int:
        """Keeps the entries of records before `physical_offset`, to which the file is whole; returns the count left.

        The count of the header is not believed: what is of a record before `floor`, where the file before this one
        ends, was never written.

        Slots are computed anew from the entries that stay, and stored where they differ, before the header: a reader
        meanwhile misses none of those entries. `time_of` reads a record's store time from the log, -1 if it cannot.
        """
        before = self.header
        count = self._count_below(physical_offset, min(before.index_count, self.indexes), floor)
        heads = np.zeros(self.slots, dtype=np.int32)
        file = self.mapped.array
        used = 0
        for first in range(0, count, _ENTRIES_AT_ONCE):
            stop = min(first + _ENTRIES_AT_ONCE, count)
            used += int(kernels.rebuild_slots(file, self.slots, first, stop, heads))
        for first in range(0, self.slots, _SLOTS_AT_ONCE):
            kernels.write_slots(file, heads, first, min(first + _SLOTS_AT_ONCE, self.slots))
        if count > 1:
            end = int(self.entries["physical_offset"][count - 1])
            timestamp = before.end_timestamp
            if count != before.index_count or end != before.end_physical_offset:
                timestamp = self._end_timestamp(before, count, time_of(end))
            header = Header(before.begin_timestamp, timestamp, before.begin_physical_offset, end, used, count)
            if header != before:
                self.store_header(header)
        else:
            self.store_header(Header())
        return count - 1

    def query(self, key_hash: int, begin: int, end: int, limit: int) -> list[int]:
        """Log offsets of records of this hash stored in [begin, end] ms, newest first, at most `limit` (spec 4.5)."""
        count = self._count()
        head = self._cell(key_hash)
        offsets = np.empty(limit, dtype=np.int64)
        found = int(kernels.query(self.mapped.array, self.slots, self.indexes, key_hash, begin, end, limit, offsets))
        if head < count and self._cell(key_hash) == head:
            return [int(offset) for offset in offsets[:found]]
        return self._query_below(count, key_hash, begin, end, limit)

    def store_header(self, header: Header) -> None:
        """Word by word, each in one store; the count comes last, in one word with the number of slots in use."""
        data = index_file.encode_header(header)
        for at in range(0, HEADER_SIZE, WORD_SIZE):
            store_first_word(self.mapped, at, data[at : at + WORD_SIZE])

    def sync(self) -> None:
        """Raises SyncFailed."""
        self.mapped.sync(0, self.mapped.size)

    def _count_below(self, physical_offset: int, count: int, floor: int) -> int:
        """The number of the first entry that is none of a record in [floor, physical_offset), or breaks their order."""
        entries, last = self.entries, floor
        for first in range(1, count, _ENTRIES_AT_ONCE):
            part = entries[first : min(first + _ENTRIES_AT_ONCE, count)]
            offsets = np.concatenate(([last], part["physical_offset"])).astype(np.int64)
            bad = (offsets[1:] >= physical_offset) | (offsets[1:] < offsets[:-1])
            bad |= (offsets[1:] == 0) & (part["key_hash"] == 0)  # zeros, which also are in the order of a log from 0 on
            if bad.any():
                return first + int(bad.argmax())
            last = int(offsets[-1])
        return max(count, 1)

    def _end_timestamp(self, before: Header, count: int, stored: int) -> int:
        if stored >= 0:
            return stored
        return before.begin_timestamp + 1000 * max(0, int(self.entries["time_diff"][count - 1]))

    def _query_below(self, count: int, key_hash: int, begin: int, end: int, limit: int) -> list[int]:
        """The same walk while a batch is being put: the slot is ahead of the count, older entries follow behind it."""
        view = self.mapped.view
        begin_timestamp = self.header.begin_timestamp
        found: list[int] = []
        number = self._cell(key_hash)
        for _ in range(self.indexes):
            if not 0 < number < self.indexes or len(found) >= limit:
                break
            at = index_file.entry_at(self.slots, number)
            hashed, offset, seconds, previous = ENTRY_LAYOUT.unpack_from(view[at : at + ENTRY_SIZE])
            if number < count:
                stored = begin_timestamp + 1000 * seconds
                if seconds >= 0 and hashed == key_hash and begin <= stored <= end:
                    found.append(offset)
                if seconds < 0 or stored < begin:
                    break
            if previous >= number:
                break
            number = previous
        return found

    def _cell(self, key_hash: int) -> int:
        at = index_file.slot_at(index_file.slot_of(key_hash, self.slots))
        return int.from_bytes(self.mapped.view[at : at + SLOT_SIZE], "big", signed=True)

    def _count(self) -> int:
        return min(self.header.index_count, self.indexes)
