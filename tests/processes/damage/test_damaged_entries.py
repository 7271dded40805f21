"""A damaged queue entry: a reader is told where, and reads the rest of its topic."""

import pytest

from tests.processes.nodes import TestNode, ended
from tests.processes.waiting import await_
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import QueueDamaged
from towline.link.endpoints import ipc_endpoint
from towline.runtime.positions import Position

TOPIC = "orders"
COUNT = 40
DAMAGED = 17  # entry of queue 1


@pytest.fixture
def node(tmp_path):
    made = TestNode("master", tmp_path / "master", ha_listen_port=0)
    ending = ended(made)
    next(ending)
    yield made
    next(ending, None)


def test_what_stands_behind_a_damaged_entry_and_in_other_queues_is_read_on(node):
    node.start()
    with Producer(node.endpoint) as producer:
        sent = producer.send_batch(Message(TOPIC, b"%d" % n, queue_id=n % 2) for n in range(2 * COUNT))
    assert all(result.acknowledged for result in sent)
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), 60.0, "everything is dispatched")
    with (node.store.consumequeue / TOPIC / "1" / f"{0:020d}").open("r+b") as file:
        file.seek(DAMAGED * 20)
        file.write((1 << 40).to_bytes(8, "big"))
    found: list[int] = []
    told: list[QueueDamaged] = []
    with Consumer(ipc_endpoint(node.runtime, "serve"), TOPIC, suspend_ms=100) as consumer:

        def all_read() -> bool:
            try:
                found.extend(int(message.body) for message in consumer.poll(100))
            except QueueDamaged as error:
                told.append(error)
                consumer.seek(error.queue_id, error.offset + 1)
            return len(found) >= 2 * COUNT - 1

        await_(all_read, 60.0, "everything but the damaged one is read")
    assert sorted(found) == [n for n in range(2 * COUNT) if n != 2 * DAMAGED + 1]
    assert {(error.topic, error.queue_id, error.offset) for error in told} == {(TOPIC, 1, DAMAGED)}
    assert node.stop()
