"""One client takes what it can get of a port: it is cut off by name, and nobody else pays for it."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.flooding import NAME, TOPIC
from tests.processes.groups import Group
from tests.processes.nodes import TestNode, check_nothing_is_left, ending
from tests.processes.waiting import await_
from tests.processes.wire import WireClient
from towline.client.message import Message
from towline.client.producer import Producer
from towline.limits import MIB
from towline.runtime.positions import Counter, Duty
from towline.start import home

pytestmark = pytest.mark.alone

MEMORY_MAX = 256 * MIB
MEASURED_S = 2.0
TRIES = 8  # a load beside the test takes a share of its own
# Of which process, of which node, as whom the flood comes, and the setting of the port. The sockets in the runtime
# directory are for the node's own user, and bounded by the process's memory alone; clients are for remoting to bound.
PORTS = {
    Duty.SEND: (0, "peer", "ha_listen_port"),
    Duty.FOLLOW: (1, "peer", "ha_listen_port"),
}
KINDS = ("parts", "empty", "requests")


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """A master and a slave that know each other; producers go over the socket."""
    settings = {"broker_role": "ASYNC_MASTER", "flush_disk_type": "ASYNC_FLUSH", "shared_memory_puts": False}
    group = Group(tmp_path_factory.mktemp("flooded"), 2, in_sync_replicas=1, min_in_sync_replicas=1, **settings)
    with ending(*group.nodes):
        group.start()
        client = WireClient(group.nodes[0].endpoint)
        client.create_topic(TOPIC.decode(), queues=1)
        client.close()
        yield group
        group.await_level(0, 1)  # a slave that stops behind its master is not clean
        assert [node.stop() for node in reversed(group.nodes)] == [True, True]
        check_nothing_is_left(*group.nodes)


def place_of(node: TestNode, where: str) -> str:
    """A port as it was given last."""
    given = [flag.partition("=") for flag in node.flags]
    return [value for name, _, value in given if name == where][-1]


def anonymous(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


class Honest:
    """A producer at work, and the memory of a process beside it."""

    def __init__(self, endpoint: str, pid: int) -> None:
        self.producer = Producer(endpoint)
        self.pid = pid
        self.most = 0
        self.batch = [Message("honest", b"x" * 1_000) for _ in range(200)]

    def rate(self, seconds: float) -> float:
        """Messages a second that were acknowledged."""
        began, count = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            results = self.producer.send_batch(self.batch)
            assert all(result.acknowledged for result in results)
            count += len(results)
            self.most = max(self.most, anonymous(self.pid))
        return count / (time.monotonic() - began)


def begin_flood(kind: str, role: str, place: str, seconds: float) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.processes.flooding", kind, role, place, str(seconds)]
    return subprocess.Popen(command, cwd=home(), stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("duty", PORTS, ids=lambda duty: duty.label)
def test_a_flood_costs_its_sender_the_link_and_nobody_else_much(flooded: Group, duty: Duty, kind: str) -> None:
    number, peer, where = PORTS[duty]
    node = flooded.nodes[number]
    place = place_of(node, where)
    pid, line = node.pids()[duty.label], node.positions.duty(duty)
    refused = line.counter(Counter.REFUSED)
    honest = Honest(flooded.nodes[0].endpoint, pid)
    shares = []
    try:
        while len(shares) < TRIES and (max(shares, default=0) < 0.5 or line.counter(Counter.REFUSED) == refused):
            alone = honest.rate(MEASURED_S / 2)
            flood = begin_flood(kind, peer, place, MEASURED_S + 1)
            beside = honest.rate(MEASURED_S)
            told = json.loads(flood.communicate(timeout=60)[0])
            shares.append(beside / ((alone + honest.rate(MEASURED_S / 2)) / 2))
    finally:
        honest.producer.close()
    said = f"{told}, {honest.most >> 20} MiB, shares of the throughput {shares}"
    print(said)
    assert honest.most < MEMORY_MAX, said
    assert max(shares) >= 0.5, said
    await_(lambda: line.counter(Counter.REFUSED) > refused, 10.0, "the count of those that were cut off")
    assert f"{peer} '{NAME}' at " in node.store.node_log.read_text()
    assert node.pids()[duty.label] == pid, "it went on living"


def test_what_a_peer_left_that_went_keeps_nobody_waiting(flooded: Group) -> None:
    flood = begin_flood("requests", "producer", str(flooded.nodes[0].runtime / "put.sock"), 4.0)
    flood.communicate(timeout=60)
    with Producer(flooded.nodes[0].endpoint, delivery_timeout_ms=5_000) as producer:
        began = time.monotonic()
        assert producer.send(Message("honest", b"after")).acknowledged
        assert time.monotonic() - began < 5
