"""What the notes of the runs amount to: who failed, who passed the second time, and what no second run can heal."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

FLAKY_MAX: Final = 5
ENDINGS: Final = {  # of pytest, those that a second run has nothing to say about
    pytest.ExitCode.INTERRUPTED: "was interrupted",
    pytest.ExitCode.INTERNAL_ERROR: "met an error of its own",
    pytest.ExitCode.USAGE_ERROR: "was called with what it does not know",
    pytest.ExitCode.NO_TESTS_COLLECTED: "found no test",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """The first report of a test that failed."""

    test: str
    phase: str
    said: str
    at: float
    load: float
    took: float

    @property
    def cause(self) -> str:
        """The line that pytest marks as the error; the last one where it marks none."""
        lines = self.said.splitlines()
        marked = [line[1:].strip() for line in lines if line.startswith("E ")]
        return next(iter(marked or lines[-1:]), "")


@dataclass
class Run:
    """One run of pytest: `status` is what its process ended with, the rest is what it noted."""

    name: str
    status: int
    collected: list[str] = field(default_factory=list)
    passed: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)  # of what was skipped
    failed: dict[str, Failure] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    took: Counter[str] = field(default_factory=Counter)  # seconds, by file
    ended: bool = False

    @classmethod
    def read(cls, name: str, status: int, notes: Path) -> "Run":
        run = cls(name, status)
        for line in notes.read_text().splitlines() if notes.exists() else ():
            run.take(json.loads(line))
        return run

    def take(self, facts: dict[str, Any]) -> None:
        """One line of notes."""
        if "test" in facts:
            self.took[facts["test"].partition("::")[0]] += facts.get("took", 0.0)
        match facts:
            case {"collected": ids}:
                self.collected += ids
            case {"broken": name, "said": said}:
                self.broken[name] = said
            case {"test": test, "outcome": "failed"}:
                details = (facts[key] for key in ("phase", "said", "at", "load", "took"))
                self.failed.setdefault(test, Failure(test, *details))
            case {"test": test, "outcome": "skipped"}:
                self.skipped.add(test)
                self.reasons[test] = facts.get("said", "")
            case {"test": test, "phase": "call", "outcome": "passed"}:
                self.passed.add(test)
            case {"ended": True}:
                self.ended = True

    @property
    def green(self) -> set[str]:
        """What passed in every phase."""
        return self.passed - self.failed.keys() - self.skipped

    @property
    def unheard(self) -> list[str]:
        """What was collected and has no outcome: its process died, or the run ended early."""
        return sorted(set(self.collected) - self.passed - self.skipped - self.failed.keys())

    @property
    def goes_on(self) -> bool:
        """Whether it came to its end, so that its failures are worth a second run."""
        return self.ended and self.status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)

    def troubles(self) -> list[str]:
        """What makes the whole red whatever a second run says."""
        found = [f"{name} cannot be collected: {''.join(said.splitlines()[-1:])}" for name, said in self.broken.items()]
        if self.unheard:
            found.append(f"{self.name} never told what came of {len(self.unheard)} tests, as of {self.unheard[0]}")
        if self.status in ENDINGS:
            found.append(f"{self.name} {ENDINGS[pytest.ExitCode(self.status)]}")
        elif not self.goes_on:
            found.append(f"{self.name} did not come to its end (status {self.status})")
        elif self.status != pytest.ExitCode.OK and not (self.failed or found):
            found.append(f"{self.name} ended with status {self.status}, and no test of it failed")
        return found


@dataclass(frozen=True, slots=True)
class Verdict:
    passed: int
    skipped: int
    flaky: Sequence[Failure]
    red: Sequence[str]
    causes: Sequence[tuple[str, int]]  # of what failed first, the most frequent first

    @property
    def failed(self) -> int:
        """Never 0 where anything is red."""
        return len(self.red) + (len(self.flaky) if self.too_flaky else 0)

    @property
    def too_flaky(self) -> bool:
        return len(self.flaky) > FLAKY_MAX

    @property
    def closing(self) -> str:
        return f"{self.passed + (0 if self.too_flaky else len(self.flaky))} passed, {self.failed} failed"


def failed_in(runs: Iterable[Run]) -> dict[str, Failure]:
    return {test: failure for run in runs for test, failure in run.failed.items()}


def judge(runs: Sequence[Run], again: Run | None, *, left_out: Iterable[str] = ()) -> Verdict:
    """`again` is the second run of what failed in `runs`; None where nothing had failed, or a run was left out."""
    first = failed_in(runs)
    healed = again.green if again is not None else set()
    red = [f"{test} failed{' twice' if again is not None else ''}" for test in first if test not in healed]
    red += [trouble for run in (*runs, *([again] if again is not None else ())) for trouble in run.troubles()]
    red += [f"{name} was left out" for name in left_out]
    return Verdict(
        passed=len(set().union(*(run.green for run in runs)) - first.keys()),
        skipped=len(set().union(*(run.skipped for run in runs)) - first.keys()),
        flaky=[failure for test, failure in first.items() if test in healed],
        red=list(dict.fromkeys(red)),
        causes=Counter(failure.cause for failure in first.values()).most_common(),
    )
