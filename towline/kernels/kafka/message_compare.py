"""Records of the CommitLog against the records of Kafka that they were made of: read back, not made again.

What `message_encode` wrote is taken apart here by rules of its own, so that one fault does not hide in both.
"""

from enum import IntEnum
from typing import Final

import numpy as np

from towline.format.record.record import LAYOUT, STORE_HOST_IPV6, TRANSACTION_ROLLBACK
from towline.format.record.rules import Rule
from towline.kernels.base.crc import crc_of
from towline.kernels.base.shape import (
    BODY_CRC,
    CRC_MASK,
    HEAD_SIZE,
    MAGIC,
    NAME_END,
    PAIR_END,
    PHYSICAL_OFFSET,
    PROPERTY_CRC_SIZE,
    QUEUE_ID,
    QUEUE_OFFSET,
    SYS_FLAG,
    broken_property_crc,
    hosts_more,
    parts,
    same_bytes,
)
from towline.kernels.base.words import load_i32, load_i64, load_u8, load_u32
from towline.kernels.jit.compiled import I64, NUMBERS, NUMBERS_READ, READ, Bytes, Numbers, helper, kernel
from towline.kernels.jit.rows import Stop
from towline.kernels.scan.scan import next_record

from .message_encode import APPEND_TIME, TRANSACTIONAL, Fixed, Name
from .records import read_blob, read_varint

_FLAG: Final = LAYOUT.offset["flag"]
_BORN_TIMESTAMP: Final = LAYOUT.offset["born_timestamp"]
_STORE_TIMESTAMP: Final = LAYOUT.offset["store_timestamp"]
_STORE_HOST: Final = LAYOUT.offset["store_address"]
_PREPARED: Final = LAYOUT.offset["prepared_transaction_offset"]
_INT_BYTES: Final = 5
_IPV4_HOST: Final = 8
_VALUES: Final = np.full(256, -1, np.int64)
_VALUES[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)
_PAD: Final = ord("=")
_MINUS: Final = ord("-")
_ZERO: Final = ord("0")
_COLON: Final = ord(":")


class Seen(IntEnum):
    """A walk's state: what it begins with, and leaves to the next one."""

    AT = 0  # next byte of the segment
    EXPECTED = 1  # next queue offset, -1 before the first
    ROW = 2  # next row
    RECORDS = 3
    HOLES = 4
    BODY_BYTES = 5
    SIZE = 6


class Differs(IntEnum):
    """What a record has that its source does not; OK where all rows were found, BLANK where the segment ends."""

    OK = 0
    BLANK = 1
    FORM = 2  # it is no whole record
    PLACE = 3  # physical offset, store timestamp, host, queue or topic
    OFFSET = 4  # queue offset
    TIMESTAMP = 5
    BODY = 6
    BODY_CRC = 7
    KEY = 8
    HEADERS = 9
    PROPERTIES = 10
    PROPERTY_CRC = 11
    HOLE = 12


@helper
def _same(log: Bytes, at: int, size: int, data: Bytes, start: int, length: int) -> bool:
    return size == length and same_bytes(log, at, data, start, size)


@helper
def _same_decoded(log: Bytes, at: int, end: int, data: Bytes, start: int, length: int) -> bool:
    """Whether the base64 in [at, end) stands for those bytes; one padding byte for none."""
    if length == 0:
        return end - at == 1 and load_u8(log, at) == _PAD
    if end - at != (length + 2) // 3 * 4:
        return False
    bits = 0
    held = 0
    found = 0
    while at < end and found < length:
        value = _VALUES[load_u8(log, at)]
        if value < 0:
            return False
        bits = (bits << 6 | value) & 0xFFFF
        held += 6
        at += 1
        if held >= 8:
            held -= 8
            if bits >> held & 0xFF != load_u8(data, start + found):
                return False
            found += 1
    while at < end:
        if load_u8(log, at) != _PAD:
            return False
        at += 1
    return found == length


