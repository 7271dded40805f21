"""Dispatch rows: place, queue, tags code and keys of each record, found in one pass (spec 3.1, 4.4, 7.1)."""

from typing import Any, Final

from towline.format.record import properties
from towline.format.record.record import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from towline.format.record.rules import Rule
from towline.kernels.base.directory import NONE, find, is_queue
from towline.kernels.base.hashing import continue_hash, signed_32
from towline.kernels.base.shape import (
    HEAD_SIZE,
    MAGIC,
    NAME_END,
    PAIR_END,
    QUEUE_ID,
    QUEUE_OFFSET,
    SEPARATORS,
    STORE_TIMESTAMP,
    SYS_FLAG,
    block_below,
    born_more,
    hosts_more,
    parts,
)
from towline.kernels.base.words import (
    BLOCK,
    equal,
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    raw_i64,
    raw_u32,
    trailing_zeros,
)
from towline.kernels.jit.compiled import (
    DISPATCHES,
    I64,
    KEYS,
    NUMBERS,
    NUMBERS_READ,
    QUEUES_READ,
    READ,
    WORDS_READ,
    Bytes,
    Numbers,
    Rows,
    Words,
    helper,
    kernel,
)
from towline.kernels.jit.rows import Stop
from towline.limits import PROPERTIES_SIZE_MAX

from .scan import COUNT, REACHED, TIMESTAMP, next_record

KEY_COUNT: Final = 3  # in the state, after those of a walk: rows of KEY that were filled
_FOUND: Final = 4  # from here on the state holds starts and ends of the values found in one record
_TAGS: Final = _FOUND
_UNIQ_KEY: Final = _FOUND + 2
_KEYS: Final = _FOUND + 4
_DELAY: Final = _FOUND + 6
STATE_SIZE: Final = _FOUND + 8

KEYS_OF_A_RECORD_MAX: Final = PROPERTIES_SIZE_MAX // 2  # an array of KEY takes these, else no scan gets past
SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"


def _little(name: str) -> int:
    return int.from_bytes(name.encode(), "little")


_TAGS_NAME: Final = _little(properties.TAGS)
_KEYS_NAME: Final = _little(properties.KEYS)
_UNIQ_KEY_NAME: Final = _little(properties.UNIQ_KEY)
_DELAY_NAME: Final = _little(properties.DELAY[:4])
_DELAY_LAST: Final = ord(properties.DELAY[4:])
_SPACE: Final = ord(properties.KEY_SEPARATOR)
_SCHEDULE_SIZE: Final = len(SCHEDULE_TOPIC)
_SCHEDULE_FIRST: Final = int.from_bytes(SCHEDULE_TOPIC[:8], "little")
_SCHEDULE_MIDDLE: Final = int.from_bytes(SCHEDULE_TOPIC[8:16], "little")
_SCHEDULE_LAST: Final = int.from_bytes(SCHEDULE_TOPIC[-8:], "little")
_LEVEL_MAX: Final = 0x7FFF_FFFF
assert (len(properties.TAGS), len(properties.KEYS), len(properties.UNIQ_KEY), len(properties.DELAY)) == (4, 4, 8, 5)


@helper
def _note(log: Bytes, item: int, name_end: int, end: int, state: Numbers) -> None:
    """Notes in the state where the value of this item stands, if its name is one of the four."""
    size = name_end - item
    place = 0
    if size == 4:
        name = raw_u32(log, item)
        if name == _TAGS_NAME:
            place = _TAGS
        elif name == _KEYS_NAME:
            place = _KEYS
    elif size == 8:
        if raw_i64(log, item) == _UNIQ_KEY_NAME:
            place = _UNIQ_KEY
    elif size == 5 and raw_u32(log, item) == _DELAY_NAME and load_u8(log, item + 4) == _DELAY_LAST:
        place = _DELAY
    if place > 0 and end > name_end + 1:
        state[place] = name_end + 1
        state[place + 1] = end


@helper
def _find_values(log: Bytes, at: int, end: int, state: Numbers) -> None:
    """Notes starts and ends of TAGS, UNIQ_KEY, KEYS and DELAY; both 0 for what is missing, the last of equal names."""
    for place in range(_FOUND, STATE_SIZE):
        state[place] = 0
    item = at
    name_end = -1
    while at < end:
        found = block_below(log, at, end, SEPARATORS)
        while found:
            place = at + trailing_zeros(found)
            found &= found - 1
            byte = load_u8(log, place)
            if byte == NAME_END and name_end < 0:
                name_end = place
            elif byte == PAIR_END:
                _note(log, item, name_end, place, state)
                item = place + 1
                name_end = -1
        at += BLOCK
    if name_end >= 0:
        _note(log, item, name_end, end, state)


@helper
def _level(log: Bytes, start: int, end: int) -> int:
    """The decimal number in [start, end); 0 if it is none."""
    level = 0
    for at in range(start, end):
        digit = load_u8(log, at) - 0x30
        if digit < 0 or digit > 9 or level > _LEVEL_MAX:
            return 0
        level = 10 * level + digit
    return level


@helper
def _is_schedule_topic(log: Bytes, at: int, size: int) -> bool:
    if size != _SCHEDULE_SIZE or raw_i64(log, at) != _SCHEDULE_FIRST:
        return False
    last = at + _SCHEDULE_SIZE - 8
    return raw_i64(log, at + 8) == _SCHEDULE_MIDDLE and raw_i64(log, last) == _SCHEDULE_LAST


