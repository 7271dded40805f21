"""The duty cycle: work while there is work, arm, look once more, sleep; close whatever happens."""

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
