"""Records of Kafka as records of the CommitLog, each with the queue offset that it had as an offset (spec 2.1).

They are written whole into a segment that nobody reads yet. `towline/kafka/exchange/encoding.py` is the door;
`towline/kafka/exchange/names.py` says which property says what.
"""

from enum import IntEnum
from typing import Final

import numpy as np

from towline.format.record import properties
from towline.format.record.record import LAYOUT, STORE_HOST_IPV6, TRANSACTION_ROLLBACK
from towline.kernels.base.crc import copy_with_crc, crc_of
from towline.kernels.base.shape import (
    BODY_CRC,
    CRC_MASK,
    DIGITS_AT,
    HEAD_SIZE,
    MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    NAME_END,
    PAIR_END,
    PHYSICAL_OFFSET,
    PROPERTY_CRC_SIZE,
    QUEUE_ID,
    QUEUE_OFFSET,
    SEPARATORS,
    STORE_HOST,
    STORE_TIMESTAMP,
    SYS_FLAG,
    TOTAL_SIZE,
    same_bytes,
    store_digits_of,
)
from towline.kernels.base.words import copy_bytes, load_u8, store_i32, store_i64
from towline.kernels.jit.compiled import I64, NUMBERS, NUMBERS_READ, READ, WRITE, Bytes, Numbers, helper, kernel
from towline.limits import BLANK_SIZE_MIN, PROPERTIES_SIZE_MAX, TOPIC_SIZE_MAX

from .records import read_blob, read_varint

_FLAG: Final = LAYOUT.offset["flag"]
_BORN_TIMESTAMP: Final = LAYOUT.offset["born_timestamp"]
_PREPARED: Final = LAYOUT.offset["prepared_transaction_offset"]
_BODY_SIZE: Final = LAYOUT.offset["body_size"]
_IPV4_HOST: Final = 8
SCRATCH_SIZE: Final = 2 * PROPERTIES_SIZE_MAX
HEADERS_PLAIN_MAX: Final = 32  # each is compared with those before it


class Name(IntEnum):
    """Rows of the table of names; reserved ones that no header may have follow."""

    KEYS = 0
    KEY = 1
    HEADERS = 2
    TOMBSTONE = 3
    TIMESTAMP = 4
    TIMESTAMP_TYPE = 5
    PRODUCER = 6
    TRANSACTIONAL = 7
    PREFIX = 8  # of names that no header may begin with, as the next one
    SYSTEM_PREFIX = 9
    TRUE = 10  # values
    LOG_APPEND_TIME = 11
    PROPERTY_CRC = 12  # the 20 bytes that leave room for one
    RESERVED = 13  # and those that follow


class Fixed(IntEnum):
    """Numbers that all records of a call share."""

    QUEUE_ID = 0
    STORE_TIMESTAMP = 1
    BASE = 2  # log offset of the target's first byte
    SEGMENT_SIZE = 3
    BODY_MAX = 4
    PROPERTY_CRC = 5  # 1: each record ends with one
    LEAVE_OUT = 6  # 1: records that are too large are left out
    WRITE = 7  # 0: nothing is written, and all else is the same
    END = 8  # of the partition, behind these records; -1 where more follow
    HOLE_FLAG = 9  # of a record that stands for numbers that no message has
    HOLE_MAX = 10  # numbers of one such record
    SIZE = 11


class State(IntEnum):
    """What a call begins with, and leaves to the next one."""

    AT = 0  # next byte of the segment
    EXPECTED = 1  # next queue offset, -1 before the first
    ROW = 2  # next row
    RECORDS = 3
    HOLES = 4  # numbers that no message has
    HOLE_RECORDS = 5
    LEFT_OUT = 6  # rows that are too large
    BODY_BYTES = 7
    KEYS = 8  # records with KEYS
    LARGEST = 9  # bytes of the largest record
    WHY = 10  # of TOO_LARGE: bytes of the body, or -1 for the properties
    LOG_BYTES = 11  # of all records
    SIZE = 12


