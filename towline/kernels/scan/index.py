"""IndexFile: entries in batches, the slots behind them, those computed anew, and queries (spec 4.1, 4.2, 4.5).

Whoever writes keeps the order of H13: `put_entries`, then `put_slots`, then the header, which callers write. A reader
therefore never meets a slot whose entry is not there, and a kill between the steps leaves slots that point at or past
the header's count: `rebuild_slots` and `write_slots` compute them anew.
"""

from typing import Final

from towline.format.files import index_file
from towline.format.files.index_file import TIME_DIFF_MAX
from towline.kernels.base.hashing import continue_hash, index_hash
from towline.kernels.base.words import load_i32, load_i64, store_i32, store_i64
from towline.kernels.jit.compiled import (
    DISPATCHES_READ,
    I64,
    KEYS_READ,
    NUMBERS,
    READ,
    WORDS,
    WORDS_READ,
    WRITE,
    Bytes,
    Numbers,
    Rows,
    Words,
    helper,
    kernel,
)

# The header as a kernel takes and gives it, as indexes into int64 numbers, in the order of the file.
BEGIN_TIMESTAMP: Final = 0
END_TIMESTAMP: Final = 1
BEGIN_PHYSICAL_OFFSET: Final = 2
END_PHYSICAL_OFFSET: Final = 3
HASH_SLOT_COUNT: Final = 4
INDEX_COUNT: Final = 5
HEADS_USED: Final = 6  # pairs of `heads` that put_entries used, for put_slots
STATE_SIZE: Final = 7

_HEADER_SIZE: Final = index_file.HEADER_SIZE
_SLOT_SIZE: Final = index_file.SLOT_SIZE
_ENTRY_SIZE: Final = index_file.ENTRY_SIZE
_BEGIN_AT: Final = index_file.LAYOUT.offset["begin_timestamp"]
_COUNT_AT: Final = index_file.LAYOUT.offset["index_count"]
_KEY_HASH: Final = index_file.ENTRY_LAYOUT.offset["key_hash"]
_PHYSICAL_OFFSET: Final = index_file.ENTRY_LAYOUT.offset["physical_offset"]
_TIME_DIFF: Final = index_file.ENTRY_LAYOUT.offset["time_diff"]
_PREVIOUS: Final = index_file.ENTRY_LAYOUT.offset["previous"]
_SEPARATOR: Final = ord(index_file.KEY_SEPARATOR)
_HASH_MASK: Final = 0x7FFF_FFFF
_SECOND: Final = 1000  # ms
assert list(index_file.LAYOUT.offset)[BEGIN_TIMESTAMP] == "begin_timestamp"
assert list(index_file.LAYOUT.offset)[INDEX_COUNT] == "index_count"


@helper
def _slot_at(slot: int) -> int:
    return _HEADER_SIZE + slot * _SLOT_SIZE


@helper
def _entry_at(slots: int, number: int) -> int:
    return _HEADER_SIZE + slots * _SLOT_SIZE + number * _ENTRY_SIZE


