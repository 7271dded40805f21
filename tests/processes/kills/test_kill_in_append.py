"""A put process that dies at any step of the one append: whatever way the request came, nothing acknowledged is lost.

The short form takes each step and each way with one node of three; the soak (`-m slow`) all of them together.
"""

import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import product

import pytest

from tests.faults.noting import note
from tests.processes.arming import Arming
from tests.processes.load import Load
from tests.processes.nodes import POOLED, TestNode, check_nothing_is_left, ended, free_port
from tests.processes.stored import Stored, check_load
from tests.processes.waiting import await_
from tests.processes.without_rings import without_rings
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.clock import SystemClock
from towline.link.endpoints import ipc_endpoint
from towline.runtime.positions import Position

COUNT = 1200
WINDOW = 120  # messages without an outcome: no more can be sent again by a kill
STARTED = 150  # acknowledgements before the failpoint is armed
DELAYED = 300
DELAY_MS = 1000
DEADLINE_S = 60.0
NODES = {
    "sync flush": {"flush_disk_type": "SYNC_FLUSH"},
    "async flush": {"flush_disk_type": "ASYNC_FLUSH"},
    "pool": POOLED | {"flush_disk_type": "ASYNC_FLUSH"},
}
STEPS = (
    "put.before_append",
    "put.in_append",
    "put.between_records",
    "put.after_copy",
    "put.before_publish",
    "put.in_publish",
    "put.after_publish",
    "put.before_answer",
    "put.ring_before_take",
    "put.ring_taken",
    "put.ring_before_answer",
    "put.ring_answered",
)
WAYS = {"ring": STEPS[:7] + STEPS[8:], "socket": STEPS[:8], "schedule": STEPS[:8]}
ALL = [(way, step, node) for way, steps in WAYS.items() for step, node in product(steps, NODES)]
SHORT = [case for number, case in enumerate(ALL) if number % len(NODES) == (number // len(NODES)) % len(NODES)]


class ArmedNode:
    """A node whose processes look for failpoints."""

    def __init__(self, node: TestNode, arming: Arming) -> None:
        self.node, self.arming = node, arming

    def kill_at(self, step: str, nth: int) -> None:
        """Put dies when it reaches the step for the `nth` time from now, and runs again."""
        before = self.node.pids()
        self.arming.arm(f"{step}=kill@{nth}")
        self.arming.await_fired()
        self.node.await_restarted("put", before)


@pytest.fixture(scope="module")
def armed_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ArmedNode]]:
    """Nodes by the words of NODES, each started when it is asked for."""
    made: dict[str, ArmedNode] = {}
    cleaning = []

    class Started(dict[str, ArmedNode]):
        def __missing__(self, kind: str) -> ArmedNode:
            root = tmp_path_factory.mktemp(kind.replace(" ", "-"))
            node = TestNode("master", root / "store", ha_listen_port=free_port(), **NODES[kind])
            cleaning.append(ended(node))
            next(cleaning[-1])
            arming = Arming(root)
            with pytest.MonkeyPatch.context() as patch:
                arming.announce(patch)
                node.start()
            made[kind] = self[kind] = ArmedNode(node, arming)
            return made[kind]

    try:
        yield Started()
        for each in made.values():
            assert each.node.stop()
            check_nothing_is_left(each.node)
    finally:
        for each in cleaning:
            next(each, None)


def check_log(node: TestNode, load: Load | None = None) -> int:
    """The log and its queues are whole and nothing stands behind the end. Returns the load's doubles."""
    end = node.at(Position.APPENDED)
    await_(lambda: node.at(Position.DISPATCHED) >= end, DEADLINE_S, "everything is dispatched")
    await_(lambda: node.at(Position.FLUSHED) >= end, DEADLINE_S, "everything is in the files")
    stored = Stored(node.store, end)
    try:
        stored.check_queues()
        stored.check_zeros_behind()
        return check_load(stored, load) if load is not None else 0
    finally:
        stored.close()


def kill_a_load(armed: ArmedNode, way: str, step: str, topic: str) -> None:
    load = Load(armed.node.endpoint, topic, zlib.crc32(topic.encode()), count=COUNT, window=WINDOW)
    load.hold(COUNT // 3)
    with without_rings() if way == "socket" else nullcontext():
        load.start()
        load.await_acked(STARTED)
        armed.kill_at(step, 3)
        load.finish()
    assert len(load.acked) == load.count
    doubled = check_log(armed.node, load)
    assert doubled <= WINDOW
    note(1, acknowledged=load.count, doubled=doubled, seed=load.seed)


def kill_deliveries(armed: ArmedNode, step: str, topic: str) -> None:
    """Messages with a time: what put stores when they are due comes from the schedule process."""
    at = SystemClock().now_ms() + DELAY_MS
    with Producer(armed.node.endpoint, linger_ms=1.0) as producer:
        messages = [Message(topic, b"%d" % number, deliver_at=at + number // 100) for number in range(DELAYED)]
        results = [future.result() for future in [producer.send_async(message) for message in messages]]
    assert SystemClock().now_ms() < at, "the machine was too slow: the failpoint would not be met by a delivery"
    armed.kill_at(step, 1)
    with Producer(armed.node.endpoint) as producer:  # what the kill made schedule send again comes before this one
        results.append(producer.send(Message(topic, b"last", deliver_at=SystemClock().now_ms() + DELAY_MS)))
    keys = {result.unique_key for result in results}
    found: Counter[str] = Counter()
    with Consumer(ipc_endpoint(armed.node.runtime, "serve"), topic, start="first", suspend_ms=50) as consumer:

        def complete() -> bool:
            found.update(message.unique_key for message in consumer.poll(100))
            return keys <= found.keys() and consumer.at_end

        await_(complete, DEADLINE_S, f"{len(keys)} messages of {topic}")
    assert found.keys() == keys
    assert found.total() - len(found) <= DELAYED
    check_log(armed.node)
    note(1, acknowledged=len(keys), doubled=found.total() - len(found))


def run(armed_nodes: dict[str, ArmedNode], way: str, step: str, kind: str) -> None:
    topic = f"{way}-{step.replace('.', '-')}-{kind.replace(' ', '-')}"
    armed = armed_nodes[kind]
    if way == "schedule":
        kill_deliveries(armed, step, topic)
    else:
        kill_a_load(armed, way, step, topic)


@pytest.mark.parametrize(("way", "step", "kind"), SHORT)
def test_a_kill_at_this_step_of_an_append_loses_nothing(
    armed_nodes: dict[str, ArmedNode], way: str, step: str, kind: str
) -> None:
    run(armed_nodes, way, step, kind)


@pytest.mark.slow
@pytest.mark.parametrize(("way", "step", "kind"), [case for case in ALL if case not in SHORT])
def test_a_kill_at_every_other_step_of_an_append_loses_nothing(
    armed_nodes: dict[str, ArmedNode], way: str, step: str, kind: str
) -> None:
    run(armed_nodes, way, step, kind)


def test_the_short_form_takes_each_way_with_each_of_its_steps_and_each_node() -> None:
    assert {(way, step) for way, step, _ in SHORT} == {(way, step) for way, steps in WAYS.items() for step in steps}
    assert {(way, kind) for way, _, kind in SHORT} == set(product(WAYS, NODES))
