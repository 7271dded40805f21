"""The page of promises names what there is, and leaves out no row of the matrix and no invariant of the simulation."""

import re
from typing import Final

import pytest

from tests.repo.test_rulebook import NAMED, names_of
from towline.simulation.history import RULES

from .plan import ROOT
from .rows import ROWS

TEXT: Final = (ROOT / "docs/promises.md").read_text(encoding="utf-8")
PROMISES: Final = dict(re.findall(r"^### (P\d+): .+?\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL))
RUN: Final = {row.name for row in ROWS if row.steps}


def part(promise: str, name: str) -> str:
    """What follows `- **name:**`, up to the next of them; "" where it is not there."""
    return PROMISES[promise].partition(f"- **{name}:**")[2].partition("\n- ")[0]


def rows_of(promise: str) -> list[str]:
    return re.findall(r"F\d+", part(promise, "Faults"))


def invariants_of(promise: str) -> list[str]:
    return re.findall(r"`(\w+)`", part(promise, "Simulated"))


def test_promises_are_numbered_without_a_gap():
    assert list(PROMISES) == [f"P{number}" for number in range(1, len(PROMISES) + 1)]
    assert TEXT.count("\n### ") == len(PROMISES) > 10


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_names_rows_that_are_run_and_tests_and_invariants_that_exist(promise: str):
    assert rows_of(promise)
    assert not set(rows_of(promise)) - RUN
    named = NAMED.findall(part(promise, "Tests"))
    assert named
    assert not [path + test for path, test in named if test.removeprefix("::") not in names_of(path)]
    assert not set(invariants_of(promise)) - RULES.keys()


def test_every_row_that_is_run_and_every_invariant_holds_up_a_promise():
    assert {row for promise in PROMISES for row in rows_of(promise)} == RUN
    assert RULES.keys() == {rule for promise in PROMISES for rule in invariants_of(promise)}
