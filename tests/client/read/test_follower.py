"""A reader that follows the log's end: when it begins, that nothing is missed or comes twice, and when it ends."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.client.read.logs import APPENDED, DISPATCHED, GENERATION, SEGMENT, LogOfNode
from towline.client.columns import SIZES
from towline.client.read.follower import (
    BEHIND_MAX,
    CLOSE_S,
    IDLE_S,
    LAPSE_S,
    LOOK_MAX_S,
    LOOK_S,
    NEAR,
    PAUSE_S,
    RENEW_S,
    Follower,
    Found,
)
from towline.format.record.record import decode


class Asked:
    """The questions of a follower, and a node that can be asked."""

    def __init__(self) -> None:
        self.questions: list[dict[str, Any]] = []
        self.reachable = True

    def __call__(self, facts: dict[str, Any]) -> int:
        if self.reachable:
            self.questions.append(facts)
        return len(self.questions) if self.reachable else 0


class Following:
    """A follower of a node's log, with a clock."""

    def __init__(self, log: LogOfNode) -> None:
        self.log, self.asked, self.now = log, Asked(), 100.0
        self.follower = Follower(log.tail(), b"t", self.asked)

    def arrive_twice(self, count: int = 1, left: int = 0, apart: float = CLOSE_S / 2) -> None:
        for _ in range(2):
            self.follower.arrived(count, left, self.now)
            self.now += apart

    def answer(self, queues: list[dict[str, int]] | None = None, request_id: int | None = None) -> None:
        facts = {"queues": self.log.ends() if queues is None else queues}
        self.follower.answered(len(self.asked.questions) if request_id is None else request_id, facts, self.now)

    def follow(self, **positions: int) -> None:
        self.arrive_twice()
        self.answer()
        at = {int(name[1:]): at for name, at in positions.items()}
        assert self.follower.begin(at, self.now)

    def take(self) -> Found | None:
        return self.follower.take(self.now)


@pytest.fixture
def log(tmp_path: Path) -> LogOfNode:
    return LogOfNode(tmp_path)


@pytest.fixture
def following(log: LogOfNode) -> Following:
    for _ in range(3):
        log.append()
    log.dispatch()
    return Following(log)


def bodies_of(found: Found) -> list[bytes]:
    sizes = np.frombuffer(found.sizes, dtype=SIZES).tolist()
    ends = np.cumsum(sizes).tolist()
    return [decode(found.records, end - size).body.split(b":")[0] for size, end in zip(sizes, ends, strict=True)]


# --- when it begins


def test_two_answers_close_to_each_other_are_worth_following(following):
    following.follow(q0=3)
    assert following.asked.questions == [{"topic": "t", "read": []}]
    assert following.follower.follows
    assert following.follower.holds_pulls()


@pytest.mark.parametrize(
    "answers", [{"apart": 2 * CLOSE_S}, {"count": NEAR + 1}, {"left": NEAR + 1}], ids=["rare", "large", "behind"]
)
def test_others_are_not(following, answers):
    following.arrive_twice(**answers)
    assert not following.asked.questions


def test_a_node_out_of_reach_is_asked_at_the_next_answer(following):
    following.asked.reachable = False
    following.arrive_twice()
    following.asked.reachable = True
    following.follow(q0=3)


def test_pulls_go_on_until_the_ends_that_the_node_named(following):
    following.arrive_twice()
    assert not following.follower.begin({0: 2}, following.now), "nothing is known yet"
    following.answer()
    assert not following.follower.begin({0: 2}, following.now)
    assert not following.follower.holds_pulls()
    assert following.follower.begin({0: 3}, following.now)


def test_who_is_not_there_in_time_tries_later(following):
    following.arrive_twice()
    following.answer()
    following.now += 2 * CLOSE_S
    assert not following.follower.begin({0: 3}, following.now)
    following.arrive_twice()
    assert len(following.asked.questions) == 1
    following.now += PAUSE_S
    following.follow(q0=3)


@pytest.mark.parametrize("queues", [[], [{"queue": 1, "min": 0, "max": 0}]])
def test_a_queue_that_may_not_be_read_is_not_followed(following, queues):
    following.arrive_twice()
    following.answer(queues)
    assert not following.follower.begin({0: 3}, following.now)


def test_a_refusal_or_a_strangers_answer_begins_nothing(following):
    following.arrive_twice()
    following.answer(request_id=99)
    assert not following.follower.begin({0: 3}, following.now)
    following.follower.answered(1, None, following.now)
    assert not following.follower.begin({0: 3}, following.now)


