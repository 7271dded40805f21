"""The nodes of a cluster as its file names them: groups, their nodes, and the endpoints of each service.

The module is pure and light enough for a client. Which node is master is not in the file; the node's greeting says it.
"""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

LISTEN, HA, PUT = "listen_port", "ha_listen_port", "put_port"
SERVE, SCHEDULE = "serve_port", "schedule_port"
# Service -> the setting of its port, and how far above `port` it lies where the file gives that alone.
SERVICES: Final = MappingProxyType(
    {"remoting": (LISTEN, 0), "ha": (HA, 1), "put": (PUT, 9), "serve": (SERVE, 10), "schedule": (SCHEDULE, 11)}
)
PORTS: Final = MappingProxyType(dict(SERVICES.values()))  # setting -> distance from `port`

Settings = MappingProxyType[str, Any]

_INSECURE: Final = "insecure"
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
    names_listen_port: bool  # else that port follows from `port`, where the settings allow one
    store: Path
    runtime: Path | None
    settings: Settings  # of this node alone

    @property
    def label(self) -> str:
        return f"{self.group}-{self.id}"

    def address(self, service: str) -> str:
        """The host:port of `remoting`, `put`, `serve`, `ha` or `schedule`."""
        return f"{self.host}:{self.ports[service]}"

    def endpoint(self, service: str) -> str:
        return f"tcp://{self.address(service)}"

    def takes_plain_clients(self, of_group: Settings) -> bool:
        """Whether its `listen_port` is open to clients without TLS, as its settings and those of its group say."""
        said = {**of_group, **self.settings}
        mode = next((str(said[key]).lower() for key in _TLS_MODE if key in said), "")
        open_to_all = ipaddress.ip_address(self.listen).is_loopback or str(said.get(_INSECURE)).lower() == "true"
        return bool(self.ports["remoting"]) and open_to_all and mode != _TLS_ALONE


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

    def endpoints(self, service: str) -> tuple[str, ...]:
        """The endpoints of every node, the first master's in front: a client tries them until one welcomes it."""
        others = (node for node in self.nodes if node.id != self.master)
        return tuple(node.endpoint(service) for node in (self.first_master, *others))

    def endpoints_of_clients(self, service: str) -> tuple[str, ...]:
        """The same for clients: one address for all services, where a node has one that takes them without TLS."""
        taking = {node.id for node in self.nodes if node.takes_plain_clients(self.settings)}
        others = (node for node in self.nodes if node.id != self.master)
        nodes = (self.first_master, *others)
        return tuple(node.endpoint("remoting" if node.id in taking else service) for node in nodes)


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
