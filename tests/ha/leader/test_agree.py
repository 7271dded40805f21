"""What a node agrees on with its peers: what an order may ask for, what binds it, what is durable first."""

import json
import logging
import time

import pytest

from tests.etcd_server import free_port
from towline.clock import SystemClock
from towline.errors import DoubtRefused, PromotionRefused
from towline.format.files.durable import Durable
from towline.format.files.epochs import Epoch, number_of
from towline.ha.leader.agree import Agreement, least_epoch
from towline.log.errors import WordLost
from towline.log.files.mirrored_file import MirroredFile
from towline.log.files.segment_files import segment_name
from towline.log.state.durable_file import DurableFile
from towline.log.state.epoch_file import EpochFile
from towline.log.state.in_sync_file import InSyncFile, InSyncRecord, mask_of
from towline.node.process.context import Node
from towline.node.roles.promise import NOTHING, Promise, begin_doubt, load_promise, save_promise
from towline.places import Runtime, Store
from towline.runtime.positions import Duty, Position, Positions
from towline.runtime.settings import Settings

OWN = number_of(2, 0)
FLUSHED, END = 400, 1000
HOUR_NS = 3600 * 10**9


@pytest.mark.parametrize(
    ("asked", "least"),
    [
        (number_of(7, 3), number_of(7, 3)),
        (number_of(7, 2), 0),  # another node's
        (None, 0),
        (True, 0),
        ("1795", 0),
        (1795.0, 0),
    ],
)
def test_the_least_number_of_an_epoch_is_one_of_this_node(asked: object, least: int) -> None:
    assert least_epoch(asked, 3) == least


def test_a_bool_is_no_number() -> None:
    assert least_epoch(True, 1) == 0


@pytest.fixture
def node(tmp_path):
    """Node 0 of two, recovered in epoch 512; at the other one's address nobody listens. In sync are both."""
    store, runtime = Store(tmp_path / "store"), Runtime(tmp_path / "run")
    for directory in (store.ha, store.run, store.commitlog, store.config, runtime.root):
        directory.mkdir(parents=True)
    (store.commitlog / segment_name(0)).write_bytes(bytes(END))
    durable = DurableFile(store.root)
    durable.save(Durable(flushed=FLUSHED, segment_base=0, log_min=0))
    durable.close()
    InSyncFile(store).save(InSyncRecord(OWN, 1, 0, mask_of([0, 1]), 2))
    EpochFile(store).save((Epoch(OWN, 0),))
    given = {"broker_role": "SYNC_MASTER", "broker_id": 0, "in_sync_replicas": 2, "min_in_sync_replicas": 2}
    given |= {"ha_peers": f"0=127.0.0.1:{free_port()},1=127.0.0.1:{free_port()}", "total_replicas": 2}
    settings = Settings(**given, store_path_root_dir=store.root)
    positions = Positions.create(runtime.positions, 1)
    for position, value in ((Position.EPOCH, OWN), (Position.APPENDED, END), (Position.FLUSHED, FLUSHED)):
        positions.writer(position, Duty.RECOVER).advance(value)
    yield Node(store, runtime, settings, positions, Duty.AGREE, 1, logging.getLogger("agree"), SystemClock())
    positions.close()


class TestAnElection:
    def order(self, until_ns):
        return {"order": "promote", "elected": number_of(3, 0), "epoch": number_of(3, 0), "until_ns": until_ns}

    def test_that_is_older_than_a_lease_promises_nothing(self, node):
        """The node stood still: another one may have been elected, and its peers would promise to this one."""
        with pytest.raises(PromotionRefused, match="longer ago than a lease"):
            Agreement(node).promote(self.order(time.clock_gettime_ns(time.CLOCK_BOOTTIME) - 1))
        assert load_promise(node.store) == NOTHING

    def test_of_just_now_is_gone_on_with(self, node):
        role = Agreement(node).promote(self.order(time.clock_gettime_ns(time.CLOCK_BOOTTIME) + HOUR_NS))
        promised = Promise(role.epoch, 0, node.settings.min_in_sync_replicas)
        assert (role.role, load_promise(node.store)) == ("master", promised)


