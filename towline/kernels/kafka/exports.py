"""Properties of RocketMQ's records as keys and headers of Kafka's: one walk over the properties of many records.

    name 0x01 value 0x02 ...  ->  key; count, name size, name, value size, value, ...

The last of equal names counts; an item without a name, a value or a separator is skipped. What a name means is told by
a table; what has a name of ours and no value that it can have is a header like any other.
`towline/kafka/exchange/export_properties.py` is the door.
"""

from enum import IntEnum
from typing import Final

import numpy as np

from towline.format.record.properties import NAME_END, PAIR_END
from towline.kernels.base.words import copy_bytes, load_u8
from towline.kernels.jit.compiled import I64, NUMBERS, NUMBERS_READ, READ, WRITE, Bytes, Numbers, helper, kernel

from .records import read_varint, skip_headers, write_varint

COLUMNS: Final = (  # each `stride` numbers
    "key_start",
    "key_size",  # -1: null
    "headers_start",
    "headers_size",
    "tombstone",  # 1: the value is null
    "has_timestamp",  # 1: `timestamp` takes the place of the born timestamp
    "timestamp",
    "append_time",  # 1: the timestamp is the log's, not the sender's
)
PAIR: Final = 4  # numbers of one pair in the scratch: where name, value and pair end begin, what it is
_NAME_END: Final = ord(NAME_END)
_PAIR_END: Final = ord(PAIR_END)
_DIGITS_MAX: Final = 18
_EQUALS: Final = ord("=")
_MINUS: Final = ord("-")
_ZERO: Final = ord("0")
_GONE: Final = -1
_INT_BYTES: Final = 5
_TRUE_SIZE: Final = 4  # of the first of `words`


class Meaning(IntEnum):
    """What becomes of a property."""

    HEADER = 0
    KEY = 1
    BASE64_KEY = 2
    BASE64_HEADERS = 3
    TOMBSTONE = 4  # its value is `true`
    TIMESTAMP = 5
    APPEND_TIME = 6  # its value is `LogAppendTime`
    LEFT_OUT = 7


@helper
def _meaning(log: Bytes, at: int, size: int, names: Bytes, places: Numbers, by_size: Numbers) -> int:
    """The row of the table that has the name; -1 where none has. `by_size[n]` is the first row of n bytes or more."""
    if size >= by_size.size - 1:
        return -1
    for row in range(by_size[size], by_size[size + 1]):
        start = places[row]
        same = 0
        while same < size and log[at + same] == names[start + same]:
            same += 1
        if same == size:
            return row
    return -1


@helper
def _pairs(log: Bytes, start: int, end: int, pairs: Numbers) -> int:
    """Places of the pairs of one record into `pairs`; how many."""
    count = 0
    at = start
    while at < end:
        name = at
        while at < end and load_u8(log, at) != _NAME_END and load_u8(log, at) != _PAIR_END:
            at += 1
        separator = at
        if at < end and load_u8(log, at) == _NAME_END:
            at += 1
            while at < end and load_u8(log, at) != _PAIR_END:
                at += 1
        if separator > name and at > separator + 1:
            pairs[PAIR * count] = name
            pairs[PAIR * count + 1] = separator
            pairs[PAIR * count + 2] = at
            count += 1
        at += 1
    return count


@helper
def _is_later(log: Bytes, pairs: Numbers, pair: int, count: int) -> bool:
    """Whether the name comes again."""
    name = pairs[PAIR * pair]
    size = pairs[PAIR * pair + 1] - name
    for other in range(pair + 1, count):
        begin = pairs[PAIR * other]
        if pairs[PAIR * other + 1] - begin != size:
            continue
        same = 0
        while same < size and log[name + same] == log[begin + same]:
            same += 1
        if same == size:
            return True
    return False


@helper
def _sextet(byte: int) -> int:
    """Of a character of base64; -1 of any other."""
    if 65 <= byte <= 90:
        return byte - 65
    if 97 <= byte <= 122:
        return byte - 71
    if 48 <= byte <= 57:
        return byte + 4
    if byte == 43:
        return 62
    return 63 if byte == 47 else -1


