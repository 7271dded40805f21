"""Records of Kafka's batches, end to end: their places as columns, and bytes made of columns.

    length, attributes, timestamp delta, offset delta, key, value, headers

Numbers but the one byte of attributes are zigzag varints; a key and a value have their size before them, -1 for null;
headers begin with their count. `towline/kafka/format/records.py` is the door.
"""

from enum import IntEnum
from typing import Final

import numpy as np

from towline.kernels.base.words import copy_bytes, load_i32, load_u8
from towline.kernels.jit.compiled import I64, NUMBERS, NUMBERS_READ, READ, WRITE, Bytes, Numbers, helper, kernel

COLUMNS: Final = (  # of `decode_records`, each `stride` numbers
    "offset",
    "timestamp",
    "key_start",
    "key_size",
    "value_start",
    "value_size",
    "headers_start",
    "headers_size",
)
RECORD_SIZE_MIN: Final = 7
OVERHEAD_MAX: Final = 32  # of one record beside its key, value and headers, of which a count is the least
_INT_BYTES: Final = 5
_LONG_BYTES: Final = 10
_LOW: Final = 0x7FFF_FFFF_FFFF_FFFF
SIZE_AT: Final = 8  # in what stands before each batch, and each message of a set: offset and size
OVERHEAD: Final = 12


class RecordRule(IntEnum):
    """What the bytes of records break."""

    OK = 0
    LENGTH = 1  # a record goes beyond its batch, or what is in it does not end where it does
    VARINT = 2  # a number has too many bytes
    SIZE = 3  # a size or a count is negative, or too large
    OFFSET = 4  # offsets do not rise, or go beyond the batch's last
    REST = 5  # bytes stand behind the last record


@kernel(I64(READ, I64, I64, I64, NUMBERS))
def walk_batches(log: Bytes, start: int, end: int, size_min: int, positions: Numbers) -> int:
    """Where batches begin in [start, end), by the sizes that they name; how many were found.

    The walk ends at one that is not whole, at a size below `size_min`, and when `positions` has one place left: behind
    the positions stands where it ended.
    """
    at = start
    count = 0
    while at + OVERHEAD <= end and count < positions.size - 1:
        size = load_i32(log, at + SIZE_AT) + OVERHEAD
        if size < size_min or at + size > end:
            break
        positions[count] = at
        count += 1
        at += size
    positions[count] = at
    return count


@helper
def read_varint(buffer: Bytes, at: int, end: int, most: int) -> tuple[int, int]:
    """A zigzag varint of at most so many bytes, and the byte behind it: -1 where there is none."""
    byte = load_u8(buffer, at) if at < end else 0x80
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    raw = np.int64(0)
    shift = 0
    while at < end and shift < 7 * most:
        byte = load_u8(buffer, at)
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((raw >> 1) & _LOW) ^ -(raw & 1), at  # type: ignore[return-value]
        shift += 7
    return 0, -1