class Done(IntEnum):
    """Why a call ended."""

    ALL = 0
    SEGMENT_FULL = 1  # a blank is due at AT
    TOO_LARGE = 2  # of the record ROW the body or the properties


# Bits of `flags`, for each record.
APPEND_TIME: Final = 1
TRANSACTIONAL: Final = 2

_BASE64: Final = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8).copy()
_PAD: Final = ord("=")
_SPACE: Final = 0x20
_DELETE: Final = 0x7F
_MINUS: Final = ord("-")
_ZERO: Final = ord("0")
_COLON: Final = ord(":")
_NAME_MAX: Final = 255
_INT_BYTES: Final = 5
_KEYS_SIZE: Final = len(properties.KEYS)


# --- what is plain


@helper
def utf8_above(buffer: Bytes, at: int, end: int, least: int) -> bool:
    """Whether [at, end) is UTF-8 in which no byte is below `least`, and none DELETE where that is above the space."""
    while at < end:
        byte = load_u8(buffer, at)
        if byte < 0x80:
            if byte < least or (byte == _DELETE and least > _SPACE):
                return False
            at += 1
            continue
        more = 1 if 0xC2 <= byte < 0xE0 else 2 if 0xE0 <= byte < 0xF0 else 3 if 0xF0 <= byte < 0xF5 else 0
        if more == 0 or at + more >= end:
            return False
        second = load_u8(buffer, at + 1)
        low = 0xA0 if byte == 0xE0 else 0x90 if byte == 0xF0 else 0x80
        high = 0x9F if byte == 0xED else 0x8F if byte == 0xF4 else 0xBF
        if second < low or second > high:
            return False
        for step in range(2, more + 1):
            if load_u8(buffer, at + step) & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


@helper
def _begins_with(buffer: Bytes, at: int, size: int, names: Bytes, bounds: Numbers, number: int) -> bool:
    length = bounds[number + 1] - bounds[number]
    return size >= length and same_bytes(buffer, at, names, bounds[number], length)


@helper
def _name_is_plain(buffer: Bytes, at: int, size: int, names: Bytes, bounds: Numbers) -> bool:
    if size < 1 or size > _NAME_MAX or not utf8_above(buffer, at, at + size, SEPARATORS):
        return False
    if _begins_with(buffer, at, size, names, bounds, Name.PREFIX.value):
        return False
    if _begins_with(buffer, at, size, names, bounds, Name.SYSTEM_PREFIX.value):
        return False
    for number in range(Name.RESERVED.value, bounds.size - 1):
        length = bounds[number + 1] - bounds[number]
        if length == size and same_bytes(buffer, at, names, bounds[number], length):
            return False
    return True


@helper
def _was_before(buffer: Bytes, at: int, number: int, name_at: int, name_size: int, end: int) -> bool:
    """Whether one of the first `number` headers from `at` on has this name."""
    for _ in range(number):
        start, size, at = read_blob(buffer, at, end)
        if size == name_size and same_bytes(buffer, start, buffer, name_at, size):
            return True
        _, _, at = read_blob(buffer, at, end)
    return False


@helper
def _headers_are_plain(buffer: Bytes, at: int, end: int, names: Bytes, bounds: Numbers) -> bool:
    count, at = read_varint(buffer, at, end, _INT_BYTES)
    if count > HEADERS_PLAIN_MAX:
        return False
    first = at
    for number in range(count):
        name_at, name_size, at = read_blob(buffer, at, end)
        value_at, value_size, at = read_blob(buffer, at, end)
        if value_size < 1 or not utf8_above(buffer, value_at, value_at + value_size, SEPARATORS):
            return False
        if not _name_is_plain(buffer, name_at, name_size, names, bounds):
            return False
        if _was_before(buffer, first, number, name_at, name_size, end):
            return False
    return True


