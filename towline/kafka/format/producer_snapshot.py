"""`<offset>.snapshot`: what the log up to that offset says of producers. One stands at the base of each segment but the
first, and at the log's end after a clean stop.

    at  len  field
     0  2  version 1
     2  4  crc     CRC-32C of everything behind this field
     6  4  count   of producers

For each of them:

    at  len  field
     0  8  producer_id
     8  2  epoch
    10  4  last_sequence            -1 where its epoch has no batch yet
    14  8  last_offset              of its last record, -1 as well
    22  4  offset_delta             from the first to the last record of its last batch
    26  8  timestamp                greatest time of its last batch, or of what ended its transaction
    34  4  coordinator_epoch        of who ended its last transaction, -1 for none
    38  8  current_txn_first_offset of the transaction that is open, -1 for none
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from towline.format.layout import Field, Layout
from towline.kafka.errors import MalformedBytes, Rule
from towline.kernels.kafka.crc32c import crc32c_each

HEAD: Final = Layout(
    Field("version", "h", "1"),
    Field("crc", "I", "CRC-32C of everything behind this field"),
    Field("count", "i", "of producers"),
)
ENTRY: Final = Layout(
    Field("producer_id", "q", ""),
    Field("epoch", "h", ""),
    Field("last_sequence", "i", "-1 where its epoch has no batch yet"),
    Field("last_offset", "q", "of its last record, -1 as well"),
    Field("offset_delta", "i", "from the first to the last record of its last batch"),
    Field("timestamp", "q", "greatest time of its last batch, or of what ended its transaction"),
    Field("coordinator_epoch", "i", "of who ended its last transaction, -1 for none"),
    Field("current_txn_first_offset", "q", "of the transaction that is open, -1 for none"),
)
VERSION: Final = 1
_CHECKED_AT: Final = HEAD.offset["count"]
assert ENTRY.size == 46, "Kafka's entries have 46 bytes"


class Producer(NamedTuple):
    """What is known of one producer; times are ms since 1970."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode(producers: Iterable[Producer]) -> bytes:
    """The whole file."""
    entries = [ENTRY.pack(*producer) for producer in producers]
    head = HEAD.pack(VERSION, 0, len(entries))
    checked = head[_CHECKED_AT:] + b"".join(entries)
    return HEAD.pack(VERSION, crc32c(checked), len(entries))[:_CHECKED_AT] + checked


def decode(data: bytes) -> list[Producer]:
    """Raises MalformedBytes where it is not whole, has another version or CRC."""
    if len(data) < HEAD.size:
        raise MalformedBytes(Rule.INDEX_SIZE, 0, f"a snapshot has {HEAD.size} bytes at least, this one has {len(data)}")
    version, crc, count = HEAD.unpack_from(data)
    if version != VERSION:
        raise MalformedBytes(Rule.VERSION, 0, f"a snapshot of version {version}")
    if len(data) != HEAD.size + count * ENTRY.size:
        raise MalformedBytes(Rule.INDEX_SIZE, 0, f"{count} producers do not fill {len(data)} bytes")
    if crc != (actual := crc32c(data[_CHECKED_AT:])):
        raise MalformedBytes(Rule.CRC, HEAD.offset["crc"], f"{crc:08x} stands there, the bytes have {actual:08x}")
    return [Producer(*ENTRY.unpack_from(data, HEAD.size + row * ENTRY.size)) for row in range(count)]


def crc32c(data: bytes) -> int:
    """CRC-32C of these bytes."""
    result = np.zeros(1, np.int64)
    crc32c_each(np.frombuffer(data, np.uint8), np.zeros(1, np.int64), np.full(1, len(data)), result)
    return int(result[0])
