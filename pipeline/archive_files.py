"""The task of `archive`: one segment of the log into Parquet files by topic and day, checked. Needs no Spark.

The positions of the records are grouped before anything is decoded, so each file is written from beginning to end, one
at a time, whatever the number of topics, and no row is copied from batch to batch.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from towline.arrow.boundaries import Found, boundaries
from towline.arrow.columns import COLUMNS, SCHEMA
from towline.arrow.decode import How, chosen
from towline.arrow.errors import DamagedBody, DamagedRecord, damaged
from towline.arrow.selection import Selection
from towline.limits import MIB
from towline.log.files.segment_files import sync_file
from towline.log.state.archived import probe_of
from towline.spark.errors import MessagesGone
from towline.spark.stores import StoreFacts

from .archive_manifest import SUFFIX, ArchivedFile, ArchivedSegment, data_name
from .errors import NotVerified
from .location import Attempt, Staging

EVERYTHING: Final = Selection(system=True, halves=True)
GROUP_BYTES: Final = 64 * MIB  # of a row group, before it is compressed
GROUP_ROWS: Final = 1 << 18
DAY_US: Final = 86_400_000_000
# Of these columns a file holds few values, or the same over and over.
DICTIONARY: Final = ("topic", "tags", "bornHost", "storeHost", "brokerName", "properties.key_value.key")
# Lengths apart from the bytes, and small steps, leave the codec little to do. Where it finds nothing they only cost.
ENCODINGS: Final = {
    "body": "DELTA_LENGTH_BYTE_ARRAY",
    "queueOffset": "DELTA_BINARY_PACKED",
    "commitLogOffset": "DELTA_BINARY_PACKED",
}
STATISTICS: Final = tuple(name for name in COLUMNS if name not in ("body", "properties"))  # by which nobody prunes
ONE_VALUE: Final = ("topic", "brokerName")  # of which a file has one value
SYNCS: Final = 2  # files of a task on their way to the disk
_READ: Final = 4 * MIB
_FEW: Final = 1 << 16
_MANY_VALUES: Final = tuple(name for name in COLUMNS if name not in ONE_VALUE)
_CODED: Final = pa.schema(
    [field.with_type(pa.dictionary(pa.int8(), field.type)) if field.name in ONE_VALUE else field for field in SCHEMA]
)

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The work of one task. `facts` has this segment alone; its end is fixed."""

    facts: StoreFacts
    base: int
    staging: Staging
    compression: str


@dataclass(frozen=True, slots=True)
class Staged:
    """A segment whose files are kept under these names, in the order of the manifest."""

    names: tuple[str, ...]
    segment: ArchivedSegment


@dataclass(frozen=True, slots=True)
class Refused:
    """A segment that cannot be archived, and why."""

    base: int
    sentence: str


def archive_segment(order: Order) -> Staged | Refused:
    """Writes and checks the files of a segment, and keeps them in the run's staging.

    Raises NotVerified, DiskFull and OSError, ScratchNotSeen where the run is over.
    """
    try:
        log = order.facts.array(order.base)
    except MessagesGone as gone:
        return Refused(order.base, gone.describe())
    found = boundaries(log, order.base, order.facts.start_in(order.base), len(log))
    sentence = _problem(order, found, len(log))
    if sentence:
        return Refused(order.base, sentence)
    try:
        return _written(order, log, found, plain=True)
    except DamagedBody:  # the store keeps bodies as it receives them, and so does the archive then
        return _written(order, log, found, plain=False)
    except DamagedRecord as error:
        return Refused(order.base, str(error))


def _problem(order: Order, found: Found, length: int) -> str:
    """Why the segment's end was not reached; "" where it was."""
    if found.blank or found.end == order.facts.segment_size:
        return ""
    if found.end < length and not found.waits:
        return str(damaged(order.base + found.end, found.rule))
    return f"the log ends at byte {found.end} of {order.facts.path_of(order.base)}: the segment is not full"


def _written(order: Order, log: NDArray[np.uint8], found: Found, *, plain: bool) -> Staged:
    pending = []
    with order.staging.attempt() as attempt:
        with ThreadPoolExecutor(SYNCS) as pool:  # a file is synced and read back while the next one is written
            groups = groups_of(log, order.base, found.positions, force_property_crc=order.facts.force_property_crc)
            for number, (topic, day, positions) in enumerate(groups):
                rows = chosen(log, order.base, positions, _MANY_VALUES, EVERYTHING, decompress=plain)
                known = {"topic": topic, "brokerName": order.facts.broker_name}
                path = attempt.directory / f"{number}{SUFFIX}"
                wrote = _write(path, (_completed(batch, known) for batch in rows), order.compression, _CODED)
                name = data_name(topic, day, order.base)
                pending.append(pool.submit(_finished, attempt, path, wrote, len(positions), name, topic, day))
        kept = [each.result() for each in pending]
    data_end = order.base + found.end
    start = order.base + order.facts.start_in(order.base)
    probe = probe_of(order.facts.path_of(order.base), order.base, data_end)
    segment = ArchivedSegment(
        base=order.base,
        start=start,
        data_end=data_end,
        probe=probe,
        records=len(found.positions),
        plain=plain,
        files=tuple(file for _, file in kept),
    )
    return Staged(tuple(name for name, _ in kept), segment)


def _completed(batch: pa.RecordBatch, known: Mapping[str, str]) -> pa.RecordBatch:
    """All columns: those with one value in the file as a dictionary, which is written without reading any row."""
    first = pa.array(np.zeros(batch.num_rows, np.int8))
    columns = [
        pa.DictionaryArray.from_arrays(first, pa.array([known[name]], pa.string())) if name in known else batch[name]
        for name in COLUMNS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_CODED)


