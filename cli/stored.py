"""Reads the files of a store, those of `diverged/` among them. No node need run; nothing is mapped or written."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from towline.errors import MalformedFile, MalformedRecord, NotInLog
from towline.format.files import consume_queue, index_file
from towline.format.record import blank, record
from towline.limits import RECORD_SIZE_MAX
from towline.log.files.store_files import IndexShape
from towline.log.state.truncation_file import KeptTail, epochs_of, kept_tails
from towline.places import Store

_WORD: Final = 4


def _numbered(directory: Path) -> list[tuple[int, Path]]:
    """(first byte, path) of the files whose names are 20 digits, in order."""
    paths = (
        [path for path in directory.iterdir() if len(path.name) == 20 and path.name.isdigit()]
        if directory.is_dir()
        else []
    )
    return sorted((int(path.name), path) for path in paths)


def read_log(store: Store, offset: int, size: int) -> bytes:
    """Up to `size` bytes of the log from `offset`, of one segment. Raises NotInLog."""
    files = _numbered(store.commitlog)
    if not files:
        raise NotInLog(offset, 0, 0)
    base, path = next(((base, path) for base, path in reversed(files) if base <= offset), files[0])
    if not base <= offset < base + path.stat().st_size:
        raise NotInLog(offset, files[0][0], files[-1][0] + files[-1][1].stat().st_size)
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, size, offset - base)
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class Blank:
    """The end of a full segment; `remaining` bytes are skipped."""

    remaining: int


def read_record(store: Store, offset: int) -> record.Record | Blank | None:
    """What stands at a physical offset; None where nothing was written. Raises NotInLog, MalformedRecord."""
    data = read_log(store, offset, RECORD_SIZE_MAX)
    if int.from_bytes(data[_WORD : 2 * _WORD], "big") == blank.MAGIC:
        return Blank(int.from_bytes(data[:_WORD], "big"))
    if not any(data[: record.SIZE_MIN]):
        return None
    return record.decode(data)


# --- queues


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """One ConsumeQueue as its files hold it."""

    files: list[tuple[int, Path]]

    @classmethod
    def of(cls, store: Store, topic: str, queue_id: int) -> "QueueFiles":
        return cls(_numbered(store.consumequeue / topic / str(queue_id)))

    def bounds(self) -> tuple[int, int]:
        """First number that is no filler, and the number after the last entry."""
        first = end = self.files[0][0] // consume_queue.SIZE if self.files else 0
        for base, path in self.files:
            sizes = self._entries(path)["record_size"]
            written = np.flatnonzero(sizes)
            if len(written):
                end = base // consume_queue.SIZE + int(written[-1]) + 1
        if self.files:
            base, path = self.files[0]
            real = np.flatnonzero(self._entries(path)["record_size"] != consume_queue.FILLER_RECORD_SIZE)
            first = base // consume_queue.SIZE + (int(real[0]) if len(real) else 0)
        return min(first, end), end

    def entries(self, start: int, count: int) -> Iterator[tuple[int, consume_queue.Entry]]:
        """(number, entry) from `start` on, at most `count`, up to the first that was never written."""
        for base, path in self.files:
            number = base // consume_queue.SIZE
            rows = self._entries(path)
            for row in rows[max(0, start - number) :] if start < number + len(rows) else ():
                if count <= 0 or not row["record_size"]:
                    return
                at, start, count = max(start, number), max(start, number) + 1, count - 1
                yield at, consume_queue.Entry(*(int(value) for value in row))

    @staticmethod
    def _entries(path: Path) -> npt.NDArray[np.void]:
        whole = path.stat().st_size // consume_queue.SIZE
        return np.fromfile(path, dtype=consume_queue.ENTRY, count=whole)


def queues_of(store: Store) -> list[tuple[str, int]]:
    """(topic, queue id) of every queue directory."""
    found = store.consumequeue.glob("*/*") if store.consumequeue.is_dir() else iter(())
    return sorted((path.parent.name, int(path.name)) for path in found if path.name.isdigit())


# --- index


@dataclass(frozen=True, slots=True)
class Chained:
    """One entry of a chain with its number; `same_hash` separates it from others of the slot."""

    number: int
    entry: index_file.Entry
    same_hash: bool


class IndexReader:
    """One index file."""

    def __init__(self, path: Path, shape: IndexShape) -> None:
        """Raises MalformedFile when its size does not fit the shape."""
        self.path, self._shape = path, shape
        expected = index_file.file_size(shape.slots, shape.indexes)
        if path.stat().st_size != expected:
            problem = (
                f"{shape.slots} slots and {shape.indexes} entries make {expected} bytes, it has {path.stat().st_size}"
            )
            raise MalformedFile(str(path), problem)
        self.header = index_file.decode_header(self._read(0, index_file.HEADER_SIZE))

    def chain(self, topic: str, key: str) -> Iterator[Chained]:
        """Newest first. Steps are limited to the count of entries, so a damaged chain ends (H13)."""
        wanted = index_file.key_hash(topic, key)
        slot = index_file.slot_at(index_file.slot_of(wanted, self._shape.slots))
        number = int.from_bytes(self._read(slot, index_file.SLOT_SIZE), "big", signed=True)
        for _ in range(self.header.index_count):
            if not 0 < number < self.header.index_count:
                return
            at = index_file.entry_at(self._shape.slots, number)
            entry = index_file.decode_entry(self._read(at, index_file.ENTRY_SIZE))
            yield Chained(number, entry, entry.key_hash == wanted)
            number = entry.previous

    def _read(self, at: int, size: int) -> bytes:
        fd = os.open(self.path, os.O_RDONLY)
        try:
            return os.pread(fd, size, at)
        finally:
            os.close(fd)


def index_files(store: Store) -> list[Path]:
    """In the order in which they were made."""
    found = store.index.iterdir() if store.index.is_dir() else iter(())
    return sorted(path for path in found if path.name.isdigit())


# --- files of diverged/


_NAME: Final = 20  # digits of the log offset with which the name of a copy begins
_RECORD_HEAD: Final = 8
CUT_BY_START: Final = "bytes behind the log's end, at a start or by `towline store repair`"


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A copy of the log's bytes [start, end). `tail` is what it belongs to, where a master did not have it."""

    path: Path
    start: int
    tail: KeptTail | None

    @property
    def end(self) -> int:
        return self.start + self.path.stat().st_size

    def records(self, offset: int | None = None) -> Iterator[tuple[int, int]]:
        """(log offset, size) of every whole record from `offset` on, or from the first; ends where there is none.

        A kept file begins with a record, but for bytes that a crash left behind the log's end.
        """
        data = np.memmap(self.path, dtype=np.uint8, mode="r")
        at = 0 if offset is None else offset - self.start
        while 0 <= at <= len(data) - record.SIZE_MIN:
            head = data[at : at + _RECORD_HEAD].tobytes()
            size, magic = int.from_bytes(head[:4], "big", signed=True), int.from_bytes(head[4:], "big")
            if magic not in (record.MAGIC_V1, record.MAGIC_V2) or not record.SIZE_MIN <= size <= len(data) - at:
                return  # a blank, the torn record that ended the log, or no record at all
            yield self.start + at, size
            at += size

    def read(self, offset: int) -> record.Record:
        """Raises NotInLog, MalformedRecord."""
        if not self.start <= offset < self.end:
            raise NotInLog(offset, self.start, self.end)
        with self.path.open("rb") as file:
            file.seek(offset - self.start)
            data = file.read(RECORD_SIZE_MAX)
        try:
            return record.decode(data)
        except MalformedRecord as error:
            raise MalformedRecord(error.rule, error.sentence, offset) from None

    def row(self) -> dict[str, Any]:
        """What `towline inspect diverged` says of the file. `time` is in epoch ms, None where it is not known."""
        cut = self.tail.cut if self.tail is not None else None
        stamp = self.path.stem[_NAME + 1 :].partition("-")[0]
        parts = epochs_of(self.tail) if self.tail is not None else []
        return {
            "file": self.path.name,
            "start": self.start,
            "end": self.end,
            "epochs": [number for number, start, end in parts if start < self.end and end > self.start],
            "time": int(stamp) if stamp.isdecimal() else None,
            "master": cut.master if cut is not None else None,
            "why": cut.why if cut is not None else CUT_BY_START,
            "records": sum(1 for _ in self.records()),
        }


def kept_files(store: Store) -> list[KeptFile]:
    """Every copy of the log's bytes in diverged/, in the order of the log. Raises MalformedFile."""
    tails = {name: kept for kept in kept_tails(store) for name, _, _ in kept.files}
    paths = store.diverged.glob("*.log") if store.diverged.is_dir() else iter(())
    named = [path for path in sorted(paths) if path.name[:_NAME].isdecimal()]
    return [KeptFile(path, int(path.name[:_NAME]), tails.get(path.name)) for path in named]
