"""A look at the node: its processes, and whether it lives and is ready. `status` judges by the same functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from towline.node.process.context import Node
from towline.node.report.processes import memory_of, processes_of
from towline.node.report.readiness import is_alive, not_ready
from towline.node.roles.role_commands import read_json_file

MEMORY_STEP_MS = 5_000  # between two processes


@dataclass(frozen=True)
class Look:
    """What is seen at one moment. `facts`: run/node.json, None until the node's first start in this role is over."""

    node: Node
    facts: Mapping[str, Any] | None

    @classmethod
    def at(cls, node: Node) -> "Look":
        return cls(node, read_json_file(node.store.node))

    @cached_property
    def processes(self) -> list[dict[str, Any]]:
        return [] if self.facts is None else processes_of(self.node, dict(self.facts), memory=False)

    @cached_property
    def not_ready(self) -> list[dict[str, str]]:
        return not_ready(self.node, self.processes)

    @cached_property
    def is_alive(self) -> bool:
        return is_alive(self.node, self.processes)


class Memory:
    """The memory of the node's processes, one after the other: a look at one takes the system some milliseconds."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.pss: dict[str, int] = {}  # by process; replaced whole
        self._waiting: list[tuple[str, int]] = []
        self.wanted_until = self._due = 0  # until when somebody reads it

    def cycle(self, now_ms: int) -> int:
        """Measures a process if one is due."""
        if now_ms > self.wanted_until or (self.pss and now_ms < self._due):
            return 0
        if not self._waiting:
            self._waiting = [(each["duty"], each["pid"]) for each in Look.at(self._node).processes]
            alive = {duty for duty, _ in self._waiting}
            self.pss = {duty: pss for duty, pss in self.pss.items() if duty in alive}
        if not self._waiting:
            return 0
        duty, pid = self._waiting.pop()
        self.pss = self.pss | {duty: memory_of(pid, (self._node.store.root, self._node.runtime.root))[0]}
        if not self._waiting or self._due:
            self._due = now_ms + MEMORY_STEP_MS
        return 1
