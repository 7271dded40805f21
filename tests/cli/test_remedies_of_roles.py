"""What a node refuses because of its role, or of what it confirmed: the remedy is typed, and it then works."""

from pathlib import Path

import pytest

from tests.processes.nodes import free_port
from tests.processes.waiting import await_
from towline.log.state.durable_file import confirmed_durably
from towline.log.state.truncation_file import Truncation, TruncationFile, kept_tails
from towline.node.roles.promise import begin_doubt
from towline.places import Store

from .typist import TYPED, Typist

pytestmark = pytest.mark.slow  # several nodes each: `make soak` types them

NOBODY = "--set=ha_master_address=127.0.0.1:1"  # a master that does not answer


@pytest.fixture
def confirmed(typist: Typist) -> int:
    """A stopped node with three messages; up to where they are confirmed."""
    where = f"--store {typist.store}"
    typist.works(f"towline master start {where}")
    for _ in range(3):
        typist.works(f"towline put orders hello {where}")
    typist.works(f"towline get orders --max 3 {where}")
    typist.stop()
    return confirmed_durably(Store(typist.store))


def ordered(store: Path, point: int, end: int) -> Path:
    """The order to cut off what was confirmed; its file."""
    file = TruncationFile(Store(store))
    file.save(Truncation(point=point, end=end, epoch=0, node=0, master=1, why="by hand", time=1))
    return file.path


def test_what_was_confirmed_is_given_up_by_a_word(typist: Typist, confirmed: int) -> None:
    start = f"towline slave start --store {typist.store}"
    ordered(typist.store, confirmed // 3, confirmed)
    refused = typist(start, NOBODY)
    assert refused.document["error"] == "TruncationRefused"
    gives_up, _ = TYPED.findall(refused.document["remedy"])
    typist.works(gives_up)
    typist.works(start, NOBODY)
    [kept] = kept_tails(Store(typist.store))
    assert (kept.cut.point, kept.cut.end) == (confirmed // 3, confirmed)
    typist.works(f"towline get orders --max 1 --store {typist.store}")


def test_what_was_confirmed_is_kept_without_the_order_and_by_a_promotion(typist: Typist, confirmed: int) -> None:
    start, where = f"towline slave start --store {typist.store}", f"--store {typist.store}"
    file = ordered(typist.store, confirmed // 3, confirmed)
    _, promotes = typist.refused(start, NOBODY)
    file.rename(typist.store.parent / file.name)
    typist.works(start, NOBODY)
    silent = typist(promotes)
    assert silent.document["error"] == "PromotionRefused"
    assert "say --accept-loss" in silent.document["remedy"]
    typist.works(promotes, "--accept-loss")
    typist.works(f"towline put orders hello {where}")
    typist.works(f"towline get orders --max 4 {where}")
    assert kept_tails(Store(typist.store)) == []


def test_a_master_has_nothing_to_give_up_before_it_is_stopped(typist: Typist, confirmed: int) -> None:
    start = f"towline master start --store {typist.store}"
    typist.works(start)
    gives_up = f"towline slave accept-loss --store {typist.store}"
    refused = typist(gives_up)
    assert refused.document["error"] == "NothingToGiveUp"
    assert "or when the node is stopped" in refused.document["remedy"]
    [status] = TYPED.findall(refused.document["remedy"])
    assert typist(status).document["role"] == "master"
    typist.stop()
    typist.works(gives_up)
    typist.works(start)
    assert confirmed_durably(Store(typist.store)) == confirmed


def test_who_puts_at_a_slave_names_all_nodes_and_then_the_master_is_found(typist: Typist, tmp_path: Path) -> None:
    ha, port, other = free_port(), free_port(), free_port()
    slave, get = Typist(tmp_path / "slave"), f"towline get orders --store {tmp_path / 'slave'}"
    typist.works(
        f"towline master start --store {typist.store}", f"--set=ha_listen_port={ha}", f"--set=listen_port={port}"
    )
    try:
        follows = f"--set=ha_master_address=127.0.0.1:{ha}"
        slave.works(f"towline slave start --store {slave.store}", follows, f"--set=listen_port={other}")
        put = f"towline put orders hello --endpoint tcp://127.0.0.1:{other}"
        refused = typist(put)
        assert refused.document["error"] == "LinkRefused"
        assert "those of all nodes with commas, so that the master is found" in refused.document["remedy"]
        typist.works(f"{put},tcp://127.0.0.1:{port}")
        await_(lambda: slave(get).status == 0, 60.0, "the slave has it")
    finally:
        slave.stop()


def test_a_master_in_doubt_goes_on_by_the_node_that_is_named_or_alone(typist: Typist, tmp_path: Path) -> None:
    """A power cut has been here: the slave may hold what this disk has lost."""
    ports, slave = (free_port(), free_port()), Typist(tmp_path / "slave")
    peers = f"--set=ha_peers=0=127.0.0.1:{ports[0]},1=127.0.0.1:{ports[1]}"
    ours = (peers, "--set=broker_id=0", f"--set=ha_listen_port={ports[0]}", "--set=broker_role=SYNC_MASTER")
    both = ("--set=in_sync_replicas=2", "--set=min_in_sync_replicas=2", "--set=total_replicas=2")
    theirs = (peers, "--set=broker_id=1", f"--set=ha_listen_port={ports[1]}", *both)
    start, follow = f"towline master start --store {typist.store}", f"towline slave start --store {slave.store}"
    put = f"towline put orders hello --store {typist.store}"
    try:
        slave.works(follow, *theirs)
        typist.works(start, *ours, *both)
        await_(lambda: typist(put).status == 0, 60.0, "the slave is in sync")
        slave.stop()
        typist.stop()
        begin_doubt(Store(typist.store))
        refused = typist(start, *ours, *both)
        assert refused.document["error"] == "DoubtRefused"
        assert "start the nodes that are named, or say --alone" in refused.document["remedy"]
        slave.works(follow, *theirs)
        typist.works(start, *ours, *both)
        await_(lambda: typist(put).status == 0, 60.0, "it is master again")
        slave.stop()
        typist.stop()
        begin_doubt(Store(typist.store))
        typist.works(f"{start} --alone", *ours, *both)
        assert typist(f"towline master status --store {typist.store}").document["role"] == "master"
    finally:
        slave.stop()
