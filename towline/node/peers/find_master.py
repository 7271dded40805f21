"""Where the master is, by what a node's peers say."""

import time
from threading import Event
from typing import Final

from towline.node.process.context import Node
from towline.node.roles.roles import MASTER

from .master_link import master_addresses
from .peer_client import ask_peers
from .peer_server import STATE

FIND_MS: Final = 500
KNOWN_S: Final = 1.0  # what was found out is believed so long


class MasterFinder:
    """Asks the peers of a slave. Used by one thread, which waits for them; `stopping` lets it ask nobody any more."""

    def __init__(self, node: Node, stopping: Event) -> None:
        self._node, self._stopping = node, stopping
        self._services: dict[str, list[str]] = {}
        self._known_until = 0.0

    def find(self) -> dict[str, list[str]]:
        """Service -> endpoints of the master of the greatest epoch; empty without one."""
        if time.monotonic() < self._known_until or self._stopping.is_set():
            return self._services
        addresses = {where: where for where in master_addresses(self._node.settings)}
        answers, _ = ask_peers(self._node, addresses, {"op": STATE}, FIND_MS)
        masters = [facts for facts in answers.values() if facts.get("role") == MASTER]
        newest = max(masters, key=lambda facts: int(facts.get("epoch", 0)), default={})
        services = {name: newest.get(name) for name in ("put", "serve", "remoting")}
        self._services = {name: list(map(str, found)) for name, found in services.items() if isinstance(found, list)}
        self._known_until = time.monotonic() + KNOWN_S
        return self._services

    def forget(self) -> None:
        """What was found is wrong."""
        self._known_until = 0.0
