"""The demo's master and slave: two real nodes on this machine that end with this process."""

import select
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from towline.errors import DemoFailed
from towline.limits import MIB
from towline.link.free_port import free_port
from towline.node.process.context import Node, open_node, runtime_of
from towline.node.report.running import node_facts
from towline.node.report.status import read_status
from towline.node.supervise.launch import Launched, spawn_node
from towline.places import Store
from towline.runtime.locks import holder_of
from towline.runtime.positions import Duty, Position

from .first_start import shown_compiling
from .interrupts import Interrupts

LOOPBACK: Final = "127.0.0.1"
STEP_S: Final = 0.0005  # between two checks of the positions
JOIN_MAX_S: Final = 30.0
STOP_MAX_S: Final = 20.0
GONE_MAX_S: Final = 5.0

# Small segments, so that the log rolls a few times; index files that hold the demo and no more.
SETTINGS: Final = {
    "flush_disk_type": "SYNC_FLUSH",
    "mapped_file_size_commit_log": 64 * MIB,
    "max_hash_slot_num": 500_000,
    "max_index_num": 2_000_000,
    "listen_port": 0,
}


@dataclass(frozen=True)
class RunningNode:
    """One of the two. `view` has its positions, mapped read-only."""

    launched: Launched
    view: Node

    @property
    def store(self) -> Store:
        return self.view.store

    def position(self, position: Position) -> int:
        return self.view.positions.get(position)

    def endpoint(self, service: str) -> str:
        return str(node_facts(self.store.root)["endpoints"][service][0])

    def status(self) -> dict[str, Any]:
        return read_status(self.store.root)


@contextmanager
def store_directory(asked: Path | None, interrupts: Interrupts) -> Iterator[Path]:
    """The directory of both stores: the one asked for, which stays, or a temporary one, which goes."""
    if asked is not None:
        asked.mkdir(parents=True, exist_ok=True)
        try:
            yield asked
        except DemoFailed as error:
            raise DemoFailed(error.problem, str(asked.resolve())) from None
        return
    with ExitStack() as stack:
        with interrupts.held():
            made = Path(tempfile.mkdtemp(prefix="towline-demo-"))
            stack.callback(shutil.rmtree, made, ignore_errors=True)
        yield made


@contextmanager
def two_nodes(root: Path, interrupts: Interrupts) -> Iterator[tuple[RunningNode, RunningNode]]:
    """(master, slave) under SYNC_FLUSH and SYNC_MASTER, the slave in sync. Ended, however the block is left."""
    ha_port = free_port()
    with ExitStack() as stack:
        try:
            settings = {"broker_role": "SYNC_MASTER", "ha_listen_port": ha_port}
            master = _start("master", root / "master", settings, stack, interrupts)
            settings = {"ha_master_address": f"{LOOPBACK}:{ha_port}"}
            slave = _start("slave", root / "slave", settings, stack, interrupts)
            slaves = master.view.positions.slaves()
            await_true(lambda: any(line.connected for line in slaves), JOIN_MAX_S, "the slave did not join the master")
            yield master, slave
        finally:
            interrupts.ignore()  # only cleaning up is left


def await_true(reached: Callable[[], bool], seconds: float, otherwise: str, step_s: float = STEP_S) -> None:
    """Looks every `step_s` until `reached`. Raises DemoFailed(otherwise) after `seconds`."""
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise DemoFailed(otherwise)
        select.select([], [], [], step_s)


def _start(role: str, root: Path, settings: dict[str, Any], stack: ExitStack, interrupts: Interrupts) -> RunningNode:
    flags = [part for key, value in (SETTINGS | settings).items() for part in ("--set", f"{key}={value}")]
    with interrupts.held():
        launched = spawn_node(role, root, flags, tied=True)
        stack.callback(_end, launched)
    with shown_compiling() as compiling:
        launched.await_ready(compiling=compiling)
    view = open_node(root)
    stack.callback(view.positions.close)
    return RunningNode(launched, view)


def _end(launched: Launched) -> None:
    """Returns when no process of the node is left and nothing of it lies in memory."""
    launched.end(STOP_MAX_S)
    places = Store(launched.store)
    locks = [places.duty_lock(duty.label) for duty in Duty]
    with suppress(DemoFailed):
        await_true(lambda: not any(map(holder_of, locks)), GONE_MAX_S, "a process of the node is left")
    shutil.rmtree(runtime_of(places.root).root, ignore_errors=True)