def groups_of(
    log: NDArray[np.uint8], base: int, positions: Integers, *, force_property_crc: bool
) -> Iterator[tuple[str, str, Integers]]:
    """(topic, day, positions in log order) of the records; topics as they first appear, then days.

    Here, where the log is read from its beginning to its end, every CRC is compared. Raises DamagedRecord.
    """
    topics: dict[str, int] = {}
    codes, days = np.empty(len(positions), np.int64), np.empty(len(positions), np.int64)
    first = 0
    crcs: How = {"check_crcs": True, "force_property_crc": force_property_crc}
    for batch in chosen(log, base, positions, ("topic", "storeTimestamp"), EVERYTHING, **crcs):
        rows = slice(first, first + batch.num_rows)
        first += batch.num_rows
        named = batch.column(0).dictionary_encode()
        numbers = np.array([topics.setdefault(name, len(topics)) for name in named.dictionary.to_pylist()], np.int64)
        codes[rows] = numbers[named.indices.to_numpy()]
        days[rows] = batch.column(1).cast(pa.int64()).to_numpy() // DAY_US
    assert first == len(positions), "a record was left out"
    if not first:
        return
    days_known = int(days.max() - days.min()) + 1
    keys = codes * days_known + (days - days.min())
    if len(topics) * days_known <= _FEW:
        keys = keys.astype(np.uint16)  # these are sorted by their digits, ten times as fast
    order = np.argsort(keys, kind="stable")  # the log's order within a group
    changes = np.flatnonzero(np.diff(keys[order])) + 1
    names = list(topics)
    for group in np.split(order, changes):
        day = datetime.fromtimestamp(int(days[group[0]]) * DAY_US / 1_000_000, UTC).date().isoformat()
        yield names[codes[group[0]]], day, positions[group]


# --- one file


@dataclass(slots=True)
class Checked:
    """What is compared between the rows that were written and those that are read back."""

    rows: int = 0
    offsets: int = 0  # CRC-32 of commitLogOffset
    bodies: int = 0  # CRC-32 of the bodies end to end

    def add(self, offsets: pa.ChunkedArray, bodies: pa.ChunkedArray) -> None:
        self.rows += len(offsets)
        for chunk in offsets.chunks:
            self.offsets = zlib.crc32(chunk.to_numpy(), self.offsets)
        for chunk in bodies.chunks:
            self.bodies = _crc_of_values(chunk, self.bodies)


def write_parquet(path: Path, batches: Iterable[pa.RecordBatch], compression: str, *, expected: int) -> None:
    """Writes, syncs and reads back. Raises NotVerified where it is not `expected` rows, or others than were written."""
    _compare(path, _write(path, batches, compression), expected)


def _write(path: Path, batches: Iterable[pa.RecordBatch], compression: str, schema: pa.Schema = SCHEMA) -> Checked:
    """`schema` is SCHEMA, or the same with dictionaries; the file says SCHEMA either way."""
    wrote = Checked()
    how = {
        "compression": compression,
        "use_dictionary": list(DICTIONARY),
        "column_encoding": ENCODINGS,
        "write_statistics": list(STATISTICS),
        "write_page_checksum": True,
        "store_schema": False,
    }
    with pq.ParquetWriter(path, schema, **how) as writer:
        for table in row_groups(batches):
            wrote.add(table["commitLogOffset"], table["body"])
            writer.write_table(table, row_group_size=table.num_rows)
    return wrote


def _compare(path: Path, wrote: Checked, expected: int) -> None:
    sync_file(path)
    read = Checked()
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for number in range(file.num_row_groups):
            table = file.read_row_group(number, columns=["commitLogOffset", "body"])
            read.add(table["commitLogOffset"], table["body"])
    if read != wrote or wrote.rows != expected:
        raise NotVerified(str(path), expected, read.rows)


def _finished(
    attempt: Attempt, path: Path, wrote: Checked, expected: int, name: str, topic: str, day: str
) -> tuple[str, ArchivedFile]:
    """(its name in the staging, what the manifest says of it)."""
    _compare(path, wrote, expected)
    described = _described(path, name, topic, day)
    return attempt.keep(path, described.crc), described


def row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches together until they are worth a row group."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _crc_of_values(values: pa.BinaryArray, crc: int) -> int:
    """Continues a CRC-32 over the values end to end: they stand in one buffer."""
    if not len(values):
        return crc
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    if data is None or bounds[0] == bounds[-1]:
        return crc
    return zlib.crc32(memoryview(data)[int(bounds[0]) : int(bounds[-1])], crc)


def _described(path: Path, name: str, topic: str, day: str) -> ArchivedFile:
    """By what stands in the file: its statistics, and a CRC of all its bytes."""
    with pq.ParquetFile(path) as file:
        offsets, times = (_bounds_of(file, column) for column in ("commitLogOffset", "storeTimestamp"))
        rows = file.metadata.num_rows
    return ArchivedFile(
        name=name,
        topic=topic,
        day=day,
        rows=rows,
        first=offsets[0],
        last=offsets[1],
        first_ms=times[0] // 1000,
        last_ms=times[1] // 1000,
        size=path.stat().st_size,
        crc=crc_of_file(path),
    )


def _bounds_of(file: pq.ParquetFile, column: str) -> tuple[int, int]:
    """The least and the greatest of its values, as the file's statistics say."""
    leaf = next(place for place in range(file.metadata.num_columns) if file.schema.column(place).path == column)
    found = [file.metadata.row_group(number).column(leaf).statistics for number in range(file.num_row_groups)]
    return int(min(each.min_raw for each in found)), int(max(each.max_raw for each in found))


def crc_of_file(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while data := file.read(_READ):
            crc = zlib.crc32(data, crc)
    return crc
