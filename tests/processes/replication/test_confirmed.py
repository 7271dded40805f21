"""What was confirmed stays known, whatever ended the node: it is not cut off before an operator has given it up."""

import json
import os
import shutil
import signal
from collections.abc import Iterator

import pytest

from tests.etcd_server import running
from tests.processes.electing import ElectingGroup
from tests.processes.groups import Group
from tests.processes.nodes import SEGMENT, Pair, TestNode, ending
from tests.processes.stored import check_same_log
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.client.admin import AdminClient
from towline.format.files.durable import Durable
from towline.format.wire.status import PutStatus
from towline.log.files.segment_files import segment_name
from towline.log.state.durable_file import DurableFile, confirmed_durably
from towline.log.state.truncation_file import kept_tails
from towline.node.roles.role_commands import accept_loss_once, read_json_file
from towline.runtime.positions import Position

TOPIC = b"orders"
NEVER_MS = 3_600_000
RARELY = ("--set", f"flush_consume_queue_thorough_interval={NEVER_MS}")  # as where few messages come
ALONE = {"broker_role": "ASYNC_MASTER", "in_sync_replicas": 1, "min_in_sync_replicas": 1}


def put(node: TestNode, count: int) -> int:
    """Acknowledged, and shown to readers. Where the log ends then."""
    client = WireClient(node.endpoint)
    client.create_topic(TOPIC.decode(), 1)
    assert client.put(records_of(TOPIC, count)).status == PutStatus.PUT_OK
    client.close()
    end = node.at(Position.APPENDED)
    await_(lambda: node.at(Position.DISPATCHED) == end, 60.0, "readers see it")
    with AdminClient(node.facts["endpoints"]["serve"][0]) as asked:
        assert asked.bounds(TOPIC.decode())[0][1] >= count
    return end


def recovered(node: TestNode) -> dict:
    """What its newest recovery found."""
    return json.loads(node.store.recovery.read_text())


def durable(node: TestNode) -> Durable:
    return DurableFile(node.store.root).load() or Durable()


def cut_power(node: TestNode) -> None:
    """Of a killed node: its memory goes, and so does all that no sync of the log had reached."""
    shutil.rmtree(node.runtime)
    flushed = durable(node).flushed
    base = flushed - flushed % SEGMENT
    with (node.store.commitlog / segment_name(base)).open("r+b") as file:
        file.seek(flushed - base)
        file.write(bytes(base + SEGMENT - flushed))


def waits_for_a_word(node: TestNode, point: int, confirmed: int) -> None:
    """A node that holds what its master has not, and says what is to be typed."""
    said = f"only up to {point}, and up to {confirmed} it was confirmed here"
    typed = f"`towline slave accept-loss --store {node.store.root}`"

    def tells() -> bool:
        link = read_json_file(node.store.link) or {}
        assert not node.store.truncate.exists(), "it is about to be cut"
        return not link.get("connected", True) and said in link["why"] and typed in link["why"]

    await_(tells, 90.0, f"the node says that it holds what was confirmed up to {confirmed}")
    node.forget()
    assert (node.at(Position.APPENDED), kept_tails(node.store)) == (confirmed, [])
    await_(lambda: confirmed_durably(node.store) == confirmed, 60.0, "its files say so too")
    await_(lambda: node.at(Position.DISPATCHED) == confirmed, 60.0, "its readers see it all the same")


def follows_after_the_word(node: TestNode, master: TestNode, point: int, confirmed: int) -> None:
    accept_loss_once(node.store)

    def level() -> bool:
        return node.now(Position.DISPATCHED) == master.now(Position.DISPATCHED) == master.at(Position.APPENDED)

    await_(lambda: kept_tails(node.store), 90.0, "the node cuts what it was told to give up")
    await_(level, 90.0, "it is level with its master")
    (kept,) = kept_tails(node.store)
    assert (kept.cut.point, kept.cut.end, kept.cut.accept_loss) == (point, confirmed, True)
    check_same_log(node.store.commitlog, master.store.commitlog, master.at(Position.APPENDED))