# --- what it brings


def test_records_come_as_soon_as_they_are_confirmed(following):
    following.follow(q0=3)
    following.log.append(confirm=False)
    assert following.take() is None
    following.log.confirm()
    found = following.take()
    assert (found.queue_id, found.first, found.following) == (0, 3, 4)
    assert bodies_of(found) == [b"3"]
    assert following.take() is None


def test_records_of_several_queues_come_queue_by_queue(following):
    following.log.append(queue=1)
    following.log.dispatch()
    following.follow(q0=3, q1=1)
    for queue in (0, 1, 0, 1, 1):
        following.log.append(queue=queue)
        following.log.append(b"other", queue=queue)
    found = [following.take(), following.take()]
    assert [(each.queue_id, bodies_of(each)) for each in found] == [(0, [b"3", b"4"]), (1, [b"1", b"2", b"3"])]
    assert following.take() is None


def test_what_pulls_brought_before_is_passed_over(following):
    following.arrive_twice()  # DISPATCHED is read: three records stand before it
    following.log.append()
    following.log.append()
    following.log.dispatch()
    following.answer()
    assert following.follower.begin({0: 5}, following.now)
    following.log.append()
    assert bodies_of(following.take()) == [b"5"]


def test_what_was_confirmed_and_not_dispatched_when_the_node_answered_is_not_missed(following):
    following.arrive_twice()
    following.log.append()
    following.answer([{"queue": 0, "min": 0, "max": 3}])
    assert following.follower.begin({0: 3}, following.now)
    assert bodies_of(following.take()) == [b"3"]


def test_it_goes_on_in_the_next_segment(following):
    following.follow(q0=3)
    number = 3
    while following.log.end < 3 * SEGMENT:
        following.log.append(size=700)
        while (found := following.take()) is not None:
            assert bodies_of(found) == [b"%d" % number]
            number += 1
    assert number > 12


def test_the_node_hears_what_was_read(following):
    following.follow(q0=3)
    following.log.append()
    found = following.take()
    following.follower.count(found)
    following.now += RENEW_S + 0.01
    following.log.append()
    following.take()
    assert following.asked.questions[1:] == [{"topic": "t", "read": [[0, 1, len(found.records)]]}]


def test_looks_are_rarer_the_longer_nothing_comes(following):
    following.follow(q0=3)
    rests = [following.follower.rest_s(following.now + since) for since in (0.0, 0.0004, 0.0008, 0.004, IDLE_S)]
    assert rests == [LOOK_S, LOOK_S, pytest.approx(0.0001), pytest.approx(0.0005), LOOK_MAX_S]


# --- when it ends


def ends(following: Following) -> bool:
    """Whether it does not follow any more, and pulls wait until the queues are as long as what was read."""
    assert following.take() is None
    held = following.follower.holds_pulls()
    following.log.dispatch()
    return not following.follower.follows and held and not following.follower.holds_pulls()


def test_silence_ends_it(following):
    following.follow(q0=3)
    following.log.append()
    assert following.take()
    following.now += IDLE_S + 0.001
    assert ends(following)


def test_too_many_bytes_at_once_end_it(following):
    following.follow(q0=3)
    following.log.append(b"other")
    following.log.words[APPENDED] = following.log.words[APPENDED + 1] = BEHIND_MAX + SEGMENT
    assert following.take() is None
    assert not following.follower.follows


def test_a_missing_offset_ends_it(following):
    following.follow(q0=3)
    following.log.append(b"t", 0, queue_offset=8)
    assert ends(following) is False, "nothing was read, so pulls need not wait"
    assert not following.follower.follows


def test_bytes_that_are_no_record_end_it(following):
    following.follow(q0=3)
    following.log.write(b"\xff" * 200)
    following.log.confirm()
    assert following.take() is None
    assert not following.follower.follows


def test_another_start_of_the_node_ends_it_and_brings_nothing(following):
    following.follow(q0=3)
    following.log.append()
    following.log.words[GENERATION] += 1
    assert following.take() is None
    assert not following.follower.follows
    assert not following.follower.is_current


def test_queues_that_may_not_be_read_any_more_end_it(following):
    following.follow(q0=3)
    following.now += RENEW_S + 0.01
    following.log.append()
    assert following.take()
    following.answer([])
    assert not following.follower.follows


