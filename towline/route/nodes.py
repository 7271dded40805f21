"""The nodes of a cluster as its file names them: groups, their nodes, and where each is reached.

The module is pure and light enough for a client. Which node is master is not in the file; the node's greeting says it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

LISTEN, HA = "listen_port", "ha_listen_port"
# Service -> the setting of its port, and how far above `port` it lies where the file gives that alone.
SERVICES: Final = MappingProxyType({"remoting": (LISTEN, 0), "ha": (HA, 1)})
PORTS: Final = MappingProxyType(dict(SERVICES.values()))  # setting -> distance from `port`

Settings = MappingProxyType[str, Any]

_RING: Final = ("keys_dir", "keysDir")
_TLS_MODE: Final = ("tls_server_mode", "tlsServerMode")
_TLS_ALONE: Final = "enforcing"


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `store` and `runtime` are absolute paths on its machine; `runtime` None: as the machine has it."""

    group: str
    id: int
    host: str  # under which the others and the clients reach it
    listen: str  # the address that it binds
    ports: MappingProxyType[str, int]  # service -> TCP port; of `remoting` it may be 0, for none
    store: Path
    runtime: Path | None
    settings: Settings  # of this node alone

    @property
    def label(self) -> str:
        return f"{self.group}-{self.id}"

    def address(self, service: str) -> str:
        """The host:port of `remoting` or `ha`."""
        return f"{self.host}:{self.ports[service]}"

    def endpoint(self, of_group: Settings) -> str:
        """Where its clients come, "" for a node without a port for them. Those of a ring find TLS by their key file."""
        said = {**of_group, **self.settings}
        mode = next((str(said[key]).lower() for key in _TLS_MODE if key in said), "")
        has_ring = any(said.get(key) for key in _RING)
        scheme = "tls" if mode == _TLS_ALONE and not has_ring else "tcp"
        return f"{scheme}://{self.address('remoting')}" if self.ports["remoting"] else ""


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that hold one log. `master` is the id of the node that starts as the master of an empty group."""

    name: str
    master: int
    nodes: tuple[Node, ...]  # in the order of the file
    settings: Settings  # of its nodes, the cluster's among them

    @property
    def first_master(self) -> Node:
        return self.node(self.master)

    def node(self, number: int) -> Node:
        """The node of this id. Raises KeyError."""
        for node in self.nodes:
            if node.id == number:
                return node
        raise KeyError(number)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where clients come, the first master in front: a client tries them until one welcomes it."""
        others = (node for node in self.nodes if node.id != self.master)
        found = (node.endpoint(self.settings) for node in (self.first_master, *others))
        return tuple(filter(None, found))


@dataclass(frozen=True, slots=True)
class Cluster:
    """A whole cluster file."""

    path: Path
    name: str
    etcd: tuple[str, ...]  # http://host:port of its members; empty: promotion is by hand
    groups: tuple[Group, ...]

    @property
    def nodes(self) -> Iterator[Node]:
        return (node for group in self.groups for node in group.nodes)

    def group(self, name: str) -> Group:
        """The group of this name. Raises KeyError."""
        for group in self.groups:
            if group.name == name:
                return group
        raise KeyError(name)
