"""An IndexFile: from a hash of topic and key to records of the CommitLog (spec 4.1-4.3).

The file begins with a header:

    at  len  field
     0  8  begin_timestamp         store time of the first entry in ms
     8  8  end_timestamp           store time of the last entry in ms
    16  8  begin_physical_offset   log offset of the first entry
    24  8  end_physical_offset     log offset of the last entry
    32  4  hash_slot_count         slots in use
    36  4  index_count             entries + 1, so that entry 0 means none

Then one cell of 4 bytes per slot: the newest entry of the slot's chain. Then the entries; number 0 is never used:

    at  len  field
     0  4  key_hash                absolute Java hash of topic # key
     4  8  physical_offset         where the record begins in the CommitLog
    12  4  time_diff               seconds after begin_timestamp
    16  4  previous                next older entry of the chain, 0 for none

The numbers of slots and entries are not in the file: they must match the settings.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import numpy as np

from towline.format.java_hash import index_hash
from towline.format.layout import Field, Layout

LAYOUT: Final = Layout(
    Field("begin_timestamp", "q", "store time of the first entry in ms"),
    Field("end_timestamp", "q", "store time of the last entry in ms"),
    Field("begin_physical_offset", "q", "log offset of the first entry"),
    Field("end_physical_offset", "q", "log offset of the last entry"),
    Field("hash_slot_count", "i", "slots in use"),
    Field("index_count", "i", "entries + 1, so that entry 0 means none"),
)
ENTRY_LAYOUT: Final = Layout(
    Field("key_hash", "i", "absolute Java hash of topic # key"),
    Field("physical_offset", "q", "where the record begins in the CommitLog"),
    Field("time_diff", "i", "seconds after begin_timestamp"),
    Field("previous", "i", "next older entry of the chain, 0 for none"),
)
HEADER_SIZE: Final = LAYOUT.size
SLOT_SIZE: Final = 4
ENTRY_SIZE: Final = ENTRY_LAYOUT.size
assert (HEADER_SIZE, ENTRY_SIZE) == (40, 20), "RocketMQ readers expect a 40-byte header and 20-byte entries"

SLOTS_DEFAULT: Final = 5_000_000
INDEXES_DEFAULT: Final = 20_000_000
KEY_SEPARATOR: Final = "#"
TIME_DIFF_MAX: Final = 2**31 - 1  # seconds

HEADER: Final = np.dtype(
    [
        ("begin_timestamp", ">i8"),
        ("end_timestamp", ">i8"),
        ("begin_physical_offset", ">i8"),
        ("end_physical_offset", ">i8"),
        ("hash_slot_count", ">i4"),
        ("index_count", ">i4"),
    ]
)
SLOT: Final = np.dtype(">i4")
ENTRY: Final = np.dtype([("key_hash", ">i4"), ("physical_offset", ">i8"), ("time_diff", ">i4"), ("previous", ">i4")])
assert (HEADER.itemsize, SLOT.itemsize, ENTRY.itemsize) == (HEADER_SIZE, SLOT_SIZE, ENTRY_SIZE)


@dataclass(frozen=True, slots=True)
class Header:
    """Times are epoch ms, offsets bytes of the log. A new file has `index_count` 1."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """`time_diff` is in seconds, `previous` the number of an entry or 0."""

    key_hash: int
    physical_offset: int
    time_diff: int
    previous: int


def encode_header(header: Header) -> bytes:
    """40 bytes."""
    return LAYOUT.pack(
        header.begin_timestamp,
        header.end_timestamp,
        header.begin_physical_offset,
        header.end_physical_offset,
        header.hash_slot_count,
        header.index_count,
    )


def decode_header(buffer: bytes | memoryview) -> Header:
    """The header at the beginning of `buffer`. A count of 0 or less reads as 1. Raises struct.error below 40 bytes."""
    header = Header(*LAYOUT.unpack_from(buffer))
    return header if header.index_count > 0 else replace(header, index_count=1)


def encode_entry(entry: Entry) -> bytes:
    """20 bytes."""
    return ENTRY_LAYOUT.pack(entry.key_hash, entry.physical_offset, entry.time_diff, entry.previous)


def decode_entry(buffer: bytes | memoryview, at: int = 0) -> Entry:
    """The entry at byte `at`. Any 20 bytes are an entry; fewer raise struct.error."""
    return Entry(*ENTRY_LAYOUT.unpack_from(buffer, at))


def file_size(slots: int, indexes: int) -> int:
    """Bytes of a file with so many slots and room for `indexes` - 1 entries."""
    return entry_at(slots, indexes)


def slot_at(slot: int) -> int:
    """The byte of the file at which the cell of a slot begins."""
    return HEADER_SIZE + slot * SLOT_SIZE


def entry_at(slots: int, number: int) -> int:
    """The byte of the file at which entry `number` begins, in a file with so many slots."""
    return slot_at(slots) + number * ENTRY_SIZE


def key_hash(topic: str, key: str) -> int:
    """The hash under which a message of the topic is found by its key, or by its unique key."""
    return index_hash(topic + KEY_SEPARATOR + key)


def slot_of(hashed: int, slots: int) -> int:
    """The slot of a key hash."""
    return hashed % slots


def file_name(created: datetime) -> str:
    """17 digits: the local time at which the file was made, down to the millisecond."""
    return f"{created:%Y%m%d%H%M%S}{created.microsecond // 1000:03d}"
