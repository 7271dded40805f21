"""The files of a deleted topic go with its last records, and one that is made again goes on with the numbers."""

from collections.abc import Iterator

import pytest

from tests.processes.aging import CLEANED_AT_ONCE, clean, fill
from tests.processes.nodes import TestNode, check_nothing_is_left, ended
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.link.endpoints import ipc_endpoint

DEADLINE_S = 60.0
COUNT = 20


@pytest.fixture
def node(tmp_path) -> Iterator[TestNode]:
    ext = {"enable_consume_queue_ext": True}
    made = TestNode("master", tmp_path, ha_listen_port=0, **CLEANED_AT_ONCE, **ext)
    cleaning = ended(made)
    next(cleaning)
    made.start()
    yield made
    next(cleaning, None)


def put(node: TestNode, count: int) -> list[int]:
    with Producer(node.endpoint) as producer:
        return [producer.send(Message("gone", b"%d" % number, queue_id=0)).queue_offset for number in range(count)]


@pytest.mark.parametrize("killed", [False, True])
def test_the_files_go_and_the_numbers_go_on(node: TestNode, killed: bool) -> None:
    serve = ipc_endpoint(node.runtime, "serve")
    with AdminClient(node.endpoint) as admin:
        admin.create_topic("gone", 1)
        assert put(node, COUNT) == list(range(COUNT))
        with Consumer(serve, "gone", start="first") as consumer:
            await_(lambda: consumer.poll(100), DEADLINE_S, "serve has the files open")
        admin.delete_topic("gone")
        fill(node)
        directories = [root / "gone" / "0" for root in (node.store.consumequeue, node.store.consumequeue_ext)]
        assert all(directory.exists() for directory in directories)
        clean(node, 2)
        await_(lambda: not any(directory.exists() for directory in directories), DEADLINE_S, "nothing of it is left")
        if killed:
            node.kill_all(seed=3)
            node.start()
    with AdminClient(node.endpoint) as admin:
        admin.create_topic("gone", 1)
    offsets = put(node, 3)
    assert offsets == [COUNT, COUNT + 1, COUNT + 2]
    with Consumer(serve, "gone", start="first") as consumer:
        found = []
        await_(lambda: found.extend(consumer.poll(100)) or len(found) >= 3, DEADLINE_S, "what is new is read")
    assert [message.queue_offset for message in found] == offsets
    assert node.stop()
    check_nothing_is_left(node)
