"""Remoting and serve are killed while messages are popped: none is lost, and what was done is not done for nothing."""

import os
import signal
import time

from tests.processes.waiting import await_

from .conftest import RemotingNode
from .popping import Message, ack, offset, popped
from .raw import RawClient
from .test_kills import connected

COUNT = 600
KILLS = ("remoting", "serve") * 2
INVISIBLE_MS = 2_000


def test_kills_of_remoting_and_serve_lose_no_popped_message(node: RemotingNode) -> None:
    """A client acknowledges two of three messages that it gets for the first time, and all that come again."""
    with RawClient(node.port) as client:
        for number in range(COUNT):
            assert client.put("kept", b"%d" % number).code == 0
    done: set[bytes] = set()
    times = 0
    client = None
    until = time.monotonic() + 100

    def handled(client: RawClient, found: list[Message]) -> None:
        nonlocal times
        for each in found:
            times += 1
            if each.times or int(each.body) % 3:
                assert ack(client, "g", each).code == 0
                done.add(each.body)

    kills = list(KILLS)
    while len(done) < COUNT:
        assert time.monotonic() < until, f"{COUNT - len(done)} messages are missing"
        client = client or await_(lambda: connected(node.port), 10.0, "the port")
        try:
            handled(client, popped(client, "g", "kept", maxMsgNums=16, invisibleTime=INVISIBLE_MS, pollTime=500))
        except OSError:
            client.close()
            client = None
        if kills and len(done) > COUNT * (len(KILLS) - len(kills)) // (2 * len(KILLS)):
            before = node.pids()
            os.kill(before[label := kills.pop()], signal.SIGKILL)
            node.await_restarted(label, before)
    assert not kills
    assert client is not None
    with client:
        await_(lambda: offset(client, "g", "kept") == COUNT, 30.0, "the end of the queue")
    assert times < 3 * COUNT, "what was acknowledged comes again and again"


def test_what_was_acknowledged_before_a_kill_of_the_node_does_not_come_again(node: RemotingNode) -> None:
    with RawClient(node.port) as client:
        for number in range(10):
            assert client.put("stays", b"%d" % number).code == 0
        for each in popped(client, "g", "stays", maxMsgNums=5):
            assert ack(client, "g", each).code == 0
        await_(lambda: offset(client, "g", "stays") == 5, 30.0, "five that are done")
        assert len(popped(client, "g", "stays")) == 5
    assert node.stop()
    node.start()
    with await_(lambda: connected(node.port), 30.0, "the port") as client:
        found = popped(client, "g", "stays")
    assert [each.body for each in found] == [b"5", b"6", b"7", b"8", b"9"]
