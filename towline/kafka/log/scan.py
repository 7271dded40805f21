"""The batches of a segment as rows: one walk over their heads, each rule looked at for all of them together."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from towline.kafka.errors import MalformedBytes, Rule
from towline.kafka.format import batch, message_set
from towline.kafka.format.records import Bytes, Numbers
from towline.kernels.base.crc import crc32_each
from towline.kernels.kafka.crc32c import crc32c_each
from towline.kernels.kafka.records import walk_batches

# A batch, or a message of magic 0 and 1 that stands alone or holds others: what they do not have is -1. The base offset
# of a compressed message is the least that it can be.
BATCH: Final = np.dtype(
    [
        ("position", "i8"),  # byte in the segment
        ("size", "i8"),
        ("base_offset", "i8"),
        ("last_offset", "i8"),
        ("base_timestamp", "i8"),
        ("max_timestamp", "i8"),
        ("producer_id", "i8"),
        ("leader_epoch", "i4"),
        ("base_sequence", "i4"),
        ("record_count", "i4"),
        ("producer_epoch", "i2"),
        ("attributes", "i2"),
        ("magic", "i1"),
    ]
)
Batches = NDArray[np.void]

_STEP: Final = 1 << 16  # heads that are walked over at once
_SIZE_AT: Final = message_set.FRAME.offset["size"]


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows of BATCH; the byte behind the last of them; what is wrong there, if it is not the end."""

    batches: Batches
    end: int
    fault: MalformedBytes | None


def mapped(path: Path) -> Bytes:
    """The bytes of a file, read-only."""
    if not path.stat().st_size:
        return np.empty(0, np.uint8)
    return np.asarray(np.memmap(path, np.uint8, mode="r"))


def scan(data: Bytes, start: int = 0, end: int | None = None, *, base: int = 0, check_crcs: bool = False) -> Scan:
    """The batches that begin in [start, end) of a segment from offset `base` on, up to the first that breaks a rule.

    That they are whole, that their magic is known and that offsets rise is always looked at.
    """
    end = len(data) if end is None else end
    positions, stopped = _walked(data, start, end)
    fault = _unwhole(data, stopped, end) if stopped < end else None
    bounds = np.append(positions, stopped)
    if len(odd := np.flatnonzero(data[positions + batch.MAGIC_AT] > batch.MAGIC)):
        at = int(positions[odd[0]])
        fault = MalformedBytes(Rule.MAGIC, at, f"magic {data[at + batch.MAGIC_AT]}")
        bounds = bounds[: odd[0] + 1]
    rows = _rows(data, bounds[:-1], bounds[1:], base)
    broken = [_sizes(rows), _offsets(rows)]
    if check_crcs:
        broken.append(_crcs(data, rows))
    found = [(row, each) for row, each in broken if each is not None]
    if found:
        row, fault = min(found, key=lambda pair: pair[0])
        return Scan(rows[:row], int(bounds[row]), fault)
    return Scan(rows, int(bounds[-1]), fault)


def is_control(batches: Batches) -> NDArray[np.bool_]:
    return _has(batches, batch.CONTROL)


def is_transactional(batches: Batches) -> NDArray[np.bool_]:
    return _has(batches, batch.TRANSACTIONAL)


def _has(batches: Batches, bit: int) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (batches["magic"] == batch.MAGIC) & (batches["attributes"] & bit != 0)
    return found


def _walked(data: Bytes, start: int, end: int) -> tuple[Numbers, int]:
    """Where batches begin, and where the walk ended."""
    found = [np.empty(0, np.int64)]
    while True:
        positions = np.empty(_STEP, np.int64)
        count = walk_batches(data, start, end, message_set.SIZE_MIN, positions)
        start = int(positions[count])
        found.append(positions[:count])
        if count < _STEP - 1:
            return np.concatenate(found), start


def _unwhole(data: Bytes, at: int, end: int) -> MalformedBytes:
    left = end - at
    if not data[at:end].any():
        return MalformedBytes(Rule.TORN_BATCH, at, f"{left} bytes of zeros")
    if left < batch.OVERHEAD:
        return MalformedBytes(Rule.TORN_BATCH, at, f"{left} bytes are left for its offset and size")
    size = int.from_bytes(data[at + _SIZE_AT : at + batch.OVERHEAD].tobytes(), "big", signed=True) + batch.OVERHEAD
    if size < message_set.SIZE_MIN:
        return MalformedBytes(Rule.BATCH_SIZE, at, f"{size} bytes; {message_set.SIZE_MIN} are the least")
    return MalformedBytes(Rule.TORN_BATCH, at, f"it has {size} bytes, {left} are left")


