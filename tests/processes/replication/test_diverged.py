"""A node whose log goes on with what its new master does not have: it cuts that off, keeps it, and follows."""

import os
import shutil
import signal

import pytest

from tests.processes.arming import Arming
from tests.processes.groups import Group
from tests.processes.nodes import (
    INDEXES,
    POOLED,
    QUEUE_FILE,
    SEGMENT,
    SLOTS,
    TestNode,
    check_nothing_is_left,
    ended,
    free_port,
)
from tests.processes.stored import Stored, check_same_log
from tests.processes.waiting import Watch, await_, read_saved
from tests.processes.wire import WireClient, records_of
from towline.cli import node_work
from towline.errors import NothingToGiveUp
from towline.format.files.epochs import node_of
from towline.format.wire.status import PutStatus
from towline.log.recovery.recovery import RecoverySettings
from towline.log.recovery.truncation import STEPS
from towline.log.repair.verify import verify
from towline.log.repair.verify_report import Weight
from towline.log.state.epoch_file import EpochFile
from towline.log.state.truncation_file import Truncation, TruncationFile, epochs_of, kept_tails
from towline.node.report.status import read_status
from towline.node.roles.role_commands import accept_loss_once
from towline.runtime.positions import Position

TOPIC = b"orders"
TIMEOUT_MS = 1000
SHAPE = RecoverySettings(segment_size=SEGMENT, queue_file_size=QUEUE_FILE, index_slots=SLOTS, index_indexes=INDEXES)


@pytest.fixture
def group(request, tmp_path):
    made = Group(tmp_path, 2, **({"slave_timeout": TIMEOUT_MS} | request.param))
    ending = ended(*made.nodes)
    next(ending)
    yield made
    next(ending, None)


def await_both_in_sync(node):
    def both():
        node.forget()
        return node.at(Position.IN_SYNC) == 0b11

    await_(both, 60.0, "both are in the in-sync set")


def put(node, count, *, size=300, queue_id=0, times=1):
    client = WireClient(node.endpoint)
    client.create_topic(TOPIC.decode(), 4)
    statuses = {client.put(records_of(TOPIC, count, size=size, queue_id=queue_id)).status for _ in range(times)}
    client.close()
    return statuses


def part(group, master, slave):
    """The master writes what its slave never gets, and dies. Its log's end."""
    receive = slave.pids()["receive"]
    os.kill(receive, signal.SIGSTOP)
    before = master.at(Position.APPENDED)
    assert put(master, 2000, queue_id=1) == {PutStatus.FLUSH_SLAVE_TIMEOUT}
    end = master.at(Position.APPENDED)
    assert end > before + 500_000
    master.kill_all(seed=end)
    os.kill(receive, signal.SIGKILL)  # what stands in its socket goes with it
    return before, end


def check_same(group):
    end = group.await_level(0, 1)
    found = []
    for node in group.nodes:
        stored = Stored(node.store, end)
        found.append((stored.read(TOPIC.decode()), stored.check_queues()))
        stored.check_zeros_behind()
        stored.close()
    assert found[0] == found[1]
    check_same_log(*(node.store.commitlog for node in group.nodes), end)
    lists = [EpochFile(node.store).load() for node in group.nodes]
    assert lists[0] == lists[1]
    assert lists[0][-1].number == group.nodes[0].at(Position.EPOCH) == group.nodes[1].at(Position.EPOCH)
    return end


