"""Nodes of a cluster under a drill: starts, kills, pauses and observes them from the outside."""

import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from towline.errors import NodeNotRunning, NodeStillRunning
from towline.log.state.in_sync_file import ids_of
from towline.node.process.context import open_node, runtime_in_use
from towline.node.report.running import node_facts
from towline.node.supervise.launch import Launched, spawn_node, stop_node
from towline.places import Runtime, Store
from towline.runtime.locks import holder_of
from towline.runtime.positions import Duty, Position, State

from .waiting import await_

GONE_MAX_S: Final = 10.0
RESTART_MAX_S: Final = 30.0
MASTER, SLAVE = "master", "slave"
WRITERS: Final = {MASTER: Duty.PUT, SLAVE: Duty.RECEIVE}
Held = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Seen:
    """A node at one moment. `serves`: the process that writes its log runs."""

    role: str
    serves: bool
    epoch: int
    appended: int
    flushed: int
    dispatched: int
    in_sync: tuple[int, ...]
    connected: tuple[int, ...]  # slaves whose links a master has


class DrillNode:
    """`flags` are arguments of `python -m <role>`. One that is not `tied` is a daemon of a cluster that stays."""

    def __init__(
        self,
        number: int,
        store: Path,
        first_role: str,
        flags: Sequence[str],
        *,
        tied: bool = True,
        environment: Mapping[str, str] | None = None,
        held: Held = nullcontext,
    ) -> None:
        self.number, self.store = number, Store(store.resolve())
        self.launched: Launched | None = None
        self._first_role, self._flags, self._tied = first_role, list(flags), tied
        self.environment, self._held = environment, held
        self._runtime: Runtime | None = None

    # --- what it does

    def spawn(self) -> None:
        with self._held():
            self.launched = spawn_node(
                self._first_role, self.store.root, self._flags, tied=self._tied, environment=self.environment
            )

    def start(self) -> None:
        """Until it serves. Raises what kept it from that."""
        self.spawn()
        self.ready()

    def ready(self) -> None:
        assert self.launched is not None
        self.launched.await_ready()
        self._runtime = runtime_in_use(self.store.root)

    def stop(self) -> bool:
        """In order; whether the store is clean. Raises NodeStillRunning, NodeNotRunning."""
        launched, self.launched = self.launched, None
        return launched.stop() if launched is not None else stop_node(self.store.root)

    def kill(self, seed: int) -> None:
        """SIGKILL to every process at once, in an order that the seed gives; returns when all have gone."""
        pids = list(self.pids().values())
        random.Random(seed).shuffle(pids)
        self.signal(signal.SIGKILL, pids)
        launched, self.launched = self.launched, None
        if launched is not None:
            launched.kill()
        places = self.store
        locks = [places.lock, *(places.duty_lock(duty.label) for duty in Duty)]
        await_(lambda: not any(map(holder_of, locks)), GONE_MAX_S, f"the processes of node {self.number} are gone")

    def signal(self, number: int, pids: Sequence[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):  # it died with its parent
                os.kill(pid, number)

    def pause(self, *labels: str) -> list[int]:
        """SIGSTOP to these processes, to all without a name; their pids, for `go_on`."""
        found = self.pids()
        pids = [found[label] for label in (labels or found)]
        self.signal(signal.SIGSTOP, pids)
        return pids

    def go_on(self, pids: Sequence[int]) -> None:
        self.signal(signal.SIGCONT, pids)

    def end(self) -> None:
        """Whatever it is doing: nothing of it runs on and nothing of it lies in memory."""
        with suppress(NodeNotRunning):
            self.go_on(list(self.pids().values()))
        launched, self.launched = self.launched, None
        if launched is not None:
            launched.end()
        else:
            with suppress(NodeNotRunning, NodeStillRunning):
                stop_node(self.store.root)
        if self._runtime is not None:
            shutil.rmtree(self._runtime.root, ignore_errors=True)

    # --- what it is

    @property
    def facts(self) -> dict[str, Any]:
        """run/node.json. Raises NodeNotRunning."""
        return node_facts(self.store.root)

    def pids(self) -> dict[str, int]:
        """Label -> pid of the supervisor, the zygote and every process of a duty. Raises NodeNotRunning."""
        facts = self.facts
        return {"supervisor": facts["pid"], "zygote": facts["zygote"], **facts["processes"]}

    def observe(self) -> Seen | None:
        """None for a node that does not run, or is between two generations."""
        try:
            role, view = str(self.facts["role"]), open_node(self.store.root)
        except (NodeNotRunning, json.JSONDecodeError, KeyError):
            return None
        positions = view.positions
        try:
            return Seen(
                role,
                positions.duty(WRITERS.get(role, Duty.PUT)).state is State.RUNNING,
                positions.get(Position.EPOCH),
                positions.get(Position.APPENDED),
                positions.get(Position.FLUSHED),
                positions.get(Position.DISPATCHED),
                tuple(ids_of(positions.get(Position.IN_SYNC))),
                tuple(line.node for line in positions.slaves() if line.connected),
            )
        finally:
            positions.close()

    def await_restarted(self, label: str, before: int) -> None:
        """Until the duty runs as another process than `before`. Raises DrillFailed."""
        duty = next((duty for duty in Duty if duty.label == label), None)

        def again() -> bool:
            try:
                pid = self.pids().get(label, before)
                if pid == before or duty is None:
                    return pid != before
                view = open_node(self.store.root)
            except (NodeNotRunning, json.JSONDecodeError):
                return False
            try:
                return view.positions.duty(duty).state is State.RUNNING
            finally:
                view.positions.close()

        await_(again, RESTART_MAX_S, f"{label} of node {self.number} runs again")