def test_a_node_that_does_not_answer_ends_it(following):
    following.follow(q0=3)
    for _ in range(int(LAPSE_S / IDLE_S) + 3):
        following.now += IDLE_S
        following.log.append()
        following.take()
    assert not following.follower.follows


def test_who_leaves_gets_nothing_that_was_ready(following):
    following.log.append(queue=1)
    following.log.dispatch()
    following.follow(q0=3, q1=1)
    following.log.append()
    following.log.append(queue=1)
    assert following.take()
    following.follower.leave()
    assert ends(following)


# --- a model: a node that appends, confirms and dispatches when it likes, and a reader that pulls or follows


class Reading(RuleBasedStateMachine):
    """Each record is read once, in the order of its queue, confirmed; and no pull is ahead of what is dispatched."""

    queues = (0, 1)

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="towline-following-"))
        self.following = Following(LogOfNode(self.directory))
        self.log, self.follower = self.following.log, self.following.follower
        self.places: dict[int, list[int]] = {queue: [] for queue in self.queues}  # log offsets behind each record
        self.positions = dict.fromkeys(self.queues, 0)
        self.answered = 0

    def teardown(self) -> None:
        self.follower.close()
        shutil.rmtree(self.directory)

    def dispatched(self, queue: int) -> int:
        """The queue's end, as the node tells it."""
        return sum(end <= self.log.words[DISPATCHED] for end in self.places[queue])

    @rule(topic=st.sampled_from([b"t", b"t", b"u"]), queue=st.sampled_from(queues), size=st.integers(0, 600))
    def append(self, topic: bytes, queue: int, size: int) -> None:
        self.log.append(topic, queue, size, confirm=False)
        if topic == b"t":
            self.places[queue].append(self.log.end)

    @rule()
    def confirm(self) -> None:
        self.log.confirm()

    @rule(whole=st.booleans(), queue=st.sampled_from(queues))
    def dispatch(self, whole: bool, queue: int) -> None:
        """All that is confirmed, or up to a record before that."""
        confirmed = self.log.words[APPENDED]
        ends = [end for end in self.places[queue] if self.log.words[DISPATCHED] < end <= confirmed]
        self.log.words[DISPATCHED] = ends[0] if ends and not whole else confirmed

    @rule(queue=st.sampled_from(queues), count=st.integers(1, 3))
    def pull(self, queue: int, count: int) -> None:
        self.following.now += CLOSE_S / 10
        self.follower.begin(self.positions, self.following.now)
        if self.follower.holds_pulls():
            return
        end = self.dispatched(queue)
        assert self.positions[queue] <= end, "the node would lead this reader back"
        got = min(count, end - self.positions[queue])
        self.positions[queue] += got
        if got:
            self.follower.arrived(got, end - self.positions[queue], self.following.now)

    @precondition(lambda self: len(self.following.asked.questions) > self.answered)
    @rule()
    def answer(self) -> None:
        self.answered = len(self.following.asked.questions)
        self.following.answer([{"queue": queue, "min": 0, "max": self.dispatched(queue)} for queue in self.queues])

    @rule(times=st.integers(1, 4))
    def take(self, times: int) -> None:
        for _ in range(times):
            found = self.following.take()
            if found is None:
                return
            assert found.first == self.positions[found.queue_id]
            assert bodies_of(found) == [b"%d" % number for number in range(found.first, found.following)]
            assert self.places[found.queue_id][found.following - 1] <= self.log.words[APPENDED]
            self.positions[found.queue_id] = found.following

    @rule(seconds=st.sampled_from([IDLE_S / 3, 2 * IDLE_S, PAUSE_S]))
    def rest(self, seconds: float) -> None:
        self.following.now += seconds

    @rule()
    def leave(self) -> None:
        self.follower.leave()

    @rule(queue=st.sampled_from(queues))
    def flow(self, queue: int) -> None:
        """A steady flow, so that it comes to following."""
        for _ in range(3):
            self.append(b"t", queue, 10)
            self.confirm()
            self.dispatch(True, queue)
            for each in self.queues:
                self.pull(each, 3)
                if len(self.following.asked.questions) > self.answered:
                    self.answer()
        self.pull(queue, 3)
        self.take(4)

    @invariant()
    def nobody_is_ahead_of_the_log(self) -> None:
        assert all(self.positions[queue] <= len(self.places[queue]) for queue in self.queues)


TestReading = Reading.TestCase
TestReading.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
