"""Who is waited for, without etcd: the in-sync set as it stands on every disk, and what puts are answered (H14)."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import termios
from collections.abc import Iterator

import pytest

from tests.processes.groups import Group
from tests.processes.nodes import PATIENT, Pair, TestNode, end, ended, ending
from tests.processes.readable import read_all
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.errors import PromotionRefused
from towline.format.wire.refusals import Cause, read_sentence
from towline.format.wire.status import PutStatus
from towline.log.state.in_sync_file import InSyncFile
from towline.node.peers.peer_client import ask_all
from towline.node.peers.peer_server import question_before_promotion
from towline.node.process.context import runtime_of
from towline.node.report.running import open_running
from towline.node.report.status import read_status
from towline.runtime.positions import Duty, Position

TOPIC = b"orders"
APPEARS_S = 60.0
PAUSED_MS = 8000  # slave_timeout: a slave that stands still leaves the set after half of it


def started(root, count, **settings) -> Iterator[Group]:
    group = Group(root, count, **({"slave_timeout": PAUSED_MS, "ha_send_heartbeat_interval": 200} | settings))
    ending = ended(*group.nodes)
    next(ending)
    group.start()
    client = WireClient(group.nodes[0].endpoint)
    client.create_topic(TOPIC.decode(), 1)
    client.close()
    yield group
    next(ending, None)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    yield from started(tmp_path_factory.mktemp("three"), 3)


@pytest.fixture
def client(three):
    await_in_sync(three, 0, 1, 2)
    made = WireClient(three.nodes[0].endpoint)
    yield made
    made.close()


def recorded(group, number):
    """The members as that node has them on its disk."""
    record = InSyncFile(group.nodes[number].store).load()
    return None if record is None else record.ids


def await_in_sync(group, *members):
    """Until all of them have that set."""
    every = [list(members)] * len(members)
    await_(lambda: [recorded(group, member) for member in members] == every, APPEARS_S, f"{members} are in sync")


@contextlib.contextmanager
def standing_still(group, *numbers):
    """The receivers of these slaves."""
    pids = [group.nodes[number].pids()["receive"] for number in numbers]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def seen(group, number):
    """How the master sees that slave."""
    slaves = read_status(group.nodes[0].store.root)["slaves"]
    return next(slave for slave in slaves if slave["node"] == number)


def test_a_slave_that_stands_still_leaves_before_a_put_times_out_and_comes_back(three, client):
    with standing_still(three, 2):
        assert client.put(records_of(TOPIC, 3)).status == PutStatus.PUT_OK
        assert [recorded(three, number) for number in range(3)] == [[0, 1], [0, 1], [0, 1, 2]]
        assert not seen(three, 2)["in_sync"]
        await_(lambda: seen(three, 2)["why_not"] == "catching up", APPEARS_S, "status says that it is behind")
        assert client.put(records_of(TOPIC, 3)).status == PutStatus.PUT_OK
    await_in_sync(three, 0, 1, 2)
    status = read_status(three.nodes[0].store.root)["in_sync"]
    assert (status["members"], status["degraded"]) == ([0, 1, 2], False)
    assert three.nodes[1].at(Position.IN_SYNC) == three.nodes[0].at(Position.IN_SYNC) == 0b111


def test_nobody_leaves_before_all_that_remain_have_the_smaller_set_on_disk(three, client):
    """Both slaves stand still: of three two must remain, and neither can record anything."""
    with standing_still(three, 1, 2):
        before = three.nodes[0].at(Position.REPLICATED)
        assert client.put(records_of(TOPIC, 3)).status == PutStatus.FLUSH_SLAVE_TIMEOUT
        assert three.nodes[0].at(Position.REPLICATED) == before
        assert recorded(three, 0) == [0, 1, 2]
    await_(lambda: three.nodes[0].at(Position.REPLICATED) > before, APPEARS_S, "they have it")


def test_a_killed_receiver_is_back_in_the_set_with_nothing_lost(three, client):
    pids = three.nodes[1].pids()
    os.kill(pids["receive"], signal.SIGKILL)
    answers = [client.put(records_of(TOPIC, 3)).status for _ in range(20)]
    assert set(answers) == {PutStatus.PUT_OK}
    three.nodes[1].await_restarted("receive", pids)
    await_in_sync(three, 0, 1, 2)


def test_who_asks_in_order_to_be_promoted_stays_in_the_set_while_it_stops(three, client):
    before = InSyncFile(three.nodes[0].store).load()
    pids = three.nodes[2].pids()
    _, node = open_running(three.nodes[2].store.root)
    assert sorted(ask_all(node, question_before_promotion()).answers) == [0, 1]
    node.positions.close()
    os.kill(pids["receive"], signal.SIGKILL)
    assert client.put(records_of(TOPIC, 3)).status == PutStatus.PUT_OK
    three.nodes[2].await_restarted("receive", pids)
    assert InSyncFile(three.nodes[0].store).load() == before


def test_a_sender_that_is_killed_goes_on_with_the_recorded_set(three, client):
    pids = three.nodes[0].pids()
    before = InSyncFile(three.nodes[0].store).load()
    os.kill(pids["send"], signal.SIGKILL)
    assert client.put(records_of(TOPIC, 3)).status == PutStatus.PUT_OK
    three.nodes[0].await_restarted("send", pids)
    await_in_sync(three, 0, 1, 2)
    after = InSyncFile(three.nodes[0].store).load()
    assert (after.epoch, after.members) == (before.epoch, before.members)
    assert after.version > before.version


def test_a_master_that_promised_to_follow_another_acknowledges_nothing_any_more(three, client):
    """The last of this group: it has another master afterwards, or none."""
    master = three.nodes[0]
    with standing_still(three, 1, 2):
        client.send(records_of(TOPIC, 3))  # it waits for both
        await_(lambda: master.at(Position.APPENDED) > master.at(Position.REPLICATED), APPEARS_S, "it is stored")
        candidate = WireClient(f"ipc://{master.runtime}/ha.sock")
        said = candidate.ask({"op": "promise", "epoch": 1000 * 256 + 1, "node": 1})
        assert said["granted"] is True
    assert client.answer().status == PutStatus.FLUSH_SLAVE_TIMEOUT
    candidate.close()
    assert json.loads(master.store.promise.read_text())["epoch"] == 1000 * 256 + 1


@pytest.fixture(scope="module")
def auto(tmp_path_factory):
    settings = {"enable_auto_in_sync_replicas": True, "min_in_sync_replicas": 1}
    yield from started(tmp_path_factory.mktemp("auto"), 2, **settings)


def test_where_the_operator_allows_it_a_master_goes_on_alone_and_says_so(auto):
    await_in_sync(auto, 0, 1)
    client = WireClient(auto.nodes[0].endpoint)
    assert client.put(records_of(TOPIC, 3)).status == PutStatus.PUT_OK
    auto.nodes[1].kill_all(seed=1)
    assert client.put(records_of(TOPIC, 3)).status == PutStatus.PUT_OK
    assert read_status(auto.nodes[0].store.root)["in_sync"]["degraded"]
    assert recorded(auto, 0) == [0]
    auto.nodes[1].start()
    await_in_sync(auto, 0, 1)
    assert client.put(records_of(TOPIC, 3)).status == PutStatus.PUT_OK
    client.close()


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    yield from started(tmp_path_factory.mktemp("two"), 2)


def test_where_two_are_asked_for_a_put_is_refused_before_it_is_written(two):
    await_in_sync(two, 0, 1)
    master, client = two.nodes[0], WireClient(two.nodes[0].endpoint)
    await_(lambda: client.put(records_of(TOPIC, 3)).status == PutStatus.PUT_OK, APPEARS_S, "the slave is linked")
    two.nodes[1].kill_all(seed=1)
    await_(lambda: not any(slave.connected for slave in master.positions.slaves()), APPEARS_S, "it is noticed")
    end = master.at(Position.APPENDED)
    answer = client.put(records_of(TOPIC, 3))
    assert answer.status == PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
    cause, numbers, _ = read_sentence(answer.sentence)
    assert (cause, numbers["in_sync"], numbers["limit"]) == (Cause.REPLICAS, 1, 2)
    assert master.at(Position.APPENDED) == end
    assert recorded(two, 0) == [0, 1]
    client.close()


def test_a_slave_whose_machine_was_set_back_leaves_the_set_at_its_join(tmp_path):
    """To a copy of its store, which knows nothing of what was acknowledged since."""
    group = Group(tmp_path, 2, slave_timeout=60_000)
    master, slave = group.nodes
    with ending(*group.nodes):
        group.start()
        await_in_sync(group, 0, 1)
        client = WireClient(master.endpoint)
        client.create_topic(TOPIC.decode(), 1)
        client.close()
        assert slave.stop()
        shutil.copytree(slave.store.root, tmp_path / "copy", symlinks=True)
        slave.start()
        group.await_level(0, 1)
        client = WireClient(master.endpoint)
        put = records_of(TOPIC, 50, size=4000)
        await_(lambda: client.put(put).status == PutStatus.PUT_OK, APPEARS_S, "both have it")
        client.close()
        acknowledged = master.at(Position.REPLICATED)
        assert slave.stop()
        shutil.rmtree(slave.store.root)
        shutil.copytree(tmp_path / "copy", slave.store.root, symlinks=True)
        slave.start("--set", "seed_byte_in_second=10000")  # it takes its time to catch up
        alone = [[0], [0]]
        await_(lambda: [recorded(group, number) for number in (0, 1)] == alone, APPEARS_S, "it is out of the set")
        assert slave.at(Position.APPENDED) < acknowledged
        slave.store.doubt.unlink(missing_ok=True)  # a snapshot of the whole machine would leave none
        master.kill_all(seed=1)
        with pytest.raises(PromotionRefused, match="it is not in the in-sync set"):
            group.promote(1)
        slave.stop()
        slave.start()  # at any speed again
        master.start()
        await_in_sync(group, 0, 1)
        assert group.await_level(0, 1) >= acknowledged


class TestWhatReadersSeeWhileTheOnlySlaveIsAway:
    """Under the defaults of SYNC_MASTER, where the set is never smaller than two."""

    @pytest.fixture
    def pair(self, tmp_path):
        made = Pair(tmp_path, slave_timeout=1000)
        with ending(*made.nodes):
            made.start()
            client = WireClient(made.master.endpoint)
            client.create_topic(TOPIC.decode(), 1)
            put = records_of(TOPIC, 3)
            await_(lambda: client.put(put).status == PutStatus.PUT_OK, APPEARS_S, "both have it")
            client.close()
            made.await_caught_up()
            yield made

    def held_back(self, node):
        return read_status(node.store.root)["held_back"]

    def readable(self, node):
        return len(read_all(node, TOPIC.decode()))

    def test_is_what_was_there_before_and_status_says_why(self, pair):
        master, slave = pair.nodes
        before = self.readable(master)
        assert self.held_back(master) is None
        assert slave.stop()
        client = WireClient(master.endpoint)
        assert client.put(records_of(TOPIC, 3)).status in (PutStatus.SLAVE_NOT_AVAILABLE, PutStatus.FLUSH_SLAVE_TIMEOUT)
        client.close()
        held = await_(lambda: self.held_back(master), 60.0, "status names it")
        assert (held["away"], held["why"]) == ([1], "node 1 of the in-sync set is not connected")
        assert held["bytes"] == master.at(Position.APPENDED) - master.at(Position.DISPATCHED) > 0
        assert self.readable(master) == before
        slave.start()
        pair.await_caught_up()
        assert (self.held_back(master), self.readable(master)) == (None, before + 3)

    @pytest.mark.parametrize("marks", [True, False], ids=["all of that", "nothing where no mark is left either"])
    def test_is_what_was_confirmed_where_the_queues_are_derived_anew(self, pair, marks):
        master, slave = pair.nodes
        before, confirmed = self.readable(master), master.at(Position.REPLICATED)
        assert slave.stop()
        client = WireClient(master.endpoint)
        assert client.put(records_of(TOPIC, 3)).status in (PutStatus.SLAVE_NOT_AVAILABLE, PutStatus.FLUSH_SLAVE_TIMEOUT)
        client.close()
        master.stop()
        shutil.rmtree(master.store.consumequeue)
        if not marks:
            shutil.rmtree(master.runtime, ignore_errors=True)
            for mark in (master.store.checkpoint, master.store.durable, master.store.known):
                mark.unlink(missing_ok=True)
        master.start()
        held = await_(lambda: self.held_back(master), 60.0, "status names it")
        begins = confirmed if marks else 0
        assert (held["from"], held["bytes"], held["away"]) == (begins, master.at(Position.APPENDED) - begins, [1])
        await_(lambda: master.at(Position.DISPATCHED) == begins, 60.0, "what was confirmed is in its queue")
        assert self.readable(master) == (before if marks else 0)
        slave.start()
        pair.await_caught_up()
        assert (self.held_back(master), self.readable(master)) == (None, before + 3)


def test_a_master_that_is_alone_wakes_its_sender_with_each_put(tmp_path):
    """Only the sender says that nobody is waited for: without a ring each answer would wait for its sleep to end."""
    settings = {"broker_role": "SYNC_MASTER", "total_replicas": 2, "in_sync_replicas": 2, "min_in_sync_replicas": 1}
    settings |= {"enable_auto_in_sync_replicas": True, "flush_disk_type": "ASYNC_FLUSH"} | PATIENT
    node = TestNode("master", tmp_path, **settings)
    with contextlib.ExitStack() as stack:
        stack.callback(end, node)
        node.start()
        client = WireClient(node.endpoint)
        stack.callback(client.close)
        client.create_topic(TOPIC.decode(), 1)
        assert client.put(records_of(TOPIC, 1)).status == PutStatus.PUT_OK
        line, bell = node.positions.duty(Duty.SEND), os.open(runtime_of(node.store.root).bell("send"), os.O_RDWR)
        stack.callback(os.close, bell)
        pids = node.pids()
        others = [pid for label, pid in pids.items() if label not in ("supervisor", "zygote", "put", "send")]
        stack.callback(signal_all, [pids["send"], *others], signal.SIGCONT)
        signal_all(others, signal.SIGSTOP)  # nobody else rings

        def idle() -> bool:
            return line.sleeping and not waiting_bytes(bell)

        def asleep() -> bool:
            """Stopped only once it sleeps: one that is stopped at every look never comes to it on a busy machine."""
            if not idle():
                return False
            signal_all([pids["send"]], signal.SIGSTOP)
            if idle():
                return True
            signal_all([pids["send"]], signal.SIGCONT)
            return False

        await_(asleep, APPEARS_S, "the sender sleeps")
        client.send(records_of(TOPIC, 1))
        await_(lambda: waiting_bytes(bell), APPEARS_S, "the sender is rung for")
        signal_all([pids["send"], *others], signal.SIGCONT)
        assert client.answer().status == PutStatus.PUT_OK


def signal_all(pids, number):
    for pid in pids:
        os.kill(pid, number)


def waiting_bytes(pipe: int) -> int:
    """Of a FIFO, without taking them."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
