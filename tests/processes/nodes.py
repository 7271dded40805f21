"""Nodes as their users start them: one by one, or a master and its slave under SYNC_FLUSH and SYNC_MASTER."""

import contextlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from towline.errors import PositionsUnusable
from towline.limits import MIB
from towline.link.free_port import free_port as free_port
from towline.node.process.context import runtime_of
from towline.node.supervise.launch import Launched, start_node
from towline.places import Store
from towline.runtime.positions import Duty, Position, Positions, State

from .waiting import Watch, await_

SEGMENT: Final = 4 * MIB
QUEUE_FILE: Final = 20 * 5000
SLOTS: Final = 20_000
INDEXES: Final = 60_000
SETTINGS: Final = {
    "mapped_file_size_commit_log": SEGMENT,
    "mapped_file_size_consume_queue": QUEUE_FILE,
    "max_hash_slot_num": SLOTS,
    "max_index_num": INDEXES,
    "flush_disk_type": "SYNC_FLUSH",
    # No TCP: a fixed port may be taken, by a node of the next worker too. Who wants one gives a free one.
    "listen_port": 0,
    "ha_listen_port": 0,
}
# A busy machine may take longer than the defaults for a restart or a sync, and no test is about their being missed.
PATIENT: Final = {"slave_timeout": 20_000, "sync_flush_timeout": 20_000}
# Appends go to the transient pool. What is flushed follows quickly, so that nobody waits for the last bytes of a test.
POOLED: Final = {
    "transient_store_pool_enable": True,
    "flush_disk_type": "ASYNC_FLUSH",
    "flush_interval_commit_log": 50,
    "flush_commit_log_thorough_interval": 100,
}
CATCH_UP_S: Final = 60.0
ZYGOTE: Final = "zygote"


class TestNode:
    """A node that can be started again on its store, and killed process by process."""

    __test__ = False

    def __init__(self, role: str, root: Path, **settings: object) -> None:
        self.role = role
        self.store = Store(root.resolve())
        self.flags = [word for key, value in (SETTINGS | settings).items() for word in ("--set", f"{key}={value}")]
        self.launched: Launched | None = None
        self._positions: Positions | None = None

    def start(self, *more: str) -> float:
        """Seconds until it served. Raises what kept it from starting."""
        started = time.monotonic()
        self._positions = None
        self.launched = start_node(self.role, self.store.root, [*self.flags, *more], tied=True)
        return time.monotonic() - started

    def stop(self) -> bool:
        """Whether the store is clean."""
        launched, self.launched, self._positions = self.launched, None, None
        return launched.stop() if launched is not None else True

    def waited_for_a_cpu(self) -> float:
        """Seconds that the supervisor and its zygote, which begin at once, waited at most for others to leave a CPU."""
        pids = self.pids()
        waits = [Path(f"/proc/{pids[label]}/schedstat").read_text().split()[1] for label in ("supervisor", ZYGOTE)]
        return max(map(int, waits)) / 1e9

    @property
    def pid(self) -> int:
        assert self.launched is not None
        return self.launched.pid

    @property
    def runtime(self) -> Path:
        return runtime_of(self.store.root).root

    @property
    def positions(self) -> Positions:
        if self._positions is None:
            self._positions = Positions.open(runtime_of(self.store.root).positions, writable=False)
        return self._positions

    def now(self, position: Position) -> int | None:
        """Of the generation that runs now; None while the node changes from one to the next."""
        self.forget()
        with contextlib.suppress(PositionsUnusable):
            return self.at(position)
        return None

    def forget(self) -> None:
        """A new generation has positions of its own."""
        self._positions = None

    def at(self, position: Position) -> int:
        return self.positions.get(position)

    @property
    def facts(self) -> dict[str, Any]:
        return json.loads(self.store.node.read_text())

    @property
    def endpoint(self) -> str:
        """Of put; it exists before the node is started."""
        return f"ipc://{runtime_of(self.store.root).socket('put')}"

    def pids(self) -> dict[str, int]:
        facts = self.facts
        return {"supervisor": facts["pid"], ZYGOTE: facts["zygote"], **facts["processes"]}

    def kill_supervisor(self) -> float:
        """SIGKILL to the supervisor alone; seconds until its zygote and every process had gone too."""
        assert self.launched is not None
        orphans = Watch(pid for label, pid in self.pids().items() if label != "supervisor")
        self.launched.kill()
        self.launched = None
        return orphans.await_gone(60.0)

    def kill_all(self, seed: int) -> None:
        """SIGKILL to every process of the node at once, in an order that the seed gives."""
        assert self.launched is not None
        pids = list(self.pids().values())
        random.Random(seed).shuffle(pids)
        watch = Watch(pids)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it died with its parent
                os.kill(pid, signal.SIGKILL)
        self.launched.kill()
        self.launched = None
        watch.await_gone(60.0)

    def await_restarted(self, label: str, before: dict[str, int]) -> float:
        """Until `label`, and for the zygote every process, runs as another process; seconds."""
        started = time.monotonic()
        duties = [duty for duty in Duty if duty.label in before and label in (duty.label, ZYGOTE)]

        def again() -> bool:
            lines = [self.positions.duty(duty) for duty in duties]
            fresh = all(line.pid != before[line.duty.label] and line.state is State.RUNNING for line in lines)
            known = self.pids()  # node.json is written after the process was forked: a moment later
            fresh = fresh and all(known[line.duty.label] == line.pid for line in lines)
            return fresh and (label != ZYGOTE or known[ZYGOTE] != before[ZYGOTE])

        await_(again, 60.0, f"{label} of the {self.role} restarts")
        return time.monotonic() - started