def _rows(data: Bytes, positions: Numbers, ends: Numbers, base: int) -> Batches:
    rows = np.empty(len(positions), BATCH)
    rows["position"], rows["size"] = positions, ends - positions
    rows["magic"] = data[positions + batch.MAGIC_AT]
    short = (rows["magic"] == batch.MAGIC) & (rows["size"] < batch.SIZE)
    modern = np.flatnonzero((rows["magic"] == batch.MAGIC) & ~short)
    heads = batch.decode_many(data, positions[modern])
    for name in BATCH.names or ():
        if name in (heads.dtype.names or ()):
            rows[name][modern] = heads[name]
    rows["last_offset"][modern] = heads["base_offset"] + heads["last_offset_delta"].astype(np.int64)
    others = np.flatnonzero((rows["magic"] != batch.MAGIC) | short)
    if len(others):
        _fill_messages(rows, others, data, base)
    return rows


def _fill_messages(rows: Batches, others: Numbers, data: Bytes, base: int) -> None:
    """Messages, and heads that are too short, which nobody reads further."""
    positions = rows["position"][others]
    known = message_set.frames(data, positions)
    for name in ("leader_epoch", "producer_id", "producer_epoch", "base_sequence", "record_count"):
        rows[name][others] = batch.NONE
    rows["last_offset"][others], rows["attributes"][others], rows["max_timestamp"][others] = known
    rows["base_timestamp"][others] = known[2]
    before = np.concatenate([[base - 1], rows["last_offset"][:-1]]) + 1
    packed = rows["attributes"] & batch.COMPRESSION_MASK != 0
    rows["base_offset"][others] = np.where(packed, before, rows["last_offset"])[others]


Found = tuple[int, MalformedBytes | None]


def _sizes(rows: Batches) -> Found:
    modern = rows["magic"] == batch.MAGIC
    odd = np.flatnonzero(modern & (rows["size"] < batch.SIZE))
    if not len(odd):
        return 0, None
    row = rows[odd[0]]
    said = f"{row['size']} bytes; a head alone has {batch.SIZE}"
    return int(odd[0]), MalformedBytes(Rule.BATCH_SIZE, int(row["position"]), said)


def _offsets(rows: Batches) -> Found:
    """Each batch begins behind the last record of the one before, and does not end before it begins."""
    before = np.concatenate([[-1], rows["last_offset"][:-1]])
    odd = np.flatnonzero((rows["base_offset"] <= before) | (rows["last_offset"] < rows["base_offset"]))
    if not len(odd):
        return 0, None
    row = int(odd[0])
    found = rows[row]
    said = f"{found['base_offset']} to {found['last_offset']} comes after {before[row]}"
    return row, MalformedBytes(Rule.OFFSETS, int(found["position"]), said)


def _crcs(data: Bytes, rows: Batches) -> Found:
    modern = rows["magic"] == batch.MAGIC
    actual = np.zeros(len(rows), np.int64)
    stored = np.zeros(len(rows), np.int64)
    for chosen, crc_at, checked_at, each in (
        (modern, batch.CRC_AT, batch.CHECKED_AT, crc32c_each),
        (~modern, message_set.CRC_AT, message_set.CHECKED_AT, crc32_each),
    ):
        places = np.flatnonzero(chosen & (rows["size"] >= checked_at))
        positions = rows["position"][places]
        found = np.empty(len(places), np.int64)
        each(data, positions + checked_at, rows["size"][places] - checked_at, found)
        actual[places] = found
        stored[places] = np.ascontiguousarray(data[positions[:, None] + crc_at + np.arange(4)]).view(">u4")[:, 0]
    odd = np.flatnonzero(actual != stored)
    if not len(odd):
        return 0, None
    row = int(odd[0])
    said = f"{stored[row]:08x} stands there, the bytes have {actual[row]:08x}"
    return row, MalformedBytes(Rule.CRC, int(rows["position"][row]), said)
