"""Another node becomes master: nothing that was acknowledged is lost, and whoever was master follows (H16)."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.processes.arming import PROMOTION_STEPS, Arming
from tests.processes.groups import Group
from tests.processes.load import Load
from tests.processes.nodes import CATCH_UP_S, check_nothing_is_left, ended
from tests.processes.stopping import stopped
from tests.processes.stored import Stored, check_load, check_same_log
from tests.processes.waiting import await_
from towline.errors import OrderTooOld, PromotionRefused
from towline.format.files.epochs import term_of
from towline.log.state.role_file import load_role
from towline.node.process.context import runtime_of
from towline.node.roles.promise import load_promise
from towline.node.roles.role_commands import OUTCOME_MAX_S, PROMOTE, await_result, submit_command
from towline.runtime.positions import Duty, Position

# A master that is fenced has stored what it did not promise; the producer is told so, and does not send it again.
OUTCOMES = {"PUT_OK", "FLUSH_SLAVE_TIMEOUT"}


@contextlib.contextmanager
def running(made: Group) -> Iterator[Group]:
    ending = ended(*made.nodes)
    next(ending)
    try:
        made.start()
        yield made
        assert all(node.stop() for node in made.nodes if node.launched is not None)
        check_nothing_is_left(*made.nodes)
    finally:
        next(ending, None)


def check_group(group: Group, load: Load, *numbers: int) -> int:
    """Every node holds every acknowledged message, in the same bytes. The end of the logs."""
    end = group.await_level(*numbers)
    stores = [group.nodes[number].store for number in numbers]
    doubled = set()
    for store in stores:
        stored = Stored(store, end)
        doubled.add(check_load(stored, load))
        stored.check_queues()
        stored.close()
    assert len(doubled) == 1, f"the nodes differ: {doubled}"
    for store in stores[1:]:
        check_same_log(stores[0].commitlog, store.commitlog, end)
    return end


@pytest.fixture(scope="module")
def three(tmp_path_factory) -> Iterator[Group]:
    with running(Group(tmp_path_factory.mktemp("three"), 3)) as made:
        yield made


def sides(group: Group) -> tuple[int, int]:
    """(who is master, who is not) of two; both hold the same and are in sync."""
    old = next(number for number in (0, 1) if group.role(number) == "master")
    group.await_in_sync(old, 2)
    group.await_level(0, 1)
    return old, 1 - old


@pytest.fixture(scope="module")
def armed(tmp_path_factory) -> Iterator[tuple[Group, Arming]]:
    """Two nodes whose processes look for failpoints."""
    directory = tmp_path_factory.mktemp("killed")
    arming = Arming(directory)
    with pytest.MonkeyPatch.context() as patch:
        arming.announce(patch)
        with running(Group(directory, 2)) as group:
            yield group, arming


class TestRefusals:
    def test_of_three_one_alone_is_not_promoted(self, three, caplog):
        """The other two could have gone on without it. The command has no log: the refusal says who is silent."""
        three.await_in_sync(0, 3)
        silent = r"promise of node 0, node 1.*silent: 0: 127\.0\.0\.1:\d+: "
        pids = [pid for number in (0, 1) for pid in three.nodes[number].pids().values()]
        with stopped(*pids), pytest.raises(PromotionRefused, match=silent) as raised:
            three.promote(2)
        assert "nobody listens" not in str(raised.value)
        assert not caplog.records
        assert three.role(2) == "slave"

    def test_a_refused_promotion_changes_nothing(self, three):
        """It has promised nothing, and follows the master as before."""
        assert load_promise(three.nodes[2].store).epoch == 0
        assert load_role(three.nodes[2].store) is None
        load = Load(three.nodes[0].endpoint, "orders", 3, count=600)
        load.start()
        load.finish()
        assert load.outcomes["PUT_OK"] == load.count
        check_group(three, load, 0, 1, 2)


def test_a_killed_master_is_replaced_and_follows_when_it_comes_back(three):
    """Three nodes, two of them needed: the load goes on with the new master before the old one is back."""
    load = Load(",".join(node.endpoint for node in three.nodes), "replaced", 1, count=5000, rate=500)
    load.start()
    load.await_acked(100)
    three.await_topic("replaced")
    three.nodes[0].kill_all(seed=1)
    before = len(load.acked)
    best = max((1, 2), key=lambda number: three.nodes[number].at(Position.APPENDED))
    done = three.promote(best)
    assert done["role"] == "master"
    load.await_acked(before + 1000)
    three.nodes[0].start()
    assert (three.role(0), three.role(best), three.role(3 - best)) == ("slave", "master", "slave")
    load.finish()
    assert load.outcomes.keys() <= OUTCOMES, load.outcomes
    check_group(three, load, 0, 1, 2)


class TestTwo:
    def test_a_master_that_lives_hands_over_and_follows(self, armed):
        """It promises the epoch, is fenced from then on, and becomes a slave by itself; under load, to and fro."""
        group, _ = armed
        old, new = sides(group)
        load = Load(",".join(node.endpoint for node in group.nodes), "handed-over", 2, count=3000, rate=1000)
        load.start()
        load.await_acked(500)
        done = group.promote(new)
        group.await_role(old, "slave")
        load.await_acked(1500)
        back = group.promote(old)
        group.await_role(new, "slave")
        assert term_of(back["epoch"]) > term_of(done["epoch"])
        load.finish()
        assert load.outcomes.keys() <= OUTCOMES, load.outcomes
        check_group(group, load, 0, 1)

    def test_of_two_that_were_told_to_be_master_the_older_is_fenced(self, armed):
        """One stands still while the other is promoted, and hears of it from that one when it goes on."""
        group, _ = armed
        old, new = sides(group)
        with stopped(*group.nodes[old].pids().values()):
            assert group.promote(new)["role"] == "master"
        group.await_role(old, "slave")
        assert group.role(new) == "master"
        load = Load(group.nodes[new].endpoint, "split", 4, count=600)
        load.start()
        load.finish()
        assert load.outcomes["PUT_OK"] == load.count
        check_group(group, load, 0, 1)

    @pytest.mark.parametrize("step", PROMOTION_STEPS)
    def test_a_supervisor_that_is_killed_at_any_step_goes_on_at_its_next_start(self, armed, step):
        group, arming = armed
        old, new = sides(group)
        load = Load(group.nodes[old].endpoint, f"step-{step.rpartition('.')[2]}", 5, count=300)
        load.start()
        load.finish()
        group.await_level(0, 1)
        epoch = group.nodes[new].at(Position.EPOCH)
        arming.arm(f"{step}=stall:20000")
        submit_command(group.nodes[new].store.root, {"order": PROMOTE})
        arming.await_fired()
        group.nodes[new].launched.kill()
        group.nodes[new].launched = None
        group.nodes[new].start()
        assert group.role(new) == "master"
        assert group.nodes[new].at(Position.EPOCH) > epoch
        group.await_role(old, "slave")
        check_group(group, load, 0, 1)

    def test_an_order_that_nobody_waits_for_any_more_is_not_gone_on_with(self, armed):
        group, _ = armed
        old, new = sides(group)
        epoch = group.nodes[new].at(Position.EPOCH)
        assert group.nodes[new].stop()
        given = time.time_ns() - int((OUTCOME_MAX_S + 1) * 1e9)
        group.nodes[new].store.order.write_text(json.dumps({"order": PROMOTE, "number": given}))
        group.nodes[new].start()
        assert (group.role(new), group.role(old)) == ("slave", "master")
        assert not group.nodes[new].store.order.exists()
        with pytest.raises(OrderTooOld, match=r"ordered \d+ s ago"):
            await_result(group.nodes[new].store.root, given)
        await_(lambda: Group.linked(group.nodes[old]) == 1, CATCH_UP_S, "the slave is linked")
        assert group.nodes[new].at(Position.EPOCH) == epoch

    def test_an_election_that_a_kill_cut_short_is_not_gone_on_with(self, armed):
        """Its lease is over, whoever was elected since must not be deposed by its promise."""
        group, _ = armed
        old, new = sides(group)
        epoch = group.nodes[old].at(Position.EPOCH)
        assert group.nodes[new].stop()
        until_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + int(OUTCOME_MAX_S * 1e9)
        order = {"order": PROMOTE, "elected": epoch + 256, "until_ns": until_ns}
        submit_command(group.nodes[new].store.root, order)
        group.nodes[new].start()
        assert (group.role(new), group.role(old)) == ("slave", "master")
        assert not group.nodes[new].store.order.exists()
        await_(lambda: Group.linked(group.nodes[old]) == 1, CATCH_UP_S, "the slave is linked")
        assert group.nodes[old].at(Position.EPOCH) == epoch

    def test_a_node_that_may_have_lost_something_says_so_until_it_was_level_with_a_master(self, armed):
        group, _ = armed
        old, new = sides(group)
        doubt = group.nodes[new].store.doubt
        assert not doubt.exists()
        group.nodes[new].kill_all(seed=8)
        group.nodes[new].start()
        assert not doubt.exists(), "what a killed node wrote is in the page cache"
        group.await_level(0, 1)
        assert group.nodes[old].stop()
        group.nodes[new].kill_all(seed=9)
        memory = runtime_of(group.nodes[new].store.root)
        for path in (memory.page_cache, memory.wrote):  # as after a power cut
            path.unlink()
        group.nodes[new].start()
        assert doubt.exists()
        group.nodes[old].start()
        await_(lambda: not doubt.exists(), CATCH_UP_S, "it is level")


@pytest.fixture
def patient(tmp_path) -> Iterator[Group]:
    """No member leaves the set because it is late."""
    with running(Group(tmp_path, 3, slave_timeout=60_000, ha_max_time_slave_not_catchup=60_000)) as made:
        yield made


def test_under_load_a_member_is_promoted_though_another_one_holds_more(patient):
    """What it lacks was promised to nobody: the other one's tail is cut off, and its sender sends that again."""
    patient.await_in_sync(0, 3)
    nodes = patient.nodes
    load = Load(",".join(node.endpoint for node in nodes), "lesser", 6, count=3000, rate=1000)
    load.start()
    load.await_acked(500)
    patient.await_topic("lesser")
    receiver = nodes[1].positions.duty(Duty.RECEIVE).pid
    os.kill(receiver, signal.SIGSTOP)

    def ahead() -> bool:
        return nodes[2].at(Position.APPENDED) > nodes[1].at(Position.APPENDED)

    await_(ahead, CATCH_UP_S, "the other slave holds more")
    before = len(load.acked)
    nodes[0].kill_all(seed=7)
    os.kill(receiver, signal.SIGKILL)  # what stands in its socket goes with it
    assert ahead()
    assert not nodes[1].store.doubt.exists()
    done = patient.promote(1)
    assert done["role"] == "master"
    load.await_acked(before + 500)
    nodes[0].start()
    load.finish()
    assert load.outcomes.keys() <= OUTCOMES, load.outcomes
    check_group(patient, load, 0, 1, 2)