# --- properties, into the scratch; each gives the byte behind what it wrote


@helper
def _put(scratch: Bytes, at: int, byte: int) -> int:
    scratch[at] = byte
    return at + 1


@helper
def _put_name(scratch: Bytes, at: int, names: Bytes, bounds: Numbers, number: int) -> int:
    length = bounds[number + 1] - bounds[number]
    copy_bytes(scratch, at, names, bounds[number], length)
    return _put(scratch, at + length, NAME_END)


@helper
def _put_text(scratch: Bytes, at: int, names: Bytes, bounds: Numbers, number: int, value: int) -> int:
    """A pair of two rows of the table."""
    at = _put_name(scratch, at, names, bounds, number)
    length = bounds[value + 1] - bounds[value]
    copy_bytes(scratch, at, names, bounds[value], length)
    return _put(scratch, at + length, PAIR_END)


@helper
def _put_base64(scratch: Bytes, at: int, data: Bytes, start: int, size: int) -> int:
    step = 0
    while step + 2 < size:
        place = start + step
        word = load_u8(data, place) << 16 | load_u8(data, place + 1) << 8 | load_u8(data, place + 2)
        scratch[at] = _BASE64[word >> 18]
        scratch[at + 1] = _BASE64[word >> 12 & 63]
        scratch[at + 2] = _BASE64[word >> 6 & 63]
        scratch[at + 3] = _BASE64[word & 63]
        at += 4
        step += 3
    if step < size:
        second = load_u8(data, start + step + 1) if step + 1 < size else 0
        word = load_u8(data, start + step) << 16 | second << 8
        scratch[at] = _BASE64[word >> 18]
        scratch[at + 1] = _BASE64[word >> 12 & 63]
        scratch[at + 2] = _BASE64[word >> 6 & 63] if step + 1 < size else _PAD
        scratch[at + 3] = _PAD
        at += 4
    return _put(scratch, at, _PAD) if size == 0 else at


@helper
def _put_number(scratch: Bytes, at: int, value: int) -> int:
    """Its decimal digits; reckoned below 0, where the least number has an opposite too."""
    if value < 0:
        at = _put(scratch, at, _MINUS)
    else:
        value = -value
    digits = 1
    rest = value
    while rest <= -10:
        digits += 1
        rest = (rest + 9) // 10
    rest = value
    for place in range(digits - 1, -1, -1):
        before = (rest + 9) // 10
        scratch[at + place] = _ZERO + 10 * before - rest
        rest = before
    return at + digits


@helper
def _put_key(scratch: Bytes, at: int, names: Bytes, bounds: Numbers, key: Bytes, start: int, size: int) -> int:
    """-1 for one that does not fit."""
    if size < 0:
        return at
    if 4 * size // 3 > PROPERTIES_SIZE_MAX:
        return -1
    if size > 0 and utf8_above(key, start, start + size, _SPACE + 1):
        at = _put_name(scratch, at, names, bounds, Name.KEYS.value)
        copy_bytes(scratch, at, key, start, size)
        at += size
    else:
        at = _put_name(scratch, at, names, bounds, Name.KEY.value)
        at = _put_base64(scratch, at, key, start, size)
    return _put(scratch, at, PAIR_END)


@helper
def _put_headers(scratch: Bytes, at: int, names: Bytes, bounds: Numbers, data: Bytes, start: int, size: int) -> int:
    """-1 for those that do not fit."""
    if size <= 1:  # a count of none
        return at
    if at + 4 * size // 3 > PROPERTIES_SIZE_MAX:
        return -1
    end = start + size
    if not _headers_are_plain(data, start, end, names, bounds):
        at = _put_name(scratch, at, names, bounds, Name.HEADERS.value)
        return _put(scratch, _put_base64(scratch, at, data, start, size), PAIR_END)
    count, place = read_varint(data, start, end, _INT_BYTES)
    for _ in range(count):
        name_at, name_size, place = read_blob(data, place, end)
        value_at, value_size, place = read_blob(data, place, end)
        copy_bytes(scratch, at, data, name_at, name_size)
        at = _put(scratch, at + name_size, NAME_END)
        copy_bytes(scratch, at, data, value_at, value_size)
        at = _put(scratch, at + value_size, PAIR_END)
    return at


