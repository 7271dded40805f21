"""The tasks of `rebuild`, without Spark. Executors need the package, numba and the store's files.

A task decodes a piece of the log and writes; what it returns says what it wrote. The log below its end does not change,
and an entry's place follows from its record, so an attempt that is repeated, doubled or late writes the same bytes.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from towline.errors import TowlineError
from towline.format.files.consume_queue import ENTRY, SIZE
from towline.limits import KIB
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import Batch
from towline.log.files.segment_files import segment_name
from towline.log.queues.consume_queue import ConsumeQueueFiles, places_of, queue_directory
from towline.log.queues.index_build import IndexPart, build_index_file
from towline.log.queues.queue_build import LeadingHole, QueueBuild, Stretch, build_queues
from towline.log.recovery.recovery import RecoverySettings
from towline.log.repair.rebuild import FILES_OPEN_MAX
from towline.node.store.store_shape import UnitShape
from towline.places import Store

from .errors import ScratchNotSeen
from .scratch import Scratch

LOG, QUEUE, HOLE, REFUSED = "log", "queue", "hole", "refused"
# What the shuffle hands on: a row for each piece of the log, each queue in it, each leading hole, and what was refused.
MANIFEST: Final = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("topic", pa.binary(), nullable=False),
        pa.field("queue_id", pa.int32(), nullable=False),
        pa.field("at", pa.int64(), nullable=False),  # log offset
        pa.field("first", pa.int64(), nullable=False),  # of a piece: log offsets; of a queue: its numbers
        pa.field("end", pa.int64(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("keys", pa.int64(), nullable=False),
        pa.field("said", pa.string(), nullable=False),
    ]
)
# What it carries: a manifest's row and, of a queue, entries of one file, whose first byte is `base` of the queue's.
PIECES: Final = pa.schema(
    [pa.field("base", pa.int64(), nullable=False), pa.field("entries", pa.binary(), nullable=False), *MANIFEST]
)
WRITE_BACK_MIN: Final = 256 * KIB  # of one queue
_SHUFFLE_BYTES: Final = 64 * 1024 * 1024  # of entries that a task holds before it hands them on
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """Log offsets [start, end), whole segments but for the log's own ends; `start` is a record's start."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What all tasks of a run are told. `end` is that of the log, taken once."""

    store: str
    scratch: Scratch
    settings: RecoverySettings
    delays_ms: tuple[int, ...]
    end: int
    queues: bool = True
    units: UnitShape | None = None

    @property
    def built_queues(self) -> Path:
        return self.scratch.path / "consumequeue"

    @property
    def extended_queues(self) -> Path:
        """The same queues with addresses of units."""
        return self.scratch.path / "extended"

    @property
    def built_units(self) -> Path:
        return self.scratch.path / "consumequeue_ext"

    @property
    def whole_queues(self) -> Path:
        """Those that take the old ones' place."""
        return self.built_queues if self.units is None else self.extended_queues

    @property
    def built_index(self) -> Path:
        return self.scratch.path / "index"

    def reader(self) -> CommitLogReader:
        reader = CommitLogReader(Store(Path(self.store)).commitlog, self.settings.segment_size)
        reader.load()
        return reader


@dataclass(frozen=True, slots=True)
class Built:
    """What a task wrote of a piece; or what it met and refused, which a retry would meet again."""

    piece: Piece | None
    records: int = 0
    keys: int = 0
    stretches: tuple[Stretch, ...] = ()
    holes: tuple[LeadingHole, ...] = ()
    refused: str = ""


