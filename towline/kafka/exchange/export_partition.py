"""One queue as a partition of Kafka: written beside where it will stand, read back, compared; not put in place yet."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np

from towline.kafka.format import batch
from towline.kafka.format.batch import NONE, Compression
from towline.kafka.format.building import Form, gaps
from towline.kafka.format.records import OVERHEAD_MAX
from towline.kafka.log.files import LOG
from towline.kafka.log.partition import Partition
from towline.kafka.log.rolling import LogConfig
from towline.kafka.log.writer import PartitionWriter
from towline.spark.stores import StoreFacts

from .export_digest import Digest
from .export_errors import BadChoice, NotAsExported
from .export_source import Damages, Piece, QueueRange, QueueReader

STAGED: Final = "towline-delete"  # a broker deletes directories whose names end so
_OVERHEAD: Final = batch.SIZE + OVERHEAD_MAX

Progress = Callable[[int], None]  # messages that were written, and once more those that were read back


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionForm:
    """How partitions are written; sizes are bytes."""

    compression: Compression = Compression.NONE
    batch_bytes: int = 64 * 1024
    segment_bytes: int = LogConfig().segment_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWork:
    """What a task exports. Picklable. `topic` is Kafka's name."""

    of: QueueRange
    topic: str
    topic_id: UUID | None
    form: PartitionForm
    refuse_damaged: bool
    staging: str  # directory that is made and left for the partition `topic`-`queue id`

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.of.queue_id}"

    @property
    def staged(self) -> Path:
        return Path(self.staging) / self.name


def staging_beside(staging: str, word: str) -> str:
    """Another name of such a directory."""
    return f"{staging.removesuffix(STAGED)}{word}{STAGED}"


@dataclass(slots=True)
class Exported:
    """A partition that was written and compared. `holes` are offsets without a record; sizes are bytes."""

    name: str
    start: int
    end: int
    digest: Digest
    holes: int = 0
    damaged: int = 0
    damages: list[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    log_bytes: int = 0
    largest_batch: int = 0

    def document(self) -> dict[str, Any]:
        """For JSON, and `of_document`."""
        facts = {name: getattr(self, name) for name in self.__slots__ if name != "digest"}
        return facts | {"digest": self.digest.as_dict()}

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> "Exported":
        return cls(**document | {"digest": Digest.of(document["digest"])})


def write_partition(facts: StoreFacts, work: PartitionWork, progress: Progress) -> Exported:
    """Writes, syncs, reads back and compares. Raises DamagedSource, GoneMeanwhile, NotAsExported, OSError."""
    directory = Path(work.staging)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    damages = Damages(work.refuse_damaged)
    reader, digest = QueueReader(facts, work.of, damages), Digest()
    config = LogConfig(segment_bytes=work.form.segment_bytes)
    with PartitionWriter(
        directory, work.topic, work.of.queue_id, config, topic_id=work.topic_id, start=work.of.start
    ) as writer:
        for piece in reader.pieces():
            _check_sizes(piece, work.form)
            _append(writer, piece, work.form)
            digest.add(piece.records, piece.append_time, piece.value_crc)
            progress(len(piece.records))
        writer.append_batches(gaps(writer.end, work.of.end))
    done = Exported(
        name=work.name,
        start=work.of.start,
        end=work.of.end,
        digest=digest,
        holes=reader.holes,
        damaged=damages.count,
        damages=damages.named,
        left_out=reader.left_out,
    )
    verify(work.staged, done, progress)
    return done


def verify(directory: Path, expected: Exported, progress: Progress) -> None:
    """Compares a partition with what was to be written, and notes its sizes. Raises NotAsExported, and what reading
    raises."""
    partition, found = Partition(directory, expected.start), Digest()
    for columns in partition.read(expected.start):
        found.add_read(columns)
        progress(len(columns.records))
    wrong = expected.digest.difference(found)
    if (partition.start, partition.end) != (expected.start, expected.end):
        wrong = f"it goes from {partition.start} to {partition.end}, not from {expected.start} to {expected.end}"
    if wrong:
        raise NotAsExported(str(directory), wrong)
    expected.log_bytes = sum(path.stat().st_size for path in directory.glob(f"*{LOG}"))
    sizes = (batches["size"].max(initial=0) for _, _, batches in partition.scans())
    expected.largest_batch = max(map(int, sizes), default=0)


def _check_sizes(piece: Piece, form: PartitionForm) -> None:
    """A batch of one record may be larger than a segment, which a broker refuses too. Raises BadChoice."""
    blobs = (piece.records.key, piece.records.value, piece.records.headers)
    largest = int(np.sum([np.maximum(each.sizes, 0) for each in blobs], axis=0).max()) + _OVERHEAD
    if largest > form.segment_bytes:
        raise BadChoice("segment-bytes", f"a message takes {largest:,} bytes, and a segment {form.segment_bytes:,}")


def _append(writer: PartitionWriter, piece: Piece, form: PartitionForm) -> None:
    """Times of the log stand in the head of a batch: records of one such time, and those of senders' times, apart."""
    made = partial(Form, form.compression, batch_size=form.batch_bytes)
    if not piece.append_time.any():
        writer.append(piece.records, made())
        return
    times = np.where(piece.append_time == 1, piece.records.timestamp, NONE)
    changes = (np.diff(times) != 0) | (np.diff(piece.append_time) != 0)
    for first, end in pairwise([0, *(np.flatnonzero(changes) + 1).tolist(), len(times)]):
        append_time = int(times[first]) if piece.append_time[first] else None
        writer.append(piece.records.taken(slice(first, end)), made(append_time=append_time))