@helper
def _decode(log: Bytes, start: int, end: int, target: Bytes, at: int) -> int:
    """Base64 into `target`; the byte behind it, -1 where it is none. `=` alone is nothing."""
    if end - start == 1 and load_u8(log, start) == _EQUALS:
        return at
    if (end - start) & 3:
        return -1
    size = end - start
    while size and end - start - size < 2 and load_u8(log, start + size - 1) == _EQUALS:
        size -= 1
    word = 0
    for number in range(size):
        value = _sextet(load_u8(log, start + number))
        if value < 0:
            return -1
        word = (word << 6) | value
        if number & 3:
            bits = 6 - 2 * (number & 3)
            target[at] = (word >> bits) & 0xFF
            at += 1
    return -1 if size & 3 == 1 else at


@helper
def _number(log: Bytes, start: int, end: int) -> tuple[int, int]:
    """(1, the number) of decimal digits, perhaps behind a minus; (0, 0) of anything else."""
    negative = load_u8(log, start) == _MINUS
    at = start + 1 if negative else start
    if end - at < 1 or end - at > _DIGITS_MAX:
        return 0, 0
    value = 0
    for place in range(at, end):
        digit = load_u8(log, place) - _ZERO
        if digit < 0 or digit > 9:
            return 0, 0
        value = 10 * value + digit
    return 1, -value if negative else value


@helper
def _is(log: Bytes, start: int, end: int, word: Bytes, at: int, size: int) -> bool:
    if end - start != size:
        return False
    same = 0
    while same < size and log[start + same] == word[at + same]:
        same += 1
    return same == size


@helper
def _write_pairs(log: Bytes, pairs: Numbers, count: int, target: Bytes, at: int) -> int:
    """Those that are headers, in their order; the byte behind the last."""
    for pair in range(count):
        if pairs[PAIR * pair + 3] != Meaning.HEADER:
            continue
        for part in range(2):
            start = pairs[PAIR * pair + part] + part
            size = pairs[PAIR * pair + part + 1] - start
            at = write_varint(target, at, size)
            copy_bytes(target, at, log, start, size)
            at += size
    return at


@helper
def _take_key(
    log: Bytes, value: int, end: int, meaning: int, row: int, stride: int, columns: Numbers, target: Bytes, at: int
) -> int:
    """A key into `target`; the byte behind it, -1 where it is none."""
    if meaning == Meaning.BASE64_KEY:
        behind = _decode(log, value, end, target, at)
        if behind < 0:
            return -1
    elif columns[stride + row] >= 0:
        return at
    else:
        copy_bytes(target, at, log, value, end - value)
        behind = at + end - value
    columns[row], columns[stride + row] = at, behind - at
    return behind


@helper
def _take(
    log: Bytes,
    value: int,
    end: int,
    body_size: int,
    meaning: int,
    words: Bytes,
    row: int,
    stride: int,
    columns: Numbers,
    target: Bytes,
    at: int,
) -> int:
    """What the value of a property of this meaning says, into `columns` and `target`; the byte behind what was written.

    -1: it has no such value. Headers in base64 become those of the row.
    """
    if meaning == Meaning.KEY or meaning == Meaning.BASE64_KEY:
        return _take_key(log, value, end, meaning, row, stride, columns, target, at)
    known = True
    if meaning == Meaning.BASE64_HEADERS:
        behind = _decode(log, value, end, target, at)
        if behind <= at or skip_headers(target, at, behind) != behind:
            return -1
        columns[2 * stride + row], columns[3 * stride + row] = at, behind - at
        return behind
    if meaning == Meaning.TOMBSTONE:
        known = body_size == 0 and _is(log, value, end, words, 0, _TRUE_SIZE)
        columns[4 * stride + row] = known
    elif meaning == Meaning.TIMESTAMP:
        columns[5 * stride + row], columns[6 * stride + row] = _number(log, value, end)
        known = columns[5 * stride + row] == 1
    elif meaning == Meaning.APPEND_TIME:
        known = _is(log, value, end, words, _TRUE_SIZE, words.size - _TRUE_SIZE)
        columns[7 * stride + row] = known
    return at if known else -1


@helper
def _put_headers(
    log: Bytes,
    pairs: Numbers,
    count: int,
    headers: int,
    row: int,
    stride: int,
    columns: Numbers,
    target: Bytes,
    at: int,
) -> int:
    """Headers of a row behind those that it has already; the byte behind them."""
    block, size = columns[2 * stride + row], columns[3 * stride + row]
    if size >= 0 and not headers:
        return at
    begin = at
    if size < 0:
        at = write_varint(target, at, headers)
    else:
        held, inside = read_varint(target, block, block + size, _INT_BYTES)
        at = write_varint(target, at, held + headers)
        copy_bytes(target, at, target, inside, block + size - inside)
        at += block + size - inside
    at = _write_pairs(log, pairs, count, target, at)
    columns[2 * stride + row], columns[3 * stride + row] = begin, at - begin
    return at


