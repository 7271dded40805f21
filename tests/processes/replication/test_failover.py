"""Automatic failover with a real etcd: of two slaves one takes over, with nothing acknowledged lost.

One group for all of these; each begins with all three nodes in sync, whoever is master by then.
"""

import itertools
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.etcd_server import running
from tests.processes.electing import APPEARS_S, LEASE_MS, ElectingGroup
from tests.processes.load import Load
from tests.processes.nodes import SEGMENT, ended
from tests.processes.stopping import stopped
from tests.processes.stored import Stored
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.format.wire.refusals import Cause, read_sentence
from towline.format.wire.status import PutStatus
from towline.log.commitlog.commit_log import CommitLogReader
from towline.runtime.positions import Position

NODES = (0, 1, 2)
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    yield from running(tmp_path_factory.mktemp("etcd"))


@pytest.fixture(scope="module")
def running_group(tmp_path_factory, etcd) -> Iterator[ElectingGroup]:
    made = ElectingGroup(tmp_path_factory.mktemp("failover"), 3, etcd, slave_timeout=1000)
    ending = ended(*made.nodes)
    next(ending)
    made.start()
    yield made
    next(ending, None)


@pytest.fixture
def group(running_group):
    running_group.await_in_sync(*NODES)
    yield running_group
    for node in running_group.nodes:
        if node.launched is None:
            node.start()


@pytest.fixture
def load(group):
    """Of a topic of its own, endless: a test ends it with `check`."""
    topic = f"load{next(NUMBERS)}"
    client = WireClient(group.nodes[group.master()].endpoint)
    client.create_topic(topic, 4)
    client.close()
    made = Load(group.endpoint, topic, 1, count=200_000, window=100, rate=1500)
    made.start()
    made.await_acked(300)
    yield made
    made.stop()
    made.join(60.0)


def check(group: ElectingGroup, load: Load) -> None:
    """What was acknowledged is there, and nothing more often than it was sent: the producer is not idempotent."""
    load.stop()
    load.join(60.0)
    assert not load.is_alive()
    assert load.error is None, load.error
    master = group.nodes[group.await_master(*NODES)]
    await_(lambda: master.at(Position.DISPATCHED) == master.at(Position.APPENDED), APPEARS_S, "all is dispatched")
    end = master.at(Position.APPENDED)
    found = Counter({key: copies for (key, _), copies in Stored(master.store, end).read(load.topic).items()})
    assert not set(load.acked) - set(found)
    assert not [key for key in load.sent if found[key] > load.attempts[key]]
    assert len(load.acked) > 300


def same_log(group: ElectingGroup) -> None:
    group.await_in_sync(*NODES)
    end = group.await_level(*NODES)
    logs = []
    for node in group.nodes:
        reader = CommitLogReader(node.store.commitlog, SEGMENT)
        logs.append([bytes(reader.slice(at, min(at + SEGMENT, end))) for at in range(0, end, SEGMENT)])
    assert logs[0] == logs[1] == logs[2]


def pids_of(node, *labels):
    pids = node.pids()
    return [pids[label] for label in (labels or pids)]


def elsewhere(group, master):
    """Until etcd has another leader; which node."""

    def elected():
        leader = group.recorded().leader
        return leader if leader is not None and leader.node != master else None

    return await_(elected, APPEARS_S, "another node is elected").node


def test_a_killed_master_is_replaced_and_comes_back_as_a_slave(group, load, record_property):
    old = group.master()
    acked, began = len(load.acked), time.monotonic()
    group.nodes[old].kill_all(seed=1)
    new = group.await_master(*set(NODES) - {old})
    load.await_acked(len(load.acked) + 100)
    record_property("without_service_s", round(time.monotonic() - began, 2))
    assert len(load.acked) > acked
    assert group.nodes[new].at(Position.EPOCH) % 256 == new
    group.nodes[old].start()
    group.await_in_sync(*NODES)
    assert group.master() == new
    check(group, load)
    same_log(group)