def build_piece(plan: Plan, piece: Piece) -> Built:
    """The queues of a piece, written to their places. What is no error of the store is raised, for Spark to retry."""
    reader = plan.reader()
    build = QueueBuild(reader, plan.delays_ms, apart=True)
    files = ConsumeQueueFiles(plan.built_queues, plan.settings.queue_file_size, FILES_OPEN_MAX, apart=True)
    try:
        with plan.scratch.attempt():
            files.watch()
            built = build_queues(build, files, piece.start, piece.end)
            for _ in built if plan.queues else build.batches(piece.start, piece.end):
                pass
            if plan.scratch.elsewhere:
                files.sync_all()
            elif plan.queues:
                _begin_write_back(files, build.stretches())
    except ScratchNotSeen:
        raise
    except TowlineError as error:
        return Built(piece, refused=str(error))
    finally:
        files.close()
        reader.close()
    return Built(piece, build.records, build.keys, tuple(build.stretches()), tuple(build.holes))


def _begin_write_back(files: ConsumeQueueFiles, stretches: Iterable[Stretch]) -> None:
    """The disk works while tasks do; of queues that got little in this piece the last sync writes more at once."""
    for stretch in stretches:
        if (stretch.end - stretch.first) * SIZE >= WRITE_BACK_MIN:
            files.begin_write_back(stretch.name, stretch.queue_id, stretch.first, stretch.end)


@dataclass(frozen=True, slots=True)
class IndexWork:
    """One index file, and the name it gets."""

    part: IndexPart
    name: str


def build_index(plan: Plan, work: IndexWork) -> str:
    """One index file, published under its name. What was refused; empty when it was built."""
    settings = plan.settings
    assert settings.index_slots is not None
    reader = plan.reader()
    try:
        with plan.scratch.attempt() as own:
            path = build_index_file(reader, plan.end, work.part, own, settings.index_slots, settings.index_indexes)
            _link(path, plan.built_index / work.name)
    except ScratchNotSeen:
        raise
    except TowlineError as error:
        return str(error)
    finally:
        reader.close()
    return ""


# --- by a shuffle


