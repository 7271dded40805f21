"""One entry of a ConsumeQueue: the place in the CommitLog of message number N of a queue (spec 3.1).

    at  len  field
     0  8  physical_offset  where the record begins in the CommitLog
     8  4  record_size      TOTALSIZE of the record
    12  8  tags_code        hash of the tag, to filter without reading the CommitLog

Entry N starts at byte 20 * N of the queue; a file holds 300,000 entries. The unused tail is zero: size 0 is the end.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from towline.format.java_hash import string_hash
from towline.format.layout import Field, Layout

LAYOUT: Final = Layout(
    Field("physical_offset", "q", "where the record begins in the CommitLog"),
    Field("record_size", "i", "TOTALSIZE of the record"),
    Field("tags_code", "q", "hash of the tag, to filter without reading the CommitLog"),
)
SIZE: Final = LAYOUT.size
ENTRIES_PER_FILE: Final = 300_000
assert SIZE == 20, "RocketMQ readers expect 20-byte entries"

ENTRY: Final = np.dtype([("physical_offset", ">i8"), ("record_size", ">i4"), ("tags_code", ">i8")])
assert ENTRY.itemsize == SIZE

FILLER_RECORD_SIZE: Final = 0x7FFF_FFFF
FILLER: Final = LAYOUT.pack(0, FILLER_RECORD_SIZE, 0)  # stands before the first entry of a queue that begins mid-file


def hole(physical_offset: int) -> bytes:
    """A filler for a number whose message was lost with a damaged stretch of the log at that offset.

    The tags code says where it was, so that the order of a queue's entries can still be searched.
    """
    return LAYOUT.pack(0, FILLER_RECORD_SIZE, physical_offset)


@dataclass(frozen=True, slots=True)
class Entry:
    """`physical_offset` and `record_size` in bytes."""

    physical_offset: int
    record_size: int
    tags_code: int


def encode(physical_offset: int, record_size: int, tags_code: int) -> bytes:
    """The 20 bytes of one entry."""
    return LAYOUT.pack(physical_offset, record_size, tags_code)


def decode(buffer: bytes | memoryview, at: int = 0) -> Entry:
    """The entry at byte `at`. Any 20 bytes are an entry; fewer raise struct.error."""
    return Entry(*LAYOUT.unpack_from(buffer, at))


def tags_code(tag: str | None) -> int:
    """The Java hash of the tag, signed; 0 without a tag."""
    return string_hash(tag) if tag else 0
