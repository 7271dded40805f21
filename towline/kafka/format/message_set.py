"""Messages of magic 0 and 1, as Kafka before 0.11 wrote them: they are read, never written.

Before each message, which a compressed one holds inside as well:

    at  len  field
     0  8  offset of the message; of a compressed one, of the last message in it
     8  4  size   bytes behind this field

Magic 0:

    at  len  field
     0  4  crc        CRC-32 of everything behind this field, the polynomial of zlib
     4  1  magic      0
     5  1  attributes bits 0-2 compression
     6  4  key_size   -1 for null; the key, the size of the value and the value follow

Magic 1:

    at  len  field
     0  4  crc        CRC-32 of everything behind this field, the polynomial of zlib
     4  1  magic      1
     5  1  attributes bits 0-2 compression, 3 time of the append
     6  8  timestamp  ms since 1970, -1 for none
    14  4  key_size   -1 for null; the key, the size of the value and the value follow

A compressed message has messages as its value. In magic 0 their offsets are those of the log; in magic 1 they count
from the first one, and the offset of the compressed message is that of the last. With bit 3 the time of a compressed
message is that of all in it.
"""

from typing import Final, NamedTuple

import numpy as np

from towline.format.layout import Field, Layout
from towline.kafka.errors import MalformedBytes, Rule
from towline.kernels.kafka.records import OVERHEAD, SIZE_AT, walk_batches

from . import records
from .batch import COMPRESSION_MASK, LOG_APPEND_TIME, MAGIC_AT, NONE
from .compression import DECOMPRESSED_SIZE_MAX, decompress
from .records import Blobs, Bytes, Numbers, Records

FRAME: Final = Layout(
    Field("offset", "q", "of the message; of a compressed one, of the last message in it"),
    Field("size", "i", "bytes behind this field"),
)
MAGIC_0: Final = Layout(
    Field("crc", "I", "CRC-32 of everything behind this field, the polynomial of zlib"),
    Field("magic", "b", "0"),
    Field("attributes", "b", "bits 0-2 compression"),
    Field("key_size", "i", "-1 for null; the key, the size of the value and the value follow"),
)
MAGIC_1: Final = Layout(
    Field("crc", "I", "CRC-32 of everything behind this field, the polynomial of zlib"),
    Field("magic", "b", "1"),
    Field("attributes", "b", "bits 0-2 compression, 3 time of the append"),
    Field("timestamp", "q", "ms since 1970, -1 for none"),
    Field("key_size", "i", "-1 for null; the key, the size of the value and the value follow"),
)
SIZE_MIN: Final = FRAME.size + MAGIC_0.size + 4  # of a message with its frame, both parts null
CRC_AT: Final = FRAME.size
CHECKED_AT: Final = FRAME.size + MAGIC_0.offset["magic"]
assert (FRAME.offset["size"], FRAME.size) == (SIZE_AT, OVERHEAD), "kernels walk by the size of each"
assert FRAME.size + MAGIC_0.offset["magic"] == MAGIC_AT, "every version has its magic at the same byte"

_INT: Final = np.arange(4)
_LONG: Final = np.arange(8)
_TIMESTAMP: Final = FRAME.size + MAGIC_1.offset["timestamp"]
_ATTRIBUTES: Final = FRAME.size + MAGIC_0.offset["attributes"]


class Parts(NamedTuple):
    """Columns of messages that lie in one array; those that are compressed are not opened."""

    offset: Numbers
    magic: Numbers
    attributes: Numbers
    timestamp: Numbers
    key: Blobs
    value: Blobs


