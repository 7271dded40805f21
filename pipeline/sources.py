"""Sources of messages: the files of a store or an archive, chosen alike, read by the same tasks. No Spark."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from towline.arrow.columns import schema_of
from towline.arrow.errors import DamagedBody
from towline.arrow.selection import Selection
from towline.errors import DecompressedTooLarge, UnreadableBody
from towline.filter.tags import parse as parse_tags
from towline.format.record.compression import decompress
from towline.format.record.record import COMPRESSED, TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from towline.spark.planning import plan, selection_of
from towline.spark.reading import Partition, Reading, read

from .archive_manifest import Archive, ArchivedFile
from .choice import Care, MessageChoice
from .errors import ArchiveDamaged, IllegalOption, NoSuchMessages
from .location import Location, location
from .options import option

TOPICS_NAMED: Final = 10  # in a sentence
_JUDGED: Final = ("queueId", "tags", "storeTimestamp", "sysFlag")
_HALVES: Final = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class FromEither(Care):
    """Options of a job that reads a store or an archive. The other options are those of MessageChoice."""

    store: str | None = option(
        "Store directory: of a node, live or stopped, a backup, or of a real broker.", default=None, metavar="DIR"
    )
    archive: str | None = option("Archive to read instead of a store.", default=None, metavar="DIR|URI")
    topic: tuple[str, ...] = option("Only this topic; give it several times.", default=(), metavar="NAME")
    tags: str = option("Only messages with one of these tags, as a subscription has them: a || b.", default="*")
    since: str | None = option("Stored then or later; 2026-01-31T12:00, UTC unless it says.", default=None)
    until: str | None = option("Stored before then.", default=None)
    system: bool = option("The broker's own topics and half messages, too.", default=False)

    def choice(self) -> MessageChoice:
        return MessageChoice(
            store=self.store or "",
            topic=self.topic,
            tags=self.tags,
            since=self.since,
            until=self.until,
            system=self.system,
            check_crcs=self.check_crcs,
            on_corruption=self.on_corruption,
        )


@dataclass(frozen=True, slots=True)
class Messages:
    """What tasks read: partitions in the log's order, except that those of several queues may stand side by side."""

    partitions: tuple[Partition, ...]
    reading: Reading

    def of(self, partition: Partition) -> Iterator[pa.RecordBatch]:
        return read(partition, self.reading)


def messages_of(options: FromEither, columns: tuple[str, ...], queue_ids: frozenset[int] | None = None) -> Messages:
    """Those that the options choose, and of these queue ids. Raises IllegalOption, NoSuchMessages, what a plan does."""
    if (options.store is None) == (options.archive is None):
        raise IllegalOption("store", "give --store, or --archive, and not both")
    source = options.choice().source()
    selection = replace(selection_of(source), queue_ids=queue_ids)
    if options.archive is None:
        planned = plan(source, columns, selection)
        return Messages(tuple(planned.partitions), planned.reading)
    return Messages(archived(Archive.open(options.archive), selection), Reading.of(source, columns, selection))


def archived(archive: Archive, selection: Selection) -> tuple[Partition, ...]:
    """One partition for each segment that may hold what is selected. Raises NoSuchMessages for an unknown topic."""
    known = {file.topic for segment in archive.segments.values() for file in segment.files}
    for topic in sorted(selection.topics or ()):
        if topic not in known:
            raise NoSuchMessages(archive.where.text, topic, _listed(sorted(known)))
    found = []
    for _, segment in sorted(archive.segments.items()):
        files = tuple(file for file in segment.files if _may_hold(file, selection))
        if files:
            found.append(ArchivedPartition(archive.where.text, files, segment.plain))
    return tuple(found)


def _listed(topics: Sequence[str]) -> str:
    more = f" and {len(topics) - TOPICS_NAMED} more" if len(topics) > TOPICS_NAMED else ""
    return ", ".join(topics[:TOPICS_NAMED]) + more if topics else "none"


def _may_hold(file: ArchivedFile, selection: Selection) -> bool:
    return (
        selection.wants_topic(file.topic)
        and (selection.start_ms is None or file.last_ms >= selection.start_ms)
        and (selection.end_ms is None or file.first_ms < selection.end_ms)
    )


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """Files of one segment. Of one topic its messages come in the log's order: days follow each other."""

    where: str  # the archive's location
    files: tuple[ArchivedFile, ...]
    plain: bool

    def read(self, how: Reading) -> Iterator[pa.RecordBatch]:
        """Raises ArchiveDamaged, DamagedBody."""
        schema = schema_of(how.columns)
        wanted = list(dict.fromkeys((*how.columns, *_JUDGED, "commitLogOffset")))
        for file in sorted(self.files, key=lambda each: each.first):
            for batch in _batches_of(location(self.where), file.name, wanted, how.batch_rows):
                kept = batch.filter(_judged(batch, how.selection))
                if not kept.num_rows:
                    continue
                if not self.plain and how.decompress and "body" in how.columns:
                    kept = _with_plain_bodies(kept)
                arrays = [kept.column(name) for name in how.columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _batches_of(where: Location, name: str, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Every page is compared with its checksum. Raises ArchiveDamaged."""
    try:
        with where.open(name) as file, pq.ParquetFile(file, page_checksum_verification=True) as opened:
            yield from opened.iter_batches(rows, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise ArchiveDamaged(f"{where.text}/{name}", str(error)) from None


def _judged(batch: pa.RecordBatch, selection: Selection) -> pa.BooleanArray:
    """What `Selection` asks of each message, by columns. Topics were judged by their files."""
    rows = np.ones(batch.num_rows, np.bool_)
    times = batch.column("storeTimestamp").cast(pa.int64()).to_numpy() // 1000
    if selection.start_ms is not None:
        rows &= times >= selection.start_ms
    if selection.end_ms is not None:
        rows &= times < selection.end_ms
    if selection.queue_ids is not None:
        rows &= np.isin(batch.column("queueId").to_numpy(), list(selection.queue_ids))
    if not selection.halves:
        rows &= ~np.isin(batch.column("sysFlag").to_numpy() & TRANSACTION_MASK, _HALVES)
    tags = parse_tags(selection.tags)
    if not tags.everything:
        rows &= pc.is_in(batch.column("tags"), pa.array(tags.names, pa.string())).to_numpy(zero_copy_only=False)
    return pa.array(rows)


def _with_plain_bodies(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Of a segment that was archived as it was stored. Raises DamagedBody."""
    flags = batch.column("sysFlag").to_numpy()
    bodies = batch.column("body").to_pylist()
    for row in np.flatnonzero(flags & COMPRESSED).tolist():
        try:
            bodies[row] = decompress(bodies[row], int(flags[row]))
        except (DecompressedTooLarge, UnreadableBody) as problem:
            raise DamagedBody(batch.column("commitLogOffset")[row].as_py(), problem.describe()) from None
    return batch.set_column(batch.schema.names.index("body"), "body", pa.array(bodies, pa.binary()))
