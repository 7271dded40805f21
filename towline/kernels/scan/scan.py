"""Walks over records of the log: for recovery, and for dispatching (spec 3.1, 7.1, 8.3).

A walk returns a `Stop`, or the `Rule` that the record it stopped at breaks; where it stopped stands in its state.
"""

from typing import Final

from towline.format.record import blank
from towline.format.record.rules import Rule
from towline.kernels.base.crc import crc_of
from towline.kernels.base.shape import (
    BODY_CRC,
    CRC_MASK,
    HEAD_SIZE,
    MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET,
    QUEUE_ID,
    SIZE_MIN,
    STORE_TIMESTAMP,
    SYS_FLAG,
    TOTAL_SIZE,
    born_more,
    broken_property_crc,
    hosts_more,
    parts,
    properties_sound,
    topic_sound,
)
from towline.kernels.base.words import load_i32, load_i64, load_u32
from towline.kernels.jit.compiled import I64, NUMBERS, READ, Bytes, Numbers, helper, kernel
from towline.kernels.jit.rows import Stop

# What a walk checks beside sizes, magic and topic length; add them up.
CHECK_CRC: Final = 1  # BODYCRC
CHECK_FORM: Final = 2  # properties that parse
CHECK_PLACE: Final = 4  # PHYSICALOFFSET is the record's own, STORETIMESTAMP is positive, its queue can have a directory
CHECK_PROPERTY_CRC: Final = 8  # the record ends with its property CRC; only where the operator insists on that
CHECK_ALL: Final = CHECK_CRC | CHECK_FORM | CHECK_PLACE  # of a store whose operator does not

# A walk's state, as indexes: all out.
REACHED: Final = 0  # position in the array where the walk stopped: the first byte not walked
COUNT: Final = 1  # records walked
TIMESTAMP: Final = 2  # STORETIMESTAMP of the last one; -1 without one
WALK_STATE_SIZE: Final = 3


@helper
def next_record(log: Bytes, at: int, stop: int) -> tuple[int, int]:
    """Rule or stop at byte `at`, before `stop`; and the size of the record whose head is whole and plausible."""
    room = stop - at
    if room < blank.SIZE:
        return Rule.ENDS_INSIDE.value, 0
    size = load_i32(log, at + TOTAL_SIZE)
    magic = load_u32(log, at + MAGIC)
    if size == 0:
        return Stop.END.value, 0
    if magic == blank.MAGIC:
        return Stop.BLANK.value, 0
    if magic not in (MAGIC_V1, MAGIC_V2):
        return Rule.MAGIC.value, 0
    if size < SIZE_MIN:
        return Rule.SIZE_TOO_SMALL.value, 0
    if size > room:
        return Rule.ENDS_INSIDE.value, 0
    if size < SIZE_MIN + hosts_more(load_u32(log, at + SYS_FLAG)):
        return Rule.SIZE_TOO_SMALL.value, 0
    return Rule.OK.value, size


@helper
def _checked(log: Bytes, at: int, size: int, base: int, flags: int) -> int:
    """The rule that the record at `at` breaks, whose head is plausible."""
    end = at + size
    sys_flag = load_u32(log, at + SYS_FLAG)
    body_at = at + HEAD_SIZE + hosts_more(sys_flag)
    rule, body_size, topic_at, topic_size, properties_at = parts(log, at, end, load_u32(log, at + MAGIC), body_at)
    if rule != Rule.OK:
        return rule
    if flags & CHECK_PLACE:
        if load_i64(log, at + PHYSICAL_OFFSET) != base + at:
            return Rule.PHYSICAL_OFFSET.value
        if load_i64(log, at + born_more(sys_flag) + STORE_TIMESTAMP) <= 0:
            return Rule.STORE_TIMESTAMP.value
        if load_i32(log, at + QUEUE_ID) < 0:
            return Rule.QUEUE_ID.value
        if not topic_sound(log, topic_at, topic_at + topic_size):
            return Rule.TOPIC_FORM.value
    if flags & CHECK_FORM and not properties_sound(log, properties_at, end):
        return Rule.PROPERTIES_FORM.value
    if flags & CHECK_CRC and crc_of(log, body_at, body_size) & CRC_MASK != load_u32(log, at + BODY_CRC):
        return Rule.BODY_CRC.value
    if flags & CHECK_PROPERTY_CRC:
        return broken_property_crc(log, at, properties_at, end)
    return Rule.OK.value


@helper
def _step(log: Bytes, at: int, stop: int, base: int, flags: int) -> tuple[int, int]:
    reason, size = next_record(log, at, stop)
    if reason == Rule.OK:
        reason = _checked(log, at, size, base, flags)
    return reason, size


@helper
def _timestamp(log: Bytes, at: int) -> int:
    return load_i64(log, at + born_more(load_u32(log, at + SYS_FLAG)) + STORE_TIMESTAMP)


@kernel(I64(READ, I64, I64, I64, I64, I64, NUMBERS))
def walk(log: Bytes, start: int, stop: int, base: int, flags: int, limit: int, state: Numbers) -> int:
    """Walks at most `limit` records of log[start:stop], where log[0] has log offset `base`; checks what `flags` say.

    Returns 0 at `stop`, the Stop or Rule of the record it stopped at, Stop.FULL after `limit` records. A record that
    reaches past `stop` is Rule.ENDS_INSIDE. `state` gets REACHED, COUNT and TIMESTAMP.
    """
    at = start
    stop = min(stop, log.size)
    count = 0
    last = -1
    reason = Stop.DONE.value
    while at < stop:
        if count == limit:
            reason = Stop.FULL.value
            break
        reason, size = _step(log, at, stop, base, flags)
        if reason != Rule.OK:
            break
        last = at
        at += size
        count += 1
    state[REACHED] = at
    state[COUNT] = count
    state[TIMESTAMP] = _timestamp(log, last) if last >= 0 else -1
    return reason
