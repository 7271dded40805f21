"""Processes, and whole nodes, are killed while messages are popped: none is lost, and what was done stays done."""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.processes.nodes import check_nothing_is_left, ending
from tests.processes.waiting import await_
from towline.format.files.groups import read_offsets
from towline.log.files.config_file import ConfigFile

from .conftest import RemotingNode, remoting_node
from .popping import Message, ack, offset, popped
from .raw import RawClient
from .test_kills import connected

COUNT = 600
KILLS = ("remoting", "serve") * 2
INVISIBLE_MS = 2_000
QUEUES = 4
BEHIND_MAX = 400  # messages that were sent, and are not acknowledged yet


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


# --- kills of the node


Place = tuple[str, int, int]  # topic, queue, offset


class Client(threading.Thread):
    """Takes turns until it is told to end; where the node has gone it connects again."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self._ending = threading.Event()
        self.is_connected = False

    def run(self) -> None:
        while not self._ending.is_set():
            client = connected(self._port)
            if client is None:
                self._ending.wait(0.01)
                continue
            self.is_connected = True
            with client, contextlib.suppress(OSError):
                while not self._ending.is_set():
                    self.turn(client)
            self.is_connected = False

    def turn(self, client: RawClient) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self._ending.set()
        self.join()


class Popper(Client):
    """Of each five new messages it forgets one; what comes again it acknowledges."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.popped: list[Place] = []
        self.done: set[bytes] = set()

    def turn(self, client: RawClient) -> None:
        found = popped(client, "g", "whole", maxMsgNums=16, invisibleTime=INVISIBLE_MS, pollTime=500)
        self.popped += [(each.topic, each.queue, each.offset) for each in found]
        for each in found:
            if (each.times or int(each.body) % 5) and ack(client, "g", each).code == 0:
                self.done.add(each.body)


class Sender(Client):
    """Sends so that there is always something to pop."""

    def __init__(self, port: int, poppers: list[Popper]) -> None:
        super().__init__(port)
        self._poppers = poppers
        self._number = 0
        self.acknowledged: set[bytes] = set()

    def turn(self, client: RawClient) -> None:
        if len(self.acknowledged) - len(done_by(self._poppers)) > BEHIND_MAX:
            self._ending.wait(0.01)
            return
        for _ in range(20):
            body = b"%d" % self._number
            self._number += 1
            if client.put("whole", body, e=self._number % QUEUES).code == 0:
                self.acknowledged.add(body)


def done_by(poppers: list[Popper]) -> set[bytes]:
    return set().union(*(popper.done.copy() for popper in poppers))


def saved(node: RemotingNode) -> dict[tuple[str, int], int]:
    """The group's offsets on the disk, of the topic and of its retries, by queue."""
    content = ConfigFile(node.store.config / "consumerOffset.json").load() or {}
    offsets = read_offsets(content, "").offsets
    names = ("whole", "%RETRY%g_whole")
    return {(name, queue): of for name in names for queue, of in offsets.get((name, "g"), {}).items()}


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_kills_of_the_node_lose_no_popped_message_and_bring_back_none_that_is_done(tmp_path: Path, kills: int) -> None:
    """It is killed whole, in the middle of sends, pops, acks and returns. Of what was acknowledged only that may come
    again which stands at or behind the group's offset on the disk, as the dead node left it; and only once in the life
    of a node, as nothing else does."""
    node = remoting_node(tmp_path / "store", flush_consumer_offset_interval=200)
    with ending(node):
        node.start()
        poppers = [Popper(node.port) for _ in range(2)]
        clients: list[Client] = [sender := Sender(node.port, poppers), *poppers]
        lives: list[list[Place]] = []  # what was popped from one start of the node to the next
        offsets: list[dict[tuple[str, int], int]] = [{}]  # that were on the disk when it began
        for client in clients:
            client.start()
        try:
            for seed in range(kills):
                await_offsets(node, 100)
                node.kill_all(seed)
                await_(lambda: not any(client.is_connected for client in clients), 30.0, "all notice it")
                assert len(done_by(poppers)) < len(sender.acknowledged), "nothing was under way"
                lives.append(taken(poppers))
                offsets.append(saved(node))
                node.start()
            await_offsets(node, 100)
            sender.end()
            await_(lambda: sender.acknowledged <= done_by(poppers), 120.0, "all that was stored is acknowledged")
        finally:
            for client in clients:
                client.end()
        lives.append(taken(poppers))
        for life, begins in zip(lives, offsets, strict=True):
            assert len(life) == len(set(life)), "one comes twice from where it stands"
            early = [(topic, queue, at) for topic, queue, at in life if at < begins.get((topic, queue), 0)]
            assert not early, f"what is done comes again: {early[:5]}"
        times = sum(map(len, lives))
        print(f"{len(sender.acknowledged)} messages through {kills} kills of the node, popped {times} times")
        assert node.stop()
        check_nothing_is_left(node)


def taken(poppers: list[Popper]) -> list[Place]:
    """What was popped since it was taken last."""
    found = []
    for popper in poppers:
        places, popper.popped = popper.popped, []
        found += places
    return found


def await_offsets(node: RemotingNode, count: int) -> None:
    """Until the saved offset of each queue is so much further, and one of a message that came again, too."""
    before = saved(node)
    names = [("whole", queue) for queue in range(QUEUES)]

    def moved() -> bool:
        now = saved(node)
        returned = sum(of for (name, _), of in now.items() if name != "whole")
        further = all(now.get(name, 0) >= before.get(name, 0) + count for name in names)
        return further and returned > sum(of for (name, _), of in before.items() if name != "whole")

    await_(moved, 60.0, "the offsets on the disk")
