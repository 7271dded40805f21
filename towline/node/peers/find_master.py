"""Where the master is, and which slaves RocketMQ's clients may read, by what a node's peers say."""

import time
from collections.abc import Mapping
from dataclasses import replace
from threading import Event
from typing import Any, Final

from towline.errors import InvalidEndpoint
from towline.link.endpoints import parse
from towline.log.state.role_file import MASTER, SLAVE
from towline.node.process.context import Node
from towline.node.process.endpoints import REMOTING
from towline.runtime.ports import is_loopback

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
        masters = [(where, facts) for where, facts in answers.items() if facts.get("role") == MASTER]
        where, newest = max(masters, key=lambda each: int(each[1].get("epoch", 0)), default=("", {}))
        named = newest.get(REMOTING)
        self.epoch = int(newest.get("epoch", 0))
        self.readable = dict(map(_place, filter(_is_readable, answers.values())))
        self._services = {REMOTING: reached_at(list(map(str, named)), where)} if isinstance(named, list) else {}
        self._known_until = time.monotonic() + KNOWN_S
        return self._services

    def forget(self) -> None:
        """What was found is wrong."""
        self._known_until = 0.0


def reached_at(named: list[str], where: str) -> list[str]:
    """A master's endpoints as it names them, and at the host where it was found. The names are for clients, and need
    not lead there from here; one that leads to this machine alone, from another, leads to nobody or to ourselves."""
    try:
        host, known = parse(where).host, [parse(each) for each in named]
    except InvalidEndpoint:
        return named
    found = [replace(each, host=host) for each in known]
    if not is_loopback(host):
        known = [each for each in known if not is_loopback(each.host)]
    return list(dict.fromkeys(map(str, (*known, *found))))


def _is_readable(facts: Mapping[str, Any]) -> bool:
    match facts:
        case {"role": str(role), "node": int(), "epoch": int(), "remoting": [str(), *_]}:
            return role == SLAVE
    return False


def _place(facts: Mapping[str, Any]) -> tuple[int, tuple[int, str]]:
    """Of a slave: its node, its epoch and where it listens."""
    return facts["node"], (facts["epoch"], facts["remoting"][0].partition("://")[2])
