"""Towline's server: a whole master, and where it is asked for a slave."""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from towline.errors import BenchFailed
from towline.limits import MIB
from towline.loadtest.bench.ha import SYNC
from towline.loadtest.bench.node import SEGMENTS_AHEAD, SETTINGS
from towline.node.process.context import open_node, runtime_of
from towline.node.supervise.launch import Launched, spawn_node
from towline.places import Store
from towline.runtime.positions import Position, Positions

from .plan import Durability, Replica, Setup
from .server import HOST, Missing, free_port, remove
from .usage import disk_bytes

SEGMENT: Final = 256 * MIB  # RocketMQ's own is 1 GiB; three of these are made before the clock starts
STEP_S: Final = 0.002
AWAIT_S: Final = 120.0
GONE_S: Final = 10.0
ATTACH_LINES_MAX: Final = 100
SYNCS: Final = "msync,fdatasync,fsync"
_OF_A_MASTER: Final = ("broker_role", "ha_listen_port", "listen_port", *SYNC)
_FLUSH: Final = {Durability.ASYNC: "ASYNC_FLUSH", Durability.SYNC: "SYNC_FLUSH"}


class TowlineNode:
    """`address` holds the sockets of put and serve."""

    front: ClassVar[str | None] = None  # the process that holds the connections of clients; None: several

    def __init__(self, directory: Path, setup: Setup, **more: Any) -> None:
        """`more`: settings of the master."""
        self._directory, self._store = directory, Store((directory / "store").resolve())
        settings: dict[str, Any] = SETTINGS | {
            "flush_disk_type": _FLUSH[setup.durability],
            "mapped_file_size_commit_log": SEGMENT,
            **more,
        }
        self._ended = ExitStack()
        self._stores = [self._store]
        port = free_port()
        if setup.replica is not Replica.NONE:
            settings |= {"ha_listen_port": port}
        if setup.replica is Replica.IN_SYNC:
            settings |= SYNC
        self._settings = settings
        self._launched: Launched | None = None
        try:
            self.again()
            self._serving()
            if setup.replica is not Replica.NONE:
                self._follow(port)
            self.await_segments()
            if setup.sync_delay_ms:
                flush = self._facts()["processes"]["flush"]
                self._ended.enter_context(_slow_syncs(int(flush), 1000 * setup.sync_delay_ms))
        except BaseException:
            self.end()
            raise
        runtime = runtime_of(self._store.root).root
        self.address = f"ipc://{runtime / 'put.sock'} ipc://{runtime / 'serve.sock'}"

    def pids(self) -> list[int]:
        self._serving()
        found = []
        for store in self._stores:
            facts = json.loads(store.node.read_text())
            found += [facts["pid"], facts["zygote"], *facts["processes"].values()]
        return [int(pid) for pid in found if pid]

    def front_pids(self) -> list[int]:
        return self.pids() if self.front is None else [int(self._facts()["processes"][self.front])]

    def await_dispatched(self) -> None:
        """Until queues and index hold all that was put."""
        with self._positions() as positions:
            end = positions.get(Position.APPENDED)
            _await(lambda: positions.get(Position.DISPATCHED) >= end, AWAIT_S, "reput did not catch up")

    def disk_bytes(self) -> int:
        return disk_bytes(self._store.root)

    def kill(self) -> None:
        assert self._launched is not None
        facts = self._facts()
        pids = [facts["pid"], facts["zygote"], *facts["processes"].values()]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it died with its parent
                os.kill(pid, signal.SIGKILL)
        self._launched.kill()
        self._launched = None
        others = [pid for pid in pids if pid != facts["pid"]]
        _await(lambda: not any(Path(f"/proc/{pid}").exists() for pid in others), GONE_S, "killed processes are there")

    def again(self) -> None:
        self._launched = spawn_node("master", self._store.root, _flags(self._settings), tied=True)

    def end(self) -> None:
        self._ended.close()
        if self._launched is not None:
            self._launched.end()
            self._launched = None
        runtimes = [runtime_of(store.root).root for store in self._stores]
        remove(*runtimes, self._directory)

    def await_segments(self) -> None:
        """Until the segments that come next are made: that is a start's work, and not what is measured."""
        self._serving()
        for store in self._stores:
            with _positions_of(store) as positions:
                _await(partial(_is_ahead, positions), AWAIT_S, "the next segments were not made")

    def _serving(self) -> None:
        assert self._launched is not None
        if not self._launched.readable.closed:
            self._launched.await_ready()

    def _follow(self, port: int) -> None:
        """Starts the slave; it holds what the master holds when this returns."""
        store = Store((self._directory / "slave").resolve())
        settings = {name: value for name, value in self._settings.items() if name not in _OF_A_MASTER}
        settings |= {"ha_master_address": f"{HOST}:{port}"}
        launched = spawn_node("slave", store.root, _flags(settings), tied=True)
        self._stores.append(store)
        self._ended.callback(launched.end)
        launched.await_ready()
        with self._positions() as positions:
            _await(lambda: positions.get(Position.IN_SYNC).bit_count() == 2, AWAIT_S, "the slave is not in sync")

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self._store.node.read_text())
        return facts

    @contextmanager
    def _positions(self) -> Iterator[Positions]:
        self._serving()
        with _positions_of(self._store) as positions:
            yield positions


@contextmanager
def _positions_of(store: Store) -> Iterator[Positions]:
    positions = open_node(store.root).positions
    try:
        yield positions
    finally:
        positions.close()


def _is_ahead(positions: Positions) -> bool:
    return positions.get(Position.WARM) - positions.get(Position.WANTED) > SEGMENTS_AHEAD * SEGMENT


def _flags(settings: dict[str, Any]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


@contextmanager
def _slow_syncs(pid: int, delay_us: int) -> Iterator[None]:
    """Every sync of the process takes so much longer while the block lasts. Raises Missing."""
    if shutil.which("strace") is None:
        raise Missing("there is no strace, which makes syncs slower")
    command = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={SYNCS}", "-e", f"inject={SYNCS}:delay_exit={delay_us}"]
    tracer = subprocess.Popen([*command, "-p", str(pid)], stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert tracer.stderr is not None
        lines = (tracer.stderr.readline() for _ in range(ATTACH_LINES_MAX))
        if not any("attached" in line for line in lines):
            raise Missing("strace may not be attached here")
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.communicate(timeout=GONE_S)


def _await(reached: Callable[[], bool], seconds: float, otherwise: str) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise BenchFailed(f"{otherwise} within {seconds:.0f} s")
        select.select([], [], [], STEP_S)
