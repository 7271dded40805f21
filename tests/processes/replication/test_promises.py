"""Promises that come at a bad moment: between a set and its acknowledgement, and of a node that never became master."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.processes.arming import Arming
from tests.processes.groups import Group
from tests.processes.nodes import CATCH_UP_S, ended
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.format.files.epochs import number_of
from towline.format.wire.status import PutStatus
from towline.log.state.in_sync_file import InSyncFile
from towline.node.peers.peer_client import ask_peers
from towline.node.process.context import open_node
from towline.node.roles.promise import NOTHING, load_promise
from towline.node.roles.role_commands import PROMOTE, submit_command
from towline.runtime.positions import Position

TOPIC = b"orders"
PAUSED_MS = 8000  # slave_timeout: a slave that stands still leaves the set after half of it
STALL_MS = 6000


@pytest.fixture(scope="module")
def armed(tmp_path_factory) -> Iterator[tuple[Group, Arming]]:
    """Three nodes, node 0 is master; their processes look for failpoints."""
    directory = tmp_path_factory.mktemp("promises")
    arming = Arming(directory)
    with pytest.MonkeyPatch.context() as patch:
        arming.announce(patch)
        group = Group(directory, 3, slave_timeout=PAUSED_MS)
        ending = ended(*group.nodes)
        next(ending)
        group.start()
        client = WireClient(group.nodes[0].endpoint)
        client.create_topic(TOPIC.decode(), 1)
        client.close()
        yield group, arming
        next(ending, None)


def test_a_candidate_that_died_behind_its_own_promise_follows_the_master_that_lives(armed):
    """It comes back behind the others, so its promotion is refused: its promise to itself must depose nobody."""
    group, arming = armed
    master, candidate = group.nodes[0], group.nodes[2]
    group.await_in_sync(0, 3)
    epoch = master.at(Position.EPOCH)
    arming.arm("agree.after_promise=stall:20000")
    submit_command(candidate.store.root, {"order": PROMOTE})
    arming.await_fired()
    candidate.kill_supervisor()
    assert load_promise(candidate.store).node == 2
    client = WireClient(master.endpoint)
    assert client.put(records_of(TOPIC, 3)).status == PutStatus.PUT_OK
    candidate.start()
    group.await_in_sync(0, 3)
    assert client.put(records_of(TOPIC, 3)).status == PutStatus.PUT_OK
    client.close()
    assert (group.role(0), group.role(2)) == ("master", "slave")
    assert master.at(Position.EPOCH) == epoch
    assert load_promise(candidate.store) == NOTHING


def test_a_master_that_promised_in_vain_is_master_again(armed):
    """A promotion that is refused when the others have promised already leaves a group with a master."""
    group, arming = armed
    master, candidate = group.nodes[0], group.nodes[2]
    group.await_in_sync(0, 3)
    epoch = master.at(Position.EPOCH)
    arming.arm(f"agree.after_promise=stall:{STALL_MS}")
    submit_command(candidate.store.root, {"order": PROMOTE})
    arming.await_fired()
    client = WireClient(master.endpoint)
    put = records_of(TOPIC, 3)  # the candidate lacks it, and leaves the set, which may take longer than a put waits
    await_(lambda: client.put(put).status == PutStatus.PUT_OK, STALL_MS / 2000, "puts go on without the candidate")
    client.close()
    await_(lambda: (master.now(Position.EPOCH) or 0) > epoch, CATCH_UP_S, "the old master opens an epoch")
    group.await_in_sync(0, 3)
    assert (group.role(0), group.role(1), group.role(2)) == ("master", "slave", "slave")
    group.await_level(0, 1, 2)


def test_a_set_that_was_recorded_behind_a_promise_is_not_acknowledged(armed):
    """Whoever was promised has been told that it is in the set, and may be master: nobody goes on without it."""
    group, arming = armed
    master, lagging = group.nodes[0], group.nodes[2]
    group.await_in_sync(0, 3)
    client = WireClient(master.endpoint)
    receiver = lagging.pids()["receive"]
    arming.arm(f"receive.before_set=stall:{STALL_MS}")
    os.kill(receiver, signal.SIGSTOP)
    try:
        client.send(records_of(TOPIC, 3))
        arming.await_fired()  # the other one is told of the set without this one
        node = open_node(lagging.store.root)
        question = {"op": "promise", "epoch": number_of(1000, 2), "node": 2}
        answers, _ = ask_peers(node, {"1": node.settings.peers[1]}, question)
        node.positions.close()
        said = answers["1"]
        assert (said["granted"], said["in_sync"]) == (True, [0, 1, 2])
        assert client.answer().status == PutStatus.FLUSH_SLAVE_TIMEOUT
    finally:
        os.kill(receiver, signal.SIGCONT)
    client.close()
    record = InSyncFile(master.store).load()
    assert record is not None
    assert record.ids == [0, 1, 2]
    await_(lambda: (master.now(Position.EPOCH) or 0) > number_of(1000, 2), CATCH_UP_S, "the promise was in vain")
    group.await_in_sync(0, 3)


@pytest.mark.parametrize("written", [True, False], ids=["with bytes that nobody confirmed", "with nothing written"])
def test_an_orderly_restart_in_an_outage_costs_a_member_no_more_than_a_kill(tmp_path, written):
    """All that it holds was synced when it stopped: it may be promoted without the silent one, as after a kill."""
    group = Group(tmp_path, 2)
    master, slave = group.nodes
    ending = ended(*group.nodes)
    next(ending)
    group.start()
    group.await_in_sync(0, 2)
    if written:
        client = WireClient(master.endpoint)
        client.create_topic(TOPIC.decode(), 1)
        assert client.put(records_of(TOPIC, 3)).status == PutStatus.PUT_OK
        group.await_level(0, 1)
        flush = slave.pids()["flush"]
        os.kill(flush, signal.SIGSTOP)
        end = slave.at(Position.APPENDED)
        client.send(records_of(TOPIC, 3))
        await_(lambda: slave.at(Position.APPENDED) == master.at(Position.APPENDED) > end, 60.0, "the slave holds it")
        master.kill_all(seed=1)
        os.kill(flush, signal.SIGCONT)
        client.close()
    else:
        master.kill_all(seed=1)
    for _ in range(2):
        assert slave.stop() is not written
        slave.start()
        assert not slave.store.doubt.exists()
    held = slave.at(Position.APPENDED)
    assert group.promote(1)["role"] == "master"
    assert slave.at(Position.APPENDED) == held
    next(ending, None)
