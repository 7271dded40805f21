"""Expected content of an IndexFile: the entries of a scan's keys, and the chains of a file's entries."""

from typing import Final

from towline.format.files import index_file
from towline.kernels.base.hashing import continue_hash, index_hash
from towline.kernels.base.words import load_i32
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