@helper
def _number(log: Bytes, at: int, end: int) -> tuple[int, int]:
    """The decimal number at `at`, and the byte behind its digits."""
    negative = at < end and load_u8(log, at) == _MINUS
    if negative:
        at += 1
    value = 0
    while at < end:
        digit = load_u8(log, at) - _ZERO
        if digit < 0 or digit > 9:
            break
        value = value * 10 - digit
        at += 1
    return value if negative else -value, at


@helper
def _is_row(log: Bytes, at: int, end: int, names: Bytes, bounds: Numbers, number: int) -> bool:
    return _same(log, at, end - at, names, bounds[number], bounds[number + 1] - bounds[number])


@helper
def _row_of(log: Bytes, at: int, end: int, names: Bytes, bounds: Numbers) -> int:
    """The row of a name, -1 for that of a header."""
    for number in range(Name.PREFIX.value):
        if _is_row(log, at, end, names, bounds, number):
            return number
    return -1


@helper
def _same_producer(log: Bytes, at: int, end: int, producer: int, epoch: int, sequence: int) -> bool:
    value, at = _number(log, at, end)
    if value != producer or at == end or load_u8(log, at) != _COLON:
        return False
    value, at = _number(log, at + 1, end)
    if value != epoch or at == end or load_u8(log, at) != _COLON:
        return False
    value, at = _number(log, at + 1, end)
    return value == sequence and at == end


@helper
def _pair_end(log: Bytes, at: int, end: int, byte: int) -> int:
    while at < end and load_u8(log, at) != byte:
        at += 1
    return at


@helper
def _wanted(is_null: bool, timestamp: int, flags: int, producer: int) -> int:
    """The rows of Name that there have to be, each as a bit, beside key and headers."""
    wanted = 0
    wanted |= is_null << Name.TOMBSTONE.value
    wanted |= (timestamp < 0) << Name.TIMESTAMP.value
    wanted |= (flags & APPEND_TIME != 0) << Name.TIMESTAMP_TYPE.value
    wanted |= (producer >= 0) << Name.PRODUCER.value
    wanted |= (flags & TRANSACTIONAL != 0) << Name.TRANSACTIONAL.value
    return wanted


@helper
def _same_value(
    log: Bytes, at: int, end: int, names: Bytes, bounds: Numbers, row: int, timestamp: int,
    producer: int, epoch: int, sequence: int,
) -> bool:  # fmt: skip
    """Whether [at, end) is what the property of this row has to say, which is neither key nor headers."""
    if row == Name.TIMESTAMP:
        found, stop = _number(log, at, end)
        return found == timestamp and stop == end
    if row == Name.PRODUCER:
        return _same_producer(log, at, end, producer, epoch, sequence)
    if row == Name.TIMESTAMP_TYPE:
        return _is_row(log, at, end, names, bounds, Name.LOG_APPEND_TIME.value)
    return _is_row(log, at, end, names, bounds, Name.TRUE.value)


@helper
def _same_header(
    log: Bytes, at: int, name_end: int, value: int, end: int, headers: Bytes, place: int, behind: int
) -> tuple[bool, int]:
    """Whether the pair is the header at `place`, and where the next one begins."""
    start, size, place = read_blob(headers, place, behind)
    same = _same(log, at, name_end - at, headers, start, size)
    start, size, place = read_blob(headers, place, behind)
    return same and _same(log, value, end - value, headers, start, size), place


