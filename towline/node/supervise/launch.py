"""Starting and stopping a node as a process of its own: for the command, the demo, tests and benchmarks.

`start_node` returns when the node serves, or raises what its supervisor raised. A node is either detached (a daemon)
or tied: killed with the process that started it, whatever ends that.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from towline.errors import NodeNotRunning, NodeStillRunning, StartFailed, StoreNotWritable, TowlineError
from towline.node.process.failure import error_of
from towline.node.process.service_manager import VARIABLES
from towline.node.process.zygote_client import COMPILE_MAX_S
from towline.places import Store
from towline.runtime.locks import store_holder
from towline.start import home

START_MAX_S: Final = 120.0
STOP_MAX_S: Final = 30.0
Compiling: TypeAlias = Callable[[int, int], None]  # gets how much is done, and of how much
_LOG_TAIL: Final = 400  # characters of the node's log in an error


@dataclass(frozen=True)
class Launched:
    """A node whose supervisor is a child of this process. `readable` is where its supervisor says that it serves."""

    role: str
    store: Path
    pid: int
    process: subprocess.Popen[bytes]
    readable: IO[bytes]

    def await_ready(self, timeout_s: float = START_MAX_S, compiling: Compiling = lambda done, of: None) -> None:
        """Until the node serves. Raises the TowlineError that kept it from starting, with a note of the node's log; its
        supervisor has gone then.

        A first start on a machine compiles before the time begins: `compiling` gets how much of it is done.
        """
        try:
            self._await_ready(timeout_s, compiling)
        except TowlineError as error:
            error.add_note(f"the node's log: {Store(self.store).node_log}")
            raise

    def _await_ready(self, timeout_s: float, compiling: Compiling) -> None:
        deadline = time.monotonic() + timeout_s
        said = b""
        poll = select.poll()
        poll.register(self.readable, select.POLLIN)
        while True:
            *lines, said = said.split(b"\n")
            facts: dict[str, Any] = {}
            for facts in map(json.loads, lines):
                if "compiling" in facts:
                    compiling(facts["compiling"], facts["of"])
                    deadline = time.monotonic() + COMPILE_MAX_S
                    if facts["compiling"] == facts["of"]:
                        deadline = time.monotonic() + timeout_s
            if facts and "compiling" not in facts:
                break
            if not poll.poll(1000 * max(0.0, deadline - time.monotonic())):
                self.end()
                raise StartFailed(f"the {self.role}", f"it was not ready within {timeout_s:.0f} s")
            data = os.read(self.readable.fileno(), 65_536)
            if not data:
                status = self.process.wait()
                raise StartFailed(
                    f"the {self.role}", f"exit status {status}, its log ends with: {_log_tail(self.store)}"
                )
            said += data
        self.readable.close()
        if "error" in facts:
            self.process.wait()
            raise error_of(facts, f"the {self.role}")

    def stop(self, timeout_s: float = STOP_MAX_S) -> bool:
        """Orderly stop. True when the store is clean. Raises NodeStillRunning; a node that has gone already is fine."""
        self.readable.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s) == 0
        except subprocess.TimeoutExpired:
            raise NodeStillRunning(str(self.store), self.pid, int(timeout_s)) from None

    def kill(self) -> None:
        """SIGKILL to the supervisor; its processes die with it, a moment later."""
        self.readable.close()
        self.process.kill()
        self.process.wait()

    def end(self, timeout_s: float = STOP_MAX_S) -> bool:
        """Stop in order, or by force when that takes too long. True when the store is clean."""
        try:
            return self.stop(timeout_s)
        except NodeStillRunning:
            self.kill()
            return False


def start_node(
    role: str,
    store: Path,
    flags: Sequence[str] = (),
    *,
    tied: bool,
    timeout_s: float = START_MAX_S,
    compiling: Compiling = lambda done, of: None,
) -> Launched:
    """Start a node and wait until it serves.

    Raises the TowlineError that kept it from starting; then nothing of it is left running.
    """
    launched = spawn_node(role, store, flags, tied=tied)
    try:
        launched.await_ready(timeout_s, compiling)
    except BaseException:
        launched.end()
        raise
    return launched


def spawn_node(
    role: str,
    store: Path,
    flags: Sequence[str] = (),
    *,
    tied: bool,
    environment: Mapping[str, str] | None = None,
) -> Launched:
    """Start `python -m <role>`; it does not serve yet. `flags`: of `towline.node.process.main`, paths absolute.

    `environment` None: this process's. Raises StoreNotWritable.
    """
    root = store.resolve()
    log = _open_log(Store(root))
    readable, ready = os.pipe()
    command = [sys.executable, "-m", f"towline.{role}", "--store", str(root), "--ready-fd", str(ready)]
    command += ["--tell-progress", *flags]
    command += ["--log-file", str(Store(root).node_log)]
    command += ["--die-with-parent", str(os.getpid())] if tied else []
    try:
        # The directory makes `-m` find the package; a session of its own keeps the terminal's Ctrl-C for us.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[ready],
            start_new_session=True,
            cwd=home(),
            env=_environment(environment),
        )
    except BaseException:
        os.close(readable)
        raise
    finally:
        os.close(ready)
        log.close()
    return Launched(role, root, process.pid, process, os.fdopen(readable, "rb", buffering=0))


def stop_node(store: Path, timeout_s: float = STOP_MAX_S) -> bool:
    """Stop the node on `store`, in order. True when the store is clean.

    Raises NodeNotRunning, NodeStillRunning.
    """
    places = Store(store.resolve())
    pid = running_pid(places.root)
    fd = _pidfd(pid)
    if fd is None:
        raise NodeNotRunning(str(places.root))
    try:
        signal.pidfd_send_signal(fd, signal.SIGTERM)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if not poll.poll(1000 * timeout_s):
            raise NodeStillRunning(str(places.root), pid, int(timeout_s))
    finally:
        os.close(fd)
    return not places.abort.exists()


def running_pid(store: Path) -> int:
    """The supervisor's pid: who holds the store's lock. Raises NodeNotRunning."""
    pid = store_holder(Store(store.resolve()).lock)
    if not pid:
        raise NodeNotRunning(str(store))
    return pid


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _open_log(store: Store) -> IO[bytes]:
    try:
        store.run.mkdir(parents=True, exist_ok=True)
        return store.node_log.open("ab")
    except OSError as error:
        raise StoreNotWritable(str(store.root), error.strerror or str(error)) from None


def _environment(given: Mapping[str, str] | None) -> dict[str, str]:
    """Without what a service manager said to this process: it is not the node's."""
    return {key: value for key, value in (os.environ if given is None else given).items() if key not in VARIABLES}


def _log_tail(store: Path) -> str:
    text = Store(store).node_log.read_text(encoding="utf-8", errors="replace")
    return " ".join(text[-_LOG_TAIL:].split()) or "nothing"
