"""What came of each row of a run, and the file that keeps it."""

import fcntl
import json
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from .plan import ROOT, WANTED, Row

KEPT: Final = ROOT / "build/faults"  # of each form the run that is under way, or was broken off
RECORDED: Final = ROOT / "loadtest/results/faults.json"  # what the page shows
SHORT: Final = "short"
WHOLE: Final = "whole"
SUMS: Final = ("injected", "acknowledged", "lost", "given_up", "doubled", "wrong_bytes")


@dataclass
class Outcome:
    """Of one row. A count is None where none of its tests counts it.

    `missing`: reasons why tests or drills of it could not run on this machine. `failed`: a sentence for each that did.
    `commit`: the short name of the one that was checked out when it began; "" where nobody said. `form`: SHORT or
    WHOLE, of the run.
    """

    row: str
    injected: int = 0
    acknowledged: int | None = None
    lost: int | None = None
    given_up: int | None = None
    doubled: int | None = None
    wrong_bytes: int | None = None
    outage_s: float | None = None
    passed: int = 0
    seeds: list[int] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    load: float = 0.0
    at: str = ""
    commit: str = ""
    form: str = SHORT

    def add(self, facts: Mapping[str, Any]) -> None:
        """What a test noted, or a drill reported."""
        for name in SUMS:
            if (more := facts.get(name)) is not None:
                setattr(self, name, (getattr(self, name) or 0) + more)
        if (outage := facts.get("outage_s")) is not None:
            self.outage_s = round(max(self.outage_s or 0.0, outage), 3)
        if facts.get("seed") is not None:
            self.seeds.append(facts["seed"])

    def miss(self, reasons: Iterable[str]) -> None:
        self.missing = sorted({*self.missing, *reasons})

    @property
    def verdict(self) -> str:
        """A row of which anything failed, or could not run, is no success."""
        if self.failed:
            return "failed"
        return "in part" if self.missing and self.passed else "not run" if self.missing else "passed"


def commit_of(directory: Path) -> str:
    """The short name of the commit that is checked out; "" where there is no git, or no repository."""
    try:
        command = ["git", "-C", str(directory), "rev-parse", "--short", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


class Results:
    """The file of a run of one form, as far as it went, below a directory; without the rows of `anew`.

    Runs beside each other, of other rows, share it: each adds to what the others have written.
    """

    def __init__(self, directory: Path, form: str, anew: Collection[str] = ()) -> None:
        self._path = directory / f"{form}.json"
        self.known: dict[str, Any] = {"faults": form, "machine": {}, "rows": []}
        with self._changing():
            self.known["rows"] = [row for row in self.known["rows"] if row["row"] not in anew]

    def has_passed(self, name: str) -> bool:
        return any(Outcome(**row).verdict == "passed" for row in self.known["rows"] if row["row"] == name)

    def add(self, outcome: Outcome, machine: Mapping[str, Any]) -> None:
        with self._changing():
            self.known["machine"] = dict(machine)
            rows = [row for row in self.known["rows"] if row["row"] != outcome.row]
            self.known["rows"] = sorted([*rows, asdict(outcome)], key=lambda row: int(row["row"][1:]))

    @contextmanager
    def _changing(self) -> Iterator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._path.exists():
                self.known = json.loads(self._path.read_text(encoding="utf-8"))
            yield
            write(self._path, self.known)


def write(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_suffix(".new")
    made.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    made.replace(path)


def merged(before: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """A record with the rows of a run: what a whole run has found stays until another one has run that row."""
    found = outcomes_of(before)
    for name, outcome in outcomes_of(run).items():
        if name not in found or outcome.form == WHOLE or found[name].form == SHORT:
            found[name] = outcome
    rows = sorted(map(asdict, found.values()), key=lambda row: int(row["row"][1:]))
    forms = {outcome.form for outcome in found.values()}
    form = forms.pop() if len(forms) == 1 else "whole in part"
    return {"faults": form, "machine": run["machine"] or before["machine"], "rows": rows}


def outcomes_of(document: Mapping[str, Any]) -> dict[str, Outcome]:
    return {row["row"]: Outcome(**row) for row in document["rows"]}


def reached(rows: Sequence[Row], outcomes: Mapping[str, Outcome]) -> dict[str, int]:
    """How many of each kind that a whole run wants were injected."""
    return {
        counts: sum(outcomes[row.name].injected for row in rows if row.counts == counts and row.name in outcomes)
        for counts in WANTED
    }