@pytest.mark.parametrize(
    ("group", "times"),
    [
        pytest.param({}, 2, id="files, and then the other way round"),
        pytest.param(POOLED | {"slave_timeout": TIMEOUT_MS}, 1, id="transient pool"),
    ],
    indirect=["group"],
)
def test_a_master_that_comes_back_cuts_off_what_nobody_has(group, times):
    group.start()
    zero, one = group.nodes
    await_both_in_sync(zero)
    assert put(zero, 1000, times=3) == {PutStatus.PUT_OK}
    group.await_level(0, 1)
    topics = one.store.config / "topics.json"
    await_(lambda: TOPIC in read_saved(topics), 60.0, "the topic is on the slave")
    for number, (master, slave) in enumerate(((zero, one), (one, zero))[:times]):
        before, end = part(group, master, slave)
        group.promote(1 - number)
        assert slave.at(Position.APPENDED) == before
        master.start()
        group.await_role(number, "slave")
        await_both_in_sync(slave)
        assert put(slave, 500, queue_id=2, times=2) == {PutStatus.PUT_OK}
        check_same(group)
        (kept,) = kept_tails(master.store)
        assert (kept.cut.point, kept.cut.end, kept.cut.node, kept.cut.master) == (before, end, number, 1 - number)
        ((epoch, *span),) = epochs_of(kept)
        assert (node_of(epoch), span) == (number, [before, end])
        assert "truncate" not in {path.stem for path in master.store.ha.iterdir()}
    assert (zero.stop(), one.stop()) == (True, True)
    assert [verify(node.store, SHAPE).weight for node in group.nodes] == [Weight.NOTE, Weight.NOTE]
    check_nothing_is_left(*group.nodes)


@pytest.fixture
def arming(tmp_path):
    return Arming(tmp_path)


@pytest.fixture
def pair(tmp_path):
    port = free_port()
    master = TestNode("master", tmp_path / "master", ha_listen_port=port)
    slave = TestNode("slave", tmp_path / "slave", ha_master_address=f"127.0.0.1:{port}")
    ending = ended(master, slave)
    next(ending)
    yield master, slave
    next(ending, None)


def await_level(master, slave):
    parts = (Position.APPENDED, Position.DISPATCHED)

    def level():
        end = master.at(Position.APPENDED)
        return {node.now(part) for node in (master, slave) for part in parts} == {end}

    await_(level, 60.0, "master and slave are level")
    return master.at(Position.APPENDED)


def test_a_master_that_was_put_back_to_an_older_copy_needs_the_operators_word(pair, tmp_path, arming):
    """Its next epoch has a number and a start that it had before: only the bytes tell the two apart (H18)."""
    master, slave = pair
    with pytest.MonkeyPatch.context() as patch:
        arming.announce(patch)
        slave.start()
    master.start()
    put(master, 1000)
    first = await_level(master, slave)
    master.stop()
    shutil.copytree(master.store.root, tmp_path / "copy")
    master.start()
    put(master, 1000, size=400)
    second = await_level(master, slave)
    master.kill_all(seed=2)
    shutil.rmtree(master.store.root)
    (tmp_path / "copy").rename(master.store.root)
    master.start()
    put(master, 500, size=350)
    assert EpochFile(master.store).load() == EpochFile(slave.store).load()
    said = f"only up to {first}, and up to {second} it was confirmed here"
    await_(lambda: said in slave.store.node_log.read_text(), 60.0, "the slave says why it does not follow")
    typed = f"`towline slave accept-loss --store {slave.store.root}`"

    def tells() -> bool:
        link = read_status(slave.store.root)["master"]
        return link is not None and not link["connected"] and said in link["why"] and typed in link["why"]

    await_(tells, 60.0, "and its status what is to be typed")
    back = "are not ours: one epoch back"
    await_(lambda: back in slave.store.node_log.read_text(), 60.0, "the slave sees that the bytes differ")
    assert (slave.at(Position.APPENDED), slave.store.truncate.exists()) == (second, False)
    arming.arm("truncate.before_segment=kill")  # recover dies in the middle: the node ends, and its next start goes on
    node_work.accept_loss(slave.store.root, as_json=True)
    arming.await_fired()
    Watch([slave.pid]).await_gone(60.0)
    slave.launched.end()
    assert slave.store.truncate.exists()
    slave.start()
    end = await_level(master, slave)
    check_same_log(master.store.commitlog, slave.store.commitlog, end)
    (kept,) = kept_tails(slave.store)
    assert (kept.cut.point, kept.cut.end, kept.cut.accept_loss) == (first, second, True)
    assert not slave.store.accept_loss.exists()
    assert (slave.stop(), master.stop()) == (True, True)
    assert verify(slave.store, SHAPE).weight is Weight.NOTE


