"""The duty cycle: work while there is work, arm, look once more, sleep; close whatever happens."""

import select

import pytest

from towline.limits import SLEEP_MAX_MS
from towline.runtime.agent import SLEEPS_MAX, run
from towline.runtime.positions import Duty, Position, Positions, State


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

    def wait(self, timeout_ms):
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


@pytest.fixture
def line(tmp_path):
    return Positions.create(tmp_path / "positions", 1).duty(Duty.FLUSH)


def test_an_agent_sleeps_only_when_a_second_look_finds_nothing_and_always_closes(line):
    agent = Counting([3, 0, 1, 0, 0, 0, 2])
    turns = iter([False] * 7 + [True])
    run(agent, Bell(agent.calls), line, lambda: next(turns))
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
        run(agent, Bell(agent.calls), line, lambda: False)
    assert agent.calls[-1] == "close"


class Sleeping(Counting):
    """Sleeps its whole time, and nothing comes; in the sleep of the given number something happens."""

    def __init__(self, happens, at: int) -> None:
        super().__init__([])
        self.happens, self.at, self.sleeps = happens, at, 0

    def wait(self, timeout_ms):
        select.select([], [], [], timeout_ms / 1000)
        self.sleeps += 1
        self.calls.append("sleep")
        if self.sleeps == self.at:
            return self.happens()
        return False


def until_third_look(agent, line) -> list:
    """What is called up to the first look after the two that come before a sleep."""
    run(agent, Bell(agent.calls), line, lambda: agent.calls.count(0) >= 3)
    looks = [place for place, call in enumerate(agent.calls) if call == 0]
    return agent.calls[: looks[2] + 1]


def test_whole_sleeps_follow_each_other_without_a_look_but_not_for_ever(line):
    calls = until_third_look(Sleeping(lambda: False, 99), line)
    assert calls == ["start", 0, "arm", 0, *["sleep"] * SLEEPS_MAX, 0]


def test_a_position_that_moved_without_a_ring_is_looked_at_after_that_sleep(line, tmp_path):
    flushed = Positions.open(tmp_path / "positions").writer(Position.FLUSHED, Duty.FLUSH)
    calls = until_third_look(Sleeping(lambda: flushed.advance(1), 2), line)
    assert calls == ["start", 0, "arm", 0, "sleep", "sleep", 0]


def test_a_ring_is_looked_at_at_once(line):
    calls = until_third_look(Sleeping(lambda: True, 1), line)
    assert calls == ["start", 0, "arm", 0, "sleep", "drain", 0]


def test_a_stop_ends_the_sleeps(line):
    agent = Sleeping(lambda: False, 99)
    run(agent, Bell(agent.calls), line, lambda: agent.sleeps >= 2)
    assert agent.calls[:6] == ["start", 0, "arm", 0, "sleep", "sleep"]
    assert "close" in agent.calls