class Pair:
    """A master and a slave. Every PUT_OK means: on the disk of both, unless other settings of the master are given."""

    def __init__(self, root: Path, **settings: object) -> None:
        port = free_port()
        given = {"broker_role": "SYNC_MASTER", "ha_listen_port": port} | PATIENT | settings
        self.master = TestNode("master", root / "master", **given)
        self.slave = TestNode("slave", root / "slave", ha_master_address=f"127.0.0.1:{port}")

    @property
    def nodes(self) -> tuple[TestNode, TestNode]:
        return self.master, self.slave

    def node(self, role: str) -> TestNode:
        return self.master if role == "master" else self.slave

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        self.await_linked()

    def await_linked(self) -> None:
        def linked() -> bool:
            return any(slave.connected for slave in self.master.positions.slaves())

        await_(linked, CATCH_UP_S, "the slave is linked to its master")

    def await_caught_up(self) -> int:
        """Until both logs end at the same byte and everything is synced and dispatched; that byte."""

        def level() -> bool:
            end = self.master.at(Position.APPENDED)
            parts = [self.master.at(part) for part in (Position.FLUSHED, Position.DISPATCHED, Position.REPLICATED)]
            parts += [self.slave.at(part) for part in (Position.APPENDED, Position.FLUSHED, Position.DISPATCHED)]
            return all(part == end for part in parts)

        await_(level, CATCH_UP_S, "master and slave reach the end of the log")
        return self.master.at(Position.APPENDED)

    def stop(self) -> tuple[bool, bool]:
        """Whether the stores of slave and master are clean."""
        return self.slave.stop(), self.master.stop()


def processes_of(*stores: Path) -> list[tuple[int, str]]:
    """(pid, command line) of every process that was started for one of the stores or its runtime directory."""
    wanted = [str(store.resolve()) for store in stores]
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if any(store in command for store in wanted):
                found.append((int(entry.name), command))
    return found


def check_nothing_is_left(*nodes: TestNode) -> None:
    """After an orderly stop: no process, no runtime directory, nothing under construction."""
    assert not processes_of(*(node.store.root for node in nodes))
    for node in nodes:
        assert not node.runtime.exists(), node.runtime
        assert not any(node.store.staging.iterdir())
        assert not node.store.node.exists()


@contextlib.contextmanager
def ending(*nodes: TestNode) -> Iterator[None]:
    """Whatever becomes of the block: nothing of these nodes runs on, and their shared memory goes."""
    try:
        yield
    finally:
        end(*nodes)


def ended(*nodes: TestNode) -> Iterator[None]:
    """The same for a fixture that goes on by itself."""
    yield
    end(*nodes)


def end(*nodes: TestNode) -> None:
    for node in reversed(nodes):
        if node.launched is not None:
            node.launched.end()
        shutil.rmtree(node.runtime, ignore_errors=True)
