"""A million records that a real broker holds become messages that a node serves, in a minute of one core."""

import json
import time
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.brokers import started
from tests.processes.grouping import serve_of
from tests.processes.nodes import TestNode, ending
from tests.processes.waiting import await_
from towline import Consumer
from towline.cli.main import run
from towline.limits import GIB

COUNT = 1_000_000
PARTITIONS = 4
SIZE = 1024
TOPIC = "million"


def produce(address: str) -> None:
    settings = {
        "bootstrap.servers": address,
        "compression.type": "lz4",
        "linger.ms": 50,
        "enable.idempotence": True,
        "log_level": 0,
    }
    producer = confluent_kafka.Producer(settings | {"queue.buffering.max.messages": 1_000_000})
    for number in range(COUNT):
        body = (b"%d " % number).ljust(SIZE, b".")
        while True:
            try:
                producer.produce(TOPIC, body, key=b"key-%d" % number, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(1.0)
        producer.poll(0)
    assert producer.flush(300) == 0


@pytest.mark.slow
def test_a_million_records_of_1_kib_are_imported_and_checked_in_a_minute_of_one_core(classes, tmp_path: Path, capsys):
    files = {"mapped_file_size_commit_log": GIB, "mapped_file_size_consume_queue": 6_000_000}
    node = TestNode("master", tmp_path / "store", **files)
    config = tmp_path / "settings.toml"
    config.write_text("mapped_file_size_consume_queue = 6000000\nmax_hash_slot_num = 20000\nmax_index_num = 60000\n")
    (tmp_path / "broker").mkdir()
    broker = started(tmp_path / "broker")
    try:
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
        produce(broker.address)
        broker.stop()
        began = time.process_time()
        words = ["kafka", "import", str(broker.data), "--store", str(node.store.root), "--config", str(config)]
        assert run([*words, "--json"]) == 0
        seconds = time.process_time() - began  # of a core: others may keep it from us
    finally:
        broker.end()
    found = json.loads(capsys.readouterr().out)
    assert (found["messages"], found["holes"], found["verified"]) == (COUNT, 0, True)
    assert seconds < 60
    with ending(node):
        node.start()
        with Consumer(serve_of(node), TOPIC, suspend_ms=200) as consumer:
            following = dict.fromkeys(range(PARTITIONS), 0)

            def all_read() -> bool:
                for message in consumer.poll(500):
                    queue, offset = message.queue_id, message.queue_offset
                    assert offset == following[queue]
                    assert message.body.startswith(b"%d " % (offset * PARTITIONS + queue))
                    following[queue] += 1
                return sum(following.values()) == COUNT

            await_(all_read, 300, "all of them are read")
        node.stop()
