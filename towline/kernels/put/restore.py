"""Restoring records from a form: topic and queue are read from properties, then the record is rebuilt (spec 5.2).

Properties stay as they stand, the form's included, as in RocketMQ; only a property CRC comes or goes with the setting.
"""

from typing import Any, Final

from towline.format.record import forms, properties, property_crc
from towline.format.record.record import MAGIC_V1, MAGIC_V2
from towline.format.record.rules import Rule
from towline.kernels.base.directory import NONE, find
from towline.kernels.base.forms import number_in
from towline.kernels.base.ownership import NO_NAME, RESERVED_NAMES, row_of
from towline.kernels.base.shape import (
    HEAD_SIZE,
    MAGIC,
    NAME_END,
    PAIR_END,
    PROPERTY_CRC_SIZE,
    QUEUE_ID,
    SIZE_MIN,
    SYS_FLAG,
    TOTAL_SIZE,
    ends_with_crc,
    hosts_more,
    parts,
)
from towline.kernels.base.words import copy_bytes, load_i32, load_u8, load_u32, raw_i64, store_i32
from towline.kernels.jit.compiled import (
    FLAG,
    I64,
    NUMBERS_READ,
    QUEUES_READ,
    READ,
    WORDS_READ,
    WRITE,
    Bytes,
    Numbers,
    Rows,
    Words,
    helper,
    kernel,
    rows_of,
)
from towline.kernels.jit.rows import RESTORED
from towline.limits import TOPIC_SIZE_MAX

RESTOREDS: Final = rows_of(RESTORED)
RESTOREDS_READ: Final = rows_of(RESTORED, readonly=True)

_REAL_TOPIC: Final = RESERVED_NAMES.index(properties.REAL_TOPIC)
_REAL_QID: Final = RESERVED_NAMES.index(properties.REAL_QID)
_OUT: Final = RESERVED_NAMES.index(forms.TIMER_OUT_MS)
_CANCELLED: Final = RESERVED_NAMES.index(forms.TIMER_DEL_UNIQKEY)
_UNIQ_KEY: Final = int.from_bytes(properties.UNIQ_KEY.encode(), "little")
_PLACEHOLDER: Final = tuple(property_crc.PLACEHOLDER)
_V1: Final = MAGIC_V1 - (1 << 32)  # as a signed word
_V2: Final = MAGIC_V2 - (1 << 32)
assert len(properties.UNIQ_KEY) == 8


@helper
def _note(log: Bytes, item: int, name_end: int, end: int, row: Any) -> None:
    if name_end - item == 8 and raw_i64(log, item) == _UNIQ_KEY:
        row.key_start = name_end + 1
        row.key_length = end - name_end - 1
        return
    name = row_of(log, item, name_end)
    if name == NO_NAME:
        return
    if name == _REAL_TOPIC:
        row.topic_start = name_end + 1
        row.topic_length = end - name_end - 1
    elif name == _REAL_QID:
        row.queue_id = number_in(log, name_end + 1, end)
    elif name == _OUT:
        row.time = number_in(log, name_end + 1, end)
    elif name == _CANCELLED:
        row.cancelled_start = name_end + 1
        row.cancelled_length = end - name_end - 1


@helper
def _find_values(log: Bytes, at: int, end: int, row: Any) -> None:
    item = at
    name_end = -1
    while at < end:
        byte = load_u8(log, at)
        if byte == NAME_END and name_end < 0:
            name_end = at
        elif byte == PAIR_END:
            if name_end >= 0:
                _note(log, item, name_end, at, row)
            item = at + 1
            name_end = -1
        at += 1
    if name_end >= 0:
        _note(log, item, name_end, end, row)


@helper
def _clear(row: Any) -> None:
    row.size = 0
    row.time = -1
    row.topic_start = 0
    row.topic_length = 0
    row.key_start = 0
    row.key_length = 0
    row.cancelled_start = 0
    row.cancelled_length = 0
    row.topic = NONE
    row.queue_id = -1


@helper
def _topic_part(length: int) -> int:
    """Bytes that a topic takes with its length before it."""
    return length + (1 if length <= TOPIC_SIZE_MAX else 2)


