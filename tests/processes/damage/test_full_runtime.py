"""A runtime directory without room, as in a container of 64 MiB: puts are refused by name, and no process is killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.disks import small_memory, take
from tests.processes.nodes import TestNode, check_nothing_is_left, ending
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import RuntimeDirectoryFull
from towline.format.wire.status import PutStatus
from towline.limits import MIB
from towline.link.endpoints import ipc_endpoint
from towline.runtime.positions import Flag, Position

SIZE = 4 * MIB
DEADLINE_S = 60.0
QUEUES = 1000  # their ends take several times what is reserved at once


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with small_memory(SIZE) as mounted:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(mounted))
        yield mounted


@pytest.fixture
def node(tmp_path: Path, memory: Path) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path / "store", ha_listen_port=0)
    with ending(made):
        yield made


def dispatched(node: TestNode) -> bool:
    return node.at(Position.DISPATCHED) == node.at(Position.APPENDED)


def messages(node: TestNode, queue_id: int) -> int:
    found = 0
    with Consumer(
        ipc_endpoint(node.runtime, "serve"), "wide", queues=[queue_id], start="first", suspend_ms=0
    ) as reader:
        while more := reader.poll(100):
            found += len(more)
    return found


def test_new_queues_wait_for_room_and_no_put_is_stored_by_a_process_that_dies_of_it(
    node: TestNode, memory: Path
) -> None:
    node.start()
    before = node.pids()
    with AdminClient(node.endpoint, timeout_ms=60_000) as admin:
        admin.create_topic("wide", QUEUES)
    client = WireClient(node.endpoint)
    assert client.put(records_of(b"wide", 1, queue_id=0)).status == PutStatus.PUT_OK
    await_(lambda: dispatched(node), DEADLINE_S, "the first queue is there")
    take(memory / "taken")
    stored, refused = [0], None
    for queue_id in range(1, QUEUES):
        answer = client.put(records_of(b"wide", 1, queue_id=queue_id))
        if answer.status != PutStatus.PUT_OK:
            refused = answer
            break
        stored.append(queue_id)
        await_(lambda: dispatched(node) or Flag.RUNTIME_FULL in node.positions.flags, DEADLINE_S, "reput goes on")
    assert refused is not None, "there was room for everything: nothing was tested"
    assert refused.status == PutStatus.SERVICE_NOT_AVAILABLE
    assert "cause=runtime_full" in refused.sentence
    assert node.pids() == before, "a process was killed"
    assert messages(node, 0) == 1, "what was there is read on"
    (memory / "taken").unlink()
    await_(lambda: client.put(records_of(b"wide", 1, queue_id=0)).status == PutStatus.PUT_OK, DEADLINE_S, "puts go on")
    await_(lambda: dispatched(node), DEADLINE_S, "the last queue is there too")
    assert all(messages(node, queue_id) >= 1 for queue_id in stored[-3:])
    client.close()
    assert node.pids() == before
    assert node.stop()
    check_nothing_is_left(node)


def test_a_start_without_room_is_refused_by_name_and_the_next_one_with_room_is_not(
    node: TestNode, memory: Path
) -> None:
    node.start()
    with Producer(node.endpoint) as producer:
        assert producer.send(Message("orders", b"kept")).acknowledged
    node.stop()
    take(memory / "taken")
    with pytest.raises(RuntimeDirectoryFull, match="shm-size"):
        node.start()
    (memory / "taken").unlink()
    node.start()
    with Consumer(ipc_endpoint(node.runtime, "serve"), "orders", start="first") as reader:
        assert [message.body for message in reader.poll(10_000)] == [b"kept"]
