"""Orders are told apart by their numbers, whatever the clock does."""

import time
from pathlib import Path

import pytest

from towline.errors import NodeNotRunning
from towline.node.roles import role_commands
from towline.node.roles.role_commands import (
    AGREE,
    OUTCOME_MAX_S,
    PROMOTE,
    await_result,
    expired_command,
    finish_command,
    pending_command,
    submit_command,
)
from towline.places import Store

HOUR_NS = 3600 * 10**9


class SteppedBack:
    """A clock that can be set."""

    def __init__(self) -> None:
        self.back_ns = 0

    def time_ns(self) -> int:
        return time.time_ns() - self.back_ns

    def monotonic(self) -> float:
        return time.monotonic()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SteppedBack:
    made = SteppedBack()
    monkeypatch.setattr(role_commands, "time", made)
    return made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    for directory in (made.run, made.ha):
        directory.mkdir()
    return made


def test_what_came_of_an_order_before_the_clock_went_back_is_not_the_outcome_of_the_next(store, clock):
    first = submit_command(store.root, {"order": PROMOTE})
    finish_command(store, first, {"order": PROMOTE, "role": "master"})
    assert await_result(store.root, first)["role"] == "master"
    clock.back_ns = HOUR_NS
    second = submit_command(store.root, {"order": PROMOTE})
    assert second > first
    with pytest.raises(NodeNotRunning):  # nobody has obeyed it, and nobody will
        await_result(store.root, second)


def test_an_order_that_takes_the_place_of_another_has_a_number_of_its_own(store, clock):
    first = submit_command(store.root, {"order": AGREE})
    assert submit_command(store.root, {"order": AGREE}) == first
    clock.back_ns = HOUR_NS
    assert submit_command(store.root, {"order": PROMOTE}) > first


def test_the_age_of_an_order_goes_by_when_it_was_given(store, clock):
    finish_command(store, submit_command(store.root, {"order": PROMOTE}), {})
    clock.back_ns = HOUR_NS
    submit_command(store.root, {"order": PROMOTE})
    assert expired_command(store, pending_command(store), 0) is None
    clock.back_ns -= int(2 * OUTCOME_MAX_S * 1e9)
    assert expired_command(store, pending_command(store), 0) is not None
