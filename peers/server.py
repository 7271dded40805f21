"""A server under measurement: its processes, from its start to the removal of all it wrote."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from towline.errors import BenchFailed
from towline.link.free_port import free_port as free_port
from towline.parent import die_with_parent

from .usage import disk_bytes

HOST: Final = "127.0.0.1"
START_S: Final = 120.0
STEP_S: Final = 0.02
_LAST_LINES: Final = 3  # of its log, in an error
_SYNCS: Final = "msync,fdatasync,fsync"


class Missing(Exception):
    """A system that cannot be measured here, and why."""


class Process:
    """A server that is one program. `directory` is its own, and goes with it.

    It has a session of its own, so that Ctrl-C is ours, and is killed when the process that started it goes.
    """

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        port: int,
        *,
        sync_delay_ms: int = 0,
        ready: Callable[[], bool] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Returns when it is `ready` (None: when it listens on `port`). `environment` comes on top of ours.

        Raises Missing where the program is not installed, BenchFailed where it ends or is not ready in time.
        """
        need(command[0])
        self._directory, self.address = directory, str(port)
        self._command = [*_delayed(sync_delay_ms), *command]
        self._environment = dict(os.environ) | dict(environment or {})
        self._process = self._started()
        self._await(ready or (lambda: listens(port)))

    def pids(self) -> list[int]:
        """Of it and all its children."""
        pid = self._process.pid
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]

    def front_pids(self) -> list[int]:
        """All of them hold what they hold together."""
        return self.pids()

    def await_segments(self) -> None:
        """It makes nothing ahead."""

    def await_dispatched(self) -> None:
        """It owes nothing."""

    def disk_bytes(self) -> int:
        return disk_bytes(self._directory)

    def kill(self) -> None:
        """SIGKILL to it and its children; its files stay."""
        with suppress(ProcessLookupError):  # all of them have gone
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def again(self) -> None:
        """Starts it on its files after `kill`, on the same port; returns before it listens."""
        self._process = self._started()

    def end(self) -> None:
        """By force: all it wrote goes with it."""
        self.kill()
        remove(self._directory)

    def _started(self) -> "subprocess.Popen[bytes]":
        parent = os.getpid()
        with (self._directory / "log").open("ab") as log:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(parent),
            )

    def _await(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_S
        try:
            while not ready():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    said = (self._directory / "log").read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]
                    raise BenchFailed(f"{self._directory.name} did not start: {' | '.join(said)}")
                time.sleep(STEP_S)
        except BaseException:
            self.end()
            raise


def need(*programs: str) -> None:
    """Raises Missing where one of them is not installed."""
    for program in programs:
        if shutil.which(program) is None:
            raise Missing(f"{program} is not installed")


def remove(*directories: Path) -> None:
    """A server that has ended may have left files that are still being closed."""
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def version_of(*command: str) -> str:
    """What a program says of its version. Raises Missing."""
    need(command[0])
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"})
    return (done.stdout or done.stderr).strip().splitlines()[0]


def _delayed(ms: int) -> list[str]:
    """What stands before a command, so that each sync of its takes `ms` longer. Raises Missing.

    The tracer is a grandchild of ours: the process that we start is the server itself.
    """
    if not ms:
        return []
    need("strace")
    traced = ["-e", f"trace={_SYNCS}", "-e", f"inject={_SYNCS}:delay_exit={1000 * ms}"]
    return ["strace", "-D", "-f", "-q", "--seccomp-bpf", "-o", "/dev/null", *traced]
