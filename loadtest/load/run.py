"""Runs Locust in processes of its own, with workers if wanted; checks that nothing acknowledged is lost."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from towline.client.consumer import Consumer
from towline.errors import Remedy, TowlineError
from towline.link.free_port import free_port
from towline.loadtest import load

from .plan import USERS, LoadPlan

LOCUSTFILE: Final = Path(load.__file__).parent.parent / "locustfile.py"
LOOPBACK: Final = "127.0.0.1"
END_MAX_S: Final = 20.0
QUIET_MS: Final = 3_000  # nothing came for so long, and the reader is at the end
LOG: Final = "locust.log"
SUMMARY: Final = "summary.json"

Progress = Callable[[float], None]


class LoadTestFailed(TowlineError, remedy=Remedy.FIX_CALL):
    status: int
    said: str
    template = "Locust ended with status {status} and left no result: {said}"
    advice = "keep its output with --out DIR and read locust.log there"


@dataclass(frozen=True, slots=True)
class Outputs:
    """What is written beside the summary; relative to where the command runs."""

    csv: Path | None = None
    html: Path | None = None


def run(plan: LoadPlan, users: Sequence[str], workers: int, outputs: Outputs, progress: Progress) -> dict[str, Any]:
    """A headless run. Returns the summary; `broken` in it holds a sentence for each bound that was not kept.

    `plan.out` is a directory that exists. Raises LoadTestFailed where Locust ended without a summary.
    """
    directory = Path(plan.out)
    words = ["--headless", "--run-time", f"{plan.seconds:g}s", "--stop-timeout", "10", "--skip-log-setup"]
    if plan.shape == "none":
        words += ["--users", str(plan.users), "--spawn-rate", f"{plan.spawn_rate:g}"]
    else:
        words = [word for word in words if word not in ("--run-time", f"{plan.seconds:g}s")]
    if outputs.csv is not None:
        words += ["--csv", str(outputs.csv.resolve())]
    if outputs.html is not None:
        words += ["--html", str(outputs.html.resolve())]
    with (directory / LOG).open("wb") as log, _locust(plan, users, workers, words, log) as main:
        _watch(main, plan.seconds, progress)
    found = directory / SUMMARY
    if not found.exists():
        lines = (directory / LOG).read_text(errors="replace").strip().splitlines()
        raise LoadTestFailed(main.returncode, lines[-1] if lines else "it said nothing")
    summary: dict[str, Any] = json.loads(found.read_bytes())
    return summary


def serve_web(plan: LoadPlan, users: Sequence[str], workers: int, port: int) -> int:
    """Locust with its page, until it is ended; its own output goes where ours goes. Returns its exit status."""
    words = ["--web-host", LOOPBACK, "--web-port", str(port), "--users", str(plan.users)]
    with _locust(plan, users, workers, [*words, "--spawn-rate", f"{plan.spawn_rate:g}"], None) as main:
        return main.wait()


def check(plan: LoadPlan) -> dict[str, int]:
    """Reads the topic from its beginning: how often each acknowledged message is there. Its retention must hold it."""
    kept: Counter[str] = Counter()
    for path in sorted(Path(plan.out).glob("acknowledged-*.txt")):
        kept.update(line for line in path.read_text().splitlines() if line)
    seen: Counter[str] = Counter()
    with Consumer(plan.serve, plan.topic, suspend_ms=QUIET_MS // 3) as consumer:
        while True:
            columns = consumer.poll_columns(QUIET_MS)
            if columns is None and consumer.at_end:
                break
            if columns is not None:
                seen.update(key.decode("ascii", "replace") for key in columns.unique_keys())
    return {
        "acknowledged": len(kept),
        "lost": sum(key not in seen for key in kept),
        "doubled": sum(seen[key] > 1 for key in kept),
        "read": seen.total(),
    }


@contextmanager
def _locust(
    plan: LoadPlan, users: Sequence[str], workers: int, words: list[str], log: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """The process to wait for. All of them are ended when the block is left."""
    environment = os.environ | plan.environment() | {"TOWLINE_LOAD_PARENT": str(os.getpid())}
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), *(USERS[name] for name in users)]
    made: list[subprocess.Popen[bytes]] = []

    def start(*more: str) -> subprocess.Popen[bytes]:
        streams = {} if log is None else {"stdout": log, "stderr": log}
        made.append(subprocess.Popen([*command, *more], env=environment, stdin=subprocess.DEVNULL, **streams))
        return made[-1]

    try:
        if workers:
            port = str(free_port())
            bound = ["--master-bind-host", LOOPBACK, "--master-bind-port", port]
            main = start("--master", *bound, "--expect-workers", str(workers), *words)
            for _ in range(workers):
                start("--worker", "--master-host", LOOPBACK, "--master-port", port)
        else:
            main = start(*words)
        yield main
    finally:
        _end(made)


def _watch(main: subprocess.Popen[bytes], seconds: float, progress: Progress) -> None:
    """Until it ends; reports the progress twice a second."""
    step = 0.5
    passed = 0.0
    while True:
        try:
            main.wait(step)
            return
        except subprocess.TimeoutExpired:
            passed += step
            progress(min(passed, seconds))


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(END_MAX_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
