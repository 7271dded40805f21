"""Where the master is, and which slaves RocketMQ's clients may read, by what a node's peers say."""

import time
from collections.abc import Mapping
from threading import Event
from typing import Any, Final

from towline.node.process.context import Node
from towline.node.process.endpoints import REMOTING
from towline.node.roles.roles import MASTER, SLAVE

from .master_link import master_addresses
from .peer_client import ask_peers
from .peer_server import STATE

FIND_MS: Final = 500
KNOWN_S: Final = 1.0  # what was found out is believed so long


class MasterFinder:
    """Asks the peers of a node. Used by one thread, which waits for them; `stopping` lets it ask nobody any more.

    Of the last search: `epoch`, the greatest of a master (0 without one); `readable`, by node the epoch and the
    `host:port` of each slave that may be read.
    """

    def __init__(self, node: Node, stopping: Event) -> None:
        self._node, self._stopping = node, stopping
        self._services: dict[str, list[str]] = {}
        self._known_until = 0.0
        self.epoch = 0
        self.readable: dict[int, tuple[int, str]] = {}

    def find(self) -> dict[str, list[str]]:
        """Service -> endpoints of the master of the greatest epoch; empty without one."""
        if time.monotonic() < self._known_until or self._stopping.is_set():
            return self._services
        addresses = {where: where for where in master_addresses(self._node.settings)}
        answers, _ = ask_peers(self._node, addresses, {"op": STATE}, FIND_MS)
        masters = [facts for facts in answers.values() if facts.get("role") == MASTER]
        newest = max(masters, key=lambda facts: int(facts.get("epoch", 0)), default={})
        services = {REMOTING: newest.get(REMOTING)}
        self.epoch = int(newest.get("epoch", 0))
        self.readable = dict(map(_place, filter(_is_readable, answers.values())))
        self._services = {name: list(map(str, found)) for name, found in services.items() if isinstance(found, list)}
        self._known_until = time.monotonic() + KNOWN_S
        return self._services

    def forget(self) -> None:
        """What was found is wrong."""
        self._known_until = 0.0


def _is_readable(facts: Mapping[str, Any]) -> bool:
    match facts:
        case {"role": str(role), "node": int(), "epoch": int(), "remoting": [str(), *_]}:
            return role == SLAVE
    return False


def _place(facts: Mapping[str, Any]) -> tuple[int, tuple[int, str]]:
    """Of a slave: its node, its epoch and where it listens."""
    return facts["node"], (facts["epoch"], facts["remoting"][0].partition("://")[2])