def test_the_last_copy_of_an_acknowledged_message_outlives_a_power_cut_of_both_nodes(tmp_path):
    """Acknowledged from the memory of both; the slave had it on its disk, the master had not."""
    pair = Pair(tmp_path, flush_disk_type="ASYNC_FLUSH", slave_timeout=60_000)
    master, slave = pair.nodes
    slave.flags += RARELY
    with ending(*pair.nodes):
        pair.start()
        first = put(master, 5)
        await_(lambda: durable(master).flushed == durable(slave).flushed == first, 60.0, "both have it on their disks")
        os.kill(master.pids()["flush"], signal.SIGSTOP)
        second = put(master, 10)
        await_(lambda: slave.at(Position.DISPATCHED) == slave.at(Position.FLUSHED) == second, 60.0, "the slave has it")
        await_(lambda: confirmed_durably(slave.store) == second, 60.0, "its files say that it was confirmed")
        assert durable(slave).queues_durable <= first
        for node in pair.nodes:
            node.kill_all(seed=1)
            cut_power(node)
        for node in pair.nodes:
            node.start()
        assert master.at(Position.APPENDED) == first, "the master has lost it"
        waits_for_a_word(slave, first, second)
        assert recovered(slave)["confirmed"] == second
        follows_after_the_word(slave, master, first, second)


def part(master: TestNode, slave: TestNode) -> tuple[int, int]:
    """The master acknowledges and shows what its slave never gets, and is killed: up to where both have the log, its
    end."""
    first = slave.at(Position.APPENDED)
    receive = slave.pids()["receive"]
    os.kill(receive, signal.SIGSTOP)
    end = put(master, 10)
    assert slave.at(Position.APPENDED) == first < end
    master.kill_all(seed=2)
    os.kill(receive, signal.SIGKILL)  # what stands in its socket goes with it
    return first, end


@pytest.mark.parametrize("ends", ["kill", "power cut"])
def test_a_master_that_comes_back_waits_for_a_word_before_what_it_acknowledged_is_cut(tmp_path, ends):
    group = Group(tmp_path, 2, **ALONE)
    zero, one = group.nodes
    zero.flags += RARELY
    with ending(*group.nodes):
        group.start()
        put(zero, 5)
        group.await_level(0, 1)
        point, end = part(zero, one)
        group.promote(1, accept_loss=True)
        if ends == "power cut":  # what was acknowledged was on the disk, the marks may be a second old
            shutil.rmtree(zero.runtime)
        zero.start()
        group.await_role(0, "slave")
        waits_for_a_word(zero, point, end)
        found = recovered(zero)
        assert (found["resumed"], found["confirmed"]) == (ends == "kill", end), "it knows what the first recovery knew"
        zero.stop()
        zero.start()
        waits_for_a_word(zero, point, end)
        follows_after_the_word(zero, one, point, end)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory) -> Iterator[object]:
    yield from running(tmp_path_factory.mktemp("etcd"))


@pytest.mark.parametrize("ends", ["kill", "power cut"])
def test_a_master_that_etcd_replaced_waits_for_a_word_as_well(tmp_path, etcd, ends):
    """No operator was asked before the other one became master; here one is."""
    group = ElectingGroup(tmp_path, 2, etcd, **ALONE)
    zero, one = group.nodes
    zero.flags += RARELY
    with ending(*group.nodes):
        group.start()
        put(zero, 5)
        group.await_level(0, 1)
        point, end = part(zero, one)
        assert group.await_master(1) == 1
        if ends == "power cut":  # what was acknowledged was on the disk, the marks may be a second old
            shutil.rmtree(zero.runtime)
        zero.start()
        waits_for_a_word(zero, point, end)
        zero.stop()
        zero.start()
        waits_for_a_word(zero, point, end)
        follows_after_the_word(zero, one, point, end)
