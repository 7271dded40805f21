"""`python -m tests.gate`: every test, then what failed once more with nothing beside it.

What fails twice fails the run. What passes the second time is flaky: it is told at the end and written to
build/flaky.txt for whoever mends it, and more than five of them fail the run too. build/slowest.txt says how long the
tests of each file took. GATE_MINUTES ends a run that takes longer, so that what it was at is told.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil

from .recording import NAME, NOTES, ONLY
from .verdict import FLAKY_MAX, Failure, Run, Verdict, failed_in, judge

ROOT: Final = Path(__file__).parents[2]
FLAKY: Final = Path("build/flaky.txt")
SLOWEST: Final = Path("build/slowest.txt")
PARTS: Final = {
    # One worker more than CI has CPUs: tests wait for processes and disks.
    "the run beside each other": ["-n", "3", "--no-loadscope-reorder", "-m", "not slow and not alone"],
    "the run of what is marked alone": ["-m", "alone and not slow"],
}
PREFIX: Final = "tlgate-"
PID: Final = "pid"
AGAIN: Final = "the second run"
MINUTES: Final = "GATE_MINUTES"
# Far more than a second run may heal: what broke so much breaks the rest too, and takes its time to do so.
FAILURES_MAX: Final = 60
LIMITS: Final = [f"--maxfail={FAILURES_MAX}"]
CAUSES_MAX: Final = 8
CAUSE_LENGTH: Final = 160


class Gate:
    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self.runs: list[Run] = []
        self._interrupted = False
        self._child: subprocess.Popen[bytes] | None = None
        signal.signal(signal.SIGINT, self._interrupt)
        signal.signal(signal.SIGTERM, self._interrupt)
        signal.signal(signal.SIGHUP, self._interrupt)

    def end(self) -> None:
        """From a thread: time is up."""
        tell(f"{MINUTES} are over")
        os.kill(os.getpid(), signal.SIGTERM)

    def _interrupt(self, number: int, frame: object) -> None:
        """Nothing more is begun. pytest closes what its tests have open: Ctrl-C reaches it as well, `kill` does not."""
        self._interrupted = True
        if number != signal.SIGINT and self._child is not None:
            self._child.send_signal(signal.SIGINT)

    def run(self) -> Verdict:
        runs = self.runs
        for name, arguments in PARTS.items():
            runs.append(self._pytest(name, arguments))
            if not self._goes_on(runs[-1]):
                return judge(runs, None, left_out=[*list(PARTS)[len(runs) :], AGAIN])
        failed = list(failed_in(runs))
        return judge(runs, self._again(failed) if failed else None)

    def _goes_on(self, run: Run) -> bool:
        return run.goes_on and not self._interrupted

    def _again(self, tests: list[str]) -> Run:
        tell(f"once more, alone: {len(tests)} that failed")
        only = self._scratch / "only.json"
        only.write_text(json.dumps(tests))
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        return self._pytest(AGAIN, [f"{ONLY}={only}", *files])

    def _pytest(self, name: str, arguments: list[str]) -> Run:
        notes = self._scratch / f"{name}.jsonl"
        files = self._scratch / f"f{len(self.runs)}"  # short: sockets lie below it
        # With "=": pytest takes a word that is a path for a test's place before it knows the plugin's options.
        ours = ["-p", NAME, f"{NOTES}={notes}", f"--basetemp={files}", *LIMITS]
        command = [sys.executable, "-m", "pytest", "-q", *ours, *arguments]
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}) as self._child:
            return Run.read(name, self._child.wait(), notes)


def tell(line: str) -> None:
    print(line, flush=True)


def told(failure: Failure) -> str:
    """A flaky test as the one who mends it wants it."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(failure.at))
    said = "\n".join(f"    {line}".rstrip() for line in failure.said.splitlines())
    again = f".venv/bin/python -m pytest {shlex.quote(failure.test)}"
    where = f"failed {at} in {failure.phase} after {failure.took:.1f} s, load {failure.load:.1f}"
    return f"{failure.test}\n  {where}\n{said}\n  again: {again}\n"


def write_flaky(verdict: Verdict) -> None:
    """The file speaks of the last run: it goes where nothing was flaky."""
    FLAKY.unlink(missing_ok=True)
    if verdict.flaky:
        FLAKY.parent.mkdir(exist_ok=True)
        head = f"{len(verdict.flaky)} failed and passed alone ({os.cpu_count()} CPUs)\n"
        text = "\n".join([head, *map(told, verdict.flaky)])
        FLAKY.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_slowest(runs: Sequence[Run]) -> None:
    """Seconds of each file's tests and fixtures, the longest first."""
    took = sum((run.took for run in runs), Counter[str]())
    SLOWEST.parent.mkdir(exist_ok=True)
    lines = [f"{seconds:9.1f}  {name}" for name, seconds in [("all files", took.total()), *took.most_common()]]
    SLOWEST.write_text("\n".join(lines) + "\n", encoding="utf-8")


def tell_verdict(verdict: Verdict) -> None:
    if verdict.flaky:
        limit = f", more than {FLAKY_MAX}: they count as failed" if verdict.too_flaky else ""
        tell(f"flaky: {len(verdict.flaky)}, see {FLAKY}{limit}")
        for failure in verdict.flaky:
            tell(f"  {failure.test} (load {failure.load:.1f})")
    for line in verdict.red:
        tell(f"red: {line}")
    for cause, count in verdict.causes[:CAUSES_MAX]:
        tell(f"cause of {count}: {cause[:CAUSE_LENGTH]}")
    tell(f"skipped: {verdict.skipped}")
    tell(verdict.closing)


def remove_left() -> None:
    """Files of gates that were killed: nobody else does it, and they are large."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{PID}"):
        pid = left.read_text()  # empty: that gate is just starting
        if pid and not psutil.pid_exists(int(pid)):
            shutil.rmtree(left.parent, ignore_errors=True)


@contextlib.contextmanager
def ending(gate: Gate, minutes: str | None) -> Iterator[None]:
    """That many minutes from now the gate ends, if the block has not. Without a number it has no limit."""
    if not minutes:
        yield
        return
    timer = threading.Timer(float(minutes) * 60, gate.end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def main() -> int:
    remove_left()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as scratch:
        (Path(scratch) / PID).write_text(str(os.getpid()))
        tell(f"{shutil.disk_usage(scratch).free >> 30} GiB are free for what tests store")
        gate = Gate(Path(scratch))
        with ending(gate, os.environ.get(MINUTES)):
            verdict = gate.run()
    write_flaky(verdict)
    write_slowest(gate.runs)
    tell_verdict(verdict)
    return 1 if verdict.failed else 0


if __name__ == "__main__":
    sys.exit(main())