@helper
def _put_rest(
    scratch: Bytes, at: int, names: Bytes, bounds: Numbers, body: int, timestamp: int, flags: int,
    producer: int, epoch: int, sequence: int, sealed: int,
) -> int:  # fmt: skip
    """Those of a record whose value has `body` bytes, -1 for null; `sealed`: room for a property CRC."""
    if body < 0:
        at = _put_text(scratch, at, names, bounds, Name.TOMBSTONE.value, Name.TRUE.value)
    if timestamp < 0:
        at = _put_name(scratch, at, names, bounds, Name.TIMESTAMP.value)
        at = _put(scratch, _put_number(scratch, at, timestamp), PAIR_END)
    if flags & APPEND_TIME:
        at = _put_text(scratch, at, names, bounds, Name.TIMESTAMP_TYPE.value, Name.LOG_APPEND_TIME.value)
    if producer >= 0:
        at = _put_name(scratch, at, names, bounds, Name.PRODUCER.value)
        at = _put(scratch, _put_number(scratch, at, producer), _COLON)
        at = _put(scratch, _put_number(scratch, at, epoch), _COLON)
        at = _put(scratch, _put_number(scratch, at, sequence), PAIR_END)
    if flags & TRANSACTIONAL:
        at = _put_text(scratch, at, names, bounds, Name.TRANSACTIONAL.value, Name.TRUE.value)
    if sealed:
        copy_bytes(scratch, at, names, bounds[Name.PROPERTY_CRC.value], PROPERTY_CRC_SIZE)
        at += PROPERTY_CRC_SIZE
    return at


# --- records


@helper
def _size_of(body: int, topic: int, more: int, host: int) -> int:
    """Of a record with `more` bytes of properties; of topic and host the sizes."""
    return HEAD_SIZE + host - _IPV4_HOST + body + (2 if topic > TOPIC_SIZE_MAX else 1) + topic + 2 + more


@helper
def _head(target: Bytes, at: int, size: int, topic: Bytes, more: int, fixed: Numbers, offset: int, body: int) -> int:
    """All but flags, host, born timestamp and CRC; the place of the body. The host has `more` bytes than with IPv4."""
    for step in range(HEAD_SIZE + more):
        target[at + step] = 0
    store_i32(target, at + TOTAL_SIZE, size)
    magic = MAGIC_V2 if topic.size > TOPIC_SIZE_MAX else MAGIC_V1
    store_i32(target, at + MAGIC, magic - (1 << 32))
    store_i32(target, at + QUEUE_ID, fixed[Fixed.QUEUE_ID.value])
    store_i64(target, at + QUEUE_OFFSET, offset)
    store_i64(target, at + PHYSICAL_OFFSET, fixed[Fixed.BASE.value] + at)
    store_i64(target, at + STORE_TIMESTAMP, fixed[Fixed.STORE_TIMESTAMP.value])
    store_i32(target, at + _BODY_SIZE + more, body)
    return at + HEAD_SIZE + more


@helper
def _tail(target: Bytes, at: int, begin: int, topic: Bytes, scratch: Bytes, size: int, property_crc: int) -> int:
    """Topic and properties from `at` on, of the record that begins at `begin`; the byte behind it."""
    if topic.size > TOPIC_SIZE_MAX:
        at = _put(target, at, topic.size >> 8)
    at = _put(target, at, topic.size & 0xFF)
    copy_bytes(target, at, topic, 0, topic.size)
    at = _put(target, _put(target, at + topic.size, size >> 8), size & 0xFF)
    copy_bytes(target, at, scratch, 0, size)
    at += size
    if property_crc:
        crc_at = at - PROPERTY_CRC_SIZE
        store_digits_of(target, crc_at + DIGITS_AT, crc_of(target, begin, crc_at - begin) & CRC_MASK)
    return at


