"""The demo's Spark step: starts a process that reads the slave's store and ends with this one.

Spark's JVM lives below that process and in its process group.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import orjson
import psutil

from towline.errors import DemoFailed, MissingPackage
from towline.start import home

from . import flights
from .demo_load import Sent
from .demo_nodes import RunningNode, await_true
from .interrupts import Interrupts

WORK: Final = "towline.cli.demo_spark_work"
PLOT: Final = "delays.png"
STEP_MAX_S: Final = 180.0
END_MAX_S: Final = 10.0
_PACKAGES: Final = {"pyspark": "spark", "pyarrow": "spark", "matplotlib": "drill"}
_LOG_TAIL: Final = 600
_STEP_S: Final = 0.02


def missing_package() -> str | None:
    """What of Python is missing for the Spark step, in a sentence. Java is looked for by the step itself."""
    for package, extra in _PACKAGES.items():
        if find_spec(package) is None:
            return MissingPackage(package, extra).describe()
    return None


def read_with_spark(
    master: RunningNode, slave: RunningNode, sent: Sent, out: Path, interrupts: Interrupts
) -> dict[str, Any]:
    """Delays by carrier and origin from the slave's store, against what was sent; master and slave verified.

    The picture is `out`/delays.png. Raises DemoFailed. Without Spark: {"skipped": the reason}.
    """
    reason = missing_package()
    if reason is not None:
        return {"skipped": reason}
    out.mkdir(parents=True, exist_ok=True)
    scratch = master.store.root.parent / "spark"
    scratch.mkdir(exist_ok=True)
    started = time.monotonic()
    try:
        found = _run(master, slave, (out / PLOT).resolve(), scratch, interrupts)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if "skipped" in found:
        return found
    delays = {(row["carrier"], row["origin"]): (row["departed"], row["minutes"]) for row in found["delays"]}
    expected = {place: (len(minutes), sum(minutes)) for place, minutes in sent.delays.items()}
    return {
        "skipped": None,
        "topic": flights.TOPIC,
        "read": found["read"],
        "right": found["read"] == sent.acked and delays == expected,
        "delays": found["delays"],
        "plot": str(out / PLOT),
        "verify": found["verify"],
        "seconds": round(time.monotonic() - started, 3),
        "session_s": found["session_s"],
        "query_s": found["query_s"],
        "verify_s": found["verify_s"],
    }


def _run(master: RunningNode, slave: RunningNode, plot: Path, scratch: Path, interrupts: Interrupts) -> dict[str, Any]:
    log = scratch / "log"
    flags = [part for name, node in (("master", master), ("slave", slave)) for part in (f"--{name}", node.store.root)]
    command = [sys.executable, "-m", WORK, *flags, "--plot", plot, "--scratch", scratch, "--parent", os.getpid()]
    with (
        log.open("wb") as errors,
        _started([str(part) for part in command], scratch, errors.fileno(), interrupts) as process,
    ):
        try:
            said, _ = process.communicate(timeout=STEP_MAX_S)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"the Spark step did not end within {STEP_MAX_S:.0f} s") from None
    if process.returncode != 0:
        tail = log.read_text(errors="replace")[-_LOG_TAIL:].strip()
        raise DemoFailed(f"the Spark step ended with status {process.returncode}: {tail}")
    result: dict[str, Any] = orjson.loads(said)
    return result


@contextmanager
def _started(
    command: list[str], scratch: Path, errors: int, interrupts: Interrupts
) -> Iterator[subprocess.Popen[bytes]]:
    """A session of its own keeps the terminal's Ctrl-C for us. Ended with its JVM, however the block is left."""
    process: subprocess.Popen[bytes] | None = None
    try:
        with interrupts.held():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                cwd=home(),
                env=os.environ | {"TMPDIR": str(scratch)},
            )
        yield process
    finally:
        if process is not None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Returns when nobody of its process group is left: the JVM is in it, too."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not _runs(process.pid):
            break
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(DemoFailed):
            await_true(lambda: not _runs(process.pid), END_MAX_S, "the Spark step did not end", step_s=_STEP_S)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _runs(group: int) -> bool:
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False
