"""Numbers of a queue that no message has: a record of the log stands for them, and fillers in the queue."""

from tests.spark.stores import NOON, QUEUE_FILE, MadeStore
from towline.format.files.consume_queue import hole
from towline.format.record import skipped
from towline.format.record.record import LAYOUT
from towline.format.record.skipped import Lost
from towline.log.queues.consume_queue import ConsumeQueueFiles

_FLAG = LAYOUT.offset["flag"]


def absent(made: MadeStore, flag: int, topic: str, count: int) -> int:
    """The next `count` numbers of queue 0, of a store whose messages were dispatched; the log offset of the record."""
    first, at = made.numbers[topic, 0], made.end
    lost = Lost(topic.encode(), 0, first, count)
    data = bytearray(skipped.encode(skipped.size_of(lost, with_crc=False), at, lost, NOON, with_crc=False))
    data[_FLAG : _FLAG + 4] = flag.to_bytes(4, "big")
    made.write(at, bytes(data))
    made.end += len(data)
    made.numbers[topic, 0] = first + count
    files = ConsumeQueueFiles(made.store.consumequeue, QUEUE_FILE, 4)
    files.write(topic, 0, first, hole(at) * count)
    files.close()
    return at
