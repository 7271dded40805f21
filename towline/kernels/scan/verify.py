"""What a store should hold, computed anew: an IndexFile's entries and chains, and the property CRCs of records."""

from typing import Final

from towline.format.files import index_file
from towline.format.record.rules import Rule
from towline.kernels.base.hashing import continue_hash, index_hash
from towline.kernels.base.shape import HEAD_SIZE, MAGIC, SYS_FLAG, TOTAL_SIZE, broken_property_crc, hosts_more, parts
from towline.kernels.base.words import load_i32, load_u32
from towline.kernels.jit.compiled import (
    DISPATCHES_READ,
    I64,
    KEYS_READ,
    NUMBERS,
    READ,
    WORDS,
    Bytes,
    Numbers,
    Rows,
    Words,
    kernel,
)

_SEPARATOR: Final = ord(index_file.KEY_SEPARATOR)
_HASH_MASK: Final = 0x7FFF_FFFF
_ENTRIES_AT: Final = index_file.HEADER_SIZE
_SLOT_SIZE: Final = index_file.SLOT_SIZE
_ENTRY_SIZE: Final = index_file.ENTRY_SIZE
_KEY_HASH: Final = index_file.ENTRY_LAYOUT.offset["key_hash"]
_PREVIOUS: Final = index_file.ENTRY_LAYOUT.offset["previous"]


@kernel(I64(READ, DISPATCHES_READ, KEYS_READ, NUMBERS, NUMBERS, NUMBERS))
def key_entries(log: Bytes, rows: Rows, keys: Rows, hashes: Numbers, offsets: Numbers, times: Numbers) -> int:
    """Key hash, log offset and store time (ms) of each key of a dispatch scan; returns how many.

    `rows` and `keys` are a scan's, `log` the array in which they stand; the others take as many numbers as keys.
    """
    record = -1
    topic_hash = 0
    for number in range(keys.size):
        key = keys[number]
        row = rows[key.record]
        if key.record != record:
            record = key.record
            topic_hash = continue_hash(log, row.topic_start, row.topic_length, 0) * 31 + _SEPARATOR
        hashes[number] = index_hash(continue_hash(log, key.start, key.length, topic_hash))
        offsets[number] = row.phy
        times[number] = row.store_timestamp
    return keys.size


@kernel(I64(READ, I64, I64, I64, WORDS, NUMBERS))
def check_chains(file: Bytes, slots: int, first: int, stop: int, heads: Words, bad: Numbers) -> int:
    """How many of entries [first, stop) do not point to the entry before them in their slot; `bad` gets their numbers.

    `heads` holds a number for each slot, 0 before the first call, and is what the cells should hold after the last.
    """
    found = 0
    for number in range(max(first, 1), stop):
        at = _ENTRIES_AT + slots * _SLOT_SIZE + number * _ENTRY_SIZE
        slot = (load_i32(file, at + _KEY_HASH) & _HASH_MASK) % slots
        if load_i32(file, at + _PREVIOUS) != heads[slot]:
            if found < bad.size:
                bad[found] = number
            found += 1
        heads[slot] = number
    return found


@kernel(I64(READ, I64, I64, NUMBERS))
def foreign_property_crcs(log: Bytes, start: int, stop: int, found: Numbers) -> int:
    """How many of the whole records in log[start:stop] end with a property CRC of other bytes; `found` gets where.

    `found` takes as many positions as it has room for. The records were walked before: their heads are sound.
    """
    count = 0
    at = start
    while at < stop:
        end = at + load_i32(log, at + TOTAL_SIZE)
        body_at = at + HEAD_SIZE + hosts_more(load_u32(log, at + SYS_FLAG))
        _, _, _, _, properties_at = parts(log, at, end, load_u32(log, at + MAGIC), body_at)
        if broken_property_crc(log, at, properties_at, end) == Rule.PROPERTY_CRC:
            if count < found.size:
                found[count] = at
            count += 1
        at = end
    return count
