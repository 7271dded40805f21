"""Slaves that begin with nothing, or with a backup; backups of nodes that run, and what their stores become."""

import json
import signal
import subprocess
import sys

import pytest

from tests.processes.load import Load
from tests.processes.nodes import INDEXES, QUEUE_FILE, SEGMENT, SLOTS, TestNode, ended, ending, free_port
from tests.processes.stored import Stored, check_same_log
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.cli import store_backup
from towline.cli.seeding import await_level
from towline.log.backup.backup_check import check_backup
from towline.log.backup.backup_manifest import BackupDirectory
from towline.log.errors import RestoreUnfinished
from towline.log.files.config_file import ConfigFile
from towline.log.recovery.recovery import RecoverySettings
from towline.log.repair.verify import verify
from towline.log.state.epoch_file import EpochFile
from towline.node.report.status import progress_of
from towline.places import Store
from towline.runtime.positions import Position

TOPIC = b"orders"
SHAPE = RecoverySettings(segment_size=SEGMENT, queue_file_size=QUEUE_FILE, index_slots=SLOTS, index_indexes=INDEXES)
RATE = 3_000_000
LEVEL_S = 30.0
BACKUP = "import sys; from cli.main import run; sys.exit(run(sys.argv[1:]))"


@pytest.fixture(scope="module")
def port():
    return free_port()


@pytest.fixture(scope="module")
def master(tmp_path_factory, port):
    """Its log has five segments."""
    node = TestNode("master", tmp_path_factory.mktemp("master"), ha_listen_port=port)
    left = ended(node)
    next(left)
    node.start()
    client = WireClient(node.endpoint)
    client.create_topic(TOPIC.decode(), 4)
    for turn in range(8):
        client.put(records_of(TOPIC, 1000, size=2000, queue_id=turn % 4))
    client.close()
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), 60.0, "all is dispatched")
    yield node
    next(left, None)


@pytest.fixture
def slave(tmp_path, port):
    node = TestNode("slave", tmp_path / "slave", ha_master_address=f"127.0.0.1:{port}")
    left = ended(node)
    next(left)
    yield node
    next(left, None)


def check_level(master, slave):
    """What the slave has is the master's log to its end, and a store without a fault. Where it begins."""
    reached = await_level(slave.store.root, LEVEL_S)
    assert reached["at"] >= reached["goal"] > 0
    slave.forget()
    end, low = master.at(Position.APPENDED), slave.at(Position.LOG_MIN)
    await_(lambda: slave.at(Position.DISPATCHED) == end, 60.0, "the slave has dispatched it all")
    check_same_log(master.store.commitlog, slave.store.commitlog, end, low)
    return low


