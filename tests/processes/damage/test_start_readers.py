"""A start that derives queues anew, with reput behind: readers stay where they were."""

import contextlib
import subprocess
import sys
from pathlib import Path

from tests.processes.nodes import TestNode, ending
from tests.processes.pulling import PullLink, serve_of
from tests.processes.stopping import stopped
from tests.processes.waiting import Watch, await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import NoAnswer
from towline.node.process.context import runtime_of
from towline.runtime.positions import Position

DEADLINE_S = 60.0
KEPT, COUNT = 500, 3_000
TOPIC = "t"
ROOT = Path(__file__).resolve().parents[3]


def fill(node: TestNode, first: int, count: int) -> None:
    with Producer(node.endpoint) as producer:
        producer.send_batch(Message(TOPIC, b"%d" % number, queue_id=0) for number in range(first, first + count))
    end = node.at(Position.APPENDED)
    await_(lambda: node.at(Position.DISPATCHED) >= end, DEADLINE_S, "all is dispatched")


def lose_derived_queues(node: TestNode) -> None:
    """As a machine does that goes down: what only shared memory held of the queues is derived anew."""
    node.kill_all(1)
    for name in ("positions", "queue_ends"):
        (runtime_of(node.store.root).root / name).unlink()


def test_readers_stay_where_they_were_until_the_queues_are_whole_again(tmp_path: Path) -> None:
    node = TestNode("master", tmp_path, ha_listen_port=0, flush_disk_type="ASYNC_FLUSH")
    reput = None
    with ending(node):
        node.start()
        with AdminClient(node.endpoint) as admin:
            admin.create_topic(TOPIC, 1)
        fill(node, 0, KEPT)
        with Consumer(serve_of(node), TOPIC, suspend_ms=200, timeout_ms=500) as consumer:
            got: list[bytes] = []

            def poll() -> None:
                with contextlib.suppress(NoAnswer):
                    got.extend(message.body for message in consumer.poll(100))

            with stopped(node.pids()["flush"]):
                fill(node, KEPT, COUNT - KEPT)
                await_(lambda: poll() or len(got) == COUNT, DEADLINE_S, "everything is read")
                lose_derived_queues(node)
            node.start("--without", "reput")
            assert node.at(Position.DISPATCHED) < node.at(Position.APPENDED)
            with PullLink(node) as link:
                assert link.pull(TOPIC, 0, COUNT).following == COUNT
            for _ in range(10):
                poll()
            assert consumer.position() == {0: COUNT}
            reput = subprocess.Popen([sys.executable, "-m", "towline.reput", "--store", str(node.store.root)], cwd=ROOT)
            try:
                fill(node, COUNT, 1)
                await_(lambda: poll() or len(got) > COUNT, DEADLINE_S, "the new message")
                assert got == [b"%d" % number for number in range(COUNT + 1)]
                assert not consumer.moved
                with AdminClient(serve_of(node)) as admin:
                    assert admin.bounds(TOPIC) == {0: (0, COUNT + 1)}
            finally:
                watch = Watch([reput.pid])
                reput.terminate()
                watch.await_gone(60.0)
                reput.wait()
