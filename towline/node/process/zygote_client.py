"""The supervisor's client of its zygote: starts it, requests children, reports their exits.

Imports little, so that the zygote loads its kernels while the supervisor still imports the rest of itself.
"""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from towline.errors import StartFailed

READY_MAX_S: Final = 60.0
FORK_MAX_S: Final = 60.0
END_MAX_S: Final = 2.0
COMPILE_MAX_S: Final = 600.0  # until the zygote says again how far it is
THREAD_COUNTS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_STEP_MS: Final = 100


class Exit(NamedTuple):
    """A child that ended; a signal's number is negative."""

    pid: int
    status: int


class ZygoteClient:
    """One zygote at a time, whose children do the duties of a node on `store`. For one thread, and signal handlers."""

    def __init__(
        self,
        store: Path,
        log_file: Path | None,
        duties: Sequence[str],
        compiling: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        """`duties` are the labels of those whose modules the zygote loads beforehand; `compiling` gets how much of what
        it has to compile it has compiled, the first time on a machine."""
        self._compiling = compiling
        self.pulse: Callable[[], object] = _nothing  # called between waits for the zygote
        self._arguments = [str(store), str(log_file or "-"), *duties]
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._bell = -1

    def spawn(self) -> None:
        """Start a zygote; one that was there before has gone. Does not wait for it."""
        mine, theirs = socket.socketpair()
        environment = os.environ | dict.fromkeys(THREAD_COUNTS, "1")
        command = [sys.executable, "-m", "towline.node.process.zygote", str(theirs.fileno()), str(os.getpid())]
        self._process = subprocess.Popen(
            command + self._arguments, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL
        )
        theirs.close()
        self._control = mine
        self._ready = False
        self._unread = b""
        self._received: list[dict[str, Any]] = []

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while the zygote lives."""
        assert self._process is not None
        return self._process.poll()

    def await_ready(self) -> None:
        """Until everything is loaded. Raises StartFailed."""
        if self._ready:
            return
        self._await("zygote", lambda fact: "ready" in fact, READY_MAX_S)
        self._ready = True

    def fork(self, label: str) -> int:
        """The pid of a new child that does the duty `label`. Raises StartFailed when the zygote has gone."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.sendall(json.dumps({"fork": label}).encode() + b"\n")
        return int(self._await(label, lambda fact: fact.get("forked") == label, FORK_MAX_S)["pid"])

    def follow_log(self) -> None:
        """Has the zygote, and what it forks from then on, leave a log that was moved aside."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.sendall(json.dumps({"follow_log": True}).encode() + b"\n")

    def await_exit(self, label: str, pid: int, timeout_s: float) -> int:
        """The exit status of a child. Raises StartFailed when it does not come."""
        return int(self._await(label, lambda fact: fact.get("exited") == pid, timeout_s)["status"])

    def listen(self, timeout_ms: int) -> list[Exit]:
        """Children that ended; waits until the zygote says something, `wake` is called, or the time is over."""
        self._receive(timeout_ms)
        exits = [Exit(fact["exited"], fact["status"]) for fact in self._received if "exited" in fact]
        self._received = [fact for fact in self._received if "exited" not in fact]
        return exits

    def watch(self, bell: int) -> None:
        """Sets a descriptor that ends a `listen` as `wake` does; the caller drains it. -1: none."""
        self._bell = bell

    def wake(self) -> None:
        """Ends a `listen` early; for a signal handler, after which a select would only go on."""
        with contextlib.suppress(BlockingIOError):  # full: it is awake already
            os.write(self._wake, b"\0")

    def end(self) -> None:
        """Ends the zygote, and with it every child that is left."""
        if self._process is None:
            return
        self._control.close()
        if not self._ready:
            self._process.kill()
        try:
            self._process.wait(END_MAX_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def discard(self) -> None:
        """Closes the socket of a zygote that has ended."""
        self._control.close()

    def _await(self, who: str, wanted: Callable[[dict[str, Any]], bool], seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while True:
            if self._take_compiling():
                seconds = COMPILE_MAX_S
                deadline = time.monotonic() + seconds
            for fact in self._received:
                if wanted(fact):
                    self._received.remove(fact)
                    return fact
            if self.exit_status is not None:
                raise StartFailed(who, f"the zygote exited with {self.exit_status}")
            if time.monotonic() > deadline:
                raise StartFailed(who, f"no answer within {seconds:.0f} s")
            self._receive(_STEP_MS)

    def _take_compiling(self) -> bool:
        """Passes on how far the zygote is with compiling. Whether it has said so."""
        said = [fact for fact in self._received if "compiling" in fact]
        self._received = [fact for fact in self._received if "compiling" not in fact]
        for fact in said:
            self._compiling(fact["compiling"], fact["of"])
        return bool(said)

    def _receive(self, timeout_ms: int) -> None:
        """Collect what the zygote says within the time."""
        self.pulse()
        poll = select.poll()  # not select: whoever starts a node may hold more than 1024 descriptors
        poll.register(self._control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        if self._bell >= 0:
            poll.register(self._bell, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(timeout_ms)}
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._control.fileno() not in ready:
            return
        try:
            data = self._control.recv(65_536)
        except ConnectionResetError:  # it was killed with a request unread
            data = b""
        if not data:
            self._await_death()
        *lines, self._unread = (self._unread + data).split(b"\n")
        self._received += [json.loads(line) for line in lines]

    def _await_death(self) -> None:
        """Its end of the socket is closed, so it is dying; until it has, every select would return at once."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_MAX_S)


def _nothing() -> None:
    """Is what a client does between its waits by default."""
