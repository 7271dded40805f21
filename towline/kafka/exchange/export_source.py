"""The messages of a queue as columns of Kafka's records: through the ConsumeQueue, as far as a reader may see them.

A number without a message is a hole. A filler stands for it, and for a record of the log, which says whether there
ever was a message: then it is damage. So is an entry that does not lead to its record, and a record whose bytes are not
as they were stored. What is damaged is refused, or left out as a hole and counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import numpy as np

from towline.arrow.bodies import compressed_rows, restored
from towline.arrow.errors import DamagedBody, DamagedRecord
from towline.arrow.heads import Heads, damaged_rows
from towline.arrow.kernels import LONG_READ, expect_read, loaded
from towline.arrow.slices import end_to_end
from towline.format.files.consume_queue import SIZE as ENTRY_SIZE
from towline.format.record import skipped
from towline.format.record.columns import Bytes, Integers
from towline.format.record.columns import field as field_of
from towline.format.record.property_crc import CRC_MASK
from towline.format.record.record import SIZE_MIN
from towline.kafka.format.records import Blobs, Records
from towline.kernels.base.crc import crc32_each
from towline.limits import MIB
from towline.log.files.segment_files import segment_name
from towline.log.queues.consume_queue import ConsumeQueueFiles, Entries, is_filler, places_of, queue_directory
from towline.spark.errors import MessagesGone
from towline.spark.stores import StoreFacts

from .export_errors import DamagedSource, GoneMeanwhile
from .export_properties import PropertyReader

ENTRIES_MAX: Final = 65_536  # of a queue, read at once
PIECE_SIZE: Final = 32 * MIB  # bytes of records that are decoded at once
NAMED_MAX: Final = 100  # damaged messages that are named one by one
_FIELDS: Final = ("queue_id", "queue_offset", "born_timestamp", "body_crc")


@dataclass(frozen=True, slots=True, order=True)
class QueueRange:
    """Messages [start, end) of a queue."""

    topic: str
    queue_id: int
    start: int
    end: int

    @property
    def name(self) -> str:
        return f"queue {self.queue_id} of {self.topic}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Messages in the order of their numbers. `append_time` is 1 where the time is the log's; `value_crc` the CRC-32
    without its top bit of each value, as the store's records have it."""

    records: Records
    append_time: Integers
    value_crc: Integers


@dataclass(slots=True)
class Damages:
    """What was met and left out; with `refuse` the first is raised, as DamagedSource."""

    refuse: bool
    count: int = 0
    named: list[str] = field(default_factory=list)

    def note(self, path: str, at: int, message: str, why: str) -> None:
        found = DamagedSource(path, at, message, why)
        if self.refuse:
            raise found
        self.count += 1
        if len(self.named) < NAMED_MAX:
            self.named.append(found.describe())