@helper
def _time_diff(store_timestamp: int, begin_timestamp: int) -> int:
    if begin_timestamp <= 0 or store_timestamp < begin_timestamp:
        return 0
    return min((store_timestamp - begin_timestamp) // _SECOND, TIME_DIFF_MAX)


@helper
def _head_of(heads: Words, pairs: int, slot: int) -> int:
    """Where the pair (slot + 1, newest entry) of this slot stands or would stand among `pairs`, a power of two."""
    place = slot & (pairs - 1)
    while heads[2 * place] != 0 and heads[2 * place] != slot + 1:
        place = (place + 1) & (pairs - 1)
    return 2 * place


@helper
def _pairs_for(keys: int, heads: Words) -> int:
    """A power of two that leaves half of the pairs free, cleared; or the largest that `heads` has."""
    pairs = 4
    while pairs < 2 * keys and 4 * pairs <= heads.size:
        pairs *= 2
    for place in range(2 * pairs):
        heads[place] = 0
    return pairs


@helper
def _chain(file: Bytes, slot: int, count_before: int, heads: Words, pairs: int, number: int) -> int:
    """The entry before `number` in the slot's chain, 0 for none; `number` becomes the newest."""
    head = _head_of(heads, pairs, slot)
    previous = int(heads[head + 1])
    if heads[head] == 0:
        heads[head] = slot + 1
        previous = load_i32(file, _slot_at(slot))
        if previous < 0 or previous >= count_before:
            previous = 0
    heads[head + 1] = number
    return previous


@kernel(I64(WRITE, I64, I64, NUMBERS, READ, DISPATCHES_READ, KEYS_READ, I64, I64, WORDS))
def put_entries(
    file: Bytes,
    slots: int,
    indexes: int,
    header: Numbers,
    log: Bytes,
    rows: Rows,
    keys: Rows,
    first: int,
    stop: int,
    heads: Words,
) -> int:
    """Writes entries for keys[first:stop], whose topics and keys stand in `log`; returns how many were written.

    Fewer when the file is full (INDEX_COUNT reached `indexes`) or `heads` is small: it holds a quarter as many keys as
    it has numbers (at least 8), and its content does not matter. `header` (STATE_SIZE) is the file's, in and out; the
    caller writes it to the file after `put_slots`.
    """
    pairs = _pairs_for(stop - first, heads)
    count_before = int(header[INDEX_COUNT])
    count = max(min(stop - first, indexes - count_before, pairs // 2), 0)
    record = -1
    topic_hash = 0
    for step in range(count):
        key = keys[first + step]
        row = rows[key.record]
        if key.record != record:
            record = key.record
            topic_hash = continue_hash(log, row.topic_start, row.topic_length, 0) * 31 + _SEPARATOR
        hashed = index_hash(continue_hash(log, key.start, key.length, topic_hash))
        number = count_before + step
        previous = _chain(file, hashed % slots, count_before, heads, pairs, number)
        at = _entry_at(slots, number)
        store_i32(file, at + _KEY_HASH, hashed)
        store_i64(file, at + _PHYSICAL_OFFSET, row.phy)
        store_i32(file, at + _TIME_DIFF, _time_diff(row.store_timestamp, header[BEGIN_TIMESTAMP]))
        store_i32(file, at + _PREVIOUS, previous)
        if number <= 1:
            header[BEGIN_TIMESTAMP] = row.store_timestamp
            header[BEGIN_PHYSICAL_OFFSET] = row.phy
        header[END_TIMESTAMP] = row.store_timestamp
        header[END_PHYSICAL_OFFSET] = row.phy
        if previous == 0:
            header[HASH_SLOT_COUNT] += 1
    header[INDEX_COUNT] = count_before + count
    header[HEADS_USED] = pairs
    return count


@kernel(I64(WRITE, NUMBERS, WORDS_READ))
def put_slots(file: Bytes, header: Numbers, heads: Words) -> int:
    """Writes the cells of the slots that the last `put_entries` touched; returns how many."""
    written = 0
    for place in range(header[HEADS_USED]):
        slot = int(heads[2 * place]) - 1
        if slot >= 0:
            store_i32(file, _slot_at(slot), int(heads[2 * place + 1]))
            written += 1
    return written


@kernel(I64(READ, I64, I64, I64, WORDS))
def rebuild_slots(file: Bytes, slots: int, first: int, stop: int, heads: Words) -> int:
    """Enters entries [first, stop) into `heads`, a number for each slot, 0 before the first call; 1 is the first entry.

    Returns how many slots were empty before. `write_slots` puts the result into the file.
    """
    used = 0
    for number in range(max(first, 1), stop):
        slot = (load_i32(file, _entry_at(slots, number) + _KEY_HASH) & _HASH_MASK) % slots
        if heads[slot] == 0:
            used += 1
        heads[slot] = number
    return used


@kernel(I64(WRITE, WORDS_READ, I64, I64))
def write_slots(file: Bytes, heads: Words, first: int, stop: int) -> int:
    """Writes the cells of slots [first, stop) that differ from `heads`; returns how many."""
    written = 0
    for slot in range(first, stop):
        head = int(heads[slot])
        if load_i32(file, _slot_at(slot)) != head:
            store_i32(file, _slot_at(slot), head)
            written += 1
    return written


@kernel(I64(READ, I64, I64, I64, I64, I64, I64, NUMBERS))
def query(
    file: Bytes, slots: int, indexes: int, hashed: int, begin: int, end: int, limit: int, offsets: Numbers
) -> int:
    """Log offsets of records whose key hash is `hashed`, stored in [begin, end] ms, newest first; returns how many.

    At most `limit`. Times in the file are whole seconds after its first entry. Different keys may share a hash.
    """
    count = min(max(load_i32(file, _COUNT_AT), 1), indexes)
    begin_timestamp = load_i64(file, _BEGIN_AT)
    limit = min(limit, offsets.size)
    found = 0
    number = load_i32(file, _slot_at(hashed % slots))
    for _ in range(count):
        if found >= limit or number <= 0 or number >= count:
            break
        at = _entry_at(slots, number)
        seconds = load_i32(file, at + _TIME_DIFF)
        stored = begin_timestamp + seconds * _SECOND
        if seconds < 0:
            break
        if load_i32(file, at + _KEY_HASH) == hashed and begin <= stored <= end:
            offsets[found] = load_i64(file, at + _PHYSICAL_OFFSET)
            found += 1
        previous = load_i32(file, at + _PREVIOUS)
        if stored < begin or previous == number:
            break
        number = previous
    return found
