"""Many queues on a node whose processes may open few files: puts, dispatching, reads and a start keep to the limit."""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.processes.damage.test_verify_repair import towline
from tests.processes.nodes import TestNode, ending
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.limits import MIB
from towline.runtime.positions import Position

LIMIT: Final = 1024  # descriptors of a process, where nobody raised it
TOPICS: Final = 10
ROUNDS: Final = 3
DEADLINE_S: Final = 300.0
SPARE: Final = 8


@contextlib.contextmanager
def at_most(descriptors: int) -> Iterator[None]:
    """Processes that are started within the block may have so many open at once."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def check_descriptors(node: TestNode) -> None:
    """Those of reput and serve leave room below the limit, with which they were started; nobody complained."""
    for label in ("reput", "serve"):
        pid = node.pids()[label]
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] == LIMIT
        assert len(list(Path(f"/proc/{pid}/fd").iterdir())) + SPARE < LIMIT, label
    assert "Too many open files" not in node.store.node_log.read_text()


def put(node: TestNode, queues: int, number: int) -> None:
    """A message for each queue."""
    with Producer(node.endpoint) as producer:
        messages = (Message(f"t{t}", b"%d" % number, queue_id=q) for t in range(TOPICS) for q in range(queues))
        assert all(result.acknowledged for result in producer.send_batch(messages))
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), DEADLINE_S, "everything is dispatched")


def check_read(node: TestNode, queues: int, rounds: int) -> None:
    """Each queue gives each round's message once, and in order."""
    for number in range(TOPICS):
        found = read(node, f"t{number}", queues * rounds)
        assert found == {queue: [b"%d" % number for number in range(rounds)] for queue in range(queues)}


def read(node: TestNode, topic: str, count: int) -> dict[int, list[bytes]]:
    """The bodies of so many messages, by queue."""
    found: dict[int, list[bytes]] = {}
    with Consumer(f"ipc://{node.runtime / 'serve.sock'}", topic, start="first") as consumer:

        def all_read() -> bool:
            for message in consumer.poll(1000):
                found.setdefault(message.queue_id, []).append(message.body)
            return sum(map(len, found.values())) >= count

        await_(all_read, DEADLINE_S, f"{count} messages of {topic}")
    return found


@pytest.mark.parametrize("queues", [100, pytest.param(1000, marks=pytest.mark.slow)], ids=["1,000", "10,000"])
def test_so_many_queues_are_put_read_and_started_within_the_default_limit(tmp_path: Path, queues: int) -> None:
    """`queues` of each topic; reput keeps half as many files open as it may, which is less than all."""
    settings = {"flush_disk_type": "ASYNC_FLUSH", "mapped_file_size_commit_log": 64 * MIB}
    node = TestNode("master", tmp_path / "store", ha_listen_port=0, **settings)
    with ending(node):
        with at_most(LIMIT):
            node.start()
        with AdminClient(node.endpoint) as admin:
            for number in range(TOPICS):
                admin.create_topic(f"t{number}", queues)
        for number in range(ROUNDS):
            put(node, queues, number)
            check_descriptors(node)
        check_read(node, queues, ROUNDS)
        check_descriptors(node)
        assert node.stop()
        with at_most(LIMIT):
            node.start()
        put(node, queues, ROUNDS)
        check_read(node, queues, ROUNDS + 1)
        check_descriptors(node)
        assert node.stop()
    status, found = towline("store", "verify", "--store", node.store.root)
    assert (status, found["findings"]) == (0, [])
