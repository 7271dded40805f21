"""The ConsumeQueueExt files of a store: `consumequeue_ext/<topic>/<queueId>/<20 digits>` (spec 3.5, 7.3).

Files are sparse and full-sized, and written with pwrite only, as those of queues (H7). The one writer is reput, before
it recovery. Where a queue's units end is not kept: it is behind the unit that the newest queue entry points to.
"""

import errno
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.errors import DiskFull, SyncFailed
from towline.format.files import consume_queue_ext as ext
from towline.format.files.consume_queue_ext import HEAD, SIZE
from towline.log.files.segment_files import FULL_ERRNOS, segment_base, segment_name, sync_directory
from towline.log.files.sparse_file import written

from .consume_queue import queue_directory

Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

is_address: Final = ext.are_addresses  # which tags codes of queue entries are addresses of units


@dataclass(frozen=True, slots=True)
class Units:
    """What stands at some addresses, in their order. Where `found` is false the rest means nothing.

    `bitmaps` has as many columns as were asked for; `mapped` says which units have a bitmap of exactly that size.
    """

    found: npt.NDArray[np.bool_]
    tags_codes: Integers
    store_timestamps: Integers
    mapped: npt.NDArray[np.bool_]
    bitmaps: npt.NDArray[np.uint8]


def opened(root: Path, open_max: int) -> "ConsumeQueueExtFiles | None":
    """The files below `root`, of whatever size they have; None where there are none. For tools."""
    size = next((path.stat().st_size for path in root.glob("*/*/*") if segment_base(path.name) is not None), 0)
    return ConsumeQueueExtFiles(root, size, open_max) if size > SIZE + ext.FREE_SIZE else None


