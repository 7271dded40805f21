"""kill -9 of reput: where a node without index gathers a backlog, and where one with ConsumeQueueExt writes units."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.faults.noting import note
from tests.processes.arming import EXTENSION_STEPS, GATHER_STEPS, Arming
from tests.processes.damage.test_verify_repair import towline
from tests.processes.nodes import TestNode, ending
from tests.processes.readers import test_bitmaps
from tests.processes.stopping import stopped
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.message import Message
from towline.client.producer import Producer
from towline.limits import KIB, MIB
from towline.runtime.positions import Position

QUEUES: Final = 1100  # more than 1,024: a backlog of more than 16 MiB is gathered
BODY: Final = 16 * KIB
BACKLOG: Final = 18 * MIB // BODY
TOPIC: Final = "wide"
DEADLINE_S: Final = 60.0


@pytest.fixture
def arming(tmp_path: Path) -> Iterator[Arming]:
    """Nodes that are started within the test look for its failpoints."""
    made = Arming(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        made.announce(patch)
        yield made


def put(node: TestNode, first: int, count: int) -> None:
    body = random.Random(first).randbytes(BODY)  # a client compresses anything else
    numbers = range(first, first + count)
    with Producer(node.endpoint) as producer:
        results = producer.send_batch(Message(TOPIC, body, queue_id=number % QUEUES) for number in numbers)
    assert all(result.acknowledged for result in results)


def await_killed_and_done(node: TestNode, arming: Arming, before: dict[str, int]) -> None:
    """Reput has died at the step that is armed, and the next one has dispatched everything."""
    arming.await_fired(DEADLINE_S)
    node.await_restarted("reput", before)
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), DEADLINE_S, "everything is dispatched")


def check_sound(node: TestNode) -> None:
    """Every entry is the log's, and nothing else stands in a queue."""
    assert node.stop()
    status, found = towline("store", "verify", "--store", node.store.root)
    assert (status, found["findings"]) == (0, [])


def test_a_kill_at_any_step_of_a_gathered_backlog_leaves_queues_that_are_whole(tmp_path: Path, arming: Arming) -> None:
    node = TestNode("master", tmp_path / "store", ha_listen_port=0, message_index_enable=False)
    with ending(node):
        node.start()
        with AdminClient(node.endpoint) as admin:
            admin.create_topic(TOPIC, QUEUES)
        put(node, 0, QUEUES)
        await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), DEADLINE_S, "all queues are there")
        for number, step in enumerate(GATHER_STEPS):
            before = node.pids()
            with stopped(before["reput"]):
                put(node, QUEUES + number * BACKLOG, BACKLOG)
                arming.arm(f"{step}=kill@1")
            await_killed_and_done(node, arming, before)
        check_sound(node)
        note(len(GATHER_STEPS))


def test_a_kill_between_units_and_entries_leaves_units_that_filters_can_believe(tmp_path: Path, arming: Arming) -> None:
    switched_on = dict.fromkeys(("property_filter", "consume_queue_ext", "calc_filter_bit_map"), True)
    settings = {f"enable_{name}": value for name, value in switched_on.items()}
    node = TestNode("master", tmp_path / "store", ha_listen_port=0, **settings)
    count = 300
    with ending(node):
        node.start()
        expression, passes = test_bitmaps.FIRST
        test_bitmaps.put(node, 0, count)
        test_bitmaps.born(node, expression)
        for number, step in enumerate(EXTENSION_STEPS, start=1):
            before = node.pids()
            with stopped(before["reput"]):
                test_bitmaps.put(node, number * count, count)
                arming.arm(f"{step}=kill@1")
            await_killed_and_done(node, arming, before)
        test_bitmaps.check_read(node, expression, passes, (len(EXTENSION_STEPS) + 1) * count)
        check_sound(node)
        note(len(EXTENSION_STEPS))
