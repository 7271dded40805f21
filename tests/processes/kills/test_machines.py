"""Several machines from generated units: the master's loses its power, its slave is promoted, the old one returns."""

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.processes.load import Load
from tests.processes.machines import Machines, machines
from tests.processes.nodes import processes_of
from tests.processes.waiting import await_
from towline.cli.cluster_nodes import observe
from towline.client.consumer import Consumer
from towline.client.producer import Producer
from towline.cluster.state import GroupState, NodeState, group_state
from towline.format.record.record import body_crc
from towline.node.peers.promotion import promote
from towline.node.process.context import open_node
from towline.places import Store
from towline.runtime.positions import Position

# A producer of this test runs on every machine, and is to reach each as one that runs on none of them does.
SETTINGS = 'broker_role = "SYNC_MASTER"\nmin_in_sync_replicas = 2\nshared_memory_puts = false\n'
LOAD = 4000
RATE = 1500.0
COUNT = 300
DEADLINE_S = 60.0
DEADLINE_MS = 40_000


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """The environment says nothing of where shared memory is: each machine's own does."""
    memory = Path(tempfile.mkdtemp(prefix="tl-", dir="/dev/shm"))
    root = tmp_path_factory.mktemp("machines")
    try:
        with machines(root, memory, settings=SETTINGS) as made:
            yield made
            assert [machine.end() for machine in reversed(made.each.values())] == [0, 0]
        assert processes_of(root) == []
        assert [str(path) for path in memory.glob("m*/run/towline/*")] == []
    finally:
        shutil.rmtree(memory)


def put(running: Machines, first: int) -> list[bytes]:
    """Bodies that were acknowledged: all of them, whoever is master by then."""
    bodies = [b"%d" % number for number in range(first, first + COUNT)]
    with Producer(f"cluster:{running.cluster.path}", delivery_timeout_ms=DEADLINE_MS) as producer:
        results = producer.send_bodies("t", bodies)
        assert producer.statistics.through_ring == 0
    assert all(result.acknowledged for result in results), {result.status for result in results}
    return bodies


def every_body(running: Machines, count: int) -> list[bytes]:
    with Consumer(f"cluster:{running.cluster.path}", "t", start="first") as consumer:
        found: list[bytes] = []

        def all_of_them() -> bool:
            found.extend(message.body for message in consumer.poll(500))
            return len(found) >= count

        await_(all_of_them, DEADLINE_S, f"{count} messages are read")
    return sorted(found, key=int)


def found_of(running: Machines, wanted: set[str]) -> dict[str, int]:
    """CRCs of the load's bodies by unique key, as soon as all that are wanted are there."""
    with Consumer(f"cluster:{running.cluster.path}", "load", start="first") as consumer:
        found: dict[str, int] = {}

        def all_of_them() -> bool:
            found.update((message.unique_key, body_crc(message.body)) for message in consumer.poll(500))
            return wanted <= found.keys()

        await_(all_of_them, DEADLINE_S, "every acknowledged message is read")
    return found


def end_of(machine, part=Position.FLUSHED) -> int:
    view = open_node(machine.node.store)
    try:
        return view.positions.get(part)
    finally:
        view.positions.close()


def log_of(machine, end: int) -> bytes:
    segments = sorted(Store(machine.node.store).commitlog.iterdir())
    return b"".join(segment.read_bytes() for segment in segments)[:end]


def test_nothing_acknowledged_is_lost_with_the_masters_machine(running):
    first, second = running.each.values()
    assert running.master() is first
    sent = put(running, 0)
    load = Load(f"cluster:{running.cluster.path}", "load", 7, count=LOAD, rate=RATE)
    load.start()
    load.await_acked(LOAD // 8)
    first.kill()
    acked = len(load.acked)
    assert acked < LOAD
    promote(second.node.store)
    first.start()  # its unit still says `master start`
    running.await_ok()
    assert running.master() is second
    load.finish()
    assert len(load.acked) > acked, load.outcomes
    found = found_of(running, set(load.acked))
    assert all(found[key] == load.sent[key] for key in load.acked)
    sent += put(running, COUNT)
    assert every_body(running, 2 * COUNT) == sent
    end = end_of(second)
    await_(lambda: end_of(first) >= end, DEADLINE_S, "the old master has all of it")
    assert log_of(first, end) == log_of(second, end)


@pytest.mark.parametrize("here", [0, 1], ids=["the slave's", "the master's"])
def test_a_machine_asks_the_others_what_they_are(running, monkeypatch, here):
    """After the test before: node 1 is the master."""
    monkeypatch.setattr("towline.cli.cluster_nodes.is_here", lambda node: node.id == here)
    seen = observe(running.group, ask=True)
    assert [node.role for node in seen.nodes] == ["slave", "master"]
    assert [node.state for node in seen.nodes].count(NodeState.ELSEWHERE) == 1
    assert seen.nodes[0].end == seen.nodes[1].end > 0
    assert seen.nodes[0].epoch == seen.nodes[1].epoch > 0
    assert (seen.master.id, seen.nodes[0].follows) == (1, True)
    assert group_state(seen.nodes) is GroupState.OK


def test_after_a_stop_of_all_machines_the_same_node_is_master(running):
    for machine in running.each.values():
        assert machine.end() == 0
    running.start()
    _, second = running.each.values()
    assert running.master() is second
    assert every_body(running, 2 * COUNT)[-1] == b"%d" % (2 * COUNT - 1)
