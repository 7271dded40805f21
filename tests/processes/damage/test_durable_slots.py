"""The file `durable` of a node: its two slots share no sector, and one of an older version is taken over at a start."""

import json
import shutil

import pytest

from tests.processes.nodes import TestNode, ended
from tests.processes.readable import read_all
from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.files import durable_slots
from towline.format.files.durable_slots import OLD_SIZE, SIZE, SLOT_COUNT, SLOT_SIZE
from towline.limits import PAGE
from towline.runtime.positions import Position

TOPIC = "orders"


@pytest.fixture
def node(tmp_path):
    made = TestNode("master", tmp_path / "master")
    ending = ended(made)
    next(ending)
    yield made
    next(ending, None)


def put_and_lose_power(node: TestNode) -> int:
    """One more acknowledged message, and the log's end behind it."""
    with Producer(node.endpoint) as producer:
        assert producer.send(Message(TOPIC, b"of a store", queue_id=0)).acknowledged
    end = node.at(Position.APPENDED)
    node.kill_all(seed=3)
    shutil.rmtree(node.runtime)
    return end


def test_a_sector_that_cannot_be_read_any_more_costs_one_slot(node):
    node.start()
    for _ in range(2):  # starts write it too: both slots hold a state
        end = put_and_lose_power(node)
        node.start()
    node.kill_all(seed=4)
    shutil.rmtree(node.runtime)
    sound = node.store.durable.read_bytes()
    assert len(sound) == SIZE
    assert all(any(sound[at : at + SLOT_SIZE]) for at in (0, SLOT_SIZE))
    for at in range(0, SIZE, PAGE):
        node.store.durable.write_bytes(sound[:at] + bytes(PAGE) + sound[at + PAGE :])
        node.start()
        assert json.loads(node.store.recovery.read_text())["end"] == end
        node.kill_all(seed=5)
        shutil.rmtree(node.runtime)


def test_a_file_with_both_slots_in_one_sector_is_written_anew_by_the_first_start(node):
    node.start()
    end = put_and_lose_power(node)
    slots = node.store.durable.read_bytes()
    old = b"".join(slots[at : at + OLD_SIZE // SLOT_COUNT] for at in (0, SLOT_SIZE))
    node.store.durable.write_bytes(old)
    _, before = durable_slots.decode(old, "durable")
    node.start()
    written = node.store.durable.read_bytes()
    assert len(written) == SIZE
    assert durable_slots.decode(written, "durable")[1].flushed == end >= before.flushed
    assert [message.body for message in read_all(node, TOPIC)] == [b"of a store"]
    assert node.stop()