def frames(data: Bytes, positions: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Offset, attributes and time (-1 without one) of the messages that begin there, of any size."""
    timestamp = np.full(len(positions), NONE, np.int64)
    ones = np.flatnonzero((data[positions + MAGIC_AT] == 1) & (positions + _TIMESTAMP + 8 <= len(data)))
    timestamp[ones] = _numbers(data, positions[ones] + _TIMESTAMP, ">i8")
    return _numbers(data, positions, ">i8"), data[positions + _ATTRIBUTES].astype(np.int64), timestamp


def parts(data: Bytes, positions: Numbers, ends: Numbers) -> Parts:
    """The fields of messages, each with its frame in [position, end). Raises MalformedBytes."""
    magic = data[positions + MAGIC_AT].astype(np.int64)
    attributes = data[positions + _ATTRIBUTES].astype(np.int64)
    if len(odd := np.flatnonzero(magic > 1)):
        raise MalformedBytes(Rule.MAGIC, int(positions[odd[0]]), f"magic {magic[odd[0]]} in a set of messages")
    later = magic * 8
    timestamp = np.full(len(positions), NONE, np.int64)
    ones = np.flatnonzero(magic == 1)
    _need(positions, positions + FRAME.size + MAGIC_0.size + later + 4, ends)
    timestamp[ones] = _numbers(data, positions[ones] + _TIMESTAMP, ">i8")
    key_at = positions + FRAME.size + MAGIC_0.offset["key_size"] + later
    key, value_at = _blobs(data, positions, key_at, ends - 4)
    value, behind = _blobs(data, positions, value_at, ends)
    if len(odd := np.flatnonzero(behind != ends)):
        raise MalformedBytes(Rule.RECORDS, int(positions[odd[0]]), "key and value do not fill their message")
    return Parts(_numbers(data, positions, ">i8"), magic, attributes, timestamp, key, value)


def decode(
    data: Bytes, positions: Numbers, ends: Numbers, *, size_max: int = DECOMPRESSED_SIZE_MAX, enough: int
) -> tuple[Records, Numbers, int]:
    """The records of messages, compressed ones opened; the row of the message that each comes from; of how many.

    More than `enough` bytes are not decompressed together, the last message aside. Raises MalformedBytes at the byte of
    the message that is bad, RecordsTooLarge.
    """
    outer = parts(data, positions, ends)
    packed = np.flatnonzero(outer.attributes & COMPRESSION_MASK)
    if not len(packed):
        return _plain(outer), np.arange(len(positions)), len(positions)
    found: list[Records] = []
    rows: list[Numbers] = []
    before = 0
    for row in [*packed.tolist(), len(positions)]:
        if row > before:
            found.append(_plain(outer).taken(slice(before, row)))
            rows.append(np.arange(before, row))
        if row < len(positions):
            try:
                found.append(_opened(outer, row, size_max))
            except MalformedBytes as error:
                raise MalformedBytes(error.rule, int(positions[row]), error.found) from None
            rows.append(np.full(len(found[-1]), row))
            enough -= len(found[-1].value.data)
        before = row + 1
        if enough < 0:
            break
    count = min(before, len(positions))
    return records.joined(found), np.concatenate(rows), count


def split(data: Bytes) -> tuple[Numbers, Numbers]:
    """Where each message of a set begins and ends. A set may end in a part of a message, which is left out.

    Raises MalformedBytes where a message has a size that none has.
    """
    positions = np.empty(len(data) // SIZE_MIN + 2, np.int64)
    count = walk_batches(data, 0, len(data), SIZE_MIN, positions)
    at = int(positions[count])
    size = int.from_bytes(data[at + SIZE_AT : at + OVERHEAD].tobytes(), "big", signed=True) + OVERHEAD
    if at + OVERHEAD <= len(data) and size < SIZE_MIN:
        raise MalformedBytes(Rule.BATCH_SIZE, at, f"{size} bytes; {SIZE_MIN} are the least")
    return positions[:count], positions[1 : count + 1]


def _plain(outer: Parts) -> Records:
    none = Blobs(outer.key.data, np.zeros(len(outer.offset), np.int64), np.zeros(len(outer.offset), np.int64))
    return Records(outer.offset, outer.timestamp, outer.key, outer.value, none)


def _opened(outer: Parts, row: int, size_max: int) -> Records:
    value = outer.value.at(row)
    magic, attributes = int(outer.magic[row]), int(outer.attributes[row])
    if value is None:
        raise MalformedBytes(Rule.COMPRESSION, 0, "a compressed message has no value")
    restored = decompress(value, attributes & COMPRESSION_MASK, size_max, broken_lz4=magic == 0)
    data = np.frombuffer(restored, np.uint8)
    positions, ends = split(data)
    if not len(positions):
        raise MalformedBytes(Rule.RECORDS, 0, "a compressed message holds no message")
    inner = parts(data, positions, ends)
    if (inner.attributes & COMPRESSION_MASK).any() or (inner.magic != magic).any():
        raise MalformedBytes(Rule.RECORDS, 0, "a compressed message holds one of another magic, or a compressed one")
    made = _plain(inner)
    offset = made.offset + (int(outer.offset[row]) - int(made.offset[-1])) if magic else made.offset
    append_time = attributes & LOG_APPEND_TIME and magic
    timestamp = np.full(len(made), int(outer.timestamp[row])) if append_time else made.timestamp
    return Records(offset, timestamp, made.key, made.value, made.headers)


def _blobs(data: Bytes, positions: Numbers, at: Numbers, ends: Numbers) -> tuple[Blobs, Numbers]:
    """What has its size before it at `at`, and the bytes behind it, none of them beyond `ends`."""
    sizes = _numbers(data, at, ">i4")
    starts = at + 4
    behind = starts + np.maximum(sizes, 0)
    _need(positions, behind, ends)
    return Blobs(data, starts, np.maximum(sizes, NONE)), behind


def _need(positions: Numbers, behind: Numbers, ends: Numbers) -> None:
    if len(odd := np.flatnonzero(behind > ends)):
        raise MalformedBytes(Rule.RECORDS, int(positions[odd[0]]), "what is in a message goes beyond its end")


def _numbers(data: Bytes, at: Numbers, kind: str) -> Numbers:
    width = _INT if kind == ">i4" else _LONG
    gathered = np.ascontiguousarray(data[at[:, None] + width])
    return gathered.view(kind).reshape(-1).astype(np.int64)
