"""What a node counts of puts that had to wait, and of those that it refused, as `towline stats` and its log tell."""

import time
from pathlib import Path

import pytest

from tests.processes.nodes import TestNode, check_nothing_is_left, ended
from tests.processes.ring_client import RawRing
from tests.processes.stopping import stopped
from tests.processes.waiting import await_
from tests.processes.wire import records_of
from tests.processes.without_rings import without_rings
from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.wire.refusals import Cause
from towline.node.process.context import open_node
from towline.node.report import statistics
from towline.runtime.store_stats import SLOW_PUT_MS

TOPIC = "counted"
HELD_S = 0.8
DEADLINE_S = 30.0
TOLD = f"more than {SLOW_PUT_MS} ms from their arrival to their answer"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    made = TestNode("master", tmp_path_factory.mktemp("counted"), ha_listen_port=0)
    ending = ended(made)
    next(ending)
    made.start()
    with Producer(made.endpoint) as producer:
        assert producer.send(Message(TOPIC, b"first")).acknowledged
    yield made
    assert made.stop()
    check_nothing_is_left(made)
    next(ending, None)


def stats(node: TestNode) -> dict:
    """What `towline stats` shows."""
    opened = open_node(node.store.root)
    try:
        found = statistics.take(opened)
        return statistics.between(found, found, top=10)
    finally:
        opened.positions.close()


def hold() -> None:
    """Until a put that waits since before has waited longer than is slow."""
    began = time.monotonic()
    await_(lambda: time.monotonic() - began > HELD_S, DEADLINE_S, "time passes")


def tells(node: TestNode, times: int) -> bool:
    return Path(node.store.node_log).read_text().count(TOLD) >= times


def test_a_put_that_had_to_wait_is_counted_as_slow_and_told_wherever_it_came_from(node):
    before = stats(node)["put"]
    with without_rings(), Producer(node.endpoint) as producer:
        assert producer.send(Message(TOPIC, b"before", queue_id=0)).acknowledged
        with stopped(node.pids()["flush"]):
            sent = producer.send_async(Message(TOPIC, b"over the socket", queue_id=0))
            stored = before["messages"] + 2
            await_(lambda: stats(node)["put"]["messages"] == stored, DEADLINE_S, "it is stored")
            hold()
        assert sent.result(DEADLINE_S).acknowledged
        assert producer.statistics.through_ring == 0
    await_(lambda: stats(node)["put"]["slow"] > before["slow"], DEADLINE_S, "it is counted, behind its answer")
    after_socket = stats(node)["put"]
    assert after_socket["slow"] == before["slow"] + 1
    assert after_socket["time_ms"]["max"] > SLOW_PUT_MS
    await_(lambda: tells(node, 1), DEADLINE_S, "the log tells of a slow put")

    raw = RawRing(node.endpoint)
    try:
        request = records_of(TOPIC.encode(), 1)
        for number, duty in enumerate(("put", "flush")):
            slow = stats(node)["put"]["slow"]
            with stopped(node.pids()[duty]):
                assert raw.ring.send(raw.head(request, number), request.data)
                hold()
            assert raw.answer().status == 0
            await_(lambda: stats(node)["put"]["slow"] > slow, DEADLINE_S, f"a put that waited for {duty} is slow")  # noqa: B023
            assert stats(node)["put"]["slow"] == slow + 1, duty
    finally:
        raw.close()
    await_(lambda: tells(node, 2), DEADLINE_S, "the log tells of those in the ring")
    found = stats(node)["put"]
    assert sum(row["requests"] for row in found["time_ms"]["buckets"] if row["from_ms"] >= SLOW_PUT_MS) >= 3
    assert found["uncounted"] == 0


def test_what_was_refused_is_counted_by_cause_with_what_to_do(node):
    raw = RawRing(node.endpoint)
    try:
        assert raw.put(records_of(b"nobody-has-made-this", 1)).status != 0
    finally:
        raw.close()
    found = stats(node)["refused"]
    assert found["causes"] == [{"cause": "request", "count": 1, "remedy": Cause.REQUEST.remedy}]
    assert found["total"] == 1
