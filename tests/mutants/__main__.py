"""`python -m tests.mutants`: puts each mutant of the list into a copy, one at a time, and runs the tests of its area.

The tests must pass without any of them first. A mutant that no test kills, that does not apply any more, or that keeps
its tests from running fails the run. build/mutants.json has what became of each; a run that was broken off goes on
there, as long as no file of the code or of the tests has changed.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.gate.verdict import judge as judge_runs

from .catalogue import ROOT, Mutant, every_mutant
from .copying import Copy
from .judging import Outcome, State, judge

RESULTS: Final = ROOT / "build/mutants.json"
PREFIX: Final = "tlmut-"
BASELINE_LIMIT_S: Final = 3_600.0


class Results:
    """The file of results: of one state of the code and the tests, which `digest` stands for."""

    def __init__(self, path: Path, digest: str, *, fresh: bool) -> None:
        self._path = path
        self.known: dict[str, Any] = {"digest": digest, "took": {}, "passed": [], "mutants": {}}
        if path.exists() and not fresh:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["digest"] == digest:
                self.known = found

    def is_killed(self, mutant: Mutant) -> bool:
        """As it is in the list now."""
        found = self.known["mutants"].get(mutant.name, {"state": State.STALE})
        return found["state"] == State.KILLED and found.items() >= json.loads(json.dumps(asdict(mutant))).items()

    def lacks(self, tests: Iterable[str]) -> list[str]:
        """Those that did not pass yet without a mutant."""
        return sorted(set(tests) - set(self.known["passed"]))

    def passed(self, tests: Iterable[str], took: Counter[str]) -> None:
        self.known["passed"] = sorted({*self.known["passed"], *tests})
        self.known["took"] |= took
        self._write()

    def add(self, mutant: Mutant, outcome: Outcome) -> None:
        self.known["mutants"][mutant.name] = json.loads(json.dumps(asdict(mutant) | asdict(outcome)))
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(exist_ok=True)
        made = self._path.with_suffix(".new")
        made.write_text(json.dumps(self.known, indent=1) + "\n", encoding="utf-8")
        made.replace(self._path)


def tell(line: str) -> None:
    print(line, flush=True)


def chosen(names: Sequence[str], areas: Sequence[str]) -> list[Mutant]:
    """Those asked for by name or area, the quick ones first; all where nothing is asked.

    Raises SystemExit for a word that is neither.
    """
    mutants = every_mutant()
    unknown = {*names} - {each.name for each in mutants} | {*areas} - {each.area for each in mutants}
    if unknown:
        raise SystemExit(f"no mutant and no area has this name: {', '.join(sorted(unknown))}")
    wanted = [each for each in mutants if each.name in names or each.area in areas] if names or areas else mutants
    return sorted(wanted, key=lambda each: each.needs_compiling)


def baseline(copy: Copy, results: Results, mutants: Sequence[Mutant]) -> list[str]:
    """Runs what the mutants' tests are without any of them; what keeps a verdict from meaning anything."""
    tests = results.lacks(test for mutant in mutants for test in mutant.tests)
    if not tests:
        return []
    tell(f"without a mutant: {len(tests)} places of tests")
    first = copy.run(tests, BASELINE_LIMIT_S, to_the_end=True)
    failed = list(first.run.failed)
    again = copy.run(failed, BASELINE_LIMIT_S, to_the_end=True) if failed else None
    red = list(judge_runs([first.run], again.run if again is not None else None).red)
    ran = first.run.passed | (again.run.passed if again is not None else set())
    red += [f"no test of {test} passed" for test in tests if not any(each.startswith(test) for each in ran)]
    if not red:
        results.passed(tests, first.run.took)
    return red


def run(copy: Copy, results: Results, mutants: Sequence[Mutant]) -> Counter[str]:
    """How many came to which end. Those that were killed before, with the same code, are not tried again."""
    states: Counter[str] = Counter()
    for number, mutant in enumerate(mutants, 1):
        if results.is_killed(mutant):
            states[State.KILLED] += 1
            continue
        outcome = judge(copy, mutant, results.known["took"])
        results.add(mutant, outcome)
        states[outcome.state] += 1
        tell(f"{number:3} {outcome.state:13} {outcome.seconds:6.1f} s  {mutant.name}  {outcome.by}")
        if outcome.state is not State.KILLED:
            tell(f"    {mutant.breaks} ({mutant.rule}, {mutant.file})")
    return states


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Mutants on the list stay dead.")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this mutant; may be repeated")
    parser.add_argument("--area", action="append", default=[], metavar="AREA", help="those of an area; may be repeated")
    parser.add_argument("--fresh", action="store_true", help="begins anew, whatever build/mutants.json says")
    return parser.parse_args()


def stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    asked = options()
    signal.signal(signal.SIGTERM, stop)
    mutants = chosen(asked.only, asked.area)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as scratch:
        copy = Copy(ROOT, Path(scratch))
        copy.check()
        results = Results(RESULTS, copy.digest, fresh=asked.fresh)
        tell(f"{len(mutants)} mutants; the kernels of the copy are compiled, load {os.getloadavg()[0]:.1f}")
        copy.compile()
        red = baseline(copy, results, mutants)
        for line in red:
            tell(f"red without a mutant: {line}")
        states = Counter[str]() if red else run(copy, results, mutants)
    failed = len(mutants) - states[State.KILLED]
    told = ", ".join(f"{count} {state}" for state, count in states.items()) or "none was tried"
    tell(f"{told}: {len(mutants)} mutants in {(time.monotonic() - began) / 60:.1f} min, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(f"broken off: run it again, and it goes on by {RESULTS.relative_to(ROOT)}")
