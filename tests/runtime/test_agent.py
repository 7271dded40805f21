"""The duty cycle: work while there is work, arm, look once more, sleep; close whatever happens."""

import select

import pytest

from towline.limits import SLEEP_MAX_MS
from towline.runtime.agent import run
from towline.runtime.positions import Duty, Positions, State


class Counting:
    duty = Duty.FLUSH

    def __init__(self, todo: list[int], *, fails_at: int = 99) -> None:
        self.todo, self.calls, self.fails_at = todo, [], fails_at
        self.left_to_drain = 1

    def on_start(self, bell):
        self.calls.append("start")

    def do_work(self):
        if len(self.calls) == self.fails_at:
            raise ValueError("broken")
        work = self.todo.pop(0) if self.todo else 0
        self.calls.append(work)
        return work

    def sleep_ms(self):
        return 10_000

    def wait(self, timeout_ms, rest):
        self.calls.append(f"sleep {timeout_ms}")
        return True

    def drain(self):
        self.left_to_drain -= 1
        return self.left_to_drain < 0

    def on_close(self):
        self.calls.append("close")


class Bell:
    def __init__(self, calls):
        self.calls = calls

    def arm(self):
        self.calls.append("arm")

    def disarm(self):
        self.calls.append("disarm")

    def drain(self):
        self.calls.append("drain")


class Rest:
    def __init__(self, calls):
        self.calls = calls

    def read_positions(self):
        self.calls.append("look")

    def fits(self, due_ms):
        return due_ms >= 2 * SLEEP_MAX_MS


@pytest.fixture
def line(tmp_path):
    return Positions.create(tmp_path / "positions", 1).duty(Duty.FLUSH)


def test_an_agent_sleeps_only_when_a_second_look_finds_nothing_and_always_closes(line):
    agent = Counting([3, 0, 1, 0, 0, 0, 2])
    turns = iter([False] * 7 + [True])
    run(agent, Bell(agent.calls), line, Rest(agent.calls), lambda: next(turns))
    sleep = [f"sleep {SLEEP_MAX_MS}", "drain"]
    assert agent.calls == [
        "start",
        3,
        0,
        "arm",
        1,
        "disarm",
        0,
        "arm",
        0,
        *sleep,
        0,
        *sleep,
        2,
        "disarm",
        0,
        "arm",
        "close",
    ]
    assert line.state is State.STOPPED


def test_an_agent_that_fails_is_closed(line):
    agent = Counting([1, 1], fails_at=2)
    with pytest.raises(ValueError, match="broken"):
        run(agent, Bell(agent.calls), line, Rest(agent.calls), lambda: False)
    assert agent.calls[-1] == "close"


class Sleeping(Counting):
    """Sleeps its whole time, and nothing comes; the bell rings in the sleeps of the given numbers."""

    def __init__(self, *rings: int) -> None:
        super().__init__([])
        self.rings, self.sleeps = rings, 0

    def wait(self, timeout_ms, rest):
        select.select([], [], [], timeout_ms / 1000)
        self.sleeps += 1
        self.calls.append("sleep" if rest is None else "rest")
        return self.sleeps in self.rings


def sleeps_of(agent, line, number: int) -> list:
    """What is called up to the sleep of this number."""
    run(agent, Bell(agent.calls), line, Rest(agent.calls), lambda: agent.sleeps >= number)
    slept = [place for place, call in enumerate(agent.calls) if call in ("sleep", "rest")]
    return agent.calls[: slept[number - 1] + 1]


def test_behind_a_whole_sleep_in_which_nothing_came_it_rests_and_sees_positions_before_it_looks_for_work(line):
    calls = sleeps_of(Sleeping(), line, 3)
    assert calls == ["start", 0, "arm", 0, "sleep", "look", 0, "rest", "look", 0, "rest"]


def test_what_comes_alone_leaves_it_at_rest_and_what_comes_twice_does_not(line):
    calls = sleeps_of(Sleeping(2, 3), line, 5)
    assert calls[5:] == ["look", 0, "rest", "drain", "look", 0, "rest", "drain", 0, "sleep", "look", 0, "rest"]


def test_who_is_draining_or_told_to_stop_does_not_rest(line):
    agent = Sleeping()
    agent.left_to_drain = 4
    sleeps_of(agent, line, 1)
    assert agent.sleeps > 2
    assert "rest" not in agent.calls


def test_who_has_something_due_does_not_rest(line):
    agent = Sleeping()
    agent.sleep_ms = lambda: 2 * SLEEP_MAX_MS - 1
    assert "rest" not in sleeps_of(agent, line, 4)
