"""What put knows of idempotent producers, against a model that keeps the whole log."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from towline.master.put.sequences import (
    AHEAD_MAX_MS,
    ALWAYS,
    BEGUN_AHEAD_MAX_MS,
    PER_MS,
    Claim,
    Last,
    Repeat,
    Sequences,
    Verdict,
    own_of,
)

QUEUES = ((b"orders", 0), (b"orders", 1), (b"others", 0))
PRODUCERS = (11, 22, 33)
DAY_MS = 86_400_000
NODE = 3
OWN = own_of(NODE, 77)
NOW = 1_700_000_000_000
SIZE = 100  # bytes of a record


def claim(first: int, count: int = 1, epoch: int = NOW * PER_MS, producer: int = 11, queue=QUEUES[0]) -> Claim:
    return Claim(producer, epoch, first, count, SIZE * count, queue)


def table(states_max: int = 100, expiration_ms: int = DAY_MS) -> Sequences:
    return Sequences(states_max, expiration_ms)


class TestAProducer:
    def test_begins_with_number_0_and_goes_on_with_the_next_one(self):
        known = table()
        assert known.judge(claim(0, 3), NOW, NOW) is Verdict.NEW
        known.stored(claim(0, 3), 500, 9_000, NOW)
        assert known.judge(claim(3, 2), NOW, NOW) is Verdict.NEW

    def test_that_repeats_its_last_batch_is_told_where_that_stands(self):
        known = table()
        known.stored(claim(0, 3), 500, 9_000, NOW)
        assert known.judge(claim(0, 3), NOW, NOW) == Repeat(500, 9_000 - 3 * SIZE, 9_000)

    @pytest.mark.parametrize(
        "wrong",
        [claim(6), claim(0, 3), claim(2, 2), claim(4, 2)],
        ids=["a gap", "a batch before the last", "parts of two batches", "more than the last one"],
    )
    def test_that_sends_anything_else_is_out_of_order(self, wrong):
        known = table()
        known.stored(claim(0, 3), 500, 9_000, NOW)
        known.stored(claim(3, 2), 503, 9_200, NOW)
        assert known.judge(wrong, NOW, NOW) is Verdict.OUT_OF_ORDER

    def test_counts_in_each_queue_by_itself(self):
        known = table()
        known.stored(claim(0, 3), 500, 9_000, NOW)
        assert known.judge(claim(0, 1, queue=QUEUES[1]), NOW, NOW) is Verdict.NEW
        assert known.judge(claim(3, 1, queue=QUEUES[1]), NOW, NOW) is Verdict.UNKNOWN

    def test_that_was_given_an_epoch_begins_anew_and_the_one_before_is_fenced(self):
        known = table()
        first = known.begin(11, NOW, 0, OWN)
        known.stored(claim(0, 3, first), 500, 9_000, NOW)
        second = known.begin(11, NOW, 0, OWN)
        assert second > first
        assert known.judge(claim(3, 1, first), NOW, NOW) is Verdict.FENCED
        assert known.judge(claim(0, 3, first), NOW, NOW) is Verdict.FENCED
        assert known.judge(claim(0, 1, second), NOW, NOW) is Verdict.NEW

    def test_of_which_nothing_is_known_may_begin_and_not_go_on(self):
        known = table()
        assert known.judge(claim(0), NOW, NOW) is Verdict.NEW
        assert known.judge(claim(7), NOW, NOW) is Verdict.UNKNOWN


class TestEpochs:
    def test_rise_whatever_the_clock_says_and_name_their_node(self):
        known = table()
        given = [known.begin(11, now, stored, OWN) for now, stored in ((NOW, 0), (NOW - 5, 0), (0, NOW + 9), (NOW, 0))]
        assert given == sorted(set(given))
        assert {epoch % PER_MS for epoch in given} == {OWN}
        assert given[2] // PER_MS == NOW + 10

    def test_of_two_nodes_are_never_the_same(self):
        assert table().begin(11, NOW, 0, own_of(1, 5)) != table().begin(11, NOW, 0, own_of(2, 5))

    def test_lie_after_those_that_the_log_holds(self):
        known = table()
        known.recovered(claim(0, 1, (NOW + 50) * PER_MS), Last(0, 0, 100), NOW)
        assert known.begin(11, NOW, 0, OWN) // PER_MS == NOW + 51

    def test_are_given_again_to_who_did_not_hear_the_answer_and_to_nobody_else_of_an_older_one(self):
        known = table()
        first = known.begin(11, NOW, 0, OWN)
        assert known.may_go_on(11, first)
        second = known.begin(11, NOW, 0, OWN, first)
        assert known.may_go_on(11, first), "the answer was lost"
        assert known.may_go_on(11, second)
        known.begin(11, NOW, 0, OWN)
        assert not known.may_go_on(11, first)
        assert not known.may_go_on(11, second)
        assert known.may_go_on(22, first), "nothing is known of it"


class TestForgetting:
    def test_the_producer_that_was_silent_longest_goes_first_and_can_do_nothing_then(self):
        known = table(states_max=2)
        first, second, third = (claim(0, 1, NOW * PER_MS, producer) for producer in PRODUCERS)
        for number, each in enumerate((first, second, third)):
            known.stored(each, number, 100 * number, NOW + number)
        assert len(known) == 2
        assert known.judge(first, NOW, NOW) is Verdict.UNKNOWN, "it may be a repeat"
        assert known.judge(first._replace(first=1), NOW, NOW) is Verdict.UNKNOWN
        assert isinstance(known.judge(second, NOW, NOW), Repeat)

    def test_whoever_begins_afterwards_is_not_concerned(self):
        known = table(states_max=1)
        for number, producer in enumerate(PRODUCERS):
            known.stored(claim(0, 1, NOW * PER_MS, producer), number, 100, NOW + number)
        epoch = known.begin(44, NOW, NOW + 2, OWN)
        assert known.judge(claim(0, 1, epoch, 44), NOW, NOW) is Verdict.NEW

    def test_whoever_is_known_may_begin_in_another_queue(self):
        known = table(states_max=2)
        for number, producer in enumerate(PRODUCERS):
            known.stored(claim(0, 1, NOW * PER_MS, producer), number, 100, NOW + number)
        assert known.judge(claim(0, 1, NOW * PER_MS, 33, QUEUES[1]), NOW, NOW) is Verdict.NEW

    def test_who_stores_nothing_for_the_time_of_the_setting_is_forgotten(self):
        known = table(expiration_ms=1_000)
        known.stored(claim(0), 0, 100, NOW)
        known.stored(claim(0, producer=22), 1, 200, NOW + 1_000)
        assert known.epoch_of(11) is not None
        known.stored(claim(1, producer=22), 2, 300, NOW + 1_001)
        assert known.epoch_of(11) is None
        assert known.states == 1

    def test_an_epoch_from_far_ahead_is_none_that_a_node_gave_out(self):
        known = table()
        assert known.judge(claim(0, 1, (NOW + AHEAD_MAX_MS + 1) * PER_MS), NOW, NOW) is Verdict.UNKNOWN
        assert known.judge(claim(0, 1, (NOW + AHEAD_MAX_MS) * PER_MS), NOW, NOW) is Verdict.NEW

    def test_epochs_that_clients_make_up_move_the_log_no_further_than_that(self):
        known, stored_ms = table(states_max=1_000), NOW
        for number in range(200):
            made = claim(0, 1, (stored_ms + 50_000) * PER_MS, number)
            if known.judge(made, NOW, stored_ms) is Verdict.NEW:
                stored_ms = max(stored_ms, made.begun_ms)
                known.stored(made, number, 100 * number + SIZE, stored_ms)
            made = claim(0, 1, (stored_ms + 1) * PER_MS, 1_000 + number)
            assert known.judge(made, NOW, stored_ms) is Verdict.NEW or stored_ms > NOW
        assert stored_ms <= NOW + AHEAD_MAX_MS

    def test_after_a_clock_was_set_back_by_an_hour_who_begins_can_send_and_who_says_so_himself_cannot(self):
        known, stored_ms = table(), NOW + 3_600_000
        begun = known.begin(11, NOW, stored_ms, OWN)
        assert known.judge(claim(0, 1, begun), NOW, stored_ms) is Verdict.NEW
        assert known.judge(claim(0, 1, begun, 22), NOW, stored_ms) is Verdict.UNKNOWN
        assert known.judge(claim(0, 1, begun + PER_MS), NOW, stored_ms) is Verdict.UNKNOWN
        assert known.judge(claim(0, 1, stored_ms * PER_MS, 33), NOW, stored_ms) is Verdict.NEW

    def test_who_begins_again_and_again_moves_its_own_epoch_alone_and_not_far(self):
        known, given = table(), 0
        while known.may_begin(22, NOW, NOW):
            known.begin(22, NOW, NOW, OWN)
            given += 1
        assert given <= BEGUN_AHEAD_MAX_MS
        assert known.begin(11, NOW, NOW - 1, OWN) // PER_MS == NOW

    def test_who_only_begins_pushes_nobody_out_that_sends(self):
        known = table(states_max=10)
        known.stored(claim(0), 0, 100, NOW)
        for producer in range(100, 200):
            known.begin(producer, NOW, NOW, OWN)
        assert known.judge(claim(1), NOW, NOW) is Verdict.NEW
        assert len(known) == 10
        assert known.epoch_of(199) is not None

    def test_a_repeat_that_would_begin_before_the_log_is_none(self):
        known = table()
        known.stored(claim(0), 0, SIZE, NOW)
        assert known.judge(claim(0)._replace(size=SIZE + 1), NOW, NOW) is Verdict.OUT_OF_ORDER

    def test_a_table_that_is_lost_lets_nobody_begin_who_may_have_begun_before(self):
        known = table()
        known.stored(claim(0), 0, 100, NOW)
        known.forget(NOW)
        assert known.judge(claim(0), NOW, NOW) is Verdict.UNKNOWN
        assert known.judge(claim(0, 1, known.begin(11, NOW, NOW, OWN)), NOW, NOW) is Verdict.NEW


@dataclass
class Client:
    """An idempotent producer as the client library is one: of each queue one batch is under way."""

    producer: int
    epoch: int = -1
    following: dict = field(default_factory=dict)  # by queue: the next number
    unanswered: dict = field(default_factory=dict)  # by queue: the batch under way


class TheTableNeverDoublesAndNeverLoses(RuleBasedStateMachine):
    """The model is the log: a list of (claim, queue offset, end). Nodes restart and see its end alone; the table is
    small; answers get lost."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.draws = NOW, 0
        self.log: list[tuple[Claim, int, int, int]] = []  # with the time
        self.known = Sequences(3, 10_000)
        self.clients = {producer: Client(producer) for producer in PRODUCERS}
        for client in self.clients.values():
            self.begin(client)

    @property
    def stored_ms(self) -> int:
        return self.log[-1][3] if self.log else 0

    @property
    def log_ms(self) -> int:
        return max(self.now, self.stored_ms)

    def begin(self, client: Client) -> None:
        self.draws += 1
        client.epoch = self.known.begin(client.producer, self.now, self.stored_ms, own_of(NODE, self.draws))
        client.following, client.unanswered = {}, {}

    def put(self, made: Claim) -> Repeat | Verdict:
        verdict = self.known.judge(made, self.now, self.log_ms)
        stands = [row for row in self.log if row[0] == made]
        if verdict is Verdict.NEW:
            assert not stands, "doubled"
            end = (self.log[-1][2] if self.log else 0) + made.size
            offset = sum(row[0].records for row in self.log if row[0].queue == made.queue)
            stored_ms = max(self.log_ms, made.begun_ms)
            self.log.append((made, offset, end, stored_ms))
            self.known.stored(made, offset, end, stored_ms)
        elif isinstance(verdict, Repeat):
            ((_, offset, end, _),) = stands
            assert verdict == Repeat(offset, end - made.size, end)
        return verdict

    @rule(
        producer=st.sampled_from(PRODUCERS), queue=st.sampled_from(QUEUES), count=st.integers(1, 4), lost=st.booleans()
    )
    def send(self, producer, queue, count, lost):
        client = self.clients[producer]
        made = client.unanswered.get(queue) or Claim(
            producer, client.epoch, client.following.get(queue, 0), count, SIZE * count, queue
        )
        verdict = self.put(made)
        assert verdict not in (Verdict.OUT_OF_ORDER, Verdict.FENCED)
        if verdict is Verdict.UNKNOWN:  # it is not told whether the batch was stored, and nothing was stored by this
            self.begin(client)
        elif lost:
            client.unanswered[queue] = made
        else:
            client.unanswered.pop(queue, None)
            client.following[queue] = made.last + 1

    @rule(producer=st.sampled_from(PRODUCERS))
    def another_of_that_name_begins_and_the_one_before_is_stopped(self, producer):
        before = self.clients[producer].epoch
        self.begin(self.clients[producer])
        assert self.clients[producer].epoch != before
        for queue in QUEUES:
            if before < self.clients[producer].epoch:  # not so where a node forgot it and set back its clock
                stale = Claim(producer, before, 0, 1, SIZE, queue)
                assert self.known.judge(stale, self.now, self.log_ms) in (Verdict.FENCED, Verdict.UNKNOWN)

    @precondition(lambda self: self.log)
    @rule(row=st.integers(0, 1 << 20))
    def what_came_late_over_a_lost_link_is_not_stored_again(self, row):
        assert self.put(self.log[row % len(self.log)][0]) is not Verdict.NEW

    @rule(ms=st.integers(-3_000, 4_000))
    def the_clock_goes_on_or_is_set_back(self, ms):
        self.now += ms

    @rule(kept=st.integers(0, 6), cut=st.booleans())
    def another_node_goes_on_or_the_same_one_and_sees_the_end_of_its_log(self, kept, cut):
        if cut and self.log:  # what nobody was promised may be gone
            made = self.log[-1][0]
            if self.clients[made.producer].unanswered.get(made.queue) == made:
                del self.log[-1]
        self.known = Sequences(3, 10_000)
        tail = self.log[-kept:] if kept else []
        if len(tail) < len(self.log):
            if tail:
                self.known.known_since_ms = tail[0][3]
            else:
                self.known.forget(self.log[-1][3])
        for made, offset, end, stored_ms in tail:
            last = Last(made.last, offset + made.records - 1, end)
            self.known.recovered(made._replace(first=made.last, records=1), last, stored_ms)

    @rule()
    def the_table_is_bounded(self):
        assert self.known.states <= 3 + len(QUEUES)
        assert len(self.known) <= 3 + 1


TestTheTable = TheTableNeverDoublesAndNeverLoses.TestCase
TestTheTable.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_nothing_was_forgotten_at_first():
    assert table().known_since_ms == ALWAYS
