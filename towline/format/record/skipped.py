"""The record that replaces damaged ones which an operator skipped.

It is a whole V1 or V2 record with right CRCs, so every reader of the log walks over it: ours, a slave, a real broker.
SYSFLAG says a transaction that was rolled back, so nobody puts it in a queue or in the index. These fields say more:

    FLAG                       the letters SKIP, or HOLE where no message ever had these numbers, as in a log of Kafka
    topic, QUEUEID             the queue of which messages are lost, TOPIC where that is not known
    QUEUEOFFSET                the first lost number
    PREPAREDTRANSACTIONOFFSET  how many numbers are lost, 0 where that is not known

Who derives queues from the log writes a hole for each lost number, so that later messages keep theirs.
"""

from dataclasses import dataclass
from typing import Final

from . import property_crc, record
from .record import LAYOUT, TRANSACTION_ROLLBACK, Record

FLAG: Final = int.from_bytes(b"SKIP", "big")
HOLE_FLAG: Final = int.from_bytes(b"HOLE", "big")
TOPIC: Final = b"TOWLINE_SKIPPED"
SHORT_TOPIC: Final = b"S"
SIZE_MIN: Final = record.SIZE_MIN
_FLAG_AT: Final = LAYOUT.offset["flag"]
SIZE_MAX: Final = 1 << 22  # a longer stretch takes several


@dataclass(frozen=True, slots=True)
class Lost:
    """Messages [first, first + count) of a queue. The default is: it is not known."""

    topic: bytes = TOPIC
    queue_id: int = 0
    first: int = 0
    count: int = 0


def size_of(lost: Lost, *, with_crc: bool) -> int:
    """Bytes of the smallest record that says this; what was lost took as many at least."""
    return record.record_size(0, len(lost.topic), property_crc.SIZE if with_crc else 0)


def encode(size: int, physical_offset: int, lost: Lost, store_timestamp: int, *, with_crc: bool) -> bytes:
    """A record of exactly `size` bytes, SIZE_MIN to SIZE_MAX; the body is zeros.

    What does not fit is left out: the property CRC, then the long topic that stands for an unknown one.
    """
    with_crc = with_crc and size >= size_of(lost, with_crc=True)
    if size < size_of(lost, with_crc=with_crc):
        assert lost.count == 0, f"{size} bytes do not hold a record of topic {lost.topic!r}"
        lost = Lost(topic=SHORT_TOPIC)
    encoded = record.encode(
        Record(
            topic=lost.topic,
            body=bytes(size - size_of(lost, with_crc=with_crc)),
            properties=property_crc.PLACEHOLDER if with_crc else b"",
            queue_id=lost.queue_id,
            flag=FLAG,
            queue_offset=lost.first,
            physical_offset=physical_offset,
            sys_flag=TRANSACTION_ROLLBACK,
            born_timestamp=store_timestamp,
            store_timestamp=store_timestamp,
            prepared_transaction_offset=lost.count,
        )
    )
    assert len(encoded) == size
    return property_crc.filled(encoded) if with_crc else encoded


def count_of(head: bytes) -> int | None:
    """How many numbers no message has, from the head of a record that was rolled back; None if it is no such record."""
    fields = LAYOUT.unpack_from(head)
    names = {field.name: value for field, value in zip(LAYOUT.fields, fields, strict=True)}
    return int(names["prepared_transaction_offset"]) if names["flag"] in (FLAG, HOLE_FLAG) else None


def is_hole(head: bytes) -> bool:
    """Whether a record of which `count_of` says how many stands for numbers that no message ever had."""
    return int.from_bytes(head[_FLAG_AT : _FLAG_AT + 4], "big") == HOLE_FLAG