@helper
def _fits(at: int, size: int, segment_size: int) -> bool:
    return at + size + BLANK_SIZE_MIN <= segment_size


@helper
def _put_holes(
    target: Bytes, topic: Bytes, names: Bytes, bounds: Numbers, scratch: Bytes, fixed: Numbers, end: int, state: Numbers
) -> bool:  # fmt: skip
    """Records for the numbers up to `end`; False where the segment is full."""
    sealed = PROPERTY_CRC_SIZE if fixed[Fixed.PROPERTY_CRC.value] else 0
    size = _size_of(0, topic.size, sealed, _IPV4_HOST)
    if sealed:
        copy_bytes(scratch, 0, names, bounds[Name.PROPERTY_CRC.value], PROPERTY_CRC_SIZE)
    while state[State.EXPECTED.value] < end:
        if not _fits(state[State.AT.value], size, fixed[Fixed.SEGMENT_SIZE.value]):
            return False
        count = min(end - state[State.EXPECTED.value], fixed[Fixed.HOLE_MAX.value])
        at = state[State.AT.value]
        if fixed[Fixed.WRITE.value]:
            body_at = _head(target, at, size, topic, 0, fixed, state[State.EXPECTED.value], 0)
            store_i32(target, at + _FLAG, fixed[Fixed.HOLE_FLAG.value])
            store_i32(target, at + SYS_FLAG, TRANSACTION_ROLLBACK)
            store_i64(target, at + _BORN_TIMESTAMP, fixed[Fixed.STORE_TIMESTAMP.value])
            store_i64(target, at + _PREPARED, count)
            _tail(target, body_at, at, topic, scratch, sealed, sealed)
        state[State.AT.value] += size
        state[State.LOG_BYTES.value] += size
        state[State.EXPECTED.value] += count
        state[State.HOLES.value] += count
        state[State.HOLE_RECORDS.value] += 1
        state[State.LARGEST.value] = max(state[State.LARGEST.value], size)
    return True


@helper
def _write(
    target: Bytes, size: int, topic: Bytes, host: Bytes, scratch: Bytes, properties_size: int, fixed: Numbers,
    offset: int, timestamp: int, value: Bytes, start: int, body: int, state: Numbers,
) -> None:  # fmt: skip
    begin = state[State.AT.value]
    more = host.size - _IPV4_HOST
    body_at = _head(target, begin, size, topic, more, fixed, offset, body)
    store_i32(target, begin + SYS_FLAG, STORE_HOST_IPV6 if more else 0)
    copy_bytes(target, begin + STORE_HOST, host, 0, host.size)
    store_i64(target, begin + _BORN_TIMESTAMP, max(timestamp, 0))
    store_i32(target, begin + BODY_CRC, copy_with_crc(target, body_at, value, start, body) & CRC_MASK)
    _tail(target, body_at + body, begin, topic, scratch, properties_size, fixed[Fixed.PROPERTY_CRC.value])


@helper
def _count(state: Numbers, size: int, body: int, has_keys: bool) -> None:
    state[State.AT.value] += size
    state[State.LOG_BYTES.value] += size
    state[State.EXPECTED.value] += 1
    state[State.ROW.value] += 1
    state[State.RECORDS.value] += 1
    state[State.KEYS.value] += has_keys
    state[State.BODY_BYTES.value] += body
    state[State.LARGEST.value] = max(state[State.LARGEST.value], size)


