"""The head of a record batch, magic 2: what Kafka has written since 0.11. Records follow, compressed together or not.

    at  len  field
     0  8  base_offset       of the first record when it was appended; compaction leaves it
     8  4  batch_length      bytes behind this field
    12  4  leader_epoch      of the leader that appended it, -1 if unknown; outside the CRC
    16  1  magic             2
    17  4  crc               CRC-32C of everything behind this field
    21  2  attributes        bits 0-2 compression, 3 time of the append, 4 transactional, 5 control, 6 delete horizon
    23  4  last_offset_delta from the base offset to the last record, which compaction may have removed
    27  8  base_timestamp    what deltas of times count from: of the first record, or the delete horizon
    35  8  max_timestamp     of its records; with bit 3 the time of the append, which is the time of each record
    43  8  producer_id       -1 without one
    51  2  producer_epoch    -1 without one
    53  4  base_sequence     of the first record, -1 without one
    57  4  record_count      0 where compaction kept the head alone

Times are ms since 1970, -1 for none. A batch without records keeps a producer's last sequence.
"""

from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from towline.format.layout import Field, Layout

LAYOUT: Final = Layout(
    Field("base_offset", "q", "of the first record when it was appended; compaction leaves it"),
    Field("batch_length", "i", "bytes behind this field"),
    Field("leader_epoch", "i", "of the leader that appended it, -1 if unknown; outside the CRC"),
    Field("magic", "b", "2"),
    Field("crc", "I", "CRC-32C of everything behind this field"),
    Field(
        "attributes",
        "h",
        "bits 0-2 compression, 3 time of the append, 4 transactional, 5 control, 6 delete horizon",
    ),
    Field("last_offset_delta", "i", "from the base offset to the last record, which compaction may have removed"),
    Field("base_timestamp", "q", "what deltas of times count from: of the first record, or the delete horizon"),
    Field("max_timestamp", "q", "of its records; with bit 3 the time of the append, which is the time of each record"),
    Field("producer_id", "q", "-1 without one"),
    Field("producer_epoch", "h", "-1 without one"),
    Field("base_sequence", "i", "of the first record, -1 without one"),
    Field("record_count", "i", "0 where compaction kept the head alone"),
)
SIZE: Final = LAYOUT.size
assert SIZE == 61, "Kafka's records begin at byte 61 of a batch"

# The same as rows of an array; `towline.kafka.log.scan` takes a million heads at once.
HEAD: Final = np.dtype([(field.name, f">{np.dtype(field.letter).str[1:]}") for field in LAYOUT.fields])
assert HEAD.itemsize == SIZE

MAGIC: Final = 2
MAGIC_AT: Final = LAYOUT.offset["magic"]  # in message sets too
CRC_AT: Final = LAYOUT.offset["crc"]
CHECKED_AT: Final = LAYOUT.offset["attributes"]  # from here on bytes are in the CRC
OVERHEAD: Final = LAYOUT.offset["leader_epoch"]  # what `batch_length` does not count

COMPRESSION_MASK: Final = 0b111
LOG_APPEND_TIME: Final = 1 << 3
TRANSACTIONAL: Final = 1 << 4
CONTROL: Final = 1 << 5
DELETE_HORIZON: Final = 1 << 6

NONE: Final = -1  # in place of a time, an epoch, a producer, a sequence
SEQUENCE_MAX: Final = 2**31 - 1  # 0 follows
OFFSET_DELTA_MAX: Final = 2**31 - 1


class Compression(IntEnum):
    """Of a batch, in the lowest bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Head(NamedTuple):
    """The fields in the order of the layout."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """-1 without a producer."""
        return self.base_sequence if self.base_sequence < 0 else added(self.base_sequence, self.last_offset_delta)


def added(sequence: int, delta: int) -> int:
    """The sequence so many records later: behind SEQUENCE_MAX comes 0."""
    return (sequence + delta) % (SEQUENCE_MAX + 1)


def encode(head: Head) -> bytes:
    """61 bytes, of which the CRC is the head's own."""
    return LAYOUT.pack(*head)


def decode(buffer: bytes | memoryview, at: int = 0) -> Head:
    """The head at byte `at`. Any 61 bytes are a head; fewer raise struct.error."""
    return Head(*LAYOUT.unpack_from(buffer, at))


def decode_many(buffer: NDArray[np.uint8], positions: NDArray[np.int64]) -> NDArray[np.void]:
    """Rows of HEAD, of the batches that begin at these bytes."""
    gathered = buffer[positions[:, None] + np.arange(SIZE)]
    heads: NDArray[np.void] = gathered.reshape(-1).view(HEAD)
    return heads
