"""The in-sync set: nothing counts as replicated that a node which may be promoted does not hold (H14)."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from towline.errors import MalformedFile, MalformedFrame
from towline.format.wire.frames import HA_SET, Kind, expect_set
from towline.ha.sender.in_sync import (
    JOIN_MS,
    PAUSE_MS,
    PROMOTION_MS,
    START_MS,
    VERSIONS,
    InSync,
    InSyncRules,
    began_with,
    first_record,
)
from towline.log.files.config_file import ConfigFile
from towline.log.state.in_sync_file import InSyncFile, InSyncRecord, facts_of, ids_of, mask_of, record_of
from towline.places import Store

RULES = InSyncRules(own=0, floor=2, least=2, enough=2, gap_max=10_000, near=100, catch_up_ms=15_000, late_ms=1500)
LATER = START_MS  # when those who were never there may be left out


@dataclass
class SlaveState:
    held: int = 0
    caught_up_ms: int = LATER
    learner: bool = False


def recorded(members, rules=RULES, now=0):
    """A set of these nodes that stands everywhere."""
    made = InSync(rules, InSyncRecord(256, 0, rules.own, mask_of(members)), now)
    for node in members:
        made.acknowledged(node, (256, 0))
    made.commit()
    return made


def cycle(in_sync, slaves, end=1000, now=LATER, **facts):
    given = {"replicated": 0, "epoch_start": 0} | facts
    return in_sync.cycle(slaves, end=end, now_ms=now, **given)


def ids(record):
    return None if record is None else record.ids


class TestWhatIsReplicated:
    def test_the_least_that_every_member_holds(self):
        slaves = {1: SlaveState(900), 2: SlaveState(700), 3: SlaveState(10)}
        assert recorded([0, 1, 2]).replicated(slaves, 1000) == 700

    def test_nothing_new_while_a_member_is_away(self):
        assert recorded([0, 1, 2]).replicated({1: SlaveState(900)}, 1000) == 0

    def test_nothing_while_the_set_is_smaller_than_the_floor(self):
        assert recorded([0]).replicated({1: SlaveState(900)}, 1000) == 0

    def test_everything_where_the_master_may_be_alone(self):
        assert recorded([0], replace(RULES, floor=1)).replicated({}, 1000) == 1000

    def test_nothing_before_the_first_set_of_this_master_stands_on_its_members(self):
        made = InSync(RULES, InSyncRecord(256, 0, 0, 0b11), 0)
        assert (made.complete, made.replicated({1: SlaveState(1000)}, 1000)) == (False, 0)
        made.acknowledged(1, (256, 0))
        made.commit()
        assert made.replicated({1: SlaveState(1000)}, 1000) == 1000

    def test_while_a_change_is_recorded_both_sets_are_waited_for(self):
        made = recorded([0, 1])
        slaves = {1: SlaveState(1000), 2: SlaveState(900)}
        assert ids(cycle(made, slaves, replicated=900)) == [0, 1, 2]
        assert made.replicated(slaves, 1000) == 900
        made.acknowledged(2, made.asked.order)
        made.commit()
        assert (made.record.ids, made.replicated(slaves, 1000)) == ([0, 1, 2], 900)


@pytest.mark.parametrize(
    ("least", "members", "began"),
    [(1, [0], 700), (2, [0], 0), (1, [0, 1], 0), (2, [0, 1], 0)],
    ids=["alone, where nobody is promoted without its word", "alone, where others may be", "not alone", "nor here"],
)
def test_what_a_promoted_master_began_with_is_shown_at_once_only_where_it_cannot_be_taken_back(least, members, began):
    record = InSyncRecord(256, 0, 0, mask_of(members))
    assert began_with(replace(RULES, least=least), record, 700) == began


class TestWhoJoins:
    def test_a_slave_that_holds_what_is_confirmed(self):
        assert ids(cycle(recorded([0]), {1: SlaveState(500)}, replicated=500)) == [0, 1]

    @pytest.mark.parametrize(
        ("slave", "facts"),
        [
            pytest.param(SlaveState(499), {"replicated": 500}, id="it lacks a confirmed byte"),
            pytest.param(SlaveState(499), {"epoch_start": 500}, id="it lacks a byte of the master before this one"),
            pytest.param(SlaveState(0), {"end": 10_001}, id="it is too far behind"),
            pytest.param(SlaveState(1000, learner=True), {}, id="async_learner"),
        ],
    )
    def test_nobody_else(self, slave, facts):
        assert cycle(recorded([0]), {1: slave}, **facts) is None

    def test_one_that_is_near_is_waited_for_a_moment(self):
        made = recorded([0], replace(RULES, floor=1))
        slaves = {1: SlaveState(950)}
        assert cycle(made, slaves, replicated=1000) is None
        assert made.replicated(slaves, 1000) == 950  # what is confirmed stays at 1000 until it holds that
        slaves[1].held = 1000
        assert ids(cycle(made, slaves, replicated=1000)) == [0, 1]

    def test_one_that_stays_near_holds_nobody_up(self):
        made = recorded([0], replace(RULES, floor=1))
        slaves = {1: SlaveState(950)}
        for now in (LATER, LATER + JOIN_MS, LATER + JOIN_MS + 1):
            cycle(made, slaves, replicated=1000, now=now)
        assert made.replicated(slaves, 1000) == 1000
        cycle(made, slaves, replicated=1000, now=LATER + JOIN_MS + 1 + PAUSE_MS)
        assert made.replicated(slaves, 1000) == 950


class TestWhoLeaves:
    def test_a_slave_that_is_away_once_the_smaller_set_stands_on_those_who_remain(self):
        made = recorded([0, 1, 2])
        slaves = {1: SlaveState(1000)}
        assert ids(cycle(made, slaves)) == [0, 1]
        assert (made.complete, made.replicated(slaves, 1000)) == (False, 0)
        made.acknowledged(1, made.asked.order)
        assert made.complete
        made.commit()
        assert made.replicated(slaves, 1000) == 1000

    def test_nobody_right_after_a_start_but_who_was_there(self):
        assert cycle(recorded([0, 1, 2]), {1: SlaveState(1000)}, now=START_MS - 1) is None
        made = recorded([0, 1, 2])
        assert cycle(made, {1: SlaveState(1000), 2: SlaveState(1000)}, now=100) is None
        assert ids(cycle(made, {1: SlaveState(1000)}, now=200)) == [0, 1]

    def test_nobody_while_a_member_that_is_to_be_promoted_stops_and_asks(self):
        made = recorded([0, 1, 2])
        made.promoting(2, LATER)
        slaves = {1: SlaveState(1000)}
        assert cycle(made, slaves, now=LATER + PROMOTION_MS - 1) is None
        assert made.replicated(slaves, 1000) == 0
        assert ids(cycle(made, slaves, now=LATER + PROMOTION_MS)) == [0, 1]

    def test_a_slave_that_is_away_though_another_one_is_to_be_promoted_that_is_here(self):
        made = recorded([0, 1, 2])
        made.promoting(1, LATER)
        assert ids(cycle(made, {1: SlaveState(1000)})) == [0, 1]

    def test_nobody_below_the_floor(self):
        assert cycle(recorded([0, 1]), {}) is None
        assert cycle(recorded([0, 1, 2]), {}) is None

    def test_nobody_where_one_that_has_to_stay_is_away(self):
        slaves = {1: SlaveState(1000, caught_up_ms=0), 3: SlaveState(1000)}
        assert cycle(recorded([0, 1, 2, 3], replace(RULES, floor=4)), slaves, now=60_000) is None

    def test_a_late_slave_at_once_while_enough_remain_and_else_after_longer(self):
        late = RULES.late_ms + 1
        slaves = {1: SlaveState(1000, LATER + late), 2: SlaveState(500, LATER)}
        assert cycle(recorded([0, 1, 2]), slaves, now=LATER + late - 1) is None
        assert ids(cycle(recorded([0, 1, 2]), slaves, now=LATER + late)) == [0, 1]
        three = replace(RULES, enough=3)
        assert cycle(recorded([0, 1, 2], three), slaves, now=LATER + late) is None
        slaves[1].caught_up_ms = LATER + RULES.catch_up_ms
        assert ids(cycle(recorded([0, 1, 2], three), slaves, now=LATER + RULES.catch_up_ms + 1)) == [0, 1]

    def test_the_one_that_is_latest_where_the_floor_keeps_some(self):
        slaves = {1: SlaveState(500, caught_up_ms=200), 2: SlaveState(400, caught_up_ms=100)}
        assert ids(cycle(recorded([0, 1, 2]), slaves, now=60_000)) == [0, 1]

    def test_one_that_lost_what_it_acknowledged_whatever_the_floor_is(self):
        made = recorded([0, 1])
        assert cycle(made, {1: SlaveState(900)}, replicated=900) is None
        slaves = {1: SlaveState(899)}
        assert ids(cycle(made, slaves, replicated=900)) == [0]
        made.commit()
        assert made.replicated(slaves, 1000) == 0
        slaves[1].held = 1000
        assert cycle(made, slaves, replicated=900, now=LATER + PAUSE_MS - 1) is None
        assert ids(cycle(made, slaves, replicated=900, now=LATER + PAUSE_MS)) == [0, 1]

    def test_one_that_lost_it_though_another_one_is_away(self):
        made = recorded([0, 1, 2])
        assert ids(cycle(made, {1: SlaveState(899)}, replicated=900, now=START_MS - 1)) == [0, 2]
        assert not made.complete, "node 2 has not recorded it"

    def test_one_that_is_too_far_behind(self):
        assert ids(cycle(recorded([0, 1, 2]), {1: SlaveState(20_000), 2: SlaveState(9999)}, end=20_000)) == [0, 1]

    def test_a_slave_that_goes_while_it_joins_has_to_be_left_out_like_any_other(self):
        made = recorded([0, 1])
        cycle(made, {1: SlaveState(1000), 2: SlaveState(1000)})
        first = made.asked
        again = cycle(made, {1: SlaveState(1000)})
        assert (again.ids, again.version) == ([0, 1], first.version + 1)
        made.acknowledged(2, first.order)
        assert not made.complete
        made.acknowledged(1, again.order)
        assert made.complete

    def test_another_one_takes_the_place_of_the_slave_that_is_away(self):
        made = recorded([0, 1])
        slaves = {2: SlaveState(1000)}
        assert ids(cycle(made, slaves)) == [0, 1, 2]
        made.acknowledged(2, made.asked.order)
        made.commit()
        assert ids(cycle(made, slaves)) == [0, 2]


class TestInEtcd:
    RULES = replace(RULES, in_etcd=True)
    BEGIN = InSyncRecord(256, VERSIONS, 0, 0b001)

    def recorded(self, members):
        made = InSync(self.RULES, None, 0)
        made.recorded(mask_of(members), self.BEGIN, 0)
        return made

    def test_before_etcd_has_said_which_set_there_is_nothing_is_replicated(self):
        made = InSync(self.RULES, None, 0)
        assert (made.replicated({1: SlaveState(1000)}, 1000), cycle(made, {1: SlaveState(1000)})) == (0, None)

    def test_a_change_counts_when_etcd_has_it_and_nothing_else_is_asked_until_then(self):
        made = self.recorded([0, 1, 2])
        slaves = {1: SlaveState(1000)}
        assert ids(cycle(made, slaves)) == [0, 1]
        made.recorded(0b111, self.BEGIN, 0b11)
        assert not made.complete
        assert cycle(made, {1: SlaveState(1000), 2: SlaveState(1000)}) is None
        made.recorded(0b011, self.BEGIN, 0b11)
        assert made.complete

    def test_a_sender_that_starts_again_waits_for_what_the_one_before_asked_for(self):
        made = InSync(self.RULES, None, 0)
        made.recorded(0b011, self.BEGIN, 0b111)
        assert (made.counted, made.complete) == (0b111, False)
        made.recorded(0b111, self.BEGIN, 0b111)
        assert made.complete


def test_a_master_goes_on_with_its_set_and_a_promoted_one_begins_alone():
    own = InSyncRecord(256, 3, 0, 0b111)
    other = replace(RULES, own=1)
    assert first_record(RULES, 512, own) == InSyncRecord(512, 0, 0, 0b111, RULES.least)
    assert first_record(other, 513, own) == InSyncRecord(513, 0, 1, 0b010, RULES.least)
    assert first_record(RULES, 256, None) == InSyncRecord(256, 0, 0, 0b001, RULES.least)
    assert first_record(RULES, 256, own).version == VERSIONS


def test_the_set_is_read_as_it_was_saved(tmp_path):
    file = InSyncFile(Store(tmp_path))
    assert file.load() is None
    file.save(InSyncRecord(256, 3, 0, mask_of([0, 5, 62]), 2))
    assert file.load() == InSyncRecord(256, 3, 0, mask_of([0, 5, 62]), 2)


def test_a_set_of_an_older_version_which_says_no_floor_may_have_been_left_to_the_master_alone(tmp_path):
    store = Store(tmp_path)
    facts = facts_of(InSyncRecord(256, 3, 0, 0b11, 2))
    del facts["floor"]
    store.ha.mkdir()
    ConfigFile(store.in_sync).save(facts)
    assert InSyncFile(store).load() == InSyncRecord(256, 3, 0, 0b11, 1)


def test_a_set_is_read_of_a_node_too_that_says_no_floor():
    said = HA_SET.pack(Kind.HA_SET, 256, 3, 0, 0b11, 2)
    assert expect_set(said) == (Kind.HA_SET, 256, 3, 0, 0b11, 2)
    assert expect_set(said[:-8]) == (Kind.HA_SET, 256, 3, 0, 0b11, 0)
    with pytest.raises(MalformedFrame):
        expect_set(said[:-9])


@pytest.mark.parametrize("floor", [0, -1, 65, "x"])
def test_a_floor_that_no_set_has_is_refused(floor):
    with pytest.raises(MalformedFile):
        record_of(facts_of(InSyncRecord(256, 3, 0, 0b11)) | {"floor": floor}, "here")


class ASetOfNodesThatComeAndGo(RuleBasedStateMachine):
    """A master and up to four slaves. What each has recorded is on its disk; the master may be lost at any moment."""

    SLAVES = st.integers(1, 4)

    @initialize(floor=st.integers(2, 3))
    def begin(self, floor):
        times = {"catch_up_ms": 3000, "late_ms": 300}
        self.rules = InSyncRules(own=0, floor=floor, least=floor, enough=floor, gap_max=400, near=50, **times)
        self.now = self.end = self.replicated = self.epoch = 0
        self.logs = dict.fromkeys(range(1, 5), 0)  # what each has, connected or not
        self.fallen = set()
        self.connected = {}
        self.files = {}
        self.own = None
        self.on_their_way = []
        self.start()
        for node in range(1, floor + 1):
            self.connect(node)
            while self.on_their_way:
                self.record(0)

    @rule()
    def start(self):
        """The sender begins, at first or again: only what is on disks is known to it."""
        first = first_record(self.rules, self.epoch, self.own)
        self.own = first
        self.connected, self.on_their_way = {}, []
        self.set = InSync(self.rules, first, self.now)
        self.work()

    @rule(bytes_=st.integers(1, 120))
    def append(self, bytes_):
        self.end += bytes_
        self.work()

    @rule(node=SLAVES, ms=st.integers(0, 400))
    def follow(self, node, ms):
        self.now += ms
        self.logs[node] = self.end
        self.work()

    @rule(node=SLAVES)
    def connect(self, node):
        self.connected[node] = SlaveState(self.logs[node], self.now)
        self.tell(node, self.set.asked or self.set.record)
        self.work()

    @rule(node=SLAVES)
    def leave(self, node):
        self.connected.pop(node, None)
        self.on_their_way = [(to, record) for to, record in self.on_their_way if to != node]
        self.work()

    @rule(node=SLAVES, left=st.integers(0, 400))
    def set_back(self, node, left):
        """Its machine goes back to an earlier state: it has lost what it acknowledged since, and does not know."""
        self.leave(node)
        self.logs[node] = min(self.logs[node], left)
        self.fallen.add(node)

    @rule(ms=st.integers(1, 6000))
    def time_goes_by(self, ms):
        self.now += ms
        self.work()

    @precondition(lambda self: self.on_their_way)
    @rule(data=st.data())
    def a_slave_records(self, data):
        """In order on one link, in any order between links."""
        nodes = sorted({node for node, _ in self.on_their_way})
        node = data.draw(st.sampled_from(nodes))
        self.record(next(i for i, (to, _) in enumerate(self.on_their_way) if to == node))

    def record(self, at):
        node, record = self.on_their_way.pop(at)
        known = self.files.get(node)
        if known is None or record.order > known.order:
            self.files[node] = record
        self.set.acknowledged(node, record.order)
        self.work()

    def tell(self, node, record):
        if record is not None and node in self.connected:
            self.on_their_way.append((node, record))

    def work(self):
        for node, slave in self.connected.items():
            slave.held = self.logs[node]
            if slave.held == self.end:
                slave.caught_up_ms = self.now
        counted = self.set.counted
        asked = self.set.cycle(self.connected, replicated=self.replicated, end=self.end, epoch_start=0, now_ms=self.now)
        if asked is not None:
            for node in asked.ids:
                self.tell(node, asked)
        if self.set.complete:
            before = self.set.record
            settled = self.set.commit()
            self.own = settled
            dropped = mask_of(ids_of(counted)) & ~settled.members
            if dropped:
                assert all(self.files[node].order >= settled.order for node in settled.ids if node)
            if before is not None and before.members.bit_count() >= self.rules.floor and not self.fallen:
                assert settled.members.bit_count() >= self.rules.floor
        self.replicated = max(self.replicated, self.set.replicated(self.connected, self.end))

    def is_set_back(self, node):
        return node != 0 and node in self.fallen and self.logs[node] < self.replicated

    @invariant()
    def one_that_was_set_back_has_no_place_from_its_join_on(self):
        for node in filter(self.is_set_back, self.connected):
            assert node not in (self.set.asked or self.set.record)

    @invariant()
    def every_recorded_member_holds_what_is_replicated(self):
        for node in self.own.ids:
            assert node == 0 or self.is_set_back(node) or self.logs[node] >= self.replicated

    @invariant()
    def whoever_may_be_promoted_holds_what_is_replicated(self):
        """With the master lost the newest record that a slave has decides."""
        if self.files and self.replicated:
            newest = max(self.files.values(), key=lambda record: record.order)
            for node in newest.ids:
                assert node == 0 or self.is_set_back(node) or self.logs[node] >= self.replicated


TestASetOfNodesThatComeAndGo = ASetOfNodesThatComeAndGo.TestCase
TestASetOfNodesThatComeAndGo.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
