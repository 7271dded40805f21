"""Runs jobs in workers, starts a worker again behind an input that killed it, and keeps the inputs that failed."""

import hashlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import psutil

from .recording import Job
from .slot import Slot

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / "build/fuzz"
ENDING: Final = ".bin"
DONE: Final = "done"
LOADING: Final = -1  # the job of a worker that loads decoders still
PATIENCE_S: Final = 10.0  # of CPU for one input, before the worker is killed
_LOADING_S: Final = 400.0  # of CPU: kernels may be compiled
DEATHS_MAX: Final = 20  # of workers, for one target
_LOOK_S: Final = 0.2
_STORY_MAX: Final = 4_000  # characters of what a worker said as it died


@dataclass(slots=True)
class Tally:
    """What became of the inputs of one target. `kept`: a file for each kind of defect, with its story."""

    name: str
    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    kept: dict[str, Path] = field(default_factory=dict)
    stories: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


class HarnessFailed(Exception):
    """A worker died before its first input."""


class Worker:
    """A process with a slot; killed and gone at the end of the block."""

    def __init__(self, module: str, jobs: Sequence[Job], scratch: Path) -> None:
        path = scratch / "slot"
        self.slot = Slot(path, new=True)
        self.slot.write(LOADING, 0, b"")
        self._said = (scratch / "stderr").open("w+b")
        command = [sys.executable, "-m", f"tests.fuzz.{module}", str(os.getpid()), str(path), json.dumps(jobs)]
        here = {**os.environ, "TMPDIR": str(scratch)}  # what a killed one leaves goes too
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._said, cwd=ROOT, env=here)
        self._came = b""
        self._usage = psutil.Process(self.process.pid)
        self._at = (LOADING, -1)
        self._cpu_then = 0.0

    @property
    def _out(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def lines(self) -> list[bytes] | None:
        """What it has said since, line by line, after a little wait; None when it has ended."""
        if not select.select([self._out], [], [], _LOOK_S)[0]:
            return []
        came = os.read(self._out.fileno(), 1 << 16)
        *whole, self._came = (self._came + came).split(b"\n")
        return whole if came else None

    def is_stuck(self, patience_s: float) -> bool:
        """Whether the input that it is at has taken that much CPU."""
        try:
            times = self._usage.cpu_times()
        except psutil.NoSuchProcess:
            return False
        at, used = self.slot.where(), times.user + times.system
        if at != self._at:
            self._at, self._cpu_then = at, used
        return used - self._cpu_then > (_LOADING_S if at[0] == LOADING else patience_s)

    def last_words(self) -> str:
        self._said.seek(0)
        return self._said.read().decode(errors="replace")[-_STORY_MAX:]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._out.close()
        self._said.close()
        self.slot.close()


class Run:
    """Jobs of one run. `patience_s`: CPU of one input; `deaths_max`: workers that one target may kill; `deadline`:
    monotonic seconds, when it stops where it is."""

    def __init__(
        self,
        kept: Path = KEPT,
        patience_s: float = PATIENCE_S,
        deaths_max: int = DEATHS_MAX,
        deadline: float = float("inf"),
        progress: Callable[[str, int], None] = lambda name, inputs: None,
    ) -> None:
        self._kept, self._patience_s, self._deaths_max = kept, patience_s, deaths_max
        self._deadline, self._progress = deadline, progress
        self.tallies: dict[str, Tally] = {}

    def run(self, module: str, jobs: Sequence[Job]) -> None:
        """All jobs by one worker after the other. Raises HarnessFailed."""
        left, deaths = list(jobs), Counter[str]()
        while left and time.monotonic() < self._deadline:
            with (
                tempfile.TemporaryDirectory(prefix="tlfuzz-") as scratch,
                Worker(module, left, Path(scratch)) as worker,
            ):
                ended = self._follow(worker, left)
                if ended == DONE or time.monotonic() >= self._deadline:
                    return
                number, at, data = worker.slot.read()
                if number == LOADING:
                    raise HarnessFailed(f"{ended}: {worker.last_words()}")
                job = left[number]
                story = f"{ended}\n{worker.last_words()}"
            self._fail(job.name, ended, data, story)
            deaths[job.name] += 1
            tired = deaths[job.name] >= self._deaths_max or at >= job.inputs
            left = left[number + 1 :] if tired else [job._replace(first=at), *left[number + 1 :]]

    def _follow(self, worker: Worker, jobs: Sequence[Job]) -> str:
        """Hears a worker to its end, which is DONE, or what was wrong."""
        counted, since = {}, time.monotonic()
        while True:
            lines, now = worker.lines(), time.monotonic()
            number, at = worker.slot.where()
            if number != LOADING:
                tally = self._of(jobs[number].name)
                tally.seconds, since = tally.seconds + now - since, now
                tally.inputs += at - counted.get(number, jobs[number].first)
                counted[number] = at
                self._progress(tally.name, sum(each.inputs for each in self.tallies.values()))
            if lines is None:
                return _ended(worker.process.wait())
            for line in lines:
                self._hear(jobs, json.loads(line), counted)
            if not lines and worker.is_stuck(self._patience_s):
                return f"no end within {self._patience_s:.0f} s of CPU"
            if now >= self._deadline:
                return "out of time"

    def _hear(self, jobs: Sequence[Job], said: dict[str, Any], counted: dict[int, int]) -> None:
        job = jobs[said["job"]]
        if "kind" in said:
            self._fail(job.name, said["kind"], bytes.fromhex(said["data"]), said["story"])
            return
        tally = self._of(job.name)
        tally.outcomes.update(said["counts"])
        tally.inputs += said["done"] - counted.get(said["job"], job.first)  # the next job may have begun
        counted[said["job"]] = said["done"]

    def _of(self, name: str) -> Tally:
        return self.tallies.setdefault(name, Tally(name))

    def _fail(self, name: str, kind: str, data: bytes, story: str) -> None:
        """Keeps an input; a shorter one of the same kind takes its place."""
        self._kept.mkdir(parents=True, exist_ok=True)
        tally = self._of(name)
        if (before := tally.kept.get(kind)) is not None:
            if before.stat().st_size <= len(data):
                return
            before.unlink()
        path = self._kept / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}{ENDING}"
        path.write_bytes(data)
        tally.kept[kind], tally.stories[kind] = path, story


def _ended(status: int) -> str:
    if status == 0:
        return DONE
    return f"the worker died of signal {-status}" if status < 0 else f"the worker ended with status {status}"
