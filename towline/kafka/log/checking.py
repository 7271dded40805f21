"""Everything that is wrong with a partition, file by file, byte by byte; nothing is changed."""

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from towline.kafka.errors import MalformedBytes, MalformedLog, Rule, in_file
from towline.kafka.format import (
    checkpoints,
    offset_index,
    partition_metadata,
    producer_snapshot,
    time_index,
    transaction_index,
)
from towline.kafka.format.checkpoints import LeaderEpoch
from towline.kafka.format.compression import DECOMPRESSED_SIZE_MAX
from towline.kafka.format.records import Bytes, Numbers

from . import epochs as leader_epochs
from .files import INDEX, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX, SegmentFiles, segments, snapshots, topic_partition
from .reading import decoded
from .rolling import OFFSETS_MAX
from .scan import Batches, is_control, mapped, scan

_OFFSET_ENTRY: Final = offset_index.SIZE
_TIME_ENTRY: Final = time_index.SIZE


def check(directory: Path, decompressed_size_max: int = DECOMPRESSED_SIZE_MAX) -> list[MalformedLog]:
    """In the order of offsets; of each rule of a file the first break. Empty where all is well.

    Raises NoPartitionHere, CleaningCut, RecordsTooLarge.
    """
    topic_partition(directory)
    known = segments(directory)
    found = [*_texts(directory)]
    epochs = _epochs(directory, found)
    before = -1
    for row, segment in enumerate(known):
        limit = known[row + 1].base if row + 1 < len(known) else segment.base + OFFSETS_MAX + 1
        data = mapped(segment.log)
        scanned = scan(data, base=segment.base, check_crcs=True)
        batches = scanned.batches
        faults = [scanned.fault, _range(segment, batches, limit), leader_epochs.check(epochs, batches)]
        faults += [_falls(batches, before), *_records(data, batches, decompressed_size_max)]
        found += [in_file(str(segment.log), fault) for fault in faults if fault is not None]
        before = max(before, int(batches["leader_epoch"].max(initial=-1)))
        found += _indexes(segment, batches, len(data))
    for snapshot in snapshots(directory):
        found += _read(snapshot.path(SNAPSHOT), producer_snapshot.decode)
    return found


def _texts(directory: Path) -> Iterator[MalformedLog]:
    path = directory / partition_metadata.NAME
    if path.exists():
        yield from _read(path, partition_metadata.decode)


def _epochs(directory: Path, found: list[MalformedLog]) -> list[LeaderEpoch]:
    path = directory / checkpoints.LEADER_EPOCHS
    if not path.exists():
        return []
    try:
        return checkpoints.decode_epochs(path.read_bytes())
    except MalformedBytes as error:
        found.append(in_file(str(path), error))
        return []


def _read(path: Path, decoded: Callable[[bytes], object]) -> Iterator[MalformedLog]:
    try:
        decoded(path.read_bytes())
    except MalformedBytes as error:
        yield in_file(str(path), error)


# --- the log


def _range(segment: SegmentFiles, batches: Batches, limit: int) -> MalformedBytes | None:
    odd = np.flatnonzero((batches["base_offset"] < segment.base) | (batches["last_offset"] >= limit))
    if not len(odd):
        return None
    row = batches[odd[0]]
    said = f"{row['base_offset']} to {row['last_offset']}, in a segment from {segment.base} up to {limit}"
    return MalformedBytes(Rule.OFFSET_RANGE, int(row["position"]), said)


def _falls(batches: Batches, before: int) -> MalformedBytes | None:
    """From the segment before to this one."""
    if not len(batches) or not 0 <= (number := int(batches["leader_epoch"][0])) < before:
        return None
    return MalformedBytes(Rule.EPOCHS_FALL, 0, f"{number} comes after {before} of the segment before")


def _records(data: Bytes, batches: Batches, size_max: int) -> Iterator[MalformedBytes]:
    try:
        deque(decoded(data, batches, size_max), maxlen=0)
    except MalformedBytes as error:
        yield error


# --- its indexes


def _indexes(segment: SegmentFiles, batches: Batches, size: int) -> Iterator[MalformedLog]:
    for suffix, looked_at in ((INDEX, _offset_index), (TIME_INDEX, _time_index)):
        path = segment.path(suffix)
        if path.exists():
            error = looked_at(path.read_bytes(), segment.base, batches, size)
            if error is not None:
                yield in_file(str(path), error)
    path = segment.path(TRANSACTION_INDEX)
    if path.exists():
        yield from _transaction_index(path, segment, batches)