@kernel(
    I64(
        READ, NUMBERS_READ, NUMBERS_READ, NUMBERS_READ,
        READ, NUMBERS_READ, NUMBERS_READ, NUMBERS_READ, READ,
        NUMBERS, NUMBERS, I64, NUMBERS, WRITE,
    )
)  # fmt: skip
def export_properties(
    log: Bytes,
    starts: Numbers,
    ends: Numbers,
    body_sizes: Numbers,
    names: Bytes,
    places: Numbers,
    by_size: Numbers,
    meanings: Numbers,
    words: Bytes,
    pairs: Numbers,
    counts: Numbers,
    stride: int,
    columns: Numbers,
    target: Bytes,
) -> int:
    """Key, headers and the rest of each record into `columns` and `target`; bytes of `target` that are used.

    `words` is `trueLogAppendTime`. `counts` has a number for each row of the table: how many properties were left out.
    `pairs` has room for those of one record, `target` for twice all properties and 24 bytes a record.
    """
    at = 0
    for row in range(starts.size):
        count = _pairs(log, starts[row], ends[row], pairs)
        for column in range(8):
            columns[column * stride + row] = -1 if column == 1 or column == 3 else 0  # sizes of key and headers
        headers = 0
        for pair in range(count):
            name, separator, end = pairs[PAIR * pair], pairs[PAIR * pair + 1], pairs[PAIR * pair + 2]
            meaning = np.int64(_GONE)
            if not _is_later(log, pairs, pair, count):
                found = _meaning(log, name, separator - name, names, places, by_size)
                meaning = meanings[found] if found >= 0 else np.int64(Meaning.HEADER)
                if meaning == Meaning.LEFT_OUT:
                    counts[found] += 1
                elif meaning != Meaning.HEADER:
                    value, size = separator + 1, body_sizes[row]
                    behind = _take(
                        log,
                        value,
                        end,
                        size,
                        meaning,  # type: ignore[arg-type]
                        words,
                        row,
                        stride,
                        columns,
                        target,
                        at,
                    )
                    at = max(at, behind)
                    meaning = meaning if behind >= 0 else np.int64(Meaning.HEADER)
            pairs[PAIR * pair + 3] = meaning
            headers += meaning == Meaning.HEADER
        at = _put_headers(log, pairs, count, headers, row, stride, columns, target, at)
    return at


@kernel(I64(READ, NUMBERS_READ, NUMBERS_READ, READ, NUMBERS, NUMBERS))
def property_places(log: Bytes, starts: Numbers, ends: Numbers, wanted: Bytes, pairs: Numbers, found: Numbers) -> int:
    """Where the value of one property begins in each record, then the sizes of all, 0 without it; how many have it."""
    have = 0
    for row in range(starts.size):
        count = _pairs(log, starts[row], ends[row], pairs)
        found[row], found[starts.size + row] = starts[row], 0
        for pair in range(count):
            name, separator = pairs[PAIR * pair], pairs[PAIR * pair + 1]
            if _is(log, name, separator, wanted, 0, wanted.size):
                have += found[starts.size + row] == 0
                found[row], found[starts.size + row] = separator + 1, pairs[PAIR * pair + 2] - separator - 1
    return have


@kernel(I64(READ, NUMBERS_READ, NUMBERS_READ, NUMBERS))
def numbers_of(log: Bytes, starts: Numbers, sizes: Numbers, found: Numbers) -> int:
    """The decimal number of each stretch, 0 where it is none; how many are."""
    numbers = 0
    for row in range(starts.size):
        known, found[row] = _number(log, starts[row], starts[row] + sizes[row]) if sizes[row] else (0, 0)
        numbers += known
    return numbers


@kernel(I64(READ, NUMBERS_READ, NUMBERS_READ, NUMBERS))
def listed_numbers(log: Bytes, starts: Numbers, sizes: Numbers, found: Numbers) -> int:
    """All decimal numbers in these stretches, one behind the other, whatever stands between; how many."""
    count = 0
    for row in range(starts.size):
        at, end = starts[row], starts[row] + sizes[row]
        while at < end:
            begin = at
            while at < end and _ZERO <= load_u8(log, at) <= _ZERO + 9:
                at += 1
            if at > begin:
                known, number = _number(log, begin, at)
                if known:
                    found[count] = number
                    count += 1
            at += 1
    return count
