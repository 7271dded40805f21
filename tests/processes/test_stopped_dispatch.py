"""A record that is damaged under a running node: reput stops before it, status says where, puts are refused."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from towline.client.errors import PutRefused
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import CorruptLog
from towline.format.record import SIZE_MIN
from towline.node.status import read_status
from towline.runtime.positions import Position

from .nodes import SEGMENT, TestNode, ending
from .test_verify_repair import COUNT, TOPIC, fill, read, towline
from .waiting import await_

DAMAGED = COUNT + 7  # the record whose length word is flipped: of the second fill


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path / "store", listen_port=0, ha_listen_port=0)
    with ending(made):
        yield made


def put_behind(node: TestNode, count: int) -> list[int]:
    """Log offsets of messages that reput has not seen: it stands still meanwhile."""
    with Producer(node.endpoint) as producer:
        bodies = (b"%06d" % number * 100 for number in range(COUNT, COUNT + count))
        results = producer.send_batch(Message(TOPIC, body) for body in bodies)
    assert all(result.acknowledged for result in results)
    return sorted(result.physical_offset for result in results)


def test_a_flipped_length_word_stops_dispatching_and_puts_until_the_store_is_repaired(node: TestNode) -> None:
    node.start()
    fill(node)
    reput = node.pids()["reput"]
    os.kill(reput, signal.SIGSTOP)
    try:
        at = put_behind(node, 20)[7]
        with (node.store.commitlog / f"{at - at % SEGMENT:020d}").open("r+b") as file:
            file.seek(at % SEGMENT)
            word = int.from_bytes(file.read(4), "big") ^ 0x7FFF_FFFF
            file.seek(at % SEGMENT)
            file.write(word.to_bytes(4, "big"))
    finally:
        os.kill(reput, signal.SIGCONT)
    await_(lambda: node.at(Position.DISPATCH_STOPPED) > 0, 20, "dispatching stops")
    assert node.at(Position.DISPATCHED) == at

    stopped = read_status(node.store.root)["dispatch_stopped"]
    assert stopped["offset"] == at
    assert (stopped["segment"], stopped["byte"]) == (
        str(node.store.commitlog / f"{at - at % SEGMENT:020d}"),
        at % SEGMENT,
    )
    assert stopped["rule"] == "SIZE_PAST_END"
    assert word > SIZE_MIN
    shown = towline("master", "status", "--store", node.store.root)[1]
    assert shown["dispatch_stopped"] == stopped
    assert "LOGIC_QUEUE_ERROR" in shown["flags"]
    with Producer(node.endpoint) as producer, pytest.raises(PutRefused, match="dispatch"):
        producer.send(Message(TOPIC, b"refused"))

    assert read(node, COUNT + 7) == set(range(COUNT + 7)), "what was dispatched before is still read"
    assert not node.stop()
    with pytest.raises(CorruptLog, match="towline store repair"):
        node.start()
    status, done = towline("store", "repair", "--store", node.store.root, "--yes", "--skip", at)
    assert status == 0, done
    node.start()
    assert read(node, COUNT + 19) == set(range(COUNT + 20)) - {DAMAGED}
    fill(node, COUNT + 20)
    assert read_status(node.store.root)["dispatch_stopped"] is None
    assert node.stop()
