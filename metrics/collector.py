"""Reads a node's figures for one scrape: from shared memory and from files, without a question to any process."""

import time
from collections.abc import Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from towline.node.process.context import Node
from towline.runtime.positions import Duty, State

from .declared import DECLARED, STARTING
from .families import Families
from .looking import Look, Memory
from .node_figures import add_connections, add_disk, add_node, add_processes, add_replication, add_state
from .store_figures import StoreFigures

NODE_TYPE = "broker"
WANTED_MS = 300_000  # for so long after a scrape the next one is prepared
PREPARE_MS = 1_000


class NodeCollector(Collector):
    """For one thread at a time. While the node starts, its positions are not believed: little is told then."""

    def __init__(self, node: Node, memory: Memory) -> None:
        self._node, self._memory = node, memory
        self._store: StoreFigures | None = None
        self._wanted_until = self._due = 0

    def prepare(self, now_ms: int) -> None:
        """Called by another thread than scrapes: what takes long is read, as long as somebody reads the figures."""
        if self._store is not None and self._due <= now_ms <= self._wanted_until:
            self._due = now_ms + PREPARE_MS
            self._store.prepare()

    def collect(self) -> Iterable[Metric]:
        began, node = time.monotonic(), self._node
        settings = node.settings
        serves = node.positions.duty(Duty.SUPERVISE).state is State.RUNNING
        broker = settings.broker_cluster_name, NODE_TYPE, settings.broker_name
        to = Families(DECLARED.values() if serves else STARTING, broker)
        look = Look.at(node)
        add_node(to, look)
        if serves:
            self._add_figures(to, look)
            to.add("towline_scrape_seconds", time.monotonic() - began)
        return to.all()

    def _add_figures(self, to: Families, look: Look) -> None:
        node = self._node
        self._wanted_until = node.clock.monotonic_ms() + WANTED_MS
        self._memory.wanted_until = self._wanted_until
        if self._store is None:
            self._store = StoreFigures(node)
            self._store.prepare()
        add_state(to, look)
        add_processes(to, look, self._memory.pss)
        add_replication(to, node)
        add_disk(to, node)
        add_connections(to, node)
        self._store.add_to(to)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
