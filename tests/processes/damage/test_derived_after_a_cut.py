"""After a power cut queues and index whose mark lies segments behind the log are made whole, whatever is gone."""

import json
import random
import shutil
from pathlib import Path

import pytest

from tests.processes.nodes import SEGMENT, TestNode, ended
from tests.processes.readable import read_all
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.files.index_file import HEADER_SIZE
from towline.limits import KIB
from towline.link.endpoints import ipc_endpoint
from towline.log.state.durable_file import DurableFile
from towline.runtime.positions import Position

TOPIC = "orders"
COUNT = 300  # before a clean stop, and as many after it
SIZE = 24 * KIB  # together more than a segment


@pytest.fixture
def node(tmp_path):
    settings = {"flush_interval_consume_queue": 600_000}  # after its first round the mark stands still
    made = TestNode("master", tmp_path / "master", ha_listen_port=0, **settings)
    ending = ended(made)
    next(ending)
    yield made
    next(ending, None)


def fill(node: TestNode, first: int, count: int = COUNT) -> int:
    """The log's end, up to which it is called durable."""
    with Producer(node.endpoint) as producer:
        results = producer.send_batch(
            Message(TOPIC, b"%06d" % number + random.randbytes(SIZE), queue_id=number % 2, keys=[f"k{number}"])
            for number in range(first, first + count)
        )
    assert all(result.acknowledged for result in results)
    end = node.at(Position.APPENDED)
    await_(lambda: node.at(Position.DISPATCHED) == end, 60.0, "everything is dispatched")
    await_(lambda: synced(node.store.root)[0] == end, 60.0, "the whole log is called durable")
    return end


def queue_gone(node: TestNode, header: bytes) -> None:
    shutil.rmtree(node.store.consumequeue / TOPIC / "1")


def index_gone(node: TestNode, header: bytes) -> None:
    for path in node.store.index.iterdir():
        path.unlink()


def header_page_old(node: TestNode, header: bytes) -> None:
    (path,) = node.store.index.iterdir()
    with path.open("r+b") as file:
        file.write(header)


def header_of(node: TestNode) -> bytes:
    (path,) = node.store.index.iterdir()
    return path.read_bytes()[:HEADER_SIZE]


def synced(root: Path) -> tuple[int, int]:
    file = DurableFile(root)
    state = file.load()
    assert state is not None
    return state.flushed, state.queues_durable


@pytest.mark.timeout(300)
@pytest.mark.parametrize("damage", [queue_gone, index_gone, header_page_old], ids=lambda damage: damage.__name__)
def test_what_is_gone_of_queues_and_index_is_derived_again(node, damage):
    node.start()
    fill(node, 0)
    header = header_of(node)
    fill(node, COUNT)
    assert node.stop()
    node.start()
    fill(node, 2 * COUNT, 1)
    _, mark = synced(node.store.root)
    end = fill(node, 2 * COUNT + 1, COUNT - 1)
    assert end - end % SEGMENT > mark, "a border lies between"
    assert synced(node.store.root) == (end, mark)
    node.kill_all(seed=7)
    shutil.rmtree(node.runtime)
    damage(node, header)
    node.start()
    facts = json.loads(node.store.recovery.read_text())
    assert not facts["resumed"]
    assert any("derived again from 0 on" in note or "ends early" in note for note in facts["notes"]), facts["notes"]
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.INDEXED) == end, 60.0, "all is dispatched again")
    read = read_all(node, TOPIC, least=3 * COUNT)
    assert sorted(int(message.body[:6]) for message in read) == list(range(3 * COUNT))
    with AdminClient(ipc_endpoint(node.runtime, "serve"), timeout_ms=60_000) as admin:
        for number in (0, 1, COUNT - 1, COUNT, 2 * COUNT - 1, 2 * COUNT, 3 * COUNT - 1):
            (found,) = admin.by_key(TOPIC, f"k{number}")
            assert found.body[:6] == b"%06d" % number
    assert node.stop()
