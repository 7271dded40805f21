"""Streams over a running node, through its files and through its broker: what comes, and what a restart changes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes.nodes import TestNode, ending, free_port
from tests.processes.waiting import await_
from towline.client.message import Message
from towline.client.producer import Producer
from towline.runtime.positions import Position
from towline.spark.errors import MessagesGone

from .reads import Rows
from .streams import Query, stream

WAIT_S = 60.0
WAYS = ("scan", "queue", "endpoint")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path / "master", ha_listen_port=free_port(), default_topic_queue_nums=3)
    with ending(made):
        made.start()
        yield made
        if made.launched is not None:
            made.stop()


def query(node: TestNode, way: str, **options: str) -> Query:
    if way == "endpoint":
        where = {"endpoint": node.endpoint.replace("put", "serve")}
    else:
        where = {"path": str(node.store.root), "readMode": way}
    return Query(stream(None, **where, **options))


def put(node: TestNode, first: int, end: int, topic: str = "t") -> None:
    with Producer(node.endpoint) as producer:
        producer.send_batch(Message(topic, f"{number}".encode()) for number in range(first, end))
    await_(lambda: node.now(Position.DISPATCHED) == node.now(Position.APPENDED), WAIT_S, "everything is dispatched")


@pytest.mark.parametrize("way", ["scan", "queue"])
def test_a_log_that_ends_before_the_checkpoint_is_told(node: TestNode, way: str) -> None:
    """As after a power cut: other messages would come under the numbers that the stream has read."""
    put(node, 0, 10)
    found = query(node, way, startingOffsets="earliest")
    assert len(found.trigger() or []) == 10
    found.log[-1] = read_on(found.log[-1])
    with pytest.raises(MessagesGone, match="taken back"):
        found.trigger()
    allowed = found.restart(query(node, way, failOnDataLoss="false").reader)
    assert allowed.trigger() is None


def read_on(offset: Any) -> Any:
    """The offset as if 1000 more had been read."""
    return {key: read_on(value) for key, value in offset.items()} if isinstance(offset, dict) else further(offset)


def further(value: Any) -> Any:
    return value + 1000 if isinstance(value, int) and not isinstance(value, bool) and value != 1 else value


def joined(found: Query) -> Rows:
    """Everything that is left, batch by batch."""
    rows = []
    while (batch := found.trigger()) is not None:
        rows += batch
    return rows


def numbers(rows: Rows | None) -> list[int]:
    return sorted(int(row["body"]) for row in rows or [])


def test_streams_follow_a_node_and_go_on_when_it_was_restarted(node: TestNode) -> None:
    put(node, 0, 10)
    files, broker = [query(node, "scan"), query(node, "queue")], query(node, "endpoint")
    everyone = [*files, broker]
    assert [found.trigger() for found in everyone] == [None] * 3, "a stream begins at the end"
    put(node, 10, 40)
    assert [numbers(found.trigger()) for found in everyone] == [list(range(10, 40))] * 3
    assert [found.trigger() for found in everyone] == [None] * 3
    node.stop()
    assert [found.trigger() for found in files] == [None] * 2
    node.start()
    put(node, 40, 50)
    assert [numbers(found.trigger()) for found in everyone] == [list(range(40, 50))] * 3
    node.kill_all(3)
    assert [found.trigger() for found in files] == [None] * 2
    node.start()
    put(node, 50, 60)
    put(node, 0, 5, "new")
    expected = [0, 1, 2, 3, 4, *range(50, 60)]
    assert [numbers(found.trigger()) for found in everyone] == [expected] * 3
    for found, way in zip(everyone, WAYS, strict=True):
        assert numbers(found.restart(query(node, way).reader).replay()) == expected


def test_a_limit_of_bytes_is_that_of_the_files(node: TestNode) -> None:
    put(node, 0, 100)
    (size,) = {row["size"] for row in query(node, "queue", startingOffsets="earliest").trigger()[10:99]}
    for limit in (1, 7 * size, 25 * size + 5, 10**9):
        lengths = []
        for way in ("queue", "endpoint"):
            found = query(node, way, startingOffsets="earliest", maxBytesPerTrigger=str(limit))
            found.reader.prepareForTriggerAvailableNow()
            batches = []
            while (rows := found.trigger()) is not None:
                batches.append(rows)
                assert sum(row["size"] for row in rows) <= limit or len(rows) == 1
            assert numbers([row for rows in batches for row in rows]) == list(range(100))
            lengths.append([len(rows) for rows in batches])
        assert lengths[0] == lengths[1]
        assert (len(lengths[0]) > 3) == (limit < 26 * size)


def test_limits_are_kept_and_available_now_ends_where_it_began(node: TestNode) -> None:
    put(node, 0, 100)
    everyone = [query(node, way, startingOffsets="earliest", maxMessagesPerTrigger="30") for way in WAYS]
    for found in everyone:
        found.reader.prepareForTriggerAvailableNow()
    put(node, 100, 120)
    for found in everyone:
        batches = []
        while (rows := found.trigger()) is not None:
            batches.append(rows)
        assert [len(rows) for rows in batches] == [30, 30, 30, 10]
        assert numbers([row for rows in batches for row in rows]) == list(range(100))
    # A checkpoint goes on through the files and through the broker alike.
    found = everyone[WAYS.index("endpoint")]
    put(node, 120, 133)
    other = found.restart(query(node, "queue").reader)
    assert numbers(joined(other)) == list(range(100, 133))