@helper
def _look(log: Bytes, at: int, size: int, with_crc: bool, row: Any) -> int:
    """Fills the row but for the number of its topic; the rule that the record breaks."""
    if at < 0 or size < SIZE_MIN or at + size > log.size or load_i32(log, at + TOTAL_SIZE) != size:
        return Rule.ENDS_INSIDE.value
    magic = load_u32(log, at + MAGIC)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return Rule.MAGIC.value
    end = at + size
    body_at = at + HEAD_SIZE + hosts_more(load_u32(log, at + SYS_FLAG))
    if body_at > end:
        return Rule.ENDS_INSIDE.value
    rule, body_size, _, _, properties_at = parts(log, at, end, magic, body_at)
    if rule != Rule.OK:
        return rule
    if ends_with_crc(log, properties_at, end):
        end -= PROPERTY_CRC_SIZE
    row.properties_start = properties_at
    row.properties_size = end - properties_at
    _find_values(log, properties_at, end, row)
    more = PROPERTY_CRC_SIZE if with_crc else 0
    if with_crc and end > properties_at and load_u8(log, end - 1) != PAIR_END:
        more += 1
    row.size = body_at - at + body_size + _topic_part(row.topic_length) + 2 + row.properties_size + more
    return Rule.OK.value


@kernel(I64(READ, I64, NUMBERS_READ, WORDS_READ, NUMBERS_READ, WORDS_READ, QUEUES_READ, READ, FLAG, RESTOREDS))
def look(
    log: Bytes,
    base: int,
    positions: Numbers,
    sizes: Words,
    picks: Numbers,
    slots: Words,
    queues: Rows,
    names: Bytes,
    with_crc: bool,
    rows: Rows,
) -> int:
    """Fills the rows that `picks` names, of records at these log offsets. All lie in the segment `log`.

    It begins at `base`. `slots`, `queues`, `names` are a QueueDirectory's, in which a topic stands with the queue 0.
    `with_crc`: the store wants a property CRC. Returns how many name a REAL_TOPIC that is not in the directory.
    """
    unknown = 0
    for number in range(picks.size):
        pick = picks[number]
        row = rows[pick]
        _clear(row)
        row.rule = _look(log, positions[pick] - base, int(sizes[pick]), with_crc, row)
        if row.rule == Rule.OK and row.topic_length > 0:
            row.topic = find(slots, queues, names, log, row.topic_start, row.topic_length, 0)[0]
            unknown += row.topic == NONE
    return unknown


@helper
def _make(log: Bytes, at: int, row: Any, with_crc: bool, target: Bytes, to: int) -> None:
    head = HEAD_SIZE + hosts_more(load_u32(log, at + SYS_FLAG))
    body_size = load_i32(log, at + head - 4)
    copy_bytes(target, to, log, at, head + body_size)
    length = int(row.topic_length)
    store_i32(target, to + TOTAL_SIZE, row.size)
    store_i32(target, to + MAGIC, _V1 if length <= TOPIC_SIZE_MAX else _V2)
    store_i32(target, to + QUEUE_ID, row.queue_id)
    end = to + row.size
    to += head + body_size
    if length > TOPIC_SIZE_MAX:
        target[to] = length >> 8
        to += 1
    target[to] = length & 0xFF
    copy_bytes(target, to + 1, log, row.topic_start, length)
    to += 1 + length
    size = end - to - 2
    target[to] = size >> 8
    target[to + 1] = size & 0xFF
    to += 2
    copy_bytes(target, to, log, row.properties_start, row.properties_size)
    if with_crc:
        if end - PROPERTY_CRC_SIZE > to + row.properties_size:
            target[end - PROPERTY_CRC_SIZE - 1] = PAIR_END
        for place in range(PROPERTY_CRC_SIZE):
            target[end - PROPERTY_CRC_SIZE + place] = _PLACEHOLDER[place]


@kernel(I64(READ, I64, NUMBERS_READ, NUMBERS_READ, NUMBERS_READ, FLAG, RESTOREDS_READ, WRITE))
def make(
    log: Bytes,
    base: int,
    positions: Numbers,
    picks: Numbers,
    places: Numbers,
    with_crc: bool,
    rows: Rows,
    target: Bytes,
) -> int:
    """Writes the records that `picks` names, as `look` saw them, each at its place in `target`; how many were written.

    Stops before one that does not fit. What put stamps is left as it stands in the log.
    """
    for number in range(picks.size):
        pick = picks[number]
        row = rows[pick]
        if row.rule != Rule.OK or places[pick] < 0 or places[pick] + row.size > target.size:
            return number
        _make(log, positions[pick] - base, row, with_crc, target, places[pick])
    return int(picks.size)