class ConsumeQueueExtFiles:
    """All extension files below `root`. `file_size` in bytes. For one thread; any number of processes read."""

    def __init__(self, root: Path, file_size: int, open_max: int) -> None:
        assert file_size > SIZE + ext.FREE_SIZE
        assert open_max > 0
        self.root, self.file_size = root, file_size
        self._open_max = open_max
        self._open: OrderedDict[tuple[str, int, int], tuple[int, bool]] = OrderedDict()  # (descriptor, writable)
        self._synced: dict[tuple[str, int], int] = {}  # by queue: files before it are full and durable

    # --- the writer

    def write(self, topic: str, queue_id: int, position: int, units: Bytes) -> tuple[Integers, int]:
        """Writes units, rows of `encode_units`, from byte `position` of the queue's stream on: (addresses, the end).

        What does not fit a file goes to the next one. Raises DiskFull, IllegalTopic.
        """
        run = ext.lay_out(position, units, self.file_size)
        for at, data in run.slices:
            self._store(topic, queue_id, at, data[: self.file_size - at % self.file_size])
        return run.addresses, run.end

    def behind(self, topic: str, queue_id: int, address: int) -> int:
        """The position behind the unit at `address`; behind its head if the unit was never written."""
        position = ext.offset_of(address)
        head = np.frombuffer(self._load(topic, queue_id, position, SIZE), dtype=HEAD)[0]
        return position + max(SIZE, int(head["unit_size"]))

    def end_of(self, topic: str, queue_id: int) -> int:
        """Where a walk over all units of the last file ends: for a queue whose newest entry points to none."""
        bases = self.bases(topic, queue_id)
        if not bases:
            return 0
        data = np.frombuffer(self._load(topic, queue_id, bases[-1], self.file_size), dtype=np.uint8)
        _, end = ext.walk(data)
        return bases[-1] + end

    def cut(self, topic: str, queue_id: int, position: int) -> bool:
        """Zeroes what stands from `position` on and removes the files behind it, not synced. Whether there was any."""
        changed = False
        for base in self.bases(topic, queue_id):
            if base >= position:
                self._close((topic, queue_id, base))
                self._path(topic, queue_id, base).unlink(missing_ok=True)
                changed = True
            elif base + self.file_size > position:
                fd = self._descriptor(topic, queue_id, base, writable=True)
                if any(True for _ in written(fd, position - base, self.file_size)):
                    os.ftruncate(fd, position - base)  # nobody maps these files
                    os.ftruncate(fd, self.file_size)
                    changed = True
        return changed

    def delete_expired(self, topic: str, queue_id: int, address: int) -> int:
        """Removes the files before the one in which the unit at `address` stands. How many."""
        removed = 0
        for base in self.bases(topic, queue_id):
            if base + self.file_size > ext.offset_of(address):
                break
            self._close((topic, queue_id, base))
            self._path(topic, queue_id, base).unlink(missing_ok=True)
            removed += 1
        return removed

    def remove(self, topic: str, queue_id: int) -> None:
        """Everything of a queue."""
        for base in self.bases(topic, queue_id):
            self._close((topic, queue_id, base))
        shutil.rmtree(self._directory(topic, queue_id), ignore_errors=True)

    def sync(self, topic: str, queue_id: int) -> None:
        """Makes durable what was written before, by whomever, with the names of the files. Raises SyncFailed."""
        bases = self.bases(topic, queue_id)
        known = self._synced.get((topic, queue_id), -1)
        for base in bases:
            if base >= known:
                path = self._path(topic, queue_id, base)
                try:
                    os.fdatasync(self._descriptor(topic, queue_id, base, writable=False))
                except FileNotFoundError:  # removed meanwhile
                    continue
                except OSError as error:
                    raise SyncFailed(str(path), 0, 0, error.errno or errno.EIO, error.strerror or "") from error
        if bases and known != bases[-1]:
            directory = self._directory(topic, queue_id)
            for name in (directory, directory.parent, self.root, self.root.parent):
                sync_directory(name)
            self._synced[topic, queue_id] = bases[-1]

    # --- readers

    def read(self, topic: str, queue_id: int, addresses: Integers, bitmap_size: int) -> Units:
        """The units at these addresses, all of one queue, in queue order; `bitmap_size` in bytes."""
        count = len(addresses)
        head = np.zeros(count, dtype=HEAD)
        bitmaps = np.zeros((count, bitmap_size), dtype=np.uint8)
        for rows, data, within in self.spans(topic, queue_id, addresses, bitmap_size):
            taken = _rows(data, within, SIZE + bitmap_size)
            head[rows] = np.ascontiguousarray(taken[:, :SIZE]).view(HEAD)[:, 0]
            bitmaps[rows] = taken[:, SIZE:]
        found = (head["unit_size"] >= SIZE) & (head["unit_size"] == head["bitmap_size"] + SIZE)
        mapped = found & (head["bitmap_size"] == bitmap_size) if bitmap_size else np.zeros(count, dtype=np.bool_)
        codes, stored = head["tags_code"].astype(np.int64), head["store_timestamp"].astype(np.int64)
        return Units(found, codes, stored, mapped, bitmaps)

    def unit(self, topic: str, queue_id: int, address: int) -> ext.Unit | None:
        """The one unit at an address, whatever its bitmap; None where there is none. For tools."""
        position = ext.offset_of(address)
        room = self.file_size - position % self.file_size
        return ext.decode(self._load(topic, queue_id, position, min(room, ext.SIZE_MAX)))

    def spans(
        self, topic: str, queue_id: int, addresses: Integers, bitmap_size: int
    ) -> Iterator[tuple[slice | Integers, Bytes, Integers]]:
        """By file: which of the addresses are of it, its bytes that hold their units, and where each stands in them.

        Behind each place are a head and `bitmap_size` bytes, zeros where nothing is. All addresses are of one queue.
        """
        if not len(addresses):
            return
        positions, room = ext.offsets_of(addresses), SIZE + bitmap_size
        low, high = int(positions.min()) // self.file_size, int(positions.max()) // self.file_size
        numbers = None if low == high else positions // self.file_size
        for number in [low] if numbers is None else np.unique(numbers).tolist():
            rows: slice | Integers = slice(None) if numbers is None else np.flatnonzero(numbers == number)
            within = positions[rows] - number * self.file_size
            first, span = int(within.min()), int(within.max()) - int(within.min()) + room
            loaded = self._load(topic, queue_id, number * self.file_size + first, min(span, self.file_size - first))
            data = np.frombuffer(loaded if len(loaded) == span else loaded.ljust(span, b"\0"), dtype=np.uint8)
            yield rows, data, within - first

    def list_queues(self) -> list[tuple[str, int]]:
        """(topic, queue id) of every queue that has a directory here."""
        if not self.root.is_dir():
            return []
        return sorted(
            (topic.name, int(queue.name))
            for topic in self.root.iterdir()
            if topic.is_dir()
            for queue in topic.iterdir()
            if queue.name.isascii() and queue.name.isdigit() and queue.is_dir()
        )

    def bases(self, topic: str, queue_id: int) -> list[int]:
        """The first byte of each file of a queue, in order; other names are skipped."""
        try:
            names = [path.name for path in self._directory(topic, queue_id).iterdir()]
        except FileNotFoundError:
            return []
        return sorted(base for base in map(segment_base, names) if base is not None and base % self.file_size == 0)

    def close(self) -> None:
        """Closes every file. The object may go on to be used."""
        while self._open:
            os.close(self._open.popitem()[1][0])

    # --- files

    def _load(self, topic: str, queue_id: int, position: int, size: int) -> bytes:
        """Bytes of one file; zeros where there is none."""
        within = position % self.file_size
        try:
            fd = self._descriptor(topic, queue_id, position - within, writable=False)
        except FileNotFoundError:
            return bytes(size)
        return os.pread(fd, size, within).ljust(size, b"\0")

    def _store(self, topic: str, queue_id: int, position: int, data: bytes) -> None:
        within = position % self.file_size
        try:
            fd = self._descriptor(topic, queue_id, position - within, writable=True)
            view, at = memoryview(data), within
            while view:
                written = os.pwrite(fd, view, at)
                view, at = view[written:], at + written
        except OSError as error:
            if error.errno in FULL_ERRNOS:
                raise DiskFull(str(self._path(topic, queue_id, position - within)), len(data)) from error
            raise

    def _descriptor(self, topic: str, queue_id: int, base: int, *, writable: bool) -> int:
        """Of an open file, or of one that is opened, and made when it is to be written."""
        key = (topic, queue_id, base)
        known = self._open.get(key)
        if known is not None and (known[1] or not writable) and os.fstat(known[0]).st_nlink:
            self._open.move_to_end(key)
            return known[0]
        self._close(key)
        path = self._path(topic, queue_id, base)
        if writable:
            path.parent.mkdir(parents=True, exist_ok=True)
        flags = (os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY) | os.O_CLOEXEC
        fd = os.open(path, flags, 0o644)
        if writable and os.fstat(fd).st_size != self.file_size:
            os.ftruncate(fd, self.file_size)
        self._open[key] = (fd, writable)
        while len(self._open) > self._open_max:
            os.close(self._open.popitem(last=False)[1][0])
        return fd

    def _close(self, key: tuple[str, int, int]) -> None:
        known = self._open.pop(key, None)
        if known is not None:
            os.close(known[0])

    def _path(self, topic: str, queue_id: int, base: int) -> Path:
        return self._directory(topic, queue_id) / segment_name(base)

    def _directory(self, topic: str, queue_id: int) -> Path:
        return queue_directory(self.root, topic, queue_id)


def _rows(data: Bytes, at: Integers, size: int) -> Bytes:
    """`size` bytes from each of these places on; a view where they stand at equal distances, as units of a queue do."""
    step = int(at[1] - at[0]) if len(at) > 1 else size
    if step > 0 and (at[1:] - at[:-1] == step).all():
        return np.ndarray((len(at), size), np.uint8, data, int(at[0]), (step, 1))
    gathered: Bytes = data[at[:, None] + np.arange(size)]
    return gathered
