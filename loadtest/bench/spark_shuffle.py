"""A rebuild of the queues by a shuffle: the baseline of `pipeline rebuild`, whose tasks write every entry to its place.

Rows are runs of entries of one queue file. They are brought together by file, and one task writes each file, once.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from towline.errors import TowlineError
from towline.format.files.consume_queue import ENTRY, SIZE
from towline.limits import MIB
from towline.log.commitlog.dispatch import Batch
from towline.log.files.segment_files import segment_name
from towline.log.queues.consume_queue import places_of, queue_directory
from towline.log.queues.queue_build import LeadingHole, QueueBuild, Stretch
from towline.pipeline.rebuild_tasks import Built, RebuildPlan, Split, build_split, link_whole
from towline.pipeline.tasks import SparkTasks

LOG, QUEUE, HOLE, REFUSED = "log", "queue", "hole", "refused"
# What the shuffle hands on: a row for each split of the log, each queue in it, each leading hole, and what was refused.
MANIFEST: Final = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("topic", pa.binary(), nullable=False),
        pa.field("queue_id", pa.int32(), nullable=False),
        pa.field("at", pa.int64(), nullable=False),  # log offset
        pa.field("first", pa.int64(), nullable=False),  # of a split: log offsets; of a queue: its numbers
        pa.field("end", pa.int64(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("keys", pa.int64(), nullable=False),
        pa.field("said", pa.string(), nullable=False),
    ]
)
# What it carries: a manifest's row and, of a queue, entries of one file, whose first byte is `base` of the queue's.
SPLITS: Final = pa.schema(
    [pa.field("base", pa.int64(), nullable=False), pa.field("entries", pa.binary(), nullable=False), *MANIFEST]
)
_SHUFFLE_BYTES: Final = 64 * MIB  # of entries that a task holds before it hands them on
_MANIFEST_COLUMNS: Final = (
    "kind string, topic binary, queue_id int, at bigint, first bigint, end bigint, records bigint, keys bigint, "
    "said string"
)
_SPLITS_COLUMNS: Final = f"base bigint, entries binary, {_MANIFEST_COLUMNS}"
_KEY: Final = ("topic", "queue_id", "base")
Row = dict[str, Any]


class ShuffledTasks(SparkTasks):
    """Tasks of a rebuild; instead of those that write the queues, a shuffle does."""

    def run(self, what: str, work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        plan = plan_of(work)
        if plan is None or not parts:
            return super().run(what, work, parts)
        with self.progress.stage(self.spark, f"{what}, shuffled"):
            numbers = self.spark.range(0, len(parts), 1, len(parts))
            gathered = numbers.mapInArrow(partial(gather_splits, plan, parts), _SPLITS_COLUMNS)
            by_file = gathered.repartition(self.parallel, *_KEY).sortWithinPartitions(*_KEY, "first")
            made = by_file.mapInArrow(partial(write_files, plan), _MANIFEST_COLUMNS)
            return built_of(parts, made.toArrow().to_pylist())


def plan_of(work: Callable[[Any], Any]) -> RebuildPlan | None:
    """The plan of tasks that write queues; None for all others."""
    if not isinstance(work, partial) or work.func is not build_split:
        return None
    plan: RebuildPlan = work.args[0]
    return plan if plan.queues else None


def gather_splits(
    plan: RebuildPlan, splits: Sequence[Split], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The entries of the splits whose numbers come, by queue file: what is shuffled. Nothing is written."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            try:
                for rows in _entries_of(plan, splits[number]):
                    yield pa.RecordBatch.from_pylist(rows, schema=SPLITS)
            except TowlineError as error:
                refused = _row(REFUSED, first=splits[number].start, said=str(error)) | _NO_ENTRIES
                yield pa.RecordBatch.from_pylist([refused], schema=SPLITS)


def write_files(plan: RebuildPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Whole queue files of rows of SPLITS, which come sorted by topic, queue, file and number. Each is written once."""
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


def built_of(splits: Sequence[Split], rows: list[Row]) -> list[Built]:
    """The manifest as the tasks of the other way would hand it back; the first split has all queues."""
    logs = {row["first"]: row for row in rows if row["kind"] in (LOG, REFUSED)}
    found = [logs[split.start] for split in splits]
    built = [Built(row["records"], row["keys"], refused=row["said"]) for row in found]
    built[0] = replace(built[0], stretches=_parts(rows, QUEUE, Stretch), holes=_parts(rows, HOLE, LeadingHole))
    return built


def _parts(rows: list[Row], kind: str, made: Callable[..., Any]) -> tuple[Any, ...]:
    names = ("topic", "queue_id", "at", "first", "end")
    return tuple(made(*(row[name] for name in names)) for row in rows if row["kind"] == kind)


def _entries_of(plan: RebuildPlan, split: Split) -> Iterator[list[Row]]:
    reader = plan.reader()
    build = QueueBuild(reader, plan.delays_ms, apart=True)
    held = _Held(plan.settings.queue_file_size)
    try:
        for batch in build.batches(split.start, split.end):
            held.take(build, batch)
            if held.size >= _SHUFFLE_BYTES:
                yield held.rows()
    finally:
        reader.close()
    log = _row(LOG, first=split.start, end=split.end, records=build.records, keys=build.keys)
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

    def __init__(self, plan: RebuildPlan, own: Path) -> None:
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
        link_whole(made, directory / segment_name(base))
        self._key = None


_NO_ENTRIES: Final = {"base": -1, "entries": b""}


def _row(kind: str, **other: Any) -> Row:
    row: Row = {"kind": kind, "topic": b"", "queue_id": -1, "said": ""}
    return row | dict.fromkeys(("at", "first", "end", "records", "keys"), 0) | other


def _part_row(part: Stretch | LeadingHole) -> Row:
    kind = QUEUE if isinstance(part, Stretch) else HOLE
    return _row(kind, topic=part.topic, queue_id=part.queue_id, at=part.at, first=part.first, end=part.end)
