"""Held pulls: woken by their queue's end or by the clock, bounded, and silent while nothing is dispatched."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from towline.format.wire.frames import Pull
from towline.runtime.queue_ends import QueueEnds
from towline.serve.long_poll import HeldPull, HeldPulls

TOPIC = b"t"


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[QueueEnds]:
    made = QueueEnds.create(tmp_path / "ends")
    for queue in range(3):
        made.add(TOPIC, queue, 0, 10, 0)
    yield made
    made.close()


def move(ends: QueueEnds, place: int, max_offset: int) -> None:
    ends.move_all(*np.array([[place], [max_offset], [0]]))


def held(wanted: int = 10, *, queue: int = 0, peer: bytes = b"p", due_ms: int = 500, topic: bytes = TOPIC) -> HeldPull:
    return HeldPull(peer, Pull(1, topic, queue, wanted, 1, 1, 1), wanted, due_ms)


def test_a_pull_is_woken_when_its_queue_passes_what_it_wants(ends):
    holding = HeldPulls(ends)
    first, second, further = held(queue=0), held(queue=1), held(12, queue=0)
    for one in (first, second, further):
        assert holding.add(one)
    move(ends, 0, 11)
    assert holding.woken(1) == [first]
    move(ends, 0, 13)
    move(ends, 1, 11)
    assert sorted(id(one) for one in holding.woken(2)) == sorted(map(id, (second, further)))
    assert len(holding) == 0


def test_nothing_is_compared_while_nothing_was_dispatched(ends):
    holding = HeldPulls(ends)
    holding.woken(1)
    holding.add(held())
    move(ends, 0, 11)
    assert holding.woken(1) == []
    assert len(holding.woken(2)) == 1


def test_a_pull_may_wait_for_a_queue_that_has_no_message_yet(ends):
    holding = HeldPulls(ends)
    early = held(0, queue=7)
    holding.add(early)
    move(ends, 0, 11)
    assert holding.woken(1) == []
    ends.add(TOPIC, 7, 0, 0, 0)
    assert holding.woken(2) == []
    move(ends, 3, 1)
    assert holding.woken(3) == [early]


def test_a_pull_is_taken_out_when_its_time_is_over(ends):
    holding = HeldPulls(ends)
    late, soon = held(due_ms=900), held(due_ms=300, queue=1)
    holding.add(late)
    holding.add(soon)
    assert holding.due_ms(250) == 50
    assert holding.overdue(299) == []
    assert holding.overdue(300) == [soon]
    assert holding.due_ms(1000) == 0
    assert holding.overdue(1000) == [late]
    assert holding.due_ms(1000) > 1_000_000


def test_the_deadline_of_a_woken_pull_wakes_nobody(ends):
    holding = HeldPulls(ends)
    holding.add(held(due_ms=300))
    move(ends, 0, 11)
    holding.woken(1)
    again = held(11, due_ms=800)
    holding.add(again)  # takes the place of the first one
    assert holding.due_ms(100) == 700
    assert holding.overdue(500) == []
    assert holding.overdue(800) == [again]


def test_a_peer_holds_so_many_and_no_more(ends):
    holding = HeldPulls(ends, held_max=3, per_peer_max=2)
    assert holding.add(held(peer=b"a"))
    assert holding.add(held(peer=b"a"))
    assert not holding.add(held(peer=b"a"))
    assert holding.add(held(peer=b"b"))
    assert not holding.add(held(peer=b"c"))
    assert holding.drop(b"a") == 2
    assert holding.add(held(peer=b"c"))


def test_a_peer_that_left_is_not_answered(ends):
    holding = HeldPulls(ends)
    stays = held(peer=b"b")
    holding.add(held(peer=b"a"))
    holding.add(stays)
    assert holding.drop(b"a") == 1
    assert holding.drop(b"a") == 0
    move(ends, 0, 11)
    assert holding.woken(1) == [stays]


def test_deadlines_of_answered_pulls_do_not_pile_up(ends):
    holding = HeldPulls(ends)
    for _ in range(10_000):
        holding.add(held())
        holding.take_all()
    assert len(holding._due) < 2_000


class HeldPullsAreASet(RuleBasedStateMachine):
    """Against a list that is searched from end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.ends = QueueEnds.create(Path(self.directory.name) / "ends")
        self.holding = HeldPulls(self.ends)
        self.model: list[HeldPull] = []
        self.maxima: dict[int, int] = {}
        self.dispatched = 0
        self.now = 0

    def teardown(self) -> None:
        self.ends.close()
        self.directory.cleanup()

    @rule(
        queue=st.integers(0, 4), ahead=st.integers(0, 3), after=st.integers(1, 50), peer=st.sampled_from([b"a", b"b"])
    )
    def hold(self, queue: int, ahead: int, after: int, peer: bytes) -> None:
        one = held(self.maxima.get(queue, 0) + ahead, queue=queue, peer=peer, due_ms=self.now + after)
        assert self.holding.add(one)
        self.model.append(one)

    @rule(queue=st.integers(0, 4), count=st.integers(1, 3))
    def dispatch(self, queue: int, count: int) -> None:
        if queue not in self.maxima:
            self.ends.add(TOPIC, queue, 0, 0, 0)
            self.maxima[queue] = 0
        self.maxima[queue] += count
        move(self.ends, self.ends.find(TOPIC, queue), self.maxima[queue])
        self.dispatched += 1
        self.expect(
            self.holding.woken(self.dispatched),
            [one for one in self.model if self.maxima.get(one.pull.queue_id, 0) > one.wanted],
        )

    @rule(passed=st.integers(0, 30))
    def time_passes(self, passed: int) -> None:
        self.now += passed
        self.expect(self.holding.overdue(self.now), [one for one in self.model if one.due_ms <= self.now])

    @rule(peer=st.sampled_from([b"a", b"b"]))
    def leave(self, peer: bytes) -> None:
        left = [one for one in self.model if one.peer == peer]
        assert self.holding.drop(peer) == len(left)
        self.expect(left, left)

    @invariant()
    def the_nearest_deadline_is_known(self) -> None:
        due = min((one.due_ms for one in self.model), default=self.now + (1 << 30))
        assert self.holding.due_ms(self.now) == max(0, due - self.now)
        assert len(self.holding) == len(self.model)

    def expect(self, found: list[HeldPull], expected: list[HeldPull]) -> None:
        assert sorted(map(id, found)) == sorted(map(id, expected))
        gone = set(map(id, expected))
        self.model = [one for one in self.model if id(one) not in gone]


HeldPullsAreASet.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestHeldPulls = HeldPullsAreASet.TestCase
