"""Runs the tests and drills of a row, one process after the other, and gathers what they say."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.gate.recording import NAME, NOTES
from tests.gate.verdict import Run
from tests.mutants.copying import end_session
from towline.loadtest.drill.errors import DrillImpossible

from .noting import VARIABLE
from .plan import ROOT, Drilled, Row, Tests
from .results import KEPT, SHORT, WHOLE, Outcome, commit_of

LIMIT_S: Final = 4 * 3600.0  # of one process; each test has a limit of its own
SAID_MAX: Final = 300


class Runner:
    """`whole`: as often as a whole run wants. Files of tests lie below `scratch`, which is short: sockets lie there."""

    def __init__(self, scratch: Path, *, whole: bool) -> None:
        self._scratch, self._whole = scratch, whole
        self._count = 0

    def run(self, row: Row) -> Outcome:
        """An interrupt ends the process that runs, with all that it started, and is raised on."""
        began = time.monotonic()
        at, load = time.strftime("%Y-%m-%d %H:%M"), round(os.getloadavg()[0], 1)
        form = WHOLE if self._whole else SHORT
        outcome = Outcome(row.name, load=load, at=at, commit=commit_of(ROOT), form=form)
        (KEPT / f"{row.name}.log").unlink(missing_ok=True)
        if not row.steps:
            outcome.miss([row.lacks])
        for step in row.steps:
            if isinstance(step, Drilled):
                self._drill(row, step, outcome)
            else:
                for _ in range(step.times if self._whole else 1):
                    self._tests(row, step, outcome)
        outcome.seconds = round(time.monotonic() - began, 1)
        return outcome

    def _tests(self, row: Row, tests: Tests, outcome: Outcome) -> None:
        words = tests.words(whole=self._whole)
        if not words:
            return
        self._count += 1
        seen, noted, files = (self._scratch / f"{self._count}{end}" for end in (".jsonl", ".faults", "f"))
        ours = ["-p", NAME, f"{NOTES}={seen}", f"--basetemp={files}", "--timeout=3600"]
        environment = {VARIABLE: str(noted), "PYTHONPATH": str(ROOT)} | (dict(tests.environment) if self._whole else {})
        status = self._process(row, [sys.executable, "-m", "pytest", "-q", "-s", *ours, *words], environment)
        shutil.rmtree(files, ignore_errors=True)
        take(outcome, Run.read(tests.name, status, seen), _lines(noted))

    def _drill(self, row: Row, drill: Drilled, outcome: Outcome) -> None:
        rounds = drill.whole if self._whole else drill.short
        kept = KEPT / f"{row.name}-drill"
        words = [*drill.words.split(), "--rounds", str(rounds), "--json", "--out", str(kept)]
        log = self._scratch / "drill.log"
        status = self._process(row, [str(Path(sys.executable).parent / "towline"), "drill", *words], {}, out=log)
        if status == 0:
            shutil.rmtree(kept, ignore_errors=True)
        take_drill(outcome, drill, status, _lines(log), log.read_text(encoding="utf-8", errors="replace"))

    def _process(self, row: Row, command: Sequence[str], more: dict[str, str], *, out: Path | None = None) -> int:
        """In a session of its own, which is gone afterwards; what it says is appended to the row's log."""
        KEPT.mkdir(parents=True, exist_ok=True)
        said = out or self._scratch / "said.log"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")} | more
        with said.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                file.write(f"\nended after {LIMIT_S:.0f} s\n".encode())
            finally:
                end_session(process)
        with (KEPT / f"{row.name}.log").open("ab") as log:
            log.write(f"\n$ {' '.join(command)}\n".encode() + said.read_bytes())
        return process.returncode


def take(outcome: Outcome, run: Run, noted: Sequence[dict[str, Any]]) -> None:
    """One run of pytest. A case that passed and noted nothing was one fault."""
    for facts in noted:
        outcome.add(facts)
    outcome.injected += len(run.green - {facts["test"] for facts in noted})
    outcome.passed += len(run.green)
    outcome.miss(run.reasons[test] for test in run.skipped)
    outcome.failed += [f"{test}: {failure.cause[:SAID_MAX]}" for test, failure in run.failed.items()]
    outcome.failed += run.troubles()


def take_drill(outcome: Outcome, drill: Drilled, status: int, lines: Sequence[dict[str, Any]], said: str) -> None:
    """A drill that did not pass says what was wrong; one that is not possible here says why."""
    result = lines[-1] if lines else {"error": "", "sentence": f"no result, status {status}: {_last(said)}"}
    if "error" in result:
        sentence = f"{drill.name}: {result['sentence'][:SAID_MAX]}"
        if result["error"] == DrillImpossible.__name__:
            outcome.miss([sentence])
        else:
            outcome.failed.append(sentence)
        return
    outcome.add(result | {"injected": len(result["events"]), "outage_s": result["without_service_s"]})
    outcome.passed += bool(result["passed"])
    if result["passed"]:
        outcome.add({"wrong_bytes": 0})
    outcome.failed += [f"{drill.name}: {fault[:SAID_MAX]}" for fault in result["faults"]]


def _last(said: str) -> str:
    return "".join(said.rstrip().splitlines()[-1:])


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that are JSON objects; none where it is not there."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