def gather_pieces(plan: Plan, pieces: tuple[Piece, ...], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The entries of the pieces whose numbers come, by queue file: what is shuffled. Nothing is written."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            try:
                for rows in _entries_of(plan, pieces[number]):
                    yield pa.RecordBatch.from_pylist(rows, schema=PIECES)
            except TowlineError as error:
                refused = _row(REFUSED, first=pieces[number].start, said=str(error)) | _NO_ENTRIES
                yield pa.RecordBatch.from_pylist([refused], schema=PIECES)


def write_files(plan: Plan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Whole queue files of rows of PIECES, which come sorted by topic, queue, file and number. Each is written once."""
    with plan.scratch.attempt() as own:
        file = _WholeFile(plan, own)
        for batch in batches:
            rows = batch.to_pylist()
            for row in rows:
                base, entries = row.pop("base"), row.pop("entries")
                if row["kind"] == QUEUE:
                    file.take((row["topic"], row["queue_id"], base), row["first"], entries)
            yield pa.RecordBatch.from_pylist(rows, schema=MANIFEST)
        file.publish()


def told(rows: list[Row]) -> list[Built]:
    """The manifest of the shuffle in the terms of the other way; its queues stand with no piece of their own."""
    pieces = [
        Built(Piece(row["first"], row["end"]), row["records"], row["keys"], refused=row["said"])
        for row in rows
        if row["kind"] in (LOG, REFUSED)
    ]
    return [*pieces, Built(None, stretches=_parts(rows, QUEUE, Stretch), holes=_parts(rows, HOLE, LeadingHole))]


def _parts(rows: list[Row], kind: str, made: Callable[..., Any]) -> tuple[Any, ...]:
    names = ("topic", "queue_id", "at", "first", "end")
    return tuple(made(*(row[name] for name in names)) for row in rows if row["kind"] == kind)


def _entries_of(plan: Plan, piece: Piece) -> Iterator[list[Row]]:
    reader = plan.reader()
    build = QueueBuild(reader, plan.delays_ms, apart=True)
    held = _Held(plan.settings.queue_file_size)
    try:
        for batch in build.batches(piece.start, piece.end):
            held.take(build, batch)
            if held.size >= _SHUFFLE_BYTES:
                yield held.rows()
    finally:
        reader.close()
    log = _row(LOG, first=piece.start, end=piece.end, records=build.records, keys=build.keys)
    yield [*held.rows(), *(row | _NO_ENTRIES for row in (log, *map(_part_row, build.holes)))]


class _Held:
    """Entries by (topic, queue id, first byte of the file), in the order of their numbers."""

    def __init__(self, file_size: int) -> None:
        self._file_size = file_size
        self._held: dict[tuple[bytes, int, int], tuple[int, int, list[bytes]]] = {}
        self.size = 0

    def take(self, build: QueueBuild, batch: Batch) -> None:
        for one in build.rounds(batch):
            for run in one.runs:
                number, start = int(run["queue_index"]), int(run["start"])
                data = one.entries[start : start + int(run["count"]) * SIZE].tobytes()
                topic, queue_id = build.directory.topic(number), build.directory.queue_id(number)
                self._add(topic, queue_id, int(run["queue_offset"]), data)

    def _add(self, topic: bytes, queue_id: int, first: int, data: bytes) -> None:
        self.size += len(data)
        while data:
            within = first * SIZE % self._file_size
            part, data = data[: self._file_size - within], data[self._file_size - within :]
            key = (topic, queue_id, first * SIZE - within)
            place = int(places_of(np.frombuffer(part, dtype=ENTRY, count=1))[0])
            self._held.setdefault(key, (first, place, []))[2].append(part)
            first += len(part) // SIZE

    def rows(self) -> list[Row]:
        """Everything held, which is held no more."""
        rows = []
        for (topic, queue_id, base), (first, place, parts) in self._held.items():
            entries = b"".join(parts)
            part = _part_row(Stretch(topic, queue_id, place, first, first + len(entries) // SIZE))
            rows.append(part | {"base": base, "entries": entries})
        self._held.clear()
        self.size = 0
        return rows


class _WholeFile:
    """The queue file that is being put together; the one before is published when the next begins."""

    def __init__(self, plan: Plan, own: Path) -> None:
        self._plan, self._own = plan, own
        self._key: tuple[bytes, int, int] | None = None
        self._data = np.zeros(plan.settings.queue_file_size, dtype=np.uint8)

    def take(self, key: tuple[bytes, int, int], first: int, entries: bytes) -> None:
        if key != self._key:
            self.publish()
            self._key = key
            self._data[:] = 0
        at = first * SIZE - key[2]
        self._data[at : at + len(entries)] = np.frombuffer(entries, dtype=np.uint8)

    def publish(self) -> None:
        if self._key is None:
            return
        topic, queue_id, base = self._key
        directory = queue_directory(self._plan.built_queues, topic.decode("utf-8", "replace"), queue_id)
        directory.mkdir(parents=True, exist_ok=True)
        made = self._own / segment_name(base)
        with made.open("wb") as file:
            file.write(self._data.data)
            file.flush()
            if self._plan.scratch.elsewhere:
                os.fsync(file.fileno())
        _link(made, directory / segment_name(base))
        self._key = None


def _link(made: Path, target: Path) -> None:
    """Publishes a whole file. Another attempt may have done so: its file holds the same."""
    with suppress(FileExistsError):
        os.link(made, target)
    made.unlink()


_NO_ENTRIES: Final = {"base": -1, "entries": b""}


def _row(kind: str, **other: Any) -> Row:
    row: Row = {"kind": kind, "topic": b"", "queue_id": -1, "said": ""}
    return row | dict.fromkeys(("at", "first", "end", "records", "keys"), 0) | other


def _part_row(part: Stretch | LeadingHole) -> Row:
    kind = QUEUE if isinstance(part, Stretch) else HOLE
    return _row(kind, topic=part.topic, queue_id=part.queue_id, at=part.at, first=part.first, end=part.end)
