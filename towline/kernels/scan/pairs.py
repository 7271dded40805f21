"""Ranges of bytes copied end to end, and the properties in them (spec 2.3)."""

from typing import Final

from towline.kernels.base.shape import NAME_END, PAIR_END, SEPARATORS
from towline.kernels.base.words import BLOCK, below, copy_bytes, load_u8, trailing_zeros
from towline.kernels.jit.compiled import (
    I64,
    NUMBERS,
    NUMBERS_READ,
    READ,
    WORDS,
    WORDS_READ,
    WRITE,
    Bytes,
    Numbers,
    Words,
    helper,
    kernel,
)

SLACK: Final = 2 * BLOCK  # bytes behind the last stretch, which are written or read, and mean nothing
_TOO_MANY: Final = 2**31 - 1


@kernel(I64(NUMBERS_READ, NUMBERS_READ, WORDS))
def lay_out(starts: Numbers, ends: Numbers, places: Words) -> int:
    """Bytes of all stretches [start, end); `places`, one more, gets where each begins when they stand end to end.

    Beyond what 32 bits hold, `places` mean nothing.
    """
    total = 0
    for number in range(starts.size):
        places[number] = min(total, _TOO_MANY)
        total += ends[number] - starts[number]
    places[starts.size] = min(total, _TOO_MANY)
    return total


@kernel(I64(READ, NUMBERS_READ, WORDS_READ, WRITE))
def copy_stretches(data: Bytes, starts: Numbers, places: Words, out: Bytes) -> int:
    """Copies the stretch from `starts[n]` on to [places[n], places[n + 1]) of `out`, which has SLACK behind the last.

    Short ones are copied by whole blocks; what is too much of one, the next one covers.
    """
    for number in range(starts.size):
        to = places[number]
        size = places[number + 1] - to
        start = starts[number]
        if size <= BLOCK and start + BLOCK <= data.size:
            copy_bytes(out, to, data, start, BLOCK)
        elif size <= 2 * BLOCK and start + 2 * BLOCK <= data.size:
            copy_bytes(out, to, data, start, BLOCK)
            copy_bytes(out, to + BLOCK, data, start + BLOCK, BLOCK)
        else:
            copy_bytes(out, to, data, start, size)
    return starts.size


@helper
def _emit(
    pair: int,
    record: int,
    begin: int,
    middle: int,
    end: int,
    row: Numbers,
    name_start: Numbers,
    name_end: Numbers,
    value_end: Numbers,
) -> None:
    row[pair] = record
    name_start[pair] = begin
    name_end[pair] = middle
    value_end[pair] = end


@kernel(I64(READ, NUMBERS_READ, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS))
def find_pairs(
    data: Bytes,
    beginnings: Numbers,
    first: Numbers,
    row: Numbers,
    name_start: Numbers,
    name_end: Numbers,
    value_end: Numbers,
) -> int:
    """How many pairs stand in properties [beginnings[n], beginnings[n + 1]) of `data`, which has SLACK behind them.

    The rules are those of `towline.format.record.properties.decode`, but equal names are all here. Pair m belongs to
    record `row[m]`, whose pairs are numbered from `first[record]` up to the next one's. -1 where there is no room.
    """
    count = 0
    for record in range(beginnings.size - 1):
        first[record] = count
        at = beginnings[record]
        end = beginnings[record + 1]
        item = at
        name = -1
        while at < end:
            found = below(data, at, SEPARATORS)
            if end - at < BLOCK:
                found &= (1 << (end - at)) - 1
            while found:
                place = at + trailing_zeros(found)
                found &= found - 1
                byte = load_u8(data, place)
                if byte == PAIR_END:
                    if name > item and place > name + 1:
                        if count == row.size:
                            return -1
                        _emit(count, record, item, name, place, row, name_start, name_end, value_end)
                        count += 1
                    item = place + 1
                    name = -1
                elif byte == NAME_END and name < 0:
                    name = place
            at += BLOCK
        if name > item and end > name + 1:  # the 0x02 behind the last one is missing
            if count == row.size:
                return -1
            _emit(count, record, item, name, end, row, name_start, name_end, value_end)
            count += 1
    first[beginnings.size - 1] = count
    return count
