"""Heads of many records: their begins, fields, and the places of their other parts (spec 2.1).

`towline/arrow` asks here where a read is long, and by numpy elsewhere: what is refused here is read again there, which
says what is wrong.
"""

from typing import Final

from towline.format.record import record
from towline.format.record.rules import Rule
from towline.kernels.base.shape import (
    HEAD_SIZE,
    MAGIC,
    PHYSICAL_OFFSET,
    STORE_HOST,
    SYS_FLAG,
    born_more,
    hosts_more,
    parts,
)
from towline.kernels.base.words import load_i32, load_i64, load_u32
from towline.kernels.jit.compiled import FLAG, I64, NUMBERS, NUMBERS_READ, READ, WORDS, Bytes, Numbers, Words, kernel

from .scan import next_record

# Rows of `longs` before those of the fields that are asked for: the parts, as `towline.format.record.columns.Parts` has
# them behind `start`.
PARTS: Final = ("size", "sys_flag", "body_start", "body_size", "topic_start", "topic_size", "properties_start")
_BORN_HOST: Final = record.LAYOUT.offset["born_address"]
_PARTS: Final = len(PARTS)


@kernel(I64(READ, I64, I64, I64, NUMBERS))
def walk_heads(log: Bytes, base: int, start: int, end: int, positions: Numbers) -> int:
    """Where records begin in [start, end) of the log, whose first byte has the log offset `base`; how many were found.

    The walk ends at a head that is not sound, or does not name its own place, and when `positions` has one place left:
    behind the positions stands where it ended.
    """
    at = start
    count = 0
    while at < end and count < positions.size - 1:
        reason, size = next_record(log, at, log.size)
        if reason != Rule.OK or load_i64(log, at + PHYSICAL_OFFSET) != base + at:
            break
        positions[count] = at
        count += 1
        at += size
    positions[count] = at
    return count


@kernel(I64(READ, I64, NUMBERS_READ, FLAG, NUMBERS_READ, NUMBERS_READ, I64, WORDS, NUMBERS))
def read_heads(
    log: Bytes,
    base: int,
    positions: Numbers,
    placed: bool,
    words_at: Numbers,
    longs_at: Numbers,
    stride: int,
    words: Words,
    longs: Numbers,
) -> int:
    """How many records, from the first on, have lengths that add up, and with `placed` name their own place.

    `words_at` and `longs_at` are offsets in an IPv4 head of fields of 4 and of 8 bytes. Field n of record m goes to
    `words[n * stride + m]`, or `longs`, where PARTS come first; `stride` is the count at least.
    """
    for row in range(positions.size):
        at = positions[row]
        if at < 0 or at >= log.size:
            return row
        reason, size = next_record(log, at, log.size)
        if reason != Rule.OK or (placed and load_i64(log, at + PHYSICAL_OFFSET) != base + at):
            return row
        sys_flag = load_i32(log, at + SYS_FLAG)
        more = hosts_more(sys_flag)
        body_at = at + HEAD_SIZE + more
        rule, body_size, topic_at, topic_size, properties_at = parts(
            log, at, at + size, load_u32(log, at + MAGIC), body_at
        )
        if rule != Rule.OK:
            return row
        longs[row] = size
        longs[stride + row] = sys_flag
        longs[2 * stride + row] = body_at
        longs[3 * stride + row] = body_size
        longs[4 * stride + row] = topic_at
        longs[5 * stride + row] = topic_size
        longs[6 * stride + row] = properties_at
        born = born_more(sys_flag)
        for field in range(words_at.size):
            place = words_at[field]
            moved = (born if place > _BORN_HOST else 0) + (more - born if place > STORE_HOST else 0)
            words[field * stride + row] = load_i32(log, at + place + moved)
        for field in range(longs_at.size):
            place = longs_at[field]
            moved = (born if place > _BORN_HOST else 0) + (more - born if place > STORE_HOST else 0)
            longs[(_PARTS + field) * stride + row] = load_i64(log, at + place + moved)
    return positions.size