@helper
def _differs_in_properties(
    log: Bytes, at: int, end: int, names: Bytes, bounds: Numbers,
    key: Bytes, key_start: int, key_size: int,
    headers: Bytes, headers_start: int, headers_size: int,
    is_null: bool, timestamp: int, flags: int, producer: int, epoch: int, sequence: int,
) -> int:  # fmt: skip
    """OK where the pairs in [at, end) say exactly this."""
    behind = headers_start + headers_size
    left, place = (0, headers_start) if headers_size == 0 else read_varint(headers, headers_start, behind, _INT_BYTES)
    wanted = _wanted(is_null, timestamp, flags, producer)
    keys = 0
    while at < end:
        name_end = _pair_end(log, at, end, NAME_END)
        value_end = _pair_end(log, name_end, end, PAIR_END)
        if value_end >= end:
            return Differs.PROPERTIES.value
        value = name_end + 1
        row = _row_of(log, at, name_end, names, bounds)
        if row == Name.KEYS or row == Name.KEY:
            keys += 1
            if row == Name.KEYS and not _same(log, value, value_end - value, key, key_start, key_size):
                return Differs.KEY.value
            if row == Name.KEY and (key_size < 0 or not _same_decoded(log, value, value_end, key, key_start, key_size)):
                return Differs.KEY.value
        elif row == Name.HEADERS:
            if left == 0 or not _same_decoded(log, value, value_end, headers, headers_start, headers_size):
                return Differs.HEADERS.value
            left = 0
        elif row < 0:
            same = left > 0
            if same:
                same, place = _same_header(log, at, name_end, value, value_end, headers, place, behind)
            if not same:
                return Differs.HEADERS.value
            left -= 1
        else:
            due = wanted >> row & 1
            wanted &= ~(1 << row)
            if due == 0 or not _same_value(
                log, value, value_end, names, bounds, row, timestamp, producer, epoch, sequence
            ):
                return Differs.PROPERTIES.value
        at = value_end + 1
    if keys != (1 if key_size >= 0 else 0):
        return Differs.KEY.value
    if left:
        return Differs.HEADERS.value
    return Differs.PROPERTIES.value if wanted else Differs.OK.value


@helper
def _differs_in_place(log: Bytes, at: int, size: int, topic: Bytes, fixed: Numbers) -> tuple[int, int, int, int]:
    """OK or what differs; start and size of the body, and the start of the properties."""
    sys_flag = load_u32(log, at + SYS_FLAG)
    body_at = at + HEAD_SIZE + hosts_more(sys_flag)
    rule, body, topic_at, topic_size, properties_at = parts(log, at, at + size, load_u32(log, at + MAGIC), body_at)
    if rule != Rule.OK:
        return Differs.FORM.value, 0, 0, 0
    same = load_i64(log, at + PHYSICAL_OFFSET) == fixed[Fixed.BASE.value] + at
    same = same and load_i64(log, at + _STORE_TIMESTAMP) == fixed[Fixed.STORE_TIMESTAMP.value]
    same = same and load_i32(log, at + QUEUE_ID) == fixed[Fixed.QUEUE_ID.value]
    same = same and _same(log, topic_at, topic_size, topic, 0, topic.size)
    if not same:
        return Differs.PLACE.value, 0, 0, 0
    if fixed[Fixed.PROPERTY_CRC.value] and broken_property_crc(log, at, properties_at, at + size) != Rule.OK:
        return Differs.PROPERTY_CRC.value, 0, 0, 0
    return Differs.OK.value, body_at, body, properties_at


@helper
def _hole(log: Bytes, at: int, fixed: Numbers, due: int, end: int, body: int) -> int:
    """How many numbers from `due` on the record says that no message has; 0 where it does not, or of more than end."""
    right = load_u32(log, at + SYS_FLAG) == TRANSACTION_ROLLBACK and body == 0
    right = right and load_i32(log, at + _FLAG) == fixed[Fixed.HOLE_FLAG.value]
    right = right and load_i64(log, at + QUEUE_OFFSET) == due
    count = load_i64(log, at + _PREPARED)
    return count if right and 0 < count <= end - due else 0


