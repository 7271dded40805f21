"""A node goes on where the one before left off, clean or killed; what was not synced then is synced later."""

import json
import os
import signal

import pytest

from tests.processes.nodes import POOLED, TestNode, check_nothing_is_left, ended
from tests.processes.stored import Stored
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.format.wire.status import PutStatus
from towline.runtime.positions import Position

TOPIC = b"orders"
ASYNC = {"flush_disk_type": "ASYNC_FLUSH", "ha_listen_port": 0}


@pytest.fixture(params=[ASYNC, ASYNC | POOLED], ids=["segments", "pool"])
def node(tmp_path, request):
    made = TestNode("master", tmp_path / "master", **request.param)
    ending = ended(made)
    next(ending)
    yield made
    next(ending, None)


def put(node, count):
    client = WireClient(node.endpoint)
    client.create_topic(TOPIC.decode(), 4)
    statuses = {client.put(records_of(TOPIC, 40, size=500)).status for _ in range(count)}
    client.close()
    return statuses


def recovery_of(node):
    return json.loads(node.store.recovery.read_text())


def held(node):
    """Flush stands still: nothing is synced, committed or marked from here on."""
    os.kill(node.pids()["flush"], signal.SIGSTOP)


def test_unsynced_messages_outlive_kill_after_kill(node):
    node.start()
    assert put(node, 2) == {PutStatus.PUT_OK}
    await_(lambda: node.at(Position.DISPATCHED) > 0, 60.0, "a queue holds a record, by which a start goes")
    for number in range(3):
        held(node)
        assert put(node, 5) == {PutStatus.PUT_OK}
        end = node.at(Position.APPENDED)
        node.kill_all(seed=number)
        node.start()
        found = recovery_of(node)
        assert (found["resumed"], found["clean"], found["notes"]) == (True, False, [])
        assert (found["end"], node.at(Position.APPENDED), found["cut_bytes"]) == (end, end, 0)
    await_(lambda: node.at(Position.FLUSHED) == end, 60.0, "flush syncs what recovery left to it")
    assert node.stop()
    check_nothing_is_left(node)
    stored = Stored(node.store, end)
    assert stored.check_queues() == 17 * 40
    stored.check_zeros_behind()
    stored.close()


def test_a_clean_store_is_not_read(node):
    node.start()
    assert put(node, 5) == {PutStatus.PUT_OK}
    assert node.stop()
    assert node.store.known.exists()
    node.start()
    found = recovery_of(node)
    assert (found["resumed"], found["clean"], found["notes"]) == (True, True, [])
    assert not node.store.known.exists()
    assert put(node, 1) == {PutStatus.PUT_OK}
    assert node.stop()
