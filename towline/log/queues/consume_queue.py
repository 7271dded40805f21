"""The ConsumeQueue files of a store: `consumequeue/<topic>/<queueId>/<20 digits>`, 20-byte entries (spec 3).

Files are sparse and full-sized, and written with pwrite only: through a mapping a full disk would be SIGBUS (H7).
Readers and writer keep a bounded number of files open over all queues, so 10,000 queues need neither as many
descriptors nor any mapping. The one writer is reput, before it recovery; every reader stays below the end
that reput published.
"""

import errno
import os
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.errors import DiskFull, ForeignFile, IllegalTopic, SyncFailed
from towline.format.files.consume_queue import ENTRY, FILLER, FILLER_RECORD_SIZE, SIZE
from towline.format.files.topics import is_directory_name
from towline.log.errors import DerivedFileSize
from towline.log.files.segment_files import (
    FULL_ERRNOS,
    begin_write_back,
    segment_base,
    segment_name,
    sync_directory,
    sync_file_system,
)
from towline.log.files.sparse_file import written

Entries = npt.NDArray[np.void]  # dtype ENTRY

QUEUE_ID_MAX: Final = 2**31 - 1
_BLOCK: Final = 4096  # entries that recovery reads at once


class Boundary(Enum):
    """The message to choose for a time at which several, or none, were stored (spec 3.4)."""

    LOWER = "lower"  # the first one stored at the time or later
    UPPER = "upper"  # the last one stored at the time or earlier


