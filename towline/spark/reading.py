"""Reads the messages of a task's part of a store, in Arrow batches. Needs numpy and pyarrow, no Spark.

Whatever may differ between two attempts is fixed in the partition by whoever planned it: where it begins and ends, and
where the log safely ended then. So a task that is repeated, or runs twice at once, gives the same rows.
"""

import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from towline.arrow.decode import How, OnCorruption, batches, chosen
from towline.arrow.errors import DamagedBody, DamagedRecord
from towline.arrow.selection import Selection
from towline.filter.tags import parse as parse_tags
from towline.format.files.consume_queue import SIZE as ENTRY_SIZE
from towline.format.files.consume_queue_ext import are_addresses
from towline.format.files.topics import is_system_topic
from towline.format.record.columns import field
from towline.format.record.record import SIZE_MIN
from towline.log.queues.consume_queue import ConsumeQueueFiles, Entries, is_filler, places_of

from .errors import DamagedAnswer, DamagedQueue, MessagesGone, NotHere
from .options import SourceOptions
from .stores import Bytes, StoreFacts

ENTRIES_MAX: Final = 65_536  # of a queue, read at once

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogSplit:
    """Records that begin in [start, end) of the log, all in one segment; both are known to be boundaries."""

    start: int
    end: int

    @property
    def bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class QueueSplit:
    """Messages [start, end) of a queue."""

    topic: str
    queue_id: int
    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How every partition of a query is read."""

    columns: tuple[str, ...]
    selection: Selection
    fail_on_data_loss: bool = True
    check_crcs: bool = False
    on_corruption: OnCorruption = "fail"
    decompress: bool = True
    batch_rows: int
    batch_bytes: int
    timeout_ms: int
    delays_ms: tuple[int, ...] = ()  # by level - 1

    @classmethod
    def of(
        cls, options: SourceOptions, columns: tuple[str, ...], selection: Selection, delays_ms: tuple[int, ...] = ()
    ) -> Self:
        return cls(
            columns=columns,
            selection=selection,
            fail_on_data_loss=options.fail_on_data_loss,
            check_crcs="body" in columns if options.check_crcs is None else options.check_crcs,
            on_corruption=options.on_corruption,
            decompress=options.decompress,
            batch_rows=options.batch_rows,
            batch_bytes=options.batch_bytes,
            timeout_ms=options.timeout_ms,
            delays_ms=delays_ms,
        )

    def decoding(self, broker_name: str, *, whole: bool = False, force_property_crc: bool = False) -> How:
        """The same for the decoder; what it leaves out is reported. `whole`: the bytes end where no record is cut off.

        `force_property_crc`: where CRCs are compared, the store's operator insists on property CRCs.
        """
        return {
            "rows": self.batch_rows,
            "bytes": self.batch_bytes,
            "check_crcs": self.check_crcs,
            "force_property_crc": force_property_crc,
            "on_corruption": self.on_corruption,
            "broker_name": broker_name,
            "decompress": self.decompress,
            "delays_ms": self.delays_ms,
            "whole": whole,
            "on_damage": self.damaged,
        }

    def damaged(self, damage: DamagedRecord | DamagedBody | DamagedQueue | DamagedAnswer) -> None:
        log.warning("onCorruption=%s: %s", self.on_corruption, damage.describe())

    def lost(self, gone: MessagesGone) -> None:
        lose(gone, fails=self.fail_on_data_loss)


def lose(gone: MessagesGone, *, fails: bool) -> None:
    """Raises it, or reports how much is left out: never silent."""
    if fails:
        raise gone
    log.warning("left out, as failOnDataLoss=false allows: %s", gone.describe())


def gone_from_queue(topic: str, queue_id: int, start: int, end: int, why: str) -> MessagesGone:
    """Messages [start, end) of a queue."""
    return MessagesGone(f"messages {start} to {end - 1} of queue {queue_id} of {topic}", f"{end - start} messages", why)


class Partition(Protocol):
    """What one task reads. Picklable, and small."""

    def read(self, how: Reading) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class LogPartition:
    """Stretches of the log, in order."""

    facts: StoreFacts
    splits: tuple[LogSplit, ...]

    def read(self, how: Reading) -> Iterator[pa.RecordBatch]:
        _check_here(self.facts)
        for split in self.splits:
            base = self.facts.segment_of(split.start)
            try:
                data = self.facts.array(base)
            except MessagesGone:
                why = "the file of the segment was deleted, by cleaning or by hand"
                amount = f"{split.bytes} bytes of the log from {split.start} on"
                how.lost(MessagesGone(str(self.facts.path_of(base)), amount, why))
                continue
            yield from batches(
                data,
                base,
                split.start - base,
                split.end - base,
                how.columns,
                how.selection,
                **how.decoding(
                    self.facts.broker_name,
                    whole=self.facts.is_whole(base),
                    force_property_crc=self.facts.force_property_crc,
                ),
            )


@dataclass(frozen=True, slots=True)
class QueuePartition:
    """Messages of queues, found through the ConsumeQueue files, queue after queue."""

    facts: StoreFacts
    splits: tuple[QueueSplit, ...]

    def read(self, how: Reading) -> Iterator[pa.RecordBatch]:
        _check_here(self.facts)
        files = self.facts.queue_files()
        try:
            for split in self.splits:
                yield from _QueueRead(self.facts, files, split, how).batches()
        finally:
            files.close()


class _QueueRead:
    """One split of a queue: entries a block at a time, then the records that they point to, segment by segment."""

    def __init__(self, facts: StoreFacts, files: ConsumeQueueFiles, split: QueueSplit, how: Reading) -> None:
        self._facts, self._files, self._split, self._how = facts, files, split, how
        # Of a delayed message the code is the time of its delivery.
        by_hash = not is_system_topic(split.topic)
        self._tags = parse_tags(how.selection.tags if by_hash else "*")
        self._stopped = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        at, end = self._split.start, self._split.end
        while at < end and not self._stopped:
            entries = self._files.read(self._split.topic, self._split.queue_id, at, min(ENTRIES_MAX, end - at))
            if not len(entries):
                following = self._following(at)
                self._lose(at, following, "their entries were deleted with the segments, or never written")
                at = following
                continue
            yield from self._records(at, entries)
            at += len(entries)

    def _following(self, at: int) -> int:
        """The first entry behind `at` of which there is a file."""
        starts = (base // ENTRY_SIZE for base in self._files.bases(self._split.topic, self._split.queue_id))
        return next((start for start in starts if at < start < self._split.end), self._split.end)

    def _lose(self, start: int, end: int, why: str) -> None:
        self._how.lost(gone_from_queue(self._split.topic, self._split.queue_id, start, end, why))

    def _records(self, first: int, entries: Entries) -> Iterator[pa.RecordBatch]:
        numbers = np.arange(first, first + len(entries))
        codes = entries["tags_code"].astype(np.int64)
        kept = ~is_filler(entries) & (self._tags.may_match(codes) | are_addresses(codes))  # of units: no hashes
        places, sizes, numbers = places_of(entries)[kept], entries["record_size"][kept].astype(np.int64), numbers[kept]
        bases = places - places % self._facts.segment_size
        borders = [0, *(np.flatnonzero(np.diff(bases)) + 1).tolist(), len(bases)]
        for start, end in pairwise(borders):
            if start < end and not self._stopped:
                base = int(bases[start])
                yield from self._of_segment(base, places[start:end] - base, sizes[start:end], numbers[start:end])

    def _of_segment(
        self, base: int, positions: NDArray[np.int64], sizes: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        how = self._how
        try:
            data = self._facts.array(base)
        except MessagesGone:
            why = f"{self._facts.path_of(base)} was deleted, by cleaning or by hand"
            self._lose(int(numbers[0]), int(numbers[-1]) + 1, why)
            return
        positions = positions[self._sound(base, data, positions, sizes, numbers)]
        yield from chosen(
            data,
            base,
            positions,
            how.columns,
            how.selection,
            **how.decoding(self._facts.broker_name, force_property_crc=self._facts.force_property_crc),
        )

    def _sound(
        self,
        base: int,
        data: Bytes,
        positions: NDArray[np.int64],
        sizes: NDArray[np.int64],
        numbers: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Which entries point to a record of their size, number and place. An entry is as little trusted as the log."""
        inside = (positions >= 0) & (sizes >= SIZE_MIN) & (positions + sizes <= len(data))
        sound = inside.copy()
        at, true_sizes, true_numbers = positions[inside], sizes[inside], numbers[inside]
        sound[inside] = (
            (field(data, at, "total_size") == true_sizes)
            & (field(data, at, "physical_offset") == base + at)
            & (field(data, at, "queue_offset") == true_numbers)
        )
        if not sound.all():
            self._damaged(int(numbers[int(np.argmin(sound))]), int((~sound).sum()))
            if self._how.on_corruption == "stop":
                sound[int(np.argmin(sound)) :] = False
                self._stopped = True
        return sound

    def _damaged(self, number: int, count: int) -> None:
        split = self._split
        at = number * ENTRY_SIZE
        base = at - at % self._facts.queue_file_size
        path = self._facts.store.consumequeue / split.topic / str(split.queue_id) / f"{base:020d}"
        sentence = f"entry {number} does not point to the record of that number ({count} such entries in a block)"
        error = DamagedQueue(str(path), at - base, sentence)
        if self._how.on_corruption == "fail":
            raise error
        self._how.damaged(error)


def read(partition: Partition | None, how: Reading) -> Iterator[pa.RecordBatch]:
    """The messages of a partition; none of None. Columns are those of `how`, in its order, of SCHEMA's types."""
    return iter(()) if partition is None else partition.read(how)


def _check_here(facts: StoreFacts) -> None:
    """A store that is not mounted must not look like one whose segments were deleted. Raises NotHere."""
    if not facts.store.commitlog.is_dir():
        raise NotHere(facts.root, socket.gethostname())
