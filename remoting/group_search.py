"""Where the other nodes of the group listen to RocketMQ's clients."""

import threading
from collections.abc import Mapping
from queue import SimpleQueue

from towline.format.remoting.routes import Broker, slave_id
from towline.node.peers.find_master import MasterFinder
from towline.node.process.context import Node
from towline.runtime.positions import Position
from towline.runtime.settings_model import BrokerRole


class GroupSearch:
    """A thread that asks the peers, so that no connection waits; on a node that need not know them none does.

    `master` is its `host:port`, "" while none is known; `slaves` those of the slaves that may be read, by broker id.
    `is_over`: nobody searches. `begin` and `close` are for one thread.
    """

    def __init__(self, node: Node) -> None:
        self._node, settings = node, node.settings
        where = f"{settings.broker_ip1}:{settings.listen_port}"
        self._is_slave = settings.broker_role is BrokerRole.SLAVE
        reads = settings.slave_read_enable
        self._own = {slave_id(settings.broker_id): where} if self._is_slave and reads else {}
        self.master = "" if self._is_slave else where
        self.slaves: Mapping[int, str] = self._own
        self.is_over = True
        self._stopping = threading.Event()
        self._finder = MasterFinder(node, self._stopping)
        self._wanted: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="group-search", daemon=True)
        self._asks = self._is_slave or reads
        if self._asks:
            self._thread.start()

    @property
    def broker(self) -> Broker:
        """The group as clients know it."""
        settings = self._node.settings
        master = {0: self.master} if self.master else {}
        return Broker(settings.broker_name, settings.broker_cluster_name, {**master, **self.slaves})

    def begin(self) -> None:
        """Begins a search, unless one is under way."""
        if self._asks and self.is_over:
            self.is_over = False
            self._wanted.put(True)

    def close(self) -> None:
        self._stopping.set()
        if self._asks:
            self._wanted.put(False)
            self._thread.join()

    def _run(self) -> None:
        while self._wanted.get():
            try:
                self._search()
            except Exception:  # else all who ask afterwards would wait for ever
                self._node.log.exception("the group could not be searched")
            finally:
                self.is_over = True

    def _search(self) -> None:
        found = self._finder.find().get("remoting", [])
        if self._is_slave:
            self.master = found[0].partition("://")[2] if found else ""
        own_epoch = self._node.positions.get(Position.EPOCH)
        epoch = self._finder.epoch if self._is_slave and self.master else own_epoch
        others = {slave_id(node): where for node, (of, where) in self._finder.readable.items() if of == epoch}
        self.slaves = others | (self._own if own_epoch == epoch else {})