def test_a_slave_that_lagged_behind_is_never_elected(group, load):
    old = group.master()
    lagging, other = (number for number in NODES if number != old)
    with stopped(*pids_of(group.nodes[lagging], "receive")):
        group.await_in_sync(*sorted((old, other)))
        load.await_acked(len(load.acked) + 300)
        behind = group.nodes[lagging].at(Position.APPENDED)
        group.nodes[old].kill_all(seed=2)
    assert elsewhere(group, old) == other
    group.await_master(other)
    assert behind < group.nodes[other].at(Position.APPENDED)
    check(group, load)


def test_a_slave_that_is_promoted_by_hand_gets_the_lease_from_the_master_before(group, load):
    old = group.master()
    new = max(set(NODES) - {old})
    check(group, load)
    group.await_level(*NODES)  # under load another slave holds more than the one that stops to be promoted
    group.promote(new)
    await_(
        lambda: (leader := group.recorded().leader) is not None and leader.node == new, APPEARS_S, "it has the lease"
    )
    group.await_master(new)
    group.await_in_sync(*NODES)  # on a machine that stands still for a whole lease another node may be master by now
    client = WireClient(group.nodes[group.await_master(*NODES)].endpoint)
    assert client.put(records_of(load.topic.encode(), 1)).status == PutStatus.PUT_OK
    client.close()
    same_log(group)


def test_with_the_last_of_the_recorded_set_gone_nobody_is_elected(group, load):
    old = group.master()
    lagging, other = (number for number in NODES if number != old)
    with stopped(*pids_of(group.nodes[lagging], "receive")):
        group.await_in_sync(*sorted((old, other)))
        load.await_acked(len(load.acked) + 100)
        group.nodes[old].kill_all(seed=3)
        group.nodes[other].kill_all(seed=4)
        await_(lambda: group.recorded().leader is None, APPEARS_S, "the lease is over")
        said = f"only the nodes {sorted((old, other))} hold"
        log = group.nodes[lagging].store.node_log
        await_(lambda: said in log.read_text(), APPEARS_S, "it says why it does not stand")
    assert group.recorded().leader is None
    group.nodes[other].start()
    group.await_master(other)
    group.nodes[old].start()
    check(group, load)


@pytest.mark.parametrize("labels", [("lease",), ()], ids=["its lease process", "the whole node"])
def test_a_master_that_was_paused_longer_than_its_lease_acknowledges_nothing_wrong(group, load, labels):
    old = group.master()
    with stopped(*pids_of(group.nodes[old], *labels)):
        new = elsewhere(group, old)
        if labels:  # put went on by itself, and stopped by itself
            client = WireClient(group.nodes[old].endpoint)
            answer = client.put(records_of(load.topic.encode(), 1))
            client.close()
            assert answer.status in (PutStatus.NOT_MASTER, PutStatus.SERVICE_NOT_AVAILABLE)
        group.await_master(new)
        load.await_acked(len(load.acked) + 100)
    group.await_in_sync(*NODES)
    assert group.master() == new
    check(group, load)
    same_log(group)


def test_without_etcd_a_master_stops_to_acknowledge_before_its_lease_could_be_given_away(group, etcd, load):
    master = group.nodes[group.master()]
    epoch = master.at(Position.EPOCH)
    client = WireClient(master.endpoint)
    topic = load.topic.encode()
    etcd.pause()
    began_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    last_ok_ns = began_ns

    def refused() -> str:
        nonlocal last_ok_ns
        answer = client.put(records_of(topic, 1))
        if answer.status == PutStatus.PUT_OK:
            last_ok_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        return answer.sentence

    sentence = await_(refused, APPEARS_S, "puts are refused")
    cause, numbers, _ = read_sentence(sentence)
    assert (cause, numbers["over_ms"] > 0) == (Cause.LEASE, True)
    # The lease was renewed before etcd stood still, so etcd could give it away LEASE_MS after that at the earliest.
    assert master.at(Position.LEASE_UNTIL) < began_ns + LEASE_MS * 1_000_000
    assert last_ok_ns < began_ns + LEASE_MS * 1_000_000
    etcd.go_on()
    client.close()
    group.await_master(*NODES)
    load.await_acked(len(load.acked) + 100)
    check(group, load)
    assert group.recorded().leader.epoch >= epoch
