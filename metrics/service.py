"""The duty cycle of metrics: its own thread reads what takes long, once a second; threads beside it answer."""

import gc
from typing import ClassVar

from towline.limits import REST_MAX_MS
from towline.node.process.context import Node
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Duty

from .collector import NodeCollector
from .looking import Memory
from .web import Web


class MetricsAgent:
    """The duty cycle of metrics."""

    duty: ClassVar[Duty] = Duty.METRICS

    def __init__(self, node: Node) -> None:
        self._node = node
        self._memory = Memory(node)
        self._collector = NodeCollector(node, self._memory)
        self._web: Web | None = None

    def on_start(self, bell: Doorbell) -> None:
        """Raises CannotListen."""
        self._bell = bell
        self._web = Web(self._node, self._collector)
        self._web.begin()
        gc.freeze()

    def do_work(self) -> int:
        now_ms = self._node.clock.monotonic_ms()
        self._collector.prepare(now_ms)
        return self._memory.cycle(now_ms)

    def sleep_ms(self) -> int:
        return REST_MAX_MS

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        return self._bell.wait(timeout_ms, rest)

    def drain(self) -> bool:
        return True

    def on_close(self) -> None:
        if self._web is not None:
            self._web.server_close()


def build(node: Node) -> MetricsAgent:
    return MetricsAgent(node)