class ConsumeQueueFiles:
    """All queues below `root`. `file_size` in bytes, a multiple of 20. For one thread; any number of processes read."""

    def __init__(self, root: Path, file_size: int, open_max: int, *, apart: bool = False) -> None:
        """`apart`: others write what stands before in the same files, so nothing is filled but by `fill_before`."""
        assert file_size > 0
        assert file_size % SIZE == 0, f"a file of {file_size} bytes does not hold whole entries"
        assert open_max > 0
        self.root, self.file_size, self._apart = root, file_size, apart
        self._open_max = open_max
        self._root_fd = -1  # the kernel reports errors of write-back to whoever has a file open
        self._open: OrderedDict[tuple[str, int, int], tuple[int, bool]] = OrderedDict()  # (descriptor, writable)
        self._durable_names: set[Path] = set()  # their directory entries were synced by this object

    def write(self, topic: str, queue_id: int, first_queue_offset: int, entries: bytes | memoryview | Entries) -> None:
        """Writes whole entries for `first_queue_offset` and the following ones, making files as needed; not synced.

        What is empty before the first entry of a file is filled with fillers (spec 3.2): a queue may begin anywhere.
        Writing the same entries again changes nothing. Raises DiskFull, DerivedFileSize or IllegalTopic.
        """
        data = np.frombuffer(entries, dtype=np.uint8).data
        assert len(data) % SIZE == 0
        at = first_queue_offset * SIZE
        while data:
            within = at % self.file_size
            size = min(len(data), self.file_size - within)
            fd = self._writable(topic, queue_id, at - within, within)
            self._store(fd, data[:size], within)
            data = data[size:]
            at += size

    def fill_before(self, topic: str, queue_id: int, first: int) -> None:
        """Fills what is empty before number `first` in its file, as `write` does. Raises the same."""
        within = first * SIZE % self.file_size
        key = (topic, queue_id, first * SIZE - within)
        self._fill(self._writable(*key, 0), key, within)

    def read(self, topic: str, queue_id: int, from_offset: int, count: int) -> Entries:
        """Up to `count` entries from `from_offset` on, dtype ENTRY, all from one file; none where nothing was written.

        Entry i of the answer is number `from_offset` + i. A filler stands in its place: skip where `is_filler`.
        """
        at = from_offset * SIZE
        within = at % self.file_size
        fd = self._readable(topic, queue_id, at - within)
        if fd is None or count <= 0:
            return np.empty(0, dtype=ENTRY)
        entries = _entries(fd, within, min(count * SIZE, self.file_size - within))
        empty = entries["record_size"] <= 0
        return entries[: int(empty.argmax())] if empty.any() else entries

    def raw(self, topic: str, queue_id: int, from_offset: int, count: int) -> Entries:
        """Up to `count` entries of one file as they stand there; empty ones where nothing was written or no file is."""
        within = from_offset * SIZE % self.file_size
        size = min(count * SIZE, self.file_size - within)
        fd = self._readable(topic, queue_id, from_offset * SIZE - within)
        return np.zeros(size // SIZE, dtype=ENTRY) if fd is None else _entries(fd, within, size)

    def list_queues(self) -> list[tuple[str, int]]:
        """(topic, queue id) of every queue directory, in order. Other names are skipped, as a broker does."""
        if not self.root.is_dir():
            return []
        topics = [path for path in self.root.iterdir() if path.is_dir()]
        return sorted(
            (topic.name, int(queue.name))
            for topic in topics
            for queue in topic.iterdir()
            if is_queue_id(queue.name) and queue.is_dir()
        )

    def end_of(self, topic: str, queue_id: int, below_phy: int) -> tuple[int, int]:
        """(first entry, end) of what a queue holds of the log before `below_phy`, to which its files must be synced.

        The end is the first entry that is empty, no entry, or of a record at `below_phy` or later. The first entry is
        the first that is no filler. A queue of which nothing is kept is empty at the beginning of its first file, or
        at 0 for `below_phy` 0. Raises DerivedFileSize or ForeignFile.
        """
        bases = self.bases(topic, queue_id)
        if not bases or below_phy <= 0:
            return 0, 0
        end = bases[0] // SIZE
        for base in reversed(bases):
            kept = self._kept(topic, queue_id, base, below_phy)
            if kept:
                end = base // SIZE + kept
                break
        first = bases[0] // SIZE
        if first < end and is_filler(self.read(topic, queue_id, first, 1)).any():
            leading = is_filler(self.read(topic, queue_id, first, min(end - first, self.file_size // SIZE)))
            first += len(leading) if leading.all() else int(leading.argmin())
        return first, end

    def cut(self, topic: str, queue_id: int, end_offset: int, *, synced: bool = True) -> bool:
        """Zeroes every entry from `end_offset` on, durably, and removes the files behind it. Whether anything changed.

        Not `synced`: it is durable after a `sync_all`, which many queues share. The first file stays, because its name
        keeps the queue's place when nothing else does; cutting at 0 removes it. Raises SyncFailed: entries cut off must
        not come back with the next start (H1).
        """
        end = end_offset * SIZE
        bases = self.bases(topic, queue_id)
        changed = False
        for base in bases:
            if base >= end and (base > bases[0] or end == 0):
                self._remove(topic, queue_id, base)
                changed = True
            elif base + self.file_size > end:
                fd = self._readable(topic, queue_id, base)
                if fd is not None and self._zero(topic, queue_id, base, max(0, end - base), synced=synced):
                    changed = True
        if changed and synced:
            sync_directory(self._directory(topic, queue_id))
        return changed

    def sync(self, topic: str, queue_id: int, from_offset: int, to_offset: int) -> None:
        """Makes entries [from_offset, to_offset) durable, with the names of their files. Raises SyncFailed.

        Any process may call it: it covers what others wrote. A file removed meanwhile is skipped.
        """
        start, end = from_offset * SIZE, to_offset * SIZE
        for base in range(start - start % self.file_size, end, self.file_size):
            fd = self._readable(topic, queue_id, base)
            if fd is None:
                continue
            path = self._path(topic, queue_id, base)
            _sync(fd, path)
            for name in (path, path.parent, path.parent.parent):
                if name not in self._durable_names:
                    sync_directory(name.parent)
                    self._durable_names.add(name)

    def begin_write_back(self, topic: str, queue_id: int, from_offset: int, to_offset: int) -> None:
        """The files of entries [from_offset, to_offset) start on their way to the disk: a later sync is short."""
        start, end = from_offset * SIZE, to_offset * SIZE
        for base in range(start - start % self.file_size, end, self.file_size):
            fd = self._readable(topic, queue_id, base)
            if fd is not None:
                begin_write_back(fd)

    def watch(self) -> None:
        """From here on no error of write-back is missed by `sync_all`, whoever else it was reported to (H5)."""
        if self._root_fd < 0:
            self._root_fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync_all(self) -> None:
        """Makes every entry of every queue durable, with all names, by one sync of the file system. Raises SyncFailed.

        For many queues: it costs as much as the file system has to write, each `sync` a commit of its journal. Not
        while somebody appends to the log: it also writes the pages populated ahead, and each faults again (H6).
        """
        self.watch()
        sync_file_system(self._root_fd, self.root)

    def min_offset_after(self, topic: str, queue_id: int, log_min: int, min_offset: int, end_offset: int) -> int:
        """The first entry of [min_offset, end_offset) of a record still in the log; the end if none is (spec 3.3)."""
        if min_offset < end_offset and self._physical(topic, queue_id, min_offset) >= log_min:
            return min_offset
        return bisect_left(
            range(end_offset),
            True,
            lo=min_offset,
            hi=end_offset,
            key=lambda offset: self._physical(topic, queue_id, offset) >= log_min,
        )

    def search_time(
        self,
        topic: str,
        queue_id: int,
        timestamp: int,
        boundary: Boundary,
        *,
        min_offset: int,
        end_offset: int,
        log_min: int,
        store_time: Callable[[int], int],
    ) -> int:
        """The queue offset that stands for `timestamp` (epoch ms), within [min_offset, end_offset] (spec 3.4).

        `store_time(physical_offset)` reads a record's time from the log; below 0 if it cannot. LOWER: the end if all
        are earlier. UPPER: the minimum if all are later.
        """

        def time_of(offset: int) -> int:
            physical = self._physical(topic, queue_id, offset)
            return -1 if physical < log_min else max(0, store_time(physical))

        offsets = range(end_offset)
        if boundary is Boundary.LOWER:
            return bisect_left(offsets, True, lo=min_offset, key=lambda offset: time_of(offset) >= timestamp)
        following = bisect_left(offsets, True, lo=min_offset, key=lambda offset: time_of(offset) > timestamp)
        return max(min_offset, following - 1)

    def delete_expired(self, topic: str, queue_id: int, log_min: int, at_most: int | None = None) -> int:
        """Removes leading files of which no record is in the log any more, never the last (spec 8.8). How many."""
        bases = self.bases(topic, queue_id)
        count = 0
        for base in bases[:-1]:
            if count == at_most or self._physical(topic, queue_id, (base + self.file_size) // SIZE - 1) >= log_min:
                break
            self._remove(topic, queue_id, base)
            count += 1
        return count

    def delete_below(self, topic: str, queue_id: int, floor: int, at_most: int | None = None) -> int:
        """Removes leading files that hold only entries below `floor`, never the last. How many."""
        gone = [base for base in self.bases(topic, queue_id)[:-1] if base + self.file_size <= floor * SIZE]
        for base in gone[:at_most]:
            self._remove(topic, queue_id, base)
        return len(gone[:at_most])

    def delete(self, topic: str, queue_id: int) -> None:
        """Removes a queue that is not open, with its directory, and its topic's directory when that is empty then."""
        for base in self.bases(topic, queue_id):
            self._remove(topic, queue_id, base)
        directory = self._directory(topic, queue_id)
        for path in (directory, directory.parent):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
                sync_directory(path.parent)

    def bases(self, topic: str, queue_id: int) -> list[int]:
        """The first byte of each file of a queue, in order; other names are skipped. Raises ForeignFile."""
        directory = self._directory(topic, queue_id)
        try:
            names = [path.name for path in directory.iterdir()]
        except FileNotFoundError:
            return []
        bases = sorted(base for base in map(segment_base, names) if base is not None)
        for base in bases:
            if base % self.file_size:
                path = str(directory / segment_name(base))
                raise ForeignFile(path, f"is named by an offset that is no multiple of the file size {self.file_size}")
        return bases

    def close_removed(self) -> int:
        """Closes files that were deleted since they were opened: only then their blocks are free. How many."""
        gone = [key for key, (fd, _) in self._open.items() if not os.fstat(fd).st_nlink]
        for key in gone:
            self._close(key)
        return len(gone)

    def close(self) -> None:
        """Closes every file. The object may go on to be used."""
        if self._root_fd >= 0:
            os.close(self._root_fd)
            self._root_fd = -1
        while self._open:
            os.close(self._open.popitem()[1][0])

    def _physical(self, topic: str, queue_id: int, offset: int) -> int:
        """The log offset of an entry's record; -1 for a filler or no entry."""
        entries = self.read(topic, queue_id, offset, 1)
        return int(places_of(entries)[0]) if len(entries) else -1

    def _kept(self, topic: str, queue_id: int, base: int, below_phy: int) -> int:
        """How many leading entries of a file are entries of records before `below_phy`."""
        fd = self._readable(topic, queue_id, base)
        if fd is None:
            return 0
        # Entries have no gaps, so none stands behind the first hole; reading holes would fill the page cache.
        room = -(-os.lseek(fd, 0, os.SEEK_HOLE) // SIZE)

        def lost(block: int) -> bool:
            return not _is_entry(_entries(fd, block * _BLOCK * SIZE, SIZE), below_phy).all()

        block = bisect_left(range(-(-room // _BLOCK)), True, key=lost) - 1
        if block < 0:
            return 0
        start = block * _BLOCK
        entries = _entries(fd, start * SIZE, min(_BLOCK, room - start) * SIZE)
        good = _is_entry(entries, below_phy)
        places = places_of(entries)
        hole = is_filler(entries) & (places >= 0)  # several may stand for one damaged stretch
        good[1:] &= (places[1:] > places[:-1]) | (places[1:] < 0) | (hole[1:] & (places[1:] == places[:-1]))
        return start + (len(good) if good.all() else int(good.argmin()))

    def _zero(self, topic: str, queue_id: int, base: int, start: int, *, synced: bool) -> bool:
        """Zeroes a file from byte `start` on where anything is written, and syncs it. Whether anything was."""
        fd, _ = self._descriptor(topic, queue_id, base, writable=True)
        dirty = False
        for first, end in list(written(fd, start, self.file_size)):
            self._store(fd, memoryview(bytes(end - first)), first)
            dirty = True
        if dirty and synced:
            _sync(fd, self._path(topic, queue_id, base))
        return dirty

    def _store(self, fd: int, data: memoryview, at: int) -> None:
        while data:
            try:
                size = os.pwrite(fd, data, at)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise DiskFull(str(Path(f"/proc/self/fd/{fd}").readlink()), len(data)) from error
                raise
            data = data[size:]
            at += size

    def _readable(self, topic: str, queue_id: int, base: int) -> int | None:
        """A descriptor to read from; None if there is no file, or only a name that a crash left without a length."""
        known = self._open.get((topic, queue_id, base))
        if known is not None and os.fstat(known[0]).st_nlink:
            self._open.move_to_end((topic, queue_id, base))
            return known[0]
        if known is not None:  # removed since, with a deleted topic; there may be another of its name
            self._close((topic, queue_id, base))
            path = self._path(topic, queue_id, base)
            self._durable_names -= {path, path.parent, path.parent.parent}
        try:
            return self._descriptor(topic, queue_id, base, writable=False)[0]
        except FileNotFoundError:
            return None

    def _writable(self, topic: str, queue_id: int, base: int, within: int) -> int:
        """A descriptor to write to from byte `within` on; the file is made, and everything before that filled."""
        key = (topic, queue_id, base)
        known = self._open.get(key)
        if known is not None and known[1]:
            self._open.move_to_end(key)
            return known[0]
        try:
            fd, length = self._descriptor(topic, queue_id, base, writable=True)
        except FileNotFoundError:
            try:
                self._directory(topic, queue_id).mkdir(parents=True, exist_ok=True)
                fd, length = self._descriptor(topic, queue_id, base, writable=True, create=True)
            except OSError as error:
                if error.errno in FULL_ERRNOS:
                    raise DiskFull(str(self._path(topic, queue_id, base)), self.file_size) from error
                raise
        if length == 0:
            os.ftruncate(fd, self.file_size)
        if not self._apart:
            self._fill(fd, key, within)
        return fd

    def _fill(self, fd: int, key: tuple[str, int, int], within: int) -> None:
        """Fillers behind the last entry before byte `within`, if the one before it is empty."""
        if not within or _entries(fd, within - SIZE, SIZE)["record_size"][0]:
            return
        written = np.flatnonzero(_entries(fd, 0, within)["record_size"])
        first = int(written[-1]) + 1 if len(written) else 0
        try:
            self._store(fd, memoryview(FILLER * (within // SIZE - first)), first * SIZE)
        except DiskFull:
            self._close(key)  # the next try must find again what is missing
            raise

    def _descriptor(
        self, topic: str, queue_id: int, base: int, *, writable: bool, create: bool = False
    ) -> tuple[int, int]:
        """Opens a file, or takes the open one if it serves. Returns descriptor and length.

        Without `create` a missing file raises FileNotFoundError; so does one of length 0 that is opened for reading.
        """
        key = (topic, queue_id, base)
        known = self._open.get(key)
        if known is not None and (known[1] or not writable):
            return known[0], self.file_size
        path = self._path(topic, queue_id, base)
        flags = (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        fd = os.open(path, flags, 0o644)
        length = os.fstat(fd).st_size
        if length != self.file_size and (length or not writable):
            os.close(fd)
            if length:
                raise DerivedFileSize(str(path), length, self.file_size)
            raise FileNotFoundError(errno.ENOENT, "a file without a length", str(path))
        self._close(key)
        self._open[key] = (fd, writable)
        while len(self._open) > self._open_max:
            os.close(self._open.popitem(last=False)[1][0])
        return fd, length

    def _remove(self, topic: str, queue_id: int, base: int) -> None:
        self._close((topic, queue_id, base))
        path = self._path(topic, queue_id, base)
        path.unlink(missing_ok=True)
        self._durable_names.discard(path)

    def _close(self, key: tuple[str, int, int]) -> None:
        known = self._open.pop(key, None)
        if known is not None:
            os.close(known[0])

    def _path(self, topic: str, queue_id: int, base: int) -> Path:
        return self._directory(topic, queue_id) / segment_name(base)

    def _directory(self, topic: str, queue_id: int) -> Path:
        return queue_directory(self.root, topic, queue_id)


def queue_directory(root: Path, topic: str, queue_id: int) -> Path:
    """Of the files of a queue. A log made elsewhere may hold any topic; for one that leads out of the store this raises
    IllegalTopic."""
    if not is_directory_name(os.fsencode(topic)):
        raise IllegalTopic(topic, "the name cannot be a directory")
    return root / topic / str(queue_id)


def is_queue_id(name: str) -> bool:
    """Whether a directory of a topic has the name of a queue: a number of 31 bits, written plainly."""
    return name.isascii() and name.isdigit() and str(int(name)) == name and int(name) <= QUEUE_ID_MAX


def is_filler(entries: Entries) -> npt.NDArray[np.bool_]:
    """Marks entries that only fill the place before a queue's first message: they belong to no record."""
    filler: npt.NDArray[np.bool_] = entries["record_size"] == FILLER_RECORD_SIZE
    return filler


def places_of(entries: Entries) -> npt.NDArray[np.int64]:
    """The log offset of each entry's record, skipped ones included; -1 for other fillers."""
    lost = np.where(entries["tags_code"] > 0, entries["tags_code"], -1)
    places: npt.NDArray[np.int64] = np.where(is_filler(entries), lost, entries["physical_offset"]).astype(np.int64)
    return places


def _is_entry(entries: Entries, below_phy: int) -> npt.NDArray[np.bool_]:
    """Which are entries of a record before `below_phy`, or fillers."""
    inside: npt.NDArray[np.bool_] = (entries["record_size"] > 0) & (entries["physical_offset"] >= 0)
    return inside & (places_of(entries) < below_phy)


def _entries(fd: int, at: int, size: int) -> Entries:
    """The entries in [at, at + size) of a file; empty ones where the file is too short."""
    data = os.pread(fd, size, at)
    return np.frombuffer(data if len(data) == size else data.ljust(size, b"\0"), dtype=ENTRY)


def _sync(fd: int, path: Path) -> None:
    try:
        os.fdatasync(fd)
    except OSError as error:
        raise SyncFailed(str(path), 0, 0, error.errno or errno.EIO, error.strerror or "") from error