@helper
def read_blob(buffer: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Start and size (-1: null) of what has its size before it, and the byte behind it: a rule below 0."""
    size, at = read_varint(buffer, at, end, _INT_BYTES)
    if at < 0:
        return 0, 0, -RecordRule.VARINT
    if size < -1:
        return 0, 0, -RecordRule.SIZE
    if size < 0:
        return at, -1, at
    if size > end - at:
        return 0, 0, -RecordRule.LENGTH
    return at, size, at + size


@helper
def skip_headers(buffer: Bytes, at: int, end: int) -> int:
    """The byte behind them; a rule below 0."""
    count, at = read_varint(buffer, at, end, _INT_BYTES)
    if at < 0:
        return -RecordRule.VARINT
    if count < 0 or count > end - at:
        return -RecordRule.SIZE
    for _ in range(count):
        _, size, at = read_blob(buffer, at, end)
        if at < 0:
            return at
        if size < 0:
            return -RecordRule.SIZE
        _, size, at = read_blob(buffer, at, end)
        if at < 0:
            return at
    return at


@helper
def _read_record(buffer: Bytes, at: int, end: int, row: int, stride: int, longs: Numbers) -> int:
    """The byte behind the record at `at`, whose places go to `longs`, as deltas its offset and time; a rule below 0."""
    size, at = read_varint(buffer, at, end, _INT_BYTES)
    if at < 0:
        return -RecordRule.VARINT
    if size < 1 or size > end - at:
        return -RecordRule.LENGTH
    end = at + size
    longs[stride + row], at = read_varint(buffer, at + 1, end, _LONG_BYTES)
    if at < 0:
        return -RecordRule.VARINT
    longs[row], at = read_varint(buffer, at, end, _INT_BYTES)
    if at < 0:
        return -RecordRule.VARINT
    longs[2 * stride + row], longs[3 * stride + row], at = read_blob(buffer, at, end)
    if at < 0:
        return at
    longs[4 * stride + row], longs[5 * stride + row], at = read_blob(buffer, at, end)
    if at < 0:
        return at
    begin = at
    at = skip_headers(buffer, at, end)
    if at < 0:
        return at
    longs[6 * stride + row] = begin
    longs[7 * stride + row] = at - begin
    return at if at == end else -RecordRule.LENGTH


@kernel(
    I64(READ, NUMBERS_READ, NUMBERS_READ, NUMBERS_READ, NUMBERS_READ, NUMBERS_READ, NUMBERS_READ, I64, NUMBERS, NUMBERS)
)
def decode_records(
    buffer: Bytes,
    starts: Numbers,
    ends: Numbers,
    counts: Numbers,
    base_offsets: Numbers,
    last_deltas: Numbers,
    base_timestamps: Numbers,
    stride: int,
    longs: Numbers,
    fault: Numbers,
) -> int:
    """The columns of the records of many batches, [start, end) of each, into `longs`; how many records are sound.

    Where fewer are sound than the counts promise, `fault` is the batch, the byte where its bad record begins, and the
    RecordRule.
    """
    row = 0
    for batch in range(starts.size):
        at = starts[batch]
        end = ends[batch]
        before = -1
        for _ in range(counts[batch]):
            begin = at
            at = _read_record(buffer, at, end, row, stride, longs)
            if at >= 0 and (longs[row] <= before or longs[row] > last_deltas[batch]):
                at = -RecordRule.OFFSET
            if at < 0:
                fault[0], fault[1], fault[2] = batch, begin, -at
                return row
            before = longs[row]
            longs[row] += base_offsets[batch]
            longs[stride + row] += base_timestamps[batch]
            row += 1
        if at != end:
            fault[0], fault[1], fault[2] = batch, at, RecordRule.REST
            return row
    return row


@helper
def write_varint(target: Bytes, at: int, value: int) -> int:
    """A zigzag varint; the byte behind it."""
    raw = (value << 1) ^ (value >> 63)
    while raw & ~0x7F:
        target[at] = (raw & 0x7F) | 0x80
        raw = (raw >> 7) & (_LOW >> 6)
        at += 1
    target[at] = raw
    return at + 1


@helper
def _size(value: int) -> int:
    """Bytes of a zigzag varint."""
    raw = (value << 1) ^ (value >> 63)
    size = 1
    while raw & ~0x7F:
        raw = (raw >> 7) & (_LOW >> 6)
        size += 1
    return size


@helper
def _write_blob(target: Bytes, at: int, data: Bytes, start: int, size: int) -> int:
    at = write_varint(target, at, size)
    if size > 0:
        copy_bytes(target, at, data, start, size)
        at += size
    return at


@kernel(
    I64(
        READ, NUMBERS_READ, NUMBERS_READ,
        READ, NUMBERS_READ, NUMBERS_READ,
        READ, NUMBERS_READ, NUMBERS_READ,
        NUMBERS_READ, NUMBERS_READ, NUMBERS_READ, I64, WRITE, NUMBERS,
    )
)  # fmt: skip
def encode_batches(
    key_data: Bytes,
    key_starts: Numbers,
    key_sizes: Numbers,
    value_data: Bytes,
    value_starts: Numbers,
    value_sizes: Numbers,
    header_data: Bytes,
    header_starts: Numbers,
    header_sizes: Numbers,
    offsets: Numbers,
    timestamps: Numbers,
    firsts: Numbers,
    head_size: int,
    target: Bytes,
    ends: Numbers,
) -> int:
    """Records of batches into `target`, with `head_size` bytes left free before those of each; the end of the last.

    Batch n has the records from `firsts[n]` up to `firsts[n + 1]` and ends at `ends[n]`. A size of -1 is null; headers
    of no bytes are a count of 0. The room has to be enough: OVERHEAD_MAX bytes for a record beside its parts.
    """
    at = 0
    for batch in range(firsts.size - 1):
        first = firsts[batch]
        at += head_size
        for row in range(first, firsts[batch + 1]):
            time = timestamps[row] - timestamps[first]
            delta = offsets[row] - offsets[first]
            key, value, headers = key_sizes[row], value_sizes[row], header_sizes[row]
            size = 1 + _size(time) + _size(delta) + _size(key) + _size(value) + max(headers, 1)
            size += max(key, 0) + max(value, 0)
            at = write_varint(target, at, size)
            target[at] = 0
            at = write_varint(target, at + 1, time)
            at = write_varint(target, at, delta)
            at = _write_blob(target, at, key_data, key_starts[row], key)
            at = _write_blob(target, at, value_data, value_starts[row], value)
            if headers > 0:
                copy_bytes(target, at, header_data, header_starts[row], headers)
                at += headers
            else:
                target[at] = 0
                at += 1
        ends[batch] = at
    return at