def offset_index_fault(segment: SegmentFiles, batches: Batches, size: int) -> MalformedLog | None:
    """What is wrong with the offset index of a segment of `size` bytes, which has these batches."""
    path = segment.path(INDEX)
    error = _offset_index(path.read_bytes(), segment.base, batches, size) if path.exists() else None
    return None if error is None else in_file(str(path), error)


def _offset_index(data: bytes, base: int, batches: Batches, size: int) -> MalformedBytes | None:
    offsets, positions = offset_index.decode(data, base)
    error = _shape(data, _OFFSET_ENTRY, (offsets, positions), base)
    if error is not None or not len(offsets):
        return error
    if len(odd := np.flatnonzero(positions >= size)):
        said = f"offset {offsets[odd[0]]} at byte {positions[odd[0]]} of {size}"
        return MalformedBytes(Rule.INDEX_BEYOND, int(odd[0]) * _OFFSET_ENTRY, said)
    # A broker before 4.0 made one entry of several batches: the first one's position, the last one's offset.
    rows = np.searchsorted(batches["position"], positions)
    last = int(batches["last_offset"][-1]) if len(batches) else base - 1
    right = (_at(batches, "position", rows) == positions) & (offsets <= last)
    right &= _at(batches, "base_offset", rows) <= offsets
    if len(odd := np.flatnonzero(~right)):
        said = f"no batch with offset {offsets[odd[0]]} or one before begins at byte {positions[odd[0]]} of the log"
        return MalformedBytes(Rule.INDEX_PLACE, int(odd[0]) * _OFFSET_ENTRY, said)
    return None


def _time_index(data: bytes, base: int, batches: Batches, size: int) -> MalformedBytes | None:
    times, offsets = time_index.decode(data, base)
    error = _shape(data, _TIME_ENTRY, (times, offsets), base)
    if error is not None or not len(times):
        return error
    last = int(batches["last_offset"][-1]) if len(batches) else base - 1
    if len(odd := np.flatnonzero(offsets > last)):
        said = f"offset {offsets[odd[0]]} of a log that ends with {last}"
        return MalformedBytes(Rule.INDEX_BEYOND, int(odd[0]) * _TIME_ENTRY, said)
    rows = np.searchsorted(batches["last_offset"], offsets)  # of brokers before 4.0 an offset inside the batch
    # A message of magic 0 has no time: a broker that made it of a younger one kept that one's in the index.
    wrong = (_at(batches, "max_timestamp", rows) != times) & (_at(batches, "magic", rows) != 0)
    if len(odd := np.flatnonzero(wrong)):
        row = int(odd[0])
        said = f"{times[row]} for offset {offsets[row]}, whose batch has {batches['max_timestamp'][rows[row]]}"
        return MalformedBytes(Rule.INDEX_TIME, row * _TIME_ENTRY, said)
    return None


def _shape(data: bytes, size: int, columns: tuple[Numbers, Numbers], base: int) -> MalformedBytes | None:
    """Whole entries, whose two numbers rise; the offset never below the segment's."""
    if len(data) % size:
        said = f"{len(data)} bytes in entries of {size}"
        return MalformedBytes(Rule.INDEX_SIZE, len(data) // size * size, said)
    for column in columns:
        if len(odd := np.flatnonzero(np.diff(column) <= 0)):
            said = f"{column[odd[0] + 1]} comes after {column[odd[0]]}"
            return MalformedBytes(Rule.INDEX_ORDER, (int(odd[0]) + 1) * size, said)
    offsets = columns[0] if size == _OFFSET_ENTRY else columns[1]
    if len(odd := np.flatnonzero(offsets < base)):
        return MalformedBytes(Rule.INDEX_ORDER, int(odd[0]) * size, f"offset {offsets[odd[0]]} is below {base}")
    return None


def _transaction_index(path: Path, segment: SegmentFiles, batches: Batches) -> Iterator[MalformedLog]:
    """Each entry ends with a control batch of its producer in this segment."""
    try:
        entries = transaction_index.decode(path.read_bytes())
    except MalformedBytes as error:
        yield in_file(str(path), error)
        return
    ends = batches[is_control(batches)]
    known = set(zip(ends["producer_id"].tolist(), ends["base_offset"].tolist(), strict=True))
    for row, entry in enumerate(entries):
        if (entry.producer_id, entry.last_offset) not in known:
            said = f"producer {entry.producer_id} ends nothing at offset {entry.last_offset}"
            yield MalformedLog(str(path), row * transaction_index.SIZE, Rule.TRANSACTION, said)
            return


def _at(batches: Batches, name: str, rows: Numbers) -> Numbers:
    """A field of these rows; of no batches -1."""
    if not len(batches):
        return np.full(len(rows), -1, np.int64)
    found: Numbers = batches[name][np.minimum(rows, len(batches) - 1)]
    return found
