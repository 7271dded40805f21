"""Measures the cells in turns, each in processes of its own; figures are medians of the rounds."""

import json
import os
import resource
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from peers.harness import FAILURES, Keep, Note, carry_out, versions_of
from peers.journal import Entry, Journal
from peers.machine import machine_facts
from peers.plan import QUANTILES
from peers.server import Missing
from peers.sitting import Sitting
from peers.usage import disk_bytes
from towline.errors import BenchFailed, TowlineError
from towline.parent import die_with_parent
from towline.start import home

from .cells import Cell, Plan, work_of
from .putting import ASYNC, ONE_LOG

PREFIX: Final = "towline-layouts-"
STEP_S: Final = 900.0  # a process that says nothing for so long has failed
DESCRIPTORS: Final = 512  # beside those of partitions
GOES_ON_S: Final = 0.2  # of the steady load, before the kill


def measure(
    plan: Plan,
    note: Note = lambda _text, _left: None,
    keep: Keep = lambda _: None,
    kept_in: Path | None = None,
    *,
    resume: bool = False,
) -> dict[str, Any]:
    """Everything that was found, as JSON can carry it; `keep` is given what there is after each cell.

    `absent` is what cannot be measured here, `failed` what went wrong, `skipped` what did not fit into the time. Turns
    are noted in `kept_in`; with `resume` those that stand there are not done again.
    """
    return carry_out(_Run(plan, note, kept_in, resume), PREFIX, keep)


class _Run:
    def __init__(self, plan: Plan, note: Note, kept_in: Path | None, resume: bool) -> None:
        self._plan, self._note = plan, note
        self._began, self._facts = time.monotonic(), machine_facts()
        self._versions, self._absent = versions_of(plan.servers)
        self._turns = [(number, cell) for number, cell in plan.turns() if cell.system not in self._absent]
        self.journal = Journal({"plan": plan.facts(), "versions": self._versions}, kept_in, resume=resume)
        self._skipped: list[str] = []

    def all(self, root: Path) -> Iterator[dict[str, Any]]:
        """What there is after each cell."""
        for at, (number, cell) in enumerate(self._turns):
            if self.journal.is_over(cell.system, cell.name, number):
                continue
            if self._expected_s(cell) > self._time_s():
                self._skipped.append(f"round {number + 1}: {cell.system}, {cell.name}")
                continue
            self._note(f"{at + 1} of {len(self._turns)}; {cell.system}, {cell.name}", self._left_s(at))
            began, turn = time.monotonic(), {"system": cell.system, "work": cell.name, "round": number}
            what = self._take(cell, root)
            self.journal.add(turn | {"took_s": time.monotonic() - began} | what)
            yield self.result()

    def result(self) -> dict[str, Any]:
        cells = list(dict.fromkeys(cell for _, cell in self._turns))
        rows = [row for cell in cells if (row := self._row(cell)) is not None]
        return {
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "plan": self._plan.facts(),
            "versions": self._versions,
            "rows": rows,
            "absent": self._absent | self.journal.absent(),
            "failed": self.journal.failed(),
            "skipped": self._skipped,
            "machine": self._facts | {"load_after": machine_facts()["load"]},
            "seconds": sum(turn["took_s"] for turn in self.journal.turns),
        }

    def _row(self, cell: Cell) -> dict[str, Any] | None:
        """Medians, and how many rounds they are of."""
        rounds = list(self.journal.found(cell.system, cell.name).values())
        if not rounds:
            return None
        figures = {name: median(each[name] for each in rounds) for name in rounds[0]}
        each = [round(one["per_s"]) for one in rounds]
        return {"system": cell.system, "queues": cell.queues, "flush": cell.flush, "figures": figures, "rounds": each}

    def _take(self, cell: Cell, root: Path) -> Entry:
        directory = Path(tempfile.mkdtemp(dir=root, prefix=cell.system))
        try:
            found = _server(cell, self._plan, directory) if cell.is_server else _layout(cell, self._plan, directory)
            return {"found": found}
        except Missing as missing:
            return {"absent": str(missing)}
        except FAILURES as error:
            return {"failed": error.describe() if isinstance(error, TowlineError) else repr(error)}
        finally:
            shutil.rmtree(directory)

    def _expected_s(self, cell: Cell) -> float:
        """As long as it took the last time, where that is known."""
        return self.journal.took_s(cell.system, cell.name) or cell.guess_s()

    def _time_s(self) -> float:
        return self._plan.within_s - (time.monotonic() - self._began)

    def _left_s(self, at: int) -> float:
        open_ = [cell for number, cell in self._turns[at:] if not self.journal.is_over(cell.system, cell.name, number)]
        return min(sum(map(self._expected_s, open_)), max(0.0, self._time_s()))


