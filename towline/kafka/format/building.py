"""Batches made of columns: records one behind the other, heads before them, CRCs over both."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from towline.kernels.kafka.crc32c import crc32c_each

from . import batch, control, records
from .batch import NONE, OFFSET_DELTA_MAX, SEQUENCE_MAX, Compression
from .compression import compress
from .control import ControlType
from .records import Bytes, Numbers, Records

BATCH_SIZE: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Form:
    """What batches have in common. `append_time` (ms since 1970) takes the place of the records' own times.

    With a producer the first record has `base_sequence`, and each later one the next; a batch is closed before it would
    have more than `batch_size` bytes uncompressed, one record aside that has more by itself.
    """

    compression: Compression = Compression.NONE
    leader_epoch: int = 0
    append_time: int | None = None
    producer_id: int = NONE
    producer_epoch: int = NONE
    base_sequence: int = NONE
    transactional: bool = False
    control: bool = False
    batch_size: int = BATCH_SIZE

    @property
    def attributes(self) -> int:
        bits = batch.LOG_APPEND_TIME if self.append_time is not None else 0
        bits |= batch.TRANSACTIONAL if self.transactional else 0
        bits |= batch.CONTROL if self.control else 0
        return bits | self.compression


def build(columns: Records, form: Form = Form()) -> Bytes:
    """Batches end to end. Offsets rise, and may have holes; a hole in a producer's offsets is one in its sequences."""
    assert (np.diff(columns.offset) > 0).all(), "offsets rise"
    if not len(columns):
        return np.empty(0, np.uint8)
    firsts = split(columns, form.batch_size)
    data, ends = records.encode(columns, firsts, batch.SIZE)
    starts = np.concatenate([[0], ends[:-1]]) + batch.SIZE
    if form.compression != Compression.NONE:
        data, starts, ends = _compressed(data, starts, ends, form.compression)
    _put_heads(data, starts, ends, _heads(columns, firsts, form))
    return data


def end_transaction(
    kind: ControlType,
    offset: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
) -> Bytes:
    """The control batch by which a coordinator ends a transaction."""
    key, value = control.encode(kind, coordinator_epoch)
    form = Form(
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
    return build(Records.of([offset], [timestamp], [key], [value]), form)


def gaps(start: int, end: int, leader_epoch: int = 0) -> Bytes:
    """Heads without records, as compaction leaves them, for offsets [start, end) that no record has."""
    bases = np.arange(start, end, OFFSET_DELTA_MAX, dtype=np.int64)
    heads = np.zeros(len(bases), batch.HEAD)
    heads["base_offset"] = bases
    heads["leader_epoch"], heads["magic"] = leader_epoch, batch.MAGIC
    heads["last_offset_delta"] = np.minimum(bases + OFFSET_DELTA_MAX, end) - 1 - bases
    for name in ("base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence"):
        heads[name] = NONE
    ends = batch.SIZE * np.arange(1, len(heads) + 1)
    data = np.empty(batch.SIZE * len(heads), np.uint8)
    _put_heads(data, ends, ends, heads)
    return data


def split(columns: Records, size_max: int) -> Numbers:
    """The first row of each batch, and the number of rows behind the last."""
    parts = (columns.key, columns.value, columns.headers)
    sizes = sum((np.maximum(part.sizes, 0) for part in parts), np.zeros(len(columns), np.int64))
    ends = np.cumsum(sizes + records.OVERHEAD_MAX)
    firsts, at, before = [0], 0, 0
    while True:
        fitting = int(np.searchsorted(ends, before + size_max - batch.SIZE, "right"))
        near = int(np.searchsorted(columns.offset, columns.offset[at] + OFFSET_DELTA_MAX, "right"))
        at = min(max(fitting, at + 1), near)
        firsts.append(at)
        if at >= len(columns):
            return np.array(firsts)
        before = int(ends[at - 1])


def _compressed(data: Bytes, starts: Numbers, ends: Numbers, kind: Compression) -> tuple[Bytes, Numbers, Numbers]:
    """The same batches with their records compressed, room for heads before them."""
    room, parts, bounds, at = bytes(batch.SIZE), [], [], 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        packed = compress(data[start:end].tobytes(), kind)
        parts += [room, packed]
        at += batch.SIZE
        bounds.append((at, at + len(packed)))
        at += len(packed)
    found = np.array(bounds, np.int64)
    return np.frombuffer(bytearray(b"").join(parts), np.uint8), found[:, 0], found[:, 1]


def _heads(columns: Records, firsts: Numbers, form: Form) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    begin, behind = firsts[:-1], firsts[1:]
    heads = np.zeros(len(begin), batch.HEAD)
    heads["base_offset"] = columns.offset[begin]
    heads["leader_epoch"] = form.leader_epoch
    heads["magic"] = batch.MAGIC
    heads["attributes"] = form.attributes
    heads["last_offset_delta"] = columns.offset[behind - 1] - columns.offset[begin]
    heads["base_timestamp"] = columns.timestamp[begin]
    heads["max_timestamp"] = np.maximum.reduceat(columns.timestamp, begin)
    if form.append_time is not None:
        heads["max_timestamp"] = form.append_time
    heads["producer_id"], heads["producer_epoch"] = form.producer_id, form.producer_epoch
    heads["base_sequence"] = NONE
    if form.base_sequence >= 0:
        heads["base_sequence"] = (form.base_sequence + columns.offset[begin] - columns.offset[0]) % (SEQUENCE_MAX + 1)
    heads["record_count"] = behind - begin
    return heads


def _put_heads(data: Bytes, starts: Numbers, ends: Numbers, heads: np.ndarray[tuple[int], np.dtype[np.void]]) -> None:
    """Writes heads before the records, with the CRC that both have."""
    positions = starts - batch.SIZE
    heads["batch_length"] = ends - positions - batch.OVERHEAD
    places = positions[:, None] + np.arange(batch.SIZE)
    data[places] = heads.view(np.uint8).reshape(-1, batch.SIZE)
    crcs = np.empty(len(heads), np.int64)
    crc32c_each(data, positions + batch.CHECKED_AT, ends - positions - batch.CHECKED_AT, crcs)
    data[positions[:, None] + batch.CRC_AT + np.arange(4)] = crcs.astype(">u4").view(np.uint8).reshape(-1, 4)
