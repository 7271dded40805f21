"""What a worker says of its inputs: lines of JSON, which the driver adds up."""

import json
import os
import resource
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from towline.limits import GIB

from .judging import Verdict, judge, judge_within
from .slot import ROOM, Slot
from .target import Target

FLUSH_EVERY: Final = 2_000  # inputs
_SHRINKS_MAX: Final = 400  # calls to make a failing input shorter
_ADDRESSES: Final = GIB  # that a worker may take beside what it has with its decoders loaded
_PAGE: Final = resource.getpagesize()
_driver: TextIO = sys.stdout


class Job(NamedTuple):
    """Inputs [first, inputs) of the target of that name in a module."""

    module: str
    name: str
    inputs: int
    seed: int
    first: int = 0


def speak_alone() -> None:
    """The pipe to the driver takes lines of JSON alone: what libraries print goes where the worker's last words go."""
    global _driver
    _driver = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def tell(job: int, **facts: Any) -> None:
    """One line for the driver."""
    print(json.dumps({"job": job, **facts}), file=_driver, flush=True)


def limit_memory() -> None:
    """From now on an allocation that nothing bounds raises MemoryError."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    resource.setrlimit(resource.RLIMIT_AS, (size + _ADDRESSES, resource.RLIM_INFINITY))


class Recorder:
    """The inputs of one job: each stands in the slot before it is run."""

    def __init__(self, number: int, job: Job, target: Target, slot: Slot) -> None:
        self._number, self._job, self.target, self._slot = number, job, target, slot
        self._counts: Counter[str] = Counter()
        self._shortest: dict[str, int] = {}  # bytes of the input that is known of each kind of defect
        self.done = job.first
        slot.write(number, job.first, b"")

    @property
    def is_done(self) -> bool:
        return self.done >= self._job.inputs

    def take(self, data: bytes) -> Verdict:
        """Runs one input, and says what is to be said of it."""
        data = data[: min(self.target.size_max, ROOM)]
        self.done += 1
        self._slot.write(self._number, self.done, data)
        verdict = judge_within(self.target, data)
        self._counts[verdict.outcome] += 1
        if verdict.defect is not None and len(data) < self._shortest.get(verdict.defect.kind, ROOM + 1):
            kind, story = verdict.defect
            data = self._shrunk(data, kind)
            self._shortest[kind] = len(data)
            tell(self._number, kind=kind, story=story, data=data.hex())
        if self.done % FLUSH_EVERY == 0 or self.is_done:
            self.flush()
        return verdict

    def flush(self) -> None:
        tell(self._number, counts=dict(self._counts), done=self.done)
        self._counts.clear()

    def _shrunk(self, data: bytes, kind: str) -> bytes:
        """A shorter input that fails the same way; the same one where only its time or memory is wrong."""
        if judge(self.target, data).defect is None:
            return data
        size, left = len(data) // 2, _SHRINKS_MAX
        while size and left > 0:
            at = 0
            while at < len(data) and left > 0:
                less = data[:at] + data[at + size :]
                self._slot.write(self._number, self.done, less)
                defect = judge(self.target, less).defect
                left -= 1
                if defect is not None and defect.kind == kind:
                    data = less
                else:
                    at += size
            size //= 2
        return data