def _server(cell: Cell, plan: Plan, directory: Path) -> dict[str, float]:
    """Puts, then kill -9 after the last acknowledgement."""
    work = work_of(cell, plan)
    with Sitting(cell.system, directory) as sitting:
        found = sitting.measure(work)
        again_s = sitting.restart_s(work)
    return {"per_s": found["per_s"], "p99_us": found["quantiles_us"][QUANTILES.index(0.99)], "first_ack_s": again_s}


def _layout(cell: Cell, plan: Plan, directory: Path) -> dict[str, float]:
    """A process that puts; under ASYNC_FLUSH it is killed while it appends, and another one looks at what is left."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if cell.system != ONE_LOG and most < cell.queues + DESCRIPTORS:
        raise Missing(f"{cell.queues + DESCRIPTORS:,} descriptors are needed, a process may have {most:,}")
    goes_on = cell.flush == ASYNC
    order: dict[str, Any] = {
        "directory": str(directory),
        "layout": cell.system,
        "flush": cell.flush,
        "load": plan.load(cell).to_json(),
        "count": plan.count,
        "seconds": plan.seconds if not goes_on else STEP_S,
        "rate": plan.rate if goes_on else 0,
        "steady_s": plan.steady_s,
        "drop_caches": plan.drop_caches,
    }
    if plan.settles:
        os.sync()  # what the disk owes for the turn before, or to anybody, is not this one's
    with Step(order | {"step": "put"}) as put:
        found = put.answer()
        if goes_on:
            put.kill_when(lambda: _acknowledged(directory) >= found["stored"] + GOES_ON_S * plan.rate)
    if goes_on:
        with Step(order | {"step": "after"}) as after:
            found |= after.answer()
        found |= _taken(directory / "store", int(found["recovered"]) * plan.body)
    return found


def _acknowledged(directory: Path) -> int:
    with suppress(FileNotFoundError):  # not yet
        return int.from_bytes((directory / "acknowledged").read_bytes(), "little")
    return 0


def _taken(store: Path, bodies: int) -> dict[str, float]:
    """Files, directories, and bytes on the disk for each byte of a body."""
    paths = list(store.rglob("*"))
    directories = sum(path.is_dir() for path in paths)
    return {
        "files": len(paths) - directories,
        "directories": directories,
        "disk_per_byte": disk_bytes(store) / bodies,
    }


class Step:
    """A process of `peers.layouts.process`. Used as a context manager; at its end the process has gone."""

    def __init__(self, order: dict[str, Any]) -> None:
        parent = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "peers.layouts.process", json.dumps(order)],
            cwd=home(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is ours
            preexec_fn=lambda: die_with_parent(parent),
        )

    def __enter__(self) -> "Step":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def answer(self) -> dict[str, float]:
        """Raises BenchFailed."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(STEP_S):
                raise BenchFailed(f"the process says nothing within {STEP_S:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise BenchFailed(f"the process ended with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise BenchFailed(found["error"])
        return found

    def kill_when(self, reached: Callable[[], bool]) -> None:
        """SIGKILL in the middle of its appends. Raises BenchFailed where it ended before."""
        deadline = time.monotonic() + STEP_S
        while not reached():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise BenchFailed("the process ended, or stood still, before it was killed")
            time.sleep(0.005)
        self._process.kill()
        self._process.wait()