@helper
def _tags_code(log: Bytes, row: Any, delays: Numbers, state: Numbers) -> int:
    """Delivery time of a delayed message; else the hash of the tag, 0 without one."""
    if state[_DELAY] > 0 and _is_schedule_topic(log, row.topic_start, row.topic_length):
        level = min(_level(log, state[_DELAY], state[_DELAY + 1]), delays.size)
        if level > 0:
            delivered: int = row.store_timestamp + delays[level - 1]
            return delivered
    return signed_32(continue_hash(log, state[_TAGS], state[_TAGS + 1] - state[_TAGS], 0))


@helper
def _add_key(keys: Rows, count: int, record: int, start: int, end: int) -> int:
    """The count of keys with this one, which is dropped when empty, and counted but not kept when the rows are full."""
    if end == start:
        return count
    if count < keys.size:
        key = keys[count]
        key.start = start
        key.length = end - start
        key.record = record
    return count + 1


@helper
def _add_keys(log: Bytes, keys: Rows, count: int, record: int, state: Numbers) -> int:
    """The count with UNIQ_KEY and the words of KEYS between single spaces."""
    count = _add_key(keys, count, record, state[_UNIQ_KEY], state[_UNIQ_KEY + 1])
    at = state[_KEYS]
    end = state[_KEYS + 1]
    word = at
    while at < end:
        room = end - at
        found = equal(log, at, _SPACE) if room >= BLOCK else equal(log, end - BLOCK, _SPACE) >> (BLOCK - room)
        while found:
            place = at + trailing_zeros(found)
            found &= found - 1
            count = _add_key(keys, count, record, word, place)
            word = place + 1
        at += BLOCK
    return _add_key(keys, count, record, word, end)


@helper
def _fill(log: Bytes, at: int, size: int, base: int, delays: Numbers, row: Any, state: Numbers) -> int:
    """Fills the row of the record at `at`, but for its queue and keys; the rule that the record breaks."""
    sys_flag = load_u32(log, at + SYS_FLAG)
    end = at + size
    magic = load_u32(log, at + MAGIC)
    rule, _, topic_at, topic_size, properties_at = parts(log, at, end, magic, at + HEAD_SIZE + hosts_more(sys_flag))
    if rule != Rule.OK:
        return rule
    row.phy = base + at
    row.size = size
    row.queue_offset = load_i64(log, at + QUEUE_OFFSET)
    row.store_timestamp = load_i64(log, at + born_more(sys_flag) + STORE_TIMESTAMP)
    row.transaction = sys_flag & TRANSACTION_MASK
    row.topic_start = topic_at
    row.topic_length = topic_size
    _find_values(log, properties_at, end, state)
    row.tags_code = _tags_code(log, row, delays, state)
    return Rule.OK.value


@helper
def _queue_of(log: Bytes, at: int, row: Any, last: int, slots: Words, queues: Rows, arena: Bytes) -> int:
    """The number of the record's queue, or NONE. `last` is the queue of the record before, often the same."""
    queue_id = load_i32(log, at + QUEUE_ID)
    start = row.topic_start
    length = row.topic_length
    if last != NONE and is_queue(queues, last, arena, log, start, length, queue_id):
        return last
    return find(slots, queues, arena, log, start, length, queue_id)[0]


@kernel(I64(READ, I64, I64, I64, WORDS_READ, QUEUES_READ, READ, NUMBERS_READ, DISPATCHES, KEYS, NUMBERS))
def scan_dispatch(
    log: Bytes,
    start: int,
    stop: int,
    base: int,
    slots: Words,
    queues: Rows,
    arena: Bytes,
    delays: Numbers,
    dispatches: Rows,
    keys: Rows,
    state: Numbers,
) -> int:
    """Fills a row of DISPATCH for each record of log[start:stop], and rows of KEY for its keys (none for a rollback).

    log[0] has log offset `base`; `slots`, `queues`, `arena` are a QueueDirectory's; `delays` ms by level - 1. Returns
    0 at `stop`, or the Stop or Rule of the record it stopped at. FULL: a row or the record's keys do not fit.
    UNKNOWN_QUEUE: the row at COUNT says where its topic stands. In both cases call again from REACHED. Sizes are
    checked, body CRC and text are not. `state` (STATE_SIZE) gets REACHED, COUNT, TIMESTAMP and KEY_COUNT.
    """
    at = start
    stop = min(stop, log.size)
    count = 0
    key_count = 0
    queue = NONE
    reason = Stop.DONE.value
    while at < stop:
        if count == dispatches.size:
            reason = Stop.FULL.value
            break
        reason, size = next_record(log, at, stop)
        if reason != Rule.OK:
            break
        row = dispatches[count]
        reason = _fill(log, at, size, base, delays, row, state)
        if reason != Rule.OK:
            break
        queue = _queue_of(log, at, row, queue, slots, queues, arena)
        if queue == NONE:
            reason = Stop.UNKNOWN_QUEUE.value
            break
        with_keys = key_count
        if row.transaction != TRANSACTION_ROLLBACK:
            with_keys = _add_keys(log, keys, key_count, count, state)
        if with_keys > keys.size:
            reason = Stop.FULL.value
            break
        row.queue_index = queue
        row.key_start = key_count
        row.key_count = with_keys - key_count
        key_count = with_keys
        count += 1
        at += size
    state[REACHED] = at
    state[COUNT] = count
    state[TIMESTAMP] = dispatches[count - 1].store_timestamp if count > 0 else -1
    state[KEY_COUNT] = key_count
    return reason