def test_a_word_to_give_up_what_was_confirmed_holds_for_the_next_join_alone(pair, tmp_path):
    """It cut nothing then; what is to be cut later takes another word."""
    master, slave = pair
    slave.start()
    master.start()
    put(master, 1000)
    first = await_level(master, slave)
    slave.stop()
    accept_loss_once(slave.store)
    slave.start()
    await_(lambda: not slave.store.accept_loss.exists(), 60.0, "the word is taken back")
    assert await_level(master, slave) == first
    for node, role in ((master, "is the master"), (slave, "follows its master")):
        with pytest.raises(NothingToGiveUp, match=role):
            accept_loss_once(node.store)
        assert not node.store.accept_loss.exists()
    master.stop()
    shutil.copytree(master.store.root, tmp_path / "copy")
    master.start()
    put(master, 1000, size=400)
    second = await_level(master, slave)
    master.kill_all(seed=2)
    shutil.rmtree(master.store.root)
    (tmp_path / "copy").rename(master.store.root)
    master.start()
    said = f"only up to {first}, and up to {second} it was confirmed here"
    await_(lambda: said in slave.store.node_log.read_text(), 60.0, "the slave waits for a word")
    assert (slave.at(Position.APPENDED), slave.store.truncate.exists()) == (second, False)


def test_an_empty_slave_may_begin_with_the_last_segment(pair):
    master, slave = pair
    master.start()
    put(master, 1000, size=2000, times=5)
    slave.start("--set", "sync_from_last_file=true")
    end = await_level(master, slave)
    assert slave.at(Position.LOG_MIN) == end - end % SEGMENT > 0
    assert EpochFile(slave.store).load() == EpochFile(master.store).load()
    for stopped in (slave, master, master):
        assert stopped.stop()
        stopped.start()
        put(master, 10)
        end = await_level(master, slave)
    epochs = EpochFile(master.store).load()
    assert len(epochs) == 3
    assert EpochFile(slave.store).load() == epochs
    low = slave.at(Position.LOG_MIN)
    check_same_log(master.store.commitlog, slave.store.commitlog, end, low)


def test_a_receiver_that_died_before_it_gave_the_order_gives_it_again(pair):
    master, slave = pair
    slave.start()
    master.start()
    put(master, 1000)
    first = await_level(master, slave)
    put(master, 1000)
    second = await_level(master, slave)
    facts = {"point": first, "end": second, "epoch": 0, "node": 1, "master": 0, "why": "by hand", "time": 1}
    TruncationFile(slave.store).save(Truncation(**facts, accept_loss=True))
    os.kill(slave.pids()["receive"], signal.SIGKILL)
    await_(lambda: kept_tails(slave.store) and not slave.store.truncate.exists(), 60.0, "the slave cuts its log")
    assert await_level(master, slave) == second
    check_same_log(master.store.commitlog, slave.store.commitlog, second)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_node_killed_at_any_step_of_a_truncation_goes_on_with_its_next_start(pair, arming, step):
    master, slave = pair
    with pytest.MonkeyPatch.context() as patch:
        arming.announce(patch)
        slave.start()
    master.start()
    put(master, 1000)
    first = await_level(master, slave)
    put(master, 5000, times=2)  # over the end of a segment
    second = await_level(master, slave)
    assert second // SEGMENT > first // SEGMENT
    facts = {"point": first, "end": second, "epoch": 0, "node": 1, "master": 0, "why": "by hand", "time": 1}
    TruncationFile(slave.store).save(Truncation(**facts, accept_loss=True))
    before = (slave.store.commitlog / f"{0:020d}").read_bytes()
    arming.arm(f"truncate.before_{step}=kill")
    os.kill(slave.pids()["receive"], signal.SIGKILL)
    arming.await_fired()
    Watch([slave.pid]).await_gone(60.0)
    slave.launched.end()
    slave.start()
    assert await_level(master, slave) == second
    (kept,) = kept_tails(slave.store)
    assert [start for _, start, _ in kept.files] == [first, SEGMENT]
    assert before[first:].startswith((slave.store.diverged / kept.files[0][0]).read_bytes())
    check_same_log(master.store.commitlog, slave.store.commitlog, second)
    assert (slave.stop(), master.stop()) == (True, True)
    assert verify(slave.store, SHAPE).weight is Weight.NOTE
