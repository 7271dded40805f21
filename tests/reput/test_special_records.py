"""Delayed messages have their time of delivery in the queue; prepared and rolled back records get no entry (spec 5)."""

import numpy as np
import pytest

from tests.log.stores import NOON, QUEUE_FILE, SLOTS
from towline.format.files.consume_queue import tags_code
from towline.format.record import record
from towline.format.record.record import (
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Record,
)
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.index_service import IndexService
from towline.runtime.queue_ends import QueueEnds

from .test_reput import INDEXES, Bench

DELAYS = "2s 3m 1h"


def write(bench, topic, properties, queue_id=0, queue_offset=0, sys_flag=0):
    """One record at the log's end; its offset."""
    at = bench.maker.end
    made = Record(
        topic=topic,
        body=b"body",
        properties=properties,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=at,
        sys_flag=sys_flag,
        born_timestamp=NOON,
        store_timestamp=NOON,
    )
    data = record.encode(made)
    bench.maker.write(at, data)
    bench.maker.end += len(data)
    return at


def entries_of(bench, topic, queue_id):
    files = ConsumeQueueFiles(bench.store.consumequeue, QUEUE_FILE, 8)
    return files.read(topic, queue_id, 0, 16)


@pytest.mark.parametrize("extended", [False, True])
def test_a_delayed_message_has_its_time_of_delivery_as_tags_code(tmp_path, extended):
    bench = Bench(tmp_path, message_delay_level=DELAYS, enable_consume_queue_ext=extended)
    for level in (b"1", b"2", b"3", b"99"):
        number = min(int(level), 3) - 1
        write(bench, b"SCHEDULE_TOPIC_XXXX", b"TAGS\x01red\x02DELAY\x01" + level + b"\x02", number, level == b"99")
    bench.publish(bench.maker.end)
    bench.work(bench.agent())
    found = [entries_of(bench, "SCHEDULE_TOPIC_XXXX", number)["tags_code"].tolist() for number in range(3)]
    assert found == [[NOON + 2_000], [NOON + 180_000], [NOON + 3_600_000] * 2]


def test_delay_means_nothing_in_another_topic(tmp_path):
    bench = Bench(tmp_path, message_delay_level=DELAYS)
    write(bench, b"real", b"TAGS\x01red\x02DELAY\x012\x02")
    bench.publish(bench.maker.end)
    bench.work(bench.agent())
    assert entries_of(bench, "real", 0)["tags_code"].tolist() == [tags_code("red")]


def test_prepared_and_rolled_back_records_get_no_entry_and_only_the_rolled_back_no_key(tmp_path):
    bench = Bench(tmp_path)
    kinds = {
        "none": TRANSACTION_NONE,
        "prepared": TRANSACTION_PREPARED,
        "commit": TRANSACTION_COMMIT,
        "rollback": TRANSACTION_ROLLBACK,
    }
    counted, places = 0, {}
    for name, kind in kinds.items():
        entered = kind in (TRANSACTION_NONE, TRANSACTION_COMMIT)
        offset = counted if entered else 0
        places[name] = write(bench, b"t", f"KEYS\x01{name}\x02".encode(), 0, offset, kind)
        counted += entered
    bench.publish(bench.maker.end)
    bench.work(bench.agent())
    assert np.array_equal(entries_of(bench, "t", 0)["physical_offset"], [places["none"], places["commit"]])
    (end,) = QueueEnds.open(bench.runtime.queue_ends)
    assert end.max_offset == 2
    service = IndexService(bench.store.index, SLOTS, INDEXES)
    service.load()
    hits = {name: service.query("t", name, 0, 1 << 62) for name in kinds}
    assert hits == {name: [places[name]] if name != "rollback" else [] for name in kinds}
