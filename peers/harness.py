"""Runs every system at every work in turns, so that a machine that drifts meets all alike; medians of the rounds."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final, Protocol

import psutil

from towline.errors import TowlineError

from .goals import judge
from .journal import Entry, Journal
from .machine import Limits, machine_facts
from .plan import Replica, Work
from .ratios import Round, summary
from .server import Missing
from .sitting import Sitting
from .systems import SYSTEMS
from .works import Comparison, guess_s, takes_part

LIMITS_EVERY_S: Final = 360.0
PREFIX: Final = "towline-peers-"
FAILURES: Final = (TowlineError, OSError, ValueError, psutil.Error, subprocess.SubprocessError)

Note = Callable[[str, float], None]  # what is being done, and how many seconds are left
Keep = Callable[[dict[str, Any]], None]


class Run(Protocol):
    """Turns that are measured one after the other, and noted in a journal."""

    journal: Journal

    def all(self, root: Path) -> Iterator[dict[str, Any]]: ...

    def result(self) -> dict[str, Any]: ...


def carry_out(run: Run, prefix: str, keep: Keep) -> dict[str, Any]:
    """The result of a whole run, whose files stand in a directory of that prefix; `keep` is given each part of it."""
    _remove_left(prefix)
    with tempfile.TemporaryDirectory(prefix=f"{prefix}{os.getpid()}-") as name:
        for result in run.all(Path(name)):
            keep(result)
    run.journal.remove()
    return run.result()


def measure(
    plan: Comparison,
    note: Note = lambda _text, _left: None,
    keep: Keep = lambda _: None,
    kept_in: Path | None = None,
    *,
    resume: bool = False,
) -> dict[str, Any]:
    """Everything that was found, as JSON can carry it. `absent`: what cannot be measured here, `failed`: what went
    wrong; both by system, or by system and work. `skipped`: rounds that did not fit into the time.

    `keep` is given what there is after each sitting of all systems. Turns are noted in `kept_in`; with `resume` those
    that stand there are not done again.
    """
    return carry_out(_Run(plan, note, kept_in, resume), PREFIX, keep)


class _Run:
    def __init__(self, plan: Comparison, note: Note, kept_in: Path | None, resume: bool) -> None:
        self._plan, self._note = plan, note
        self._began, self._facts = time.monotonic(), machine_facts()
        self._limits_at = -LIMITS_EVERY_S
        self._versions, self._absent = versions_of(plan.systems)
        works = [task.work.to_json() | {"rounds": task.rounds} for task in plan.tasks]
        self.journal = Journal({"versions": self._versions, "works": works}, kept_in, resume=resume)
        self._sittings = plan.sittings()
        self._skipped: list[str] = []

    def all(self, root: Path) -> Iterator[dict[str, Any]]:
        """What there is after each sitting of all systems."""
        limits, sittings, known = Limits(root, self._plan.limit_s), self._sittings, len(self.journal.turns)
        self._note(f"{len(self._plan.tasks)} works, {len(sittings)} sittings, {known} turns known", self._left_s(0))
        for at, (number, works) in enumerate(sittings):
            title = f"{at + 1} of {len(sittings)} (round {number + 1})"
            expected_s = self._expected_s(number, works)
            if not expected_s:
                continue
            if expected_s > self._time_s():
                self._skipped.append(f"round {number + 1}: {'; '.join(work.name for work in works)}")
                continue
            if time.monotonic() - self._limits_at > LIMITS_EVERY_S:
                self._note("limits of the machine", self._left_s(at))
                self.journal.add({"limits": limits.measure()})
                self._limits_at = time.monotonic()
            for system in self._versions:
                self._sit(system, self._open(system, works, number), number, at, title, root)
            yield self.result()

    def result(self) -> dict[str, Any]:
        rows, limits = self._rows(), self.journal.limits
        beside_behind(rows)
        return {
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "rounds": self._plan.rounds,
            "works": len(self._plan.tasks),
            "versions": self._versions,
            "absent": self._absent | self.journal.absent(),
            "failed": self.journal.failed(),
            "skipped": self._skipped,
            "limits": {key: median(one[key] for one in limits) for key in limits[0]} if limits else {},
            "rows": rows,
            "goals": judge(rows),
            "machine": self._facts | {"load_after": machine_facts()["load"]},
            "seconds": sum(turn["took_s"] for turn in self.journal.turns),
        }

    def _sit(self, system: str, works: Sequence[Work], number: int, at: int, title: str, root: Path) -> None:
        """One system's turns; what went wrong is noted with the work that it went wrong at."""
        turn: Entry = {"system": system, "round": number}
        try:
            with Sitting(system, root) as sitting:
                for work in works:
                    self._note(f"{title}; {system}: {work.name}", self._left_s(at))
                    began, what = time.monotonic(), self._take(sitting, work)
                    self.journal.add(turn | {"work": work.name, "took_s": time.monotonic() - began} | what)
        except FAILURES as error:
            self.journal.add(turn | {"work": "its end", "took_s": 0.0, "failed": _sentence(error)})

    def _take(self, sitting: Sitting, work: Work) -> Entry:
        try:
            return {"found": sitting.measure(work)}
        except Missing as missing:
            return {"absent": str(missing)}
        except FAILURES as error:
            return {"failed": _sentence(error)}

    def _open(self, system: str, works: Sequence[Work], number: int) -> list[Work]:
        """Those of the works that it is to do in that round, and has not done."""
        return [
            work for work in works if takes_part(system, work) and not self.journal.is_over(system, work.name, number)
        ]

    def _expected_s(self, number: int, works: Sequence[Work]) -> float:
        return sum(self._turns_s(system, self._open(system, works, number)) for system in self._versions)

    def _turns_s(self, system: str, works: Sequence[Work]) -> float:
        """As long as it took the last time, where that is known of all of them."""
        known = [self.journal.took_s(system, work.name) for work in works]
        return sum(filter(None, known)) if all(known) else guess_s(system, works)

    def _time_s(self) -> float:
        return self._plan.within_s - (time.monotonic() - self._began)

    def _left_s(self, at: int) -> float:
        """What is still to be done from that sitting on, or what is left of the time that there is."""
        left = sum(self._expected_s(number, works) for number, works in self._sittings[at:])
        return min(left, max(0.0, self._time_s()))

    def _rows(self) -> list[dict[str, Any]]:
        """Of each work that was done, in the order of the plan."""
        rows = []
        for task in self._plan.tasks:
            found: dict[str, list[Round | None]] = {}
            for system in self._versions:
                rounds = self.journal.found(system, task.work.name)
                if rounds:
                    found[system] = [rounds.get(number) for number in range(task.rounds)]
            if found:
                rows.append({"name": task.work.name, "work": task.work.to_json(), "systems": summary(found)})
        return rows


def _sentence(error: Exception) -> str:
    return error.describe() if isinstance(error, TowlineError) else repr(error)


def versions_of(systems: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Versions of the systems that can be measured here, and why the others cannot."""
    versions, absent = {}, {}
    for system in systems:
        try:
            versions[system] = SYSTEMS[system].version()
        except Missing as missing:
            absent[system] = str(missing)
    return versions, absent


def _remove_left(prefix: str) -> None:
    """What runs that were killed left below the directory for temporary files."""
    for place in Path(tempfile.gettempdir()).glob(f"{prefix}*-*"):
        owner = place.name.removeprefix(prefix).split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            with suppress(FileNotFoundError):
                shutil.rmtree(place)


def beside_behind(rows: list[dict[str, Any]]) -> None:
    """What waiting for a replica leaves of the speed with one that nobody waits for: `per_s_of_behind`."""
    works = {Work.read(row["work"]): row["systems"] for row in rows}
    for work, systems in works.items():
        behind = works.get(replace(work, replica=Replica.BEHIND), {})
        if work.replica is Replica.IN_SYNC:
            for system in set(systems) & set(behind):
                systems[system]["per_s_of_behind"] = systems[system]["per_s"] / behind[system]["per_s"]
