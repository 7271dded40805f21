"""A copy of the checkout outside of it, in which one mutant at a time stands and tests are run.

The copy is what Python imports there, in processes that tests start as well: it is the working directory and the first
place of PYTHONPATH. Its kernels are compiled into its own caches, which are named by the kernels' sources: machine code
of a mutant is never taken for that of the code, nor left in the checkout.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.gate.recording import NAME, NOTES
from tests.gate.verdict import Run

from .catalogue import Mutant

CACHES: Final = Path("towline/kernels/__pycache__")
# Modules from above and from below, and one by a link: all of them must come from the copy.
PROBE: Final = """
import subprocess, sys, towline, towline.flush, towline.kernels.jit, tests.gate.verdict
for module in (towline, towline.flush, towline.kernels.jit, tests.gate.verdict):
    print(module.__file__, flush=True)
if len(sys.argv) == 1:
    sys.exit(subprocess.call([sys.executable, "-c", sys.stdin.read(), "again"], cwd="/"))
"""
_INTERRUPT_S: Final = 20.0
_NOT_CODE: Final = ("docs/", "loadtest/results/", "tests/mutants/")  # no test of a mutant reads them


class NotTheCopy(Exception):
    """Python would import something else than the copy: a verdict would be about other code."""


@dataclass(frozen=True, slots=True)
class Told:
    """One run of tests: what they noted, and whether the time was over before they ended."""

    run: Run
    over: bool


class Copy:
    """A copy of what git knows of a checkout, and of new files that it does not ignore. `scratch` is outside of it."""

    def __init__(self, checkout: Path, scratch: Path) -> None:
        """Raises CalledProcessError where `checkout` is no working tree of git."""
        self.root = scratch / "copy"
        self._scratch = scratch
        self._runs = 0
        self._writes = 0
        digest = hashlib.sha256()
        for name in _known(checkout):
            source, target = checkout / name, self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
            if not name.startswith(_NOT_CODE) and not source.is_symlink():
                digest.update(f"{name}\0{source.stat().st_size}\0".encode() + source.read_bytes())
        self.digest = digest.hexdigest()

    def environment(self) -> dict[str, str]:
        """Of every process here. What the caller's pytest or numba were told is not for them."""
        known = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "NUMBA_"))}
        return known | {"PYTHONPATH": str(self.root)}

    def check(self) -> None:
        """Raises NotTheCopy unless a process here, and one that it starts elsewhere, import the copy."""
        command = [sys.executable, "-c", PROBE]
        asked = subprocess.run(
            command, cwd=self.root, env=self.environment(), input=PROBE, capture_output=True, text=True
        )
        places = [Path(line).resolve() for line in asked.stdout.splitlines()]
        wrong = [str(place) for place in places if not place.is_relative_to(self.root.resolve())]
        if wrong or len(places) != 8:
            raise NotTheCopy("\n".join(wrong) or asked.stderr)

    def compile(self) -> None:
        """Every kernel once, for all runs but those of mutants in kernels. Raises CalledProcessError, NotTheCopy."""
        command = [sys.executable, "-m", "towline.kernels"]
        subprocess.run(command, cwd=self.root, env=self.environment(), check=True, capture_output=True)
        if not list((self.root / CACHES).glob("kernels-*")):
            raise NotTheCopy("the kernels of the copy were compiled somewhere else")

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """While the mistake stands in the copy. Raises DoesNotApply before anything was changed.

        A file's time says which text it has: what Python or numba kept of one is never believed of the other.
        """
        path = self.root / mutant.file
        text, times = path.read_bytes(), path.stat()
        wrong = mutant.apply(text.decode()).encode()
        before = set(self._caches())
        self._writes += 1
        path.write_bytes(wrong)
        later = times.st_mtime_ns + self._writes * 1_000_000_000  # seconds are what a .pyc keeps
        os.utime(path, ns=(later, later))
        try:
            yield
        finally:
            path.write_bytes(text)
            os.utime(path, ns=(times.st_mtime_ns, times.st_mtime_ns))
            for folder in set(self._caches()) - before:
                shutil.rmtree(folder)

    def run(self, tests: Sequence[str], limit_s: float, *, to_the_end: bool = False) -> Told:
        """Runs tests up to the first failure or `to_the_end`, in a session of their own, which is gone afterwards."""
        self._runs += 1
        notes = self._scratch / f"{self._runs}.jsonl"
        files = self._scratch / "f"  # short: sockets lie below it
        ours = ["-p", NAME, f"{NOTES}={notes}", "-p", "no:cacheprovider", f"--basetemp={files}"]
        command = [sys.executable, "-m", "pytest", "-q", *ours, *([] if to_the_end else ["-x"]), *tests]
        process = subprocess.Popen(
            command,
            cwd=self.root,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        over = False
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            over = True
        finally:
            end_session(process)
            shutil.rmtree(files, ignore_errors=True)
        return Told(Run.read("the run", process.returncode, notes), over)

    def _caches(self) -> list[Path]:
        return list((self.root / CACHES).glob("kernels-*"))


def _known(checkout: Path) -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=checkout, check=True, capture_output=True).stdout.decode().split("\0")
    names = sorted({name for name in listed if name})
    return [name for name in names if (checkout / name).is_symlink() or (checkout / name).is_file()]


def end_session(process: "subprocess.Popen[bytes]") -> None:
    """Ctrl-C first: fixtures stop their nodes, and leave nothing in shared memory. Then whatever is left is killed."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_INTERRUPT_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