@helper
def _leave_out(state: Numbers, fixed: Numbers, body: int) -> bool:
    """Whether a record that is too large is passed over; else WHY says what is."""
    if not fixed[Fixed.LEAVE_OUT.value]:
        state[State.WHY.value] = body if body > fixed[Fixed.BODY_MAX.value] else -1
        return False
    state[State.LEFT_OUT.value] += 1
    state[State.ROW.value] += 1
    return True


@kernel(
    I64(
        NUMBERS_READ, NUMBERS_READ,
        READ, NUMBERS_READ, NUMBERS_READ,
        READ, NUMBERS_READ, NUMBERS_READ,
        READ, NUMBERS_READ, NUMBERS_READ,
        NUMBERS_READ, NUMBERS_READ, NUMBERS_READ, NUMBERS_READ,
        READ, READ, READ, NUMBERS_READ, NUMBERS_READ, WRITE, WRITE, NUMBERS,
    )
)  # fmt: skip
def encode_messages(
    offsets: Numbers, timestamps: Numbers,
    key_data: Bytes, key_starts: Numbers, key_sizes: Numbers,
    value_data: Bytes, value_starts: Numbers, value_sizes: Numbers,
    header_data: Bytes, header_starts: Numbers, header_sizes: Numbers,
    flags: Numbers, producers: Numbers, epochs: Numbers, sequences: Numbers,
    topic: Bytes, host: Bytes, names: Bytes, bounds: Numbers, fixed: Numbers,
    scratch: Bytes, target: Bytes, state: Numbers,
) -> int:  # fmt: skip
    """Records into a segment from state[AT] on, from row state[ROW] on; a number of Done.

    Offsets rise. Numbers between them, and those up to fixed[END], get records that say so. `names` holds the rows of
    Name, row n in [bounds[n], bounds[n + 1]). `scratch` has SCRATCH_SIZE bytes, `target` those of a segment unless
    nothing is to be written.
    """
    while state[State.ROW.value] < offsets.size:
        row = state[State.ROW.value]
        body = max(value_sizes[row], 0)
        at = _put_key(scratch, 0, names, bounds, key_data, key_starts[row], key_sizes[row])
        if at >= 0:
            at = _put_headers(scratch, at, names, bounds, header_data, header_starts[row], header_sizes[row])
        if at >= 0:
            at = _put_rest(
                scratch, at, names, bounds, value_sizes[row], timestamps[row], flags[row],
                producers[row], epochs[row], sequences[row], fixed[Fixed.PROPERTY_CRC.value],
            )  # fmt: skip
        if at < 0 or at > PROPERTIES_SIZE_MAX or body > fixed[Fixed.BODY_MAX.value]:
            if _leave_out(state, fixed, body):
                continue
            return Done.TOO_LARGE.value
        size = _size_of(body, topic.size, at, host.size)
        if state[State.EXPECTED.value] < 0:
            state[State.EXPECTED.value] = offsets[row]
        if state[State.EXPECTED.value] < offsets[row]:
            if not _put_holes(target, topic, names, bounds, scratch, fixed, offsets[row], state):
                return Done.SEGMENT_FULL.value
            continue  # the scratch was overwritten
        if not _fits(state[State.AT.value], size, fixed[Fixed.SEGMENT_SIZE.value]):
            return Done.SEGMENT_FULL.value
        if fixed[Fixed.WRITE.value]:
            _write(
                target, size, topic, host, scratch, at, fixed,
                offsets[row], timestamps[row], value_data, value_starts[row], body, state,
            )  # fmt: skip
        _count(state, size, body, key_sizes[row] > 0 and load_u8(scratch, _KEYS_SIZE) == NAME_END)
    if fixed[Fixed.END.value] > 0:
        if state[State.EXPECTED.value] < 0:
            state[State.EXPECTED.value] = fixed[Fixed.END.value] - 1
        if not _put_holes(target, topic, names, bounds, scratch, fixed, fixed[Fixed.END.value], state):
            return Done.SEGMENT_FULL.value
    return Done.ALL.value
