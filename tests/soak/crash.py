"""Kill a node again and again at random points of a mixed load, and check every promise after every start.

All randomness comes from one seed. The store is one over all kills, so whatever a kill leaves meets the next ones.
"""

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.processes.nodes import SEGMENT, ZYGOTE, TestNode, free_port
from tests.processes.stored import Stored, check_same_log
from tests.processes.waiting import await_
from towline.node.supervise.launch import Launched, spawn_node
from towline.runtime.positions import Position

from .ledger import Ledger
from .mixed import MixedLoad

LOAD_S: Final = (0.02, 0.45)  # a kill comes so long after the first acknowledgement
START_S: Final = (0.0, 1.2)  # or so long after a start began
SLAVE_SHARE: Final = 0.2
PROCESSES: Final = ("put", "flush", "reput", "allocate", "serve", "send", "schedule", ZYGOTE)
# What is killed, by weight: every process of the node at once, the supervisor alone, a process and then all, a start.
KINDS: Final = {"node": 10, "supervisor": 3, "process": 4, "start": 3}
MODES: Final = (
    {"flush_disk_type": "SYNC_FLUSH"},
    {"flush_disk_type": "ASYNC_FLUSH"},
    {"flush_disk_type": "ASYNC_FLUSH", "transient_store_pool_enable": "true", "transient_store_pool_size": "3"},
)
REACH: Final = 9 << 20  # bytes of one request that was being copied, and a blank


class CrashNode(TestNode):
    """A node whose start need not be waited for."""

    def spawn(self, *flags: str) -> Launched:
        self._positions = None
        self.launched = spawn_node(self.role, self.store.root, [*self.flags, *flags], tied=True)
        return self.launched