class QueueReader:
    """One read of a queue. `holes` are the numbers in the range that no message has, the damaged ones among them."""

    def __init__(self, facts: StoreFacts, of: QueueRange, damages: Damages) -> None:
        self.holes = 0
        self.messages = 0
        self._facts, self._of, self._damages = facts, of, damages
        self._properties = PropertyReader()
        self._files: ConsumeQueueFiles | None = None

    @property
    def left_out(self) -> dict[str, int]:
        """Properties that became nothing, by name."""
        return self._properties.left_out

    def pieces(self) -> Iterator[Piece]:
        """All messages of the range. Raises DamagedSource, GoneMeanwhile."""
        expect_read(LONG_READ)
        at, end = self._of.start, self._of.end
        self._files = self._facts.queue_files()
        try:
            while at < end:
                entries = self._files.read(self._of.topic, self._of.queue_id, at, min(ENTRIES_MAX, end - at))
                if not len(entries):
                    self._missing(at)
                    at += 1
                    continue
                yield from self._of_entries(at, entries)
                at += len(entries)
        finally:
            self._files.close()
        self.holes = end - self._of.start - self.messages

    # --- entries

    def _missing(self, number: int) -> None:
        path, within = self._place(number)
        if not self._is_file(number):
            raise GoneMeanwhile(self._of.name, f"{path} was deleted")
        self._damages.note(path, within, self._message(number), "its entry was never written")

    def _is_file(self, number: int) -> bool:
        assert self._files is not None
        at = number * ENTRY_SIZE
        return at - at % self._files.file_size in self._files.bases(self._of.topic, self._of.queue_id)

    def _of_entries(self, first: int, entries: Entries) -> Iterator[Piece]:
        numbers = np.arange(first, first + len(entries))
        places, sizes = places_of(entries), entries["record_size"].astype(np.int64)
        fillers = is_filler(entries)
        if fillers.any():
            self._fillers(numbers[fillers], places[fillers])
            kept = ~fillers
            numbers, places, sizes = numbers[kept], places[kept], sizes[kept]
        bases = places - places % self._facts.segment_size
        borders = [0, *(np.flatnonzero(np.diff(bases)) + 1).tolist(), len(bases)]
        for start, end in pairwise(borders):
            if start < end:
                base = int(bases[start])
                log = self._log(base)
                for some in _by_size(start, sizes[start:end]):
                    piece = self._read(log, base, places[some] - base, sizes[some], numbers[some])
                    if len(piece.records):
                        self.messages += len(piece.records)
                        yield piece

    def _log(self, base: int) -> Bytes:
        try:
            return self._facts.array(base)
        except MessagesGone as gone:
            raise GoneMeanwhile(self._of.name, gone.describe()) from None

    def _fillers(self, numbers: Integers, places: Integers) -> None:
        """Names those that stand for something damaged."""
        inside = (places >= self._facts.log_min) & (places < self._facts.safe_end)
        for place in np.unique(places[inside]).tolist():
            base = self._facts.segment_of(place)
            log, at = self._log(base), place - base
            if at + SIZE_MIN <= len(log) and int(field_of(log, np.array([at]), "flag")[0]) == skipped.HOLE_FLAG:
                continue
            for number in numbers[places == place].tolist():
                why = "`store repair` has left it out, or the log skips its number"
                self._damages.note(str(self._facts.path_of(base)), at, self._message(number), why)

    # --- records

    def _read(self, log: Bytes, base: int, positions: Integers, sizes: Integers, numbers: Integers) -> Piece:
        heads = self._heads(log, base, positions, sizes, numbers)
        path = str(self._facts.path_of(base))
        wrong = damaged_rows(heads, force_property_crc=self._facts.force_property_crc)
        for row, rule in wrong:
            message = self._message(int(heads["queue_offset"][row]))
            self._damages.note(path, int(heads.positions[row]), message, rule.sentence)
        if wrong:
            heads = heads.keep(np.delete(np.arange(len(heads)), [row for row, _ in wrong]))
        heads, value, crcs = self._values(heads, path)
        parts = self._properties.read(
            heads.log, heads.parts.properties_start, heads.positions + heads.size, heads.parts.body_size
        )
        value = Blobs(value.data, value.starts, np.where(parts.tombstone == 1, -1, value.sizes))
        timestamp = np.where(parts.has_timestamp == 1, parts.timestamp, heads["born_timestamp"])
        offset = heads["queue_offset"].astype(np.int64)
        return Piece(Records(offset, timestamp, parts.key, value, parts.headers), parts.append_time, crcs)

    def _heads(self, log: Bytes, base: int, positions: Integers, sizes: Integers, numbers: Integers) -> Heads:
        """Those of the records that are where, and what, their entries say."""
        inside = (positions >= 0) & (sizes >= SIZE_MIN) & (positions + sizes <= len(log))
        try:
            if not inside.all():
                raise DamagedRecord(base, "", "")
            heads = Heads(log, base, positions, _FIELDS, placed=True)
        except DamagedRecord:
            sound = [self._is_sound(log, base, *row) for row in zip(positions, sizes, numbers, strict=True)]
            positions, sizes, numbers = positions[sound], sizes[sound], numbers[sound]
            heads = Heads(log, base, positions, _FIELDS, placed=True)
        fits = (heads["queue_offset"] == numbers) & (heads.size == sizes) & (heads["queue_id"] == self._of.queue_id)
        if not fits.all():
            for row in np.flatnonzero(~fits).tolist():
                path, at = self._place(int(numbers[row]))
                self._damages.note(path, at, self._message(int(numbers[row])), "its entry leads to another record")
            heads = heads.keep(fits)
        return heads

    def _is_sound(self, log: Bytes, base: int, position: int, size: int, number: int) -> bool:
        at, message = int(position), self._message(int(number))
        if not (at >= 0 and size >= SIZE_MIN and at + size <= len(log)):
            self._damages.note(*self._place(int(number)), message, "its entry leads to no record")
            return False
        try:
            Heads(log, base, np.array([at]), _FIELDS, placed=True)
        except DamagedRecord as found:
            self._damages.note(str(self._facts.path_of(base)), at, message, found.sentence)
            return False
        return True

    def _values(self, heads: Heads, path: str) -> tuple[Heads, Blobs, Integers]:
        """Bodies as their senders had them, and their CRCs; without those that cannot be decompressed."""
        bodies: dict[int, bytes] = {}
        lost = []
        for row in compressed_rows(heads):
            try:
                bodies[row] = restored(heads, row)
            except DamagedBody as found:
                number = int(heads["queue_offset"][row])
                self._damages.note(path, int(heads.positions[row]), self._message(number), found.problem)
                lost.append(row)
        if lost:
            kept = np.delete(np.arange(len(heads)), lost)
            heads = heads.keep(kept)
            bodies = {new: bodies[old] for new, old in enumerate(kept.tolist()) if old in bodies}
        starts, sizes = heads.parts.body_start, heads.parts.body_size
        crcs = heads["body_crc"].astype(np.int64)
        if not bodies:
            return heads, Blobs(heads.log, starts, sizes), crcs
        return heads, *_with_bodies(Blobs(heads.log, starts, sizes), crcs, bodies)

    # --- names

    def _message(self, number: int) -> str:
        return f"message {number} of {self._of.name}"

    def _place(self, number: int) -> tuple[str, int]:
        """The file of a queue's entry, and the byte in it."""
        at = number * ENTRY_SIZE
        base = at - at % self._facts.queue_file_size
        directory = queue_directory(self._facts.store.consumequeue, self._of.topic, self._of.queue_id)
        return str(directory / segment_name(base)), at - base


