"""What a node says of itself to its peers, what it promises them, and what it does not."""

import json
import logging

import pytest

from towline.clock import SystemClock
from towline.errors import MalformedFrame
from towline.format.files.epochs import number_of
from towline.log.files.mirrored_file import MirroredFile
from towline.log.state.in_sync_file import FLOOR_UNKNOWN, InSyncFile, InSyncRecord, mask_of
from towline.node.peers.peer_server import EPOCH_MAX, PeerServer
from towline.node.process.context import Node
from towline.node.roles.agreement import report_of
from towline.node.roles.promise import NOTHING, Promise, load_promise
from towline.places import Runtime, Store
from towline.runtime.positions import Duty, Position, Positions
from towline.runtime.settings import Settings

OWN = number_of(2, 0)


@pytest.fixture(params=["SYNC_MASTER", "SLAVE"])
def node(request, tmp_path):
    """Node 0 of three, in epoch 512; its log ends at 1000, of which 900 bytes are flushed."""
    store, runtime = Store(tmp_path / "store"), Runtime(tmp_path / "run")
    for directory in (store.ha, store.run, runtime.root):
        directory.mkdir(parents=True)
    given = {"broker_role": request.param, "flush_disk_type": "SYNC_FLUSH"}
    given |= {"broker_id": 0, "ha_peers": "0=a:1,1=b:2,2=c:3"}
    settings = Settings(**given, store_path_root_dir=store.root)
    positions = Positions.create(runtime.positions, 1)
    for position, value in ((Position.EPOCH, OWN), (Position.APPENDED, 1000), (Position.FLUSHED, 900)):
        positions.writer(position, Duty.RECOVER).advance(value)
    duty = Duty.FOLLOW if request.param == "SLAVE" else Duty.SEND
    yield Node(store, runtime, settings, positions, duty, 1, logging.getLogger("test"), SystemClock())
    positions.close()


@pytest.fixture
def server(node):
    return PeerServer(node)


def promise(server, term, to, **more):
    return server.answer({"op": "promise", "epoch": number_of(term, to), "node": to} | more)


def ordered(node):
    return json.loads(node.store.order.read_text())["order"] if node.store.order.exists() else None


def test_its_state_is_what_agreement_reads(node, server):
    said = server.answer({"op": "state"})
    report = report_of(said)
    assert (report.node, report.following, report.end, report.promised) == (0, OWN, 1000, 0)
    assert said["role"] == ("slave" if node.duty is Duty.FOLLOW else "master")
    assert said["ha"] == ["tcp://127.0.0.1:10912"]


@pytest.mark.parametrize(
    ("node", "confirmed"), [("ASYNC_MASTER", 1000), ("SYNC_MASTER", 0), ("SLAVE", 0)], indirect=["node"]
)
def test_an_async_master_says_that_all_of_its_log_may_be_shown(server, confirmed):
    """It shows what its disk has, whoever follows it, and goes on with that behind its promise."""
    assert report_of(server.answer({"op": "state"})).confirmed == confirmed


def test_a_promise_is_on_disk_and_published_and_ends_a_masters_time(node, server):
    said = promise(server, 3, 1)
    assert (said["granted"], said["promised"], said["promised_node"]) == (True, number_of(3, 1), 1)
    assert load_promise(node.store) == Promise(number_of(3, 1), 1)
    assert node.positions.get(Position.PROMISED) == number_of(3, 1)
    assert ordered(node) == ("agree" if node.duty is Duty.SEND else None)


def test_a_promise_is_given_once_and_repeated_to_the_same_node_alone(server):
    assert promise(server, 3, 1)["granted"]
    assert promise(server, 3, 1)["granted"]
    assert not promise(server, 2, 2)["granted"]
    assert promise(server, 3, 2)["granted"], "a higher number"
    assert not promise(server, 3, 1)["granted"], "it has gone to another"


def test_a_promise_keeps_the_least_floor_of_those_that_were_promised_since_a_set_was_heard(node, server):
    assert promise(server, 3, 1, floor=2)["promised_floor"] == 2
    assert promise(server, 3, 1, floor=1)["promised_floor"] == 1, "it was lowered there"
    assert promise(server, 3, 1, floor=2)["promised_floor"] == 1, "it may have gone on before it was raised"
    assert promise(server, 4, 2, floor=2)["promised_floor"] == 1
    assert load_promise(node.store) == Promise(number_of(4, 2), 2, 1)
    InSyncFile(node.store).save(InSyncRecord(number_of(4, 2), 1, 2, mask_of([2]), 2))
    assert promise(server, 5, 1, floor=2)["promised_floor"] == 2, "the set of the latest one was heard"


def test_a_promise_of_which_nobody_says_the_floor_is_taken_for_one_that_asks_most(node, server):
    assert promise(server, 3, 1)["promised_floor"] == FLOOR_UNKNOWN
    node.store.promise.unlink()
    MirroredFile(node.store.promise).save({"epoch": number_of(3, 1), "node": 1})  # of an older version
    assert load_promise(node.store) == Promise(number_of(3, 1), 1, FLOOR_UNKNOWN)


@pytest.mark.parametrize(("term", "to"), [(1, 2), (3, 0)], ids=["below its own epoch", "to itself"])
def test_what_is_not_promised_changes_nothing(node, server, term, to):
    assert not promise(server, term, to)["granted"]
    assert load_promise(node.store) == NOTHING
    assert ordered(node) is None


@pytest.mark.parametrize(
    "question",
    [
        {"epoch": "769", "node": 1},
        {"epoch": 769, "node": 2},
        {"epoch": 769.0, "node": 1},
        {"epoch": True, "node": 1},
        {"epoch": -255, "node": 1},
        {"epoch": EPOCH_MAX + 1, "node": 1},
        {"epoch": 769, "node": 1, "floor": 0},
        {"epoch": 769, "node": 1, "floor": "2"},
        {},
    ],
    ids=str,
)
def test_questions_that_make_no_sense_are_refused(node, server, question):
    with pytest.raises(MalformedFrame):
        server.answer({"op": "promise"} | question)
    assert load_promise(node.store) == NOTHING


def test_hearing_of_a_higher_epoch_is_a_promise_to_its_master(node, server):
    assert not server.observe_epoch(OWN - 1)
    assert not server.observe_epoch(number_of(3, 0)), "its own number"
    assert not server.observe_epoch(number_of(3, 9)), "nobody's"
    assert not server.observe_epoch(EPOCH_MAX * 2 + 1), "forged"
    assert load_promise(node.store) == NOTHING
    assert server.observe_epoch(number_of(3, 2))
    assert load_promise(node.store) == Promise(number_of(3, 2), 2)
    assert node.positions.get(Position.PROMISED) == number_of(3, 2)


def test_a_promise_that_cannot_be_kept_is_not_given(node, server):
    node.store.ha.rmdir()
    node.store.ha.write_text("in the way")
    with pytest.raises((OSError, MalformedFrame)):
        promise(server, 3, 1)
    assert node.positions.get(Position.PROMISED) == 0