class TestANodeInDoubt:
    """After a power cut its log may end before what the silent one acknowledged with it."""

    @pytest.fixture(autouse=True)
    def in_doubt(self, node, monkeypatch):
        begin_doubt(node.store)
        monkeypatch.setattr("towline.ha.leader.agree.PEERS_WAIT_S", 0.2)

    def test_does_not_go_on_before_the_other_one_was_heard(self, node):
        with pytest.raises(DoubtRefused, match="node 1 may hold it"):
            Agreement(node).start({})
        assert node.store.doubt.exists()

    def test_that_was_told_of_another_master_is_a_slave_until_then(self, node):
        role = Agreement(node).start({"running": True})
        assert (role.role, "node 1 may hold it" in role.why) == ("slave", True)

    def test_goes_on_when_the_operator_says_so_and_is_in_doubt_no_more(self, node):
        save_promise(node.store, Promise(number_of(6, 0), 0))
        role = Agreement(node).start({"alone": True})
        assert (role.role, role.epoch) == ("master", number_of(7, 0)), "it may have written in 6, and lost that"
        assert not node.store.doubt.exists()

    def test_is_not_promoted_by_hand_either(self, node):
        with pytest.raises(PromotionRefused, match="node 1 may hold it"):
            Agreement(node).promote({"order": "promote"})
        assert load_promise(node.store) == NOTHING
        assert Agreement(node).promote({"order": "promote", "accept_loss": True}).role == "master"


def test_a_master_that_has_lost_nothing_waits_for_nobody(node):
    """And the number that it opened last and never wrote in is taken up again."""
    save_promise(node.store, Promise(number_of(6, 0), 0))
    assert Agreement(node).start({}).epoch == number_of(6, 0)


def test_a_promotion_that_was_cut_short_takes_no_promise_back(node):
    """Killed behind its promise to itself, started when the order is too old: node 1 may be master by now."""
    given = Promise(number_of(4, 1), 1)
    save_promise(node.store, Promise(number_of(6, 0), 0), before=given)
    role = Agreement(node).start({})
    assert (role.role, role.master) == ("slave", 1)
    assert f"epoch {given.epoch} to node 1" in role.why


def test_a_promoted_log_is_durable_before_anything_says_that_it_is_confirmed(node, monkeypatch):
    synced = []
    before = InSyncFile(node.store).load()

    def note(path):
        synced.append((path.name, InSyncFile(node.store).load() == before, str(number_of(6, 0)) in epochs(node)))

    monkeypatch.setattr("towline.log.recovery.recovery.sync_file", note)
    role = Agreement(node).promote({"order": "promote", "epoch": number_of(6, 0)})
    assert synced == [(segment_name(0), True, False)]
    assert (role.epoch, str(role.epoch) in epochs(node)) == (number_of(6, 0), True)


def epochs(node):
    return node.store.epochs.read_text()


def record_both(node, terms=(4, 5)):
    for term in terms:
        save_promise(node.store, Promise(number_of(term, 1), 1))
        InSyncFile(node.store).save(InSyncRecord(OWN, term, 0, mask_of([0])))


def damaged(path, damage):
    if damage is None:
        facts = json.loads(path.read_text())
        facts[min(key for key in facts if key not in ("towlineCheck", "isCopy"))] = 1
        damage = json.dumps(facts).encode()
    path.write_bytes(damage)


DAMAGES = {"empty": b"", "torn": b"{", "no text": b"\xff", "edited": None}


@pytest.mark.parametrize("name", ["promise", "in_sync"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("which", ["", ".bak"], ids=["file", "copy"])
def test_of_two_copies_of_a_word_one_answers_for_the_other(node, name, damage, which):
    record_both(node)
    path = getattr(node.store, name)
    damaged(path.with_name(path.name + which), damage)
    said = Agreement(node)._own
    assert (said.promised, said.in_sync.version) == (number_of(5, 1), 5)
    file = MirroredFile(path)
    assert not file.is_whole
    assert file.heal()
    assert file.is_whole
    assert not file.heal()


@pytest.mark.parametrize("name", ["promise", "in_sync"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("release", ["this one", "one that kept the word before"])
def test_a_damaged_word_is_not_answered_by_the_one_before(node, name, damage, release):
    """A lower promise lets the node follow a master that was deposed; an older set has members that are none."""
    path = getattr(node.store, name)
    backup = path.with_name(path.name + ".bak")
    record_both(node, [4])
    before = path.read_bytes()
    record_both(node, [5])
    damaged(path, damage)
    if release == "this one":
        damaged(backup, damage)
    else:
        backup.write_bytes(before)
    with pytest.raises(WordLost, match=str(path)):
        Agreement(node)


@pytest.mark.parametrize("name", ["promise", "in_sync"])
def test_of_a_word_that_a_crash_left_without_a_name_the_copy_stands(node, name):
    record_both(node)
    getattr(node.store, name).unlink()
    said = Agreement(node)._own
    assert (said.promised, said.in_sync.version) == (number_of(5, 1), 5)
