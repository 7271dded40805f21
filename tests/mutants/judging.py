"""What became of a mutant: killed by a test that fails with it and passes without it; or what fails the whole run."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import pytest

from tests.gate.verdict import Run

from .catalogue import DoesNotApply, Mutant
from .copying import Copy

LIMIT_S: Final = 120.0  # and so many times what its tests take without it:
LIMIT_TIMES: Final = 6.0
COMPILE_S: Final = 180.0  # for a mutant in kernels
ATTEMPTS: Final = 2


class State(StrEnum):
    """What a run says of a mutant. All but the first fail it."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"  # every test passed
    STALE = "DID NOT APPLY"
    BROKEN = "BROKEN"  # its tests could not be collected, or none of them ran
    UNSTEADY = "UNSTEADY"  # a test failed, and passed when it ran again


@dataclass(frozen=True, slots=True)
class Outcome:
    """`by` is the test that killed it, or what the state means here."""

    state: State
    by: str
    seconds: float


def judge(copy: Copy, mutant: Mutant, took: Mapping[str, float]) -> Outcome:
    """`took`: seconds by file of tests, without a mutant. A kill counts when the same test fails a second time."""
    began = time.monotonic()
    limit_s = LIMIT_S + LIMIT_TIMES * sum(took.get(file, 0.0) for file in mutant.test_files)
    limit_s += COMPILE_S * mutant.needs_compiling
    try:
        with copy.mutated(mutant):
            state, by = _judged(copy, mutant.tests, limit_s)
    except DoesNotApply as error:
        state, by = State.STALE, str(error)
    return Outcome(state, by, round(time.monotonic() - began, 1))


def _judged(copy: Copy, tests: Sequence[str], limit_s: float) -> tuple[State, str]:
    by = ""
    for _ in range(ATTEMPTS):
        told = copy.run(tests, limit_s)
        if told.over:
            return State.KILLED, f"{_running(told.run)} (it did not end within {limit_s:.0f} s)"
        found = verdict(told.run)
        if found is not None:
            return found
        by = next(iter(told.run.failed))
        again = copy.run([by], limit_s)
        if again.over or by in again.run.failed:
            return State.KILLED, by
    return State.UNSTEADY, f"{by} failed, and passed when it ran again"


def verdict(run: Run) -> tuple[State, str] | None:
    """Of a run that came to its end; None where a test failed, which must fail once more."""
    if run.broken or run.status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return State.BROKEN, "; ".join(run.troubles())
    if run.failed:
        return None
    if not run.passed:
        return State.BROKEN, f"none of its {len(run.skipped)} tests ran, all were skipped"
    return State.SURVIVED, f"{len(run.passed)} tests passed"


def _running(run: Run) -> str:
    """The test that a run was in: the first that it said nothing of."""
    heard = run.passed | run.skipped | run.failed.keys()
    return next((test for test in run.collected if test not in heard), "its tests")