@helper
def _differs_in_fields(
    log: Bytes, at: int, body_at: int, body: int, host: Bytes, offset: int, timestamp: int,
    value: Bytes, start: int, size: int,
) -> int:  # fmt: skip
    """OK where number, flags, host, time and body are these."""
    if load_i64(log, at + QUEUE_OFFSET) != offset:
        return Differs.OFFSET.value
    if load_u32(log, at + SYS_FLAG) != (STORE_HOST_IPV6 if host.size > _IPV4_HOST else 0):
        return Differs.PLACE.value
    if not same_bytes(log, at + _STORE_HOST, host, 0, host.size):
        return Differs.PLACE.value
    if load_i64(log, at + _BORN_TIMESTAMP) != max(timestamp, 0):
        return Differs.TIMESTAMP.value
    if not _same(log, body_at, body, value, start, max(size, 0)):
        return Differs.BODY.value
    if crc_of(log, body_at, body) & CRC_MASK != load_u32(log, at + BODY_CRC):
        return Differs.BODY_CRC.value
    return Differs.OK.value


@kernel(
    I64(
        READ, I64, NUMBERS_READ, NUMBERS_READ,
        READ, NUMBERS_READ, NUMBERS_READ,
        READ, NUMBERS_READ, NUMBERS_READ,
        READ, NUMBERS_READ, NUMBERS_READ,
        NUMBERS_READ, NUMBERS_READ, NUMBERS_READ, NUMBERS_READ,
        READ, READ, READ, NUMBERS_READ, NUMBERS_READ, NUMBERS,
    )
)  # fmt: skip
def compare_messages(
    log: Bytes, stop: int,
    offsets: Numbers, timestamps: Numbers,
    key_data: Bytes, key_starts: Numbers, key_sizes: Numbers,
    value_data: Bytes, value_starts: Numbers, value_sizes: Numbers,
    header_data: Bytes, header_starts: Numbers, header_sizes: Numbers,
    flags: Numbers, producers: Numbers, epochs: Numbers, sequences: Numbers,
    topic: Bytes, host: Bytes, names: Bytes, bounds: Numbers, fixed: Numbers, state: Numbers,
) -> int:  # fmt: skip
    """Walks the records in log[state[AT]:stop] beside rows from state[ROW] on; a number of Differs.

    The first row may have any offset; between offsets, and up to fixed[END], records say that no message has them.
    Arguments are those of `encode_messages`.
    """
    rows = offsets.size
    end = fixed[Fixed.END.value]
    sealed = PROPERTY_CRC_SIZE if fixed[Fixed.PROPERTY_CRC.value] else 0
    while state[Seen.ROW.value] < rows or (end > 0 and state[Seen.EXPECTED.value] < end):
        at = state[Seen.AT.value]
        row = state[Seen.ROW.value]
        reason, size = next_record(log, at, stop)
        if reason != Rule.OK:
            return Differs.BLANK.value if reason == Stop.BLANK else Differs.FORM.value
        differs, body_at, body, properties_at = _differs_in_place(log, at, size, topic, fixed)
        if differs != Differs.OK:
            return differs
        following = offsets[row] if row < rows else end
        due = state[Seen.EXPECTED.value]
        if due < 0:
            due = following if row < rows else following - 1
        if due < following:
            count = _hole(log, at, fixed, due, following, body)
            if count == 0:
                return Differs.HOLE.value
            state[Seen.HOLES.value] += count
            state[Seen.EXPECTED.value] = due + count
            state[Seen.AT.value] += size
            continue
        differs = _differs_in_fields(
            log, at, body_at, body, host, following, timestamps[row], value_data, value_starts[row], value_sizes[row]
        )
        if differs == Differs.OK:
            differs = _differs_in_properties(
                log, properties_at, at + size - sealed, names, bounds,
                key_data, key_starts[row], key_sizes[row], header_data, header_starts[row], header_sizes[row],
                value_sizes[row] < 0, timestamps[row], flags[row], producers[row], epochs[row], sequences[row],
            )  # fmt: skip
        if differs != Differs.OK:
            return differs
        state[Seen.EXPECTED.value] = following + 1
        state[Seen.ROW.value] += 1
        state[Seen.RECORDS.value] += 1
        state[Seen.BODY_BYTES.value] += body
        state[Seen.AT.value] += size
    return Differs.OK.value