def test_a_slave_that_is_killed_while_it_is_seeded_goes_on_where_it_was(master, slave):
    slave.start("--set", f"seed_byte_in_second={RATE}")
    await_(lambda: slave.at(Position.APPENDED) > SEGMENT // 2, LEVEL_S, "half a segment is there")
    progress = progress_of(slave.positions)
    assert progress["left"] > SEGMENT
    assert 0 < progress["left_s"] < 60.0
    assert 0 < progress["bytes_per_second"] < 4 * RATE  # the master keeps to it, in portions
    before = slave.at(Position.FLUSHED)
    slave.kill_all(seed=5)
    slave.start("--set", f"seed_byte_in_second={RATE}")
    assert before <= slave.at(Position.LOG_MIN) + slave.at(Position.APPENDED) < master.at(Position.APPENDED)
    slave.stop()  # not clean: what came last ends inside a record
    slave.start()  # without a limit, for the rest
    assert check_level(master, slave) == 0
    assert progress_of(slave.positions) | {"left": 0, "left_s": 0.0} == progress_of(slave.positions)


def test_a_slave_begins_with_the_segment_of_an_offset(master, slave):
    slave.start("--set", f"seed=offset:{2 * SEGMENT + 17}")
    assert check_level(master, slave) == 2 * SEGMENT
    assert verify(slave.store, SHAPE, limit=slave.at(Position.DISPATCHED)).weight.value == 0


def backup_of(node, target, *more):
    """The command in a process of its own."""
    command = [sys.executable, "-c", BACKUP, "store", "backup", "--store", node.store.root, "--to", target, "--json"]
    return subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def backup(node, target):
    process = backup_of(node, target)
    said, _ = process.communicate(timeout=40)
    assert process.returncode == 0, said
    return json.loads(said)


def put(node, count, **shape):
    client = WireClient(node.endpoint)
    client.create_topic(TOPIC.decode(), 4)
    answer = client.put(records_of(TOPIC, count, **shape))
    client.close()
    assert answer.status == 0
    return answer


def whole(target):
    found = check_backup(BackupDirectory(target), lambda _: None)
    assert not found.damaged, found.damaged
    return found.manifest


def test_a_backup_of_a_running_node_seeds_a_slave(master, slave, tmp_path):
    """Killed in the middle, made again under load, continued; then restored, and the slave is sent what is new."""
    target = tmp_path / "backup"
    killed = backup_of(master, target, "--limit", "8")
    await_(lambda: (target / "unfinished.json").exists(), 60.0, "a segment is in the backup")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    load = Load(master.endpoint, "clicks", 7, count=4000, rate=2000)
    load.start()
    load.await_acked(500)
    document = backup(master, target)
    assert document["number"] == 1
    assert SEGMENT <= document["kept"] < document["end"] == document["copied"] + document["kept"]
    load.finish()
    first = whole(target)
    put(master, 500)
    again = backup(master, target)
    assert again["kept"] == first.end < again["end"] <= master.at(Position.APPENDED)
    assert whole(target).epochs == EpochFile(master.store).load()
    store_backup.restore_store(target, slave.store.root, "slave", as_json=True)
    put(master, 100)
    slave.start()
    assert slave.at(Position.APPENDED) >= again["end"]
    assert check_level(master, slave) == 0
    assert slave.at(Position.EPOCH) == master.at(Position.EPOCH)


def test_a_restored_store_becomes_a_master(master, tmp_path):
    target = tmp_path / "backup"
    backup(master, target)
    restored = TestNode("master", tmp_path / "restored", ha_listen_port=0)
    store_backup.restore_store(target, restored.store.root, "master", as_json=True)
    end = whole(target).end
    with ending(restored):
        restored.start()
        await_(lambda: restored.at(Position.DISPATCHED) == end, 60.0, "queues are derived")
        assert restored.at(Position.EPOCH) > master.at(Position.EPOCH)
        ours, theirs = (Stored(node.store, end) for node in (restored, master))
        assert ours.read(TOPIC.decode()) == theirs.read(TOPIC.decode())
        put(restored, 10)
        assert restored.stop()


def test_a_queue_that_was_quiet_since_goes_on_with_its_numbers(tmp_path):
    """On a slave that began with the last segment, and on the store of a backup that begins there, as masters."""
    port = free_port()
    master = TestNode("master", tmp_path / "master", ha_listen_port=port)
    slave = TestNode("slave", tmp_path / "slave", ha_master_address=f"127.0.0.1:{port}")
    heirs = [TestNode("master", root, ha_listen_port=0) for root in (slave.store.root, tmp_path / "made")]
    with ending(master, slave, *heirs):
        master.start()
        put(master, 300, queue_id=2)
        for _ in range(2):
            put(master, 1000, size=2000)
        slave.start("--set", "seed=last")
        assert check_level(master, slave) == SEGMENT
        await_((slave.store.config / "queueFloors.json").exists, 60.0, "the slave has asked for the numbers")
        assert slave.stop()
        (master.store.commitlog / f"{0:020d}").rename(tmp_path / "gone")  # as if it was deleted before it was open
        backup(master, tmp_path / "backup")
        (tmp_path / "gone").rename(master.store.commitlog / f"{0:020d}")
        store_backup.restore_store(tmp_path / "backup", heirs[1].store.root, "master", as_json=True)
        for heir in heirs:
            heir.start()
            assert put(heir, 5, queue_id=2).places[0][0] == 300
            assert heir.stop()


def test_no_node_starts_on_half_a_restore(tmp_path):
    node = TestNode("master", tmp_path / "store", ha_listen_port=0)
    node.store.root.mkdir()
    ConfigFile(Store(node.store.root).restoring).save({"backup": "/mnt/backup"})
    with pytest.raises(RestoreUnfinished, match="/mnt/backup"):
        node.start()
