"""What stands in the log of a store, ours or a real broker's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from towline.errors import MalformedRecord
from towline.format.record.properties import decode as decode_properties
from towline.format.record.record import Record, decode

# Each store has a value of its own, or what is left of the way to a delivery is each broker's own (docs/rocketmq.md).
OWN: Final = ("UNIQ_KEY", "CLUSTER", "TIMER_OUT_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS")
LEFT_OVER: Final = ("TIMER_DEQUEUE_MS", "REAL_TOPIC", "REAL_QID", "__transactionId__", "TRANSACTION_CHECK_TIMES")
VARYING: Final = frozenset((*OWN, *LEFT_OVER, "TRAN_PREPARED_QUEUE_OFFSET", "ORIGIN_MESSAGE_ID"))
_SIZE: Final = 4  # bytes of a record's own size, with which it begins

Stored = dict[bytes, tuple[int, int, dict[str, str]]]


def records_of(store: Path) -> Iterator[Record]:
    """The records of a log, which is one segment."""
    (segment,) = sorted((store / "commitlog").glob("0*"))[:1]
    with segment.open("rb") as log:
        while size := int.from_bytes(head := log.read(_SIZE), "big"):
            try:
                yield decode(head + log.read(size - _SIZE))
            except MalformedRecord:
                return


def stored(store: Path, topic: str) -> Stored:
    """Flag, SYSFLAG and properties of each message of a topic, by its body."""
    found = {}
    for record in records_of(store):
        if record.topic == topic.encode():
            pairs = decode_properties(record.properties)
            kept = {name: value for name, value in pairs.items() if name not in VARYING}
            found[record.body] = record.flag, record.sys_flag, kept
    return found
