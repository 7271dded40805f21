"""A partition that nobody writes: its records from an offset on as columns, its transactions, its epochs."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from towline.kafka.errors import MalformedBytes, MalformedLog, OffsetOutOfRange, Rule, in_file
from towline.kafka.format import checkpoints, partition_metadata, producer_snapshot
from towline.kafka.format.checkpoints import LeaderEpoch
from towline.kafka.format.compression import DECOMPRESSED_SIZE_MAX
from towline.kafka.format.records import Bytes, Numbers
from towline.kafka.format.transaction_index import Aborted

from . import lookup
from .files import SNAPSHOT, SegmentFiles, segments, topic_partition
from .producers import Producers
from .reading import PIECE_SIZE, Columns, decoded
from .rolling import OFFSETS_MAX
from .scan import Batches, is_control, is_transactional, mapped, scan
from .torn import is_torn


@dataclass(frozen=True)
class Transactions:
    """`aborted` in the order of their ends. What stands from `last_stable_offset` on may belong to an open one."""

    aborted: list[Aborted]
    last_stable_offset: int

    def are_committed(self, columns: Columns) -> NDArray[np.bool_]:
        """Of each record whether a reader of what is committed gets it: no control record, none of an aborted
        transaction, none from the last stable offset on."""
        batches = columns.batches
        kept = ~is_control(batches)
        transactional = np.flatnonzero(is_transactional(batches) & kept)
        chosen = batches[transactional]
        offsets = chosen["base_offset"]
        for one in self._near(offsets):
            inside = (offsets >= one.first_offset) & (offsets <= one.last_offset)
            kept[transactional[inside & (chosen["producer_id"] == one.producer_id)]] = False
        found: NDArray[np.bool_] = kept[columns.row] & (columns.records.offset < self.last_stable_offset)
        return found

    def _near(self, offsets: Numbers) -> list[Aborted]:
        """Those that may have a batch there."""
        if not len(offsets) or not self.aborted:
            return []
        near = (self._bounds[1] >= offsets[0]) & (self._bounds[0] <= offsets[-1])
        return [self.aborted[row] for row in np.flatnonzero(near)]

    @cached_property
    def _bounds(self) -> tuple[Numbers, Numbers]:
        first, last = ([getattr(one, name) for one in self.aborted] for name in ("first_offset", "last_offset"))
        return np.array(first, np.int64), np.array(last, np.int64)


class Partition:
    """The directory `<topic>-<number>` of a stopped broker. `log_start` is what the log directory's checkpoint says.

    With `cut_torn` a last batch that is not whole is as if `recover` had cut it; nothing is changed. Raises
    NoPartitionHere, CleaningCut. Methods that read raise MalformedLog, of a torn end TornLog.
    """

    def __init__(self, directory: Path, log_start: int = 0, *, cut_torn: bool = False) -> None:
        self.directory, self._cut_torn = directory, cut_torn
        self.topic, self.number = topic_partition(directory)
        self.segments = segments(directory)
        self.start = max(log_start, self.segments[0].base)

    @cached_property
    def topic_id(self) -> UUID | None:
        """None in a partition of a broker before 2.8."""
        path = self.directory / partition_metadata.NAME
        if not path.exists():
            return None
        try:
            return partition_metadata.decode(path.read_bytes())
        except MalformedBytes as error:
            raise in_file(str(path), error) from None

    @cached_property
    def epochs(self) -> list[LeaderEpoch]:
        """As `leader-epoch-checkpoint` has them; none without that file."""
        path = self.directory / checkpoints.LEADER_EPOCHS
        if not path.exists():
            return []
        try:
            return checkpoints.decode_epochs(path.read_bytes())
        except MalformedBytes as error:
            raise in_file(str(path), error) from None

    @cached_property
    def end(self) -> int:
        """The offset behind the last record."""
        for segment in reversed(self.segments):
            data = mapped(segment.log)
            at = 0 if self._may_be_cut(segment) else lookup.last_place(segment, data)
            batches = self._whole(segment, data, at)
            if len(batches):
                return max(int(batches["last_offset"][-1]) + 1, self.segments[-1].base)
        return self.segments[-1].base

    def scans(
        self, start: int | None = None, *, check_crcs: bool = False
    ) -> Iterator[tuple[SegmentFiles, Bytes, Batches]]:
        """Each segment's bytes and batches, from the batch that has offset `start`, or the first behind it.

        The log ends where its last segment does: anything but whole batches raises.
        """
        start = self.start if start is None else start
        first = max(bisect_right([segment.base for segment in self.segments], start) - 1, 0)
        for row, segment in enumerate(self.segments[first:], first):
            data = mapped(segment.log)
            at = lookup.place(segment, data, start) if start > segment.base else 0
            batches = self._whole(segment, data, at, check_crcs=check_crcs)
            limit = self.segments[row + 1].base if row + 1 < len(self.segments) else segment.base + OFFSETS_MAX + 1
            _check_range(segment, batches, limit)
            yield segment, data, batches[batches["last_offset"] >= start]

    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        check_crcs: bool = True,
        piece_size: int = PIECE_SIZE,
        decompressed_size_max: int = DECOMPRESSED_SIZE_MAX,
    ) -> Iterator[Columns]:
        """Records with offsets in [start, end), in their order, control records among them: pieces of about
        `piece_size` bytes of log. Their bytes stay valid as long as somebody keeps the piece.

        Raises OffsetOutOfRange for a `start` that is not between the partition's start and end, RecordsTooLarge.
        """
        first = self.start if start is None else start
        if not self.start <= first <= self.end:
            raise OffsetOutOfRange(str(self.directory), first, self.start, self.end)
        for segment, data, batches in self.scans(first, check_crcs=check_crcs):
            if end is not None:
                batches = batches[batches["base_offset"] < end]
            try:
                for columns in decoded(data, batches, decompressed_size_max, piece_size):
                    yield _bounded(columns, first, end)
            except MalformedBytes as error:
                raise in_file(str(segment.log), error) from None

    def producers(self) -> Producers:
        """Before the first segment: by its snapshot, which knows those whose batches retention has taken."""
        path = self.segments[0].path(SNAPSHOT)
        if not path.exists():
            return Producers()
        try:
            return Producers(producer_snapshot.decode(path.read_bytes()))
        except MalformedBytes as error:
            raise in_file(str(path), error) from None

    def transactions(self) -> Transactions:
        """From one walk over the heads of all batches, not from `.txnindex`, which may be of another time."""
        producers = self.producers()
        aborted: list[Aborted] = []
        end = self.start
        for segment, data, batches in self.scans(self.segments[0].base):
            try:
                aborted += producers.add(data, batches)
            except MalformedBytes as error:
                raise in_file(str(segment.log), error) from None
            end = int(batches["last_offset"][-1]) + 1 if len(batches) else end
        unstable = producers.first_open()
        return Transactions(aborted, end if unstable is None else unstable)

    def offset_at(self, timestamp: int) -> int | None:
        """The offset of the first record whose time is `timestamp` (ms since 1970) or later; None if none is."""
        for segment in self.segments:
            begin = lookup.earlier_end(segment, mapped(segment.log), timestamp)
            for columns in self.read(max(begin, self.start), _next_base(self.segments, segment)):
                rows = np.flatnonzero(columns.records.timestamp >= timestamp)
                if len(rows):
                    return int(columns.records.offset[rows[0]])
        return None

    def torn(self) -> MalformedLog | None:
        """What is wrong with the last batch, where it is not whole and nothing stands behind it."""
        last = self.segments[-1]
        data = mapped(last.log)
        found = scan(data, base=last.base, check_crcs=True)
        is_end = found.fault is not None and is_torn(data, found, last.base)
        return in_file(str(last.log), found.fault) if found.fault is not None and is_end else None

    def _may_be_cut(self, segment: SegmentFiles) -> bool:
        return self._cut_torn and segment == self.segments[-1]

    def _whole(self, segment: SegmentFiles, data: Bytes, at: int, *, check_crcs: bool = False) -> Batches:
        may_be_cut = self._may_be_cut(segment)
        found = scan(data, at, base=segment.base, check_crcs=check_crcs or may_be_cut)
        if found.fault is not None and not (may_be_cut and is_torn(data, found, segment.base)):
            raise in_file(str(segment.log), found.fault)
        return found.batches


def _next_base(all_segments: Sequence[SegmentFiles], segment: SegmentFiles) -> int | None:
    row = all_segments.index(segment) + 1
    return all_segments[row].base if row < len(all_segments) else None


def _check_range(segment: SegmentFiles, batches: Batches, limit: int) -> None:
    odd = np.flatnonzero((batches["base_offset"] < segment.base) | (batches["last_offset"] >= limit))
    if len(odd):
        row = batches[odd[0]]
        said = f"{row['base_offset']} to {row['last_offset']}, in a segment from {segment.base} up to {limit}"
        raise MalformedLog(str(segment.log), int(row["position"]), Rule.OFFSET_RANGE, said)


def _bounded(columns: Columns, start: int, end: int | None) -> Columns:
    """Without the records of the first and of the last batch that are outside."""
    offset = columns.records.offset
    begin = int(np.searchsorted(offset, start, "left"))
    behind = len(offset) if end is None else int(np.searchsorted(offset, end, "left"))
    return columns if (begin, behind) == (0, len(offset)) else columns.taken(slice(begin, behind))