@dataclass
class Soak:
    """A master and, now and then, its slave. `verdicts` says for each start what recovery found and why."""

    root: Path
    seed: int
    master: CrashNode = field(init=False)
    slave: CrashNode = field(init=False)
    ledger: Ledger = field(init=False)
    verdicts: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    ends: dict[str, int] = field(default_factory=dict)  # APPENDED as a killed node left it, by role
    slowest_s: float = 0.0

    def __post_init__(self) -> None:
        port = free_port()
        self.master = CrashNode("master", self.root / "master", ha_listen_port=port)
        self.slave = CrashNode("slave", self.root / "slave", ha_master_address=f"127.0.0.1:{port}")
        self.ledger = Ledger(self.master.store.commitlog, SEGMENT)
        self._random = random.Random(self.seed)

    @property
    def nodes(self) -> tuple[TestNode, TestNode]:
        return self.master, self.slave

    def round(self, number: int) -> None:
        """Start, check, load, kill."""
        draw = self._random
        kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
        mode, slave = draw.choice(MODES), draw.random() < SLAVE_SHARE
        if kind == "start":
            self._killed_start(mode, draw.uniform(*START_S))
        started = time.monotonic()
        self._start(mode, slave=slave)
        self.slowest_s = max(self.slowest_s, time.monotonic() - started)
        self._check(number, kind)
        load = MixedLoad(self.master.endpoint, self.ledger, number, draw.getrandbits(32))
        load.start()
        load.await_acked()
        threading.Event().wait(draw.uniform(*LOAD_S))
        self._kill(kind)
        load.stop()
        self.kinds[f"{kind}{', slave' if slave else ''}"] += 1

    def finish(self) -> str:
        """The last start; queues, index and the slave's log are compared with the master's log in full."""
        self._start({}, slave=True)
        self._check(-1, "last")
        end = self.master.at(Position.APPENDED)
        await_(lambda: self.slave.at(Position.DISPATCHED) == end, 60.0, "the slave reaches the master's end")
        await_(lambda: self.master.at(Position.DISPATCHED) == end, 60.0, "the queues reach the end of the log")
        assert self.slave.stop()
        assert self.master.stop()
        for node in self.nodes:
            stored = Stored(node.store, end)
            entries = stored.check_queues()
            stored.check_zeros_behind()
            stored.close()
            assert entries == sum(map(len, self.ledger.found.values()))
        check_same_log(self.master.store.commitlog, self.slave.store.commitlog, end)
        ledger = self.ledger
        outcomes = ", ".join(f"{name} {count}" for name, count in ledger.outcomes.most_common())
        kills = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kinds.items()))
        return (
            f"seed {self.seed}: {self.kinds.total()} kills ({kills}); acknowledged {len(ledger.acked)}, lost 0, "
            f"doubled {ledger.doubles}, stored {entries}, {end} bytes; {outcomes}; slowest start {self.slowest_s:.2f} s"
        )

    # --- steps of a round

    def _start(self, mode: dict[str, str], *, slave: bool) -> None:
        if slave:  # both at once; each is tied to the thread that spawns it
            self.slave.spawn()
        self.master.spawn(*_flags(mode))
        for node in self.nodes[: 1 + slave]:
            assert node.launched is not None
            node.launched.await_ready()

    def _killed_start(self, mode: dict[str, str], after_s: float) -> None:
        """A start that is killed on its way, so recovery too may be cut short anywhere."""
        launched = self.master.spawn(*_flags(mode))
        with suppress(subprocess.TimeoutExpired):
            launched.process.wait(after_s)
        launched.kill()

    def _kill(self, kind: str) -> None:
        slave = self.slave.launched is not None
        if kind == "process":
            label = self._random.choice(PROCESSES)
            with suppress(ProcessLookupError):
                os.kill(self.master.pids()[label], signal.SIGKILL)
            threading.Event().wait(self._random.uniform(*LOAD_S))
        elif slave:
            with self._remembered(self.slave):
                self.slave.kill_all(self._random.getrandbits(16))
        with self._remembered(self.master):
            if kind == "supervisor":
                self.master.kill_supervisor()
            else:
                self.master.kill_all(self._random.getrandbits(16))
        if self.slave.launched is not None:
            with self._remembered(self.slave):
                self.slave.kill_supervisor()

    @contextmanager
    def _remembered(self, node: TestNode):
        """Positions are in memory that outlives the node: what it had appended when its last process went."""
        positions = node.positions
        yield
        self.ends[node.role] = positions.get(Position.APPENDED)
        positions.close()

    def _check(self, number: int, kind: str) -> None:
        for node in self.nodes:
            if node.launched is not None:
                self._explain(node, number, kind)
        facts = json.loads(self.master.store.recovery.read_text())
        self.ledger.look(facts["end"], self.master.at(Position.APPENDED))

    def _explain(self, node: TestNode, number: int, kind: str) -> None:
        """What recovery did has a reason: nothing published is cut, and what is cut was never promised."""
        facts = json.loads(node.store.recovery.read_text())
        end, before = facts["end"], self.ends.get(node.role, 0)
        assert end >= before or node is self.slave, f"{before} bytes were published, recovery ended at {end}: {facts}"
        assert end - before <= REACH, f"{before} bytes were published, recovery found {end}"
        kept = sorted(node.store.diverged.iterdir()) if node.store.diverged.is_dir() else []
        explained = self._kept_before(node)
        new = [path for path in kept if path.name not in explained]
        data = b"".join(path.read_bytes() for path in new)
        assert len(data) == facts["cut_bytes"] or kind == "start", f"cut {facts['cut_bytes']}, kept {len(data)}"
        assert len(data) <= 2 * REACH, f"{len(data)} bytes were cut: more than a request"
        promised = self.ledger.acked_in(data) if node is self.master else []
        assert not promised, f"cut although acknowledged: {promised[:3]}"
        why = f"{len(data)} bytes of a request on its way, never published" if data else "nothing was cut"
        way = "resumed" if facts["resumed"] else "looked at everything"
        notes = "; ".join(facts["notes"])
        self.verdicts.append(f"start {number} of the {node.role}: {way}, ends at {end}, {why}; {notes}")

    def _kept_before(self, node: TestNode) -> set[str]:
        """Names that an earlier start has explained; the ones that are there now count as explained from here on."""
        known = self._known.setdefault(node.role, set())
        before = set(known)
        if node.store.diverged.is_dir():
            known |= {path.name for path in node.store.diverged.iterdir()}
        return before

    _known: dict[str, set[str]] = field(default_factory=dict)


def _flags(mode: dict[str, str]) -> list[str]:
    return [word for key, value in mode.items() for word in ("--set", f"{key}={value}")]