def _by_size(first: int, sizes: Integers) -> Iterator[slice]:
    """Runs of about PIECE_SIZE bytes, one record at least; rows count from `first`."""
    ends = np.cumsum(sizes)
    at, before = 0, 0
    while at < len(sizes):
        behind = max(int(np.searchsorted(ends, before + PIECE_SIZE, "right")), at + 1)
        yield slice(first + at, first + behind)
        at, before = behind, int(ends[behind - 1])


def _with_bodies(stored: Blobs, crcs: Integers, bodies: dict[int, bytes]) -> tuple[Blobs, Integers]:
    """`bodies` by row in place of what is stored."""
    kernels = loaded()
    assert kernels is not None
    rows = np.array(list(bodies))
    starts, ends = stored.starts.copy(), stored.starts + stored.sizes
    ends[rows] = starts[rows]
    copied, places = end_to_end(kernels, stored.data, starts, ends, "body")
    more = Blobs.of(list(bodies.values()))
    starts, sizes = places[:-1].astype(np.int64), stored.sizes.copy()
    starts[rows], sizes[rows] = more.starts + int(places[-1]), more.sizes
    found, crcs = np.empty(len(rows), np.int64), crcs.copy()
    crc32_each(more.data, more.starts, more.sizes, found)
    crcs[rows] = found & CRC_MASK
    return Blobs(np.concatenate([copied[: places[-1]], more.data]), starts, sizes), crcs


def safely(facts: StoreFacts, flushed: int) -> StoreFacts:
    """The same of a running node, without what is not synced yet."""
    return replace(facts, safe_end=max(facts.log_min, min(facts.safe_end, flushed)))
