"""Reads cluster.toml and checks that its nodes can stand beside each other.

    name = "demo"                     # broker_cluster_name of every node
    etcd = ["http://10.0.0.9:2379"]   # none: promotion is by hand
    [settings]                        # of every node; the keys of docs/settings.md
    [[group]]
    name = "a"                        # broker_name of its nodes
    master = 0                        # the node that starts as master; the first one where it is left out
    settings = { }                    # of the group's nodes
    [[group.node]]
    id = 0                            # broker_id
    host = "127.0.0.1"                # where the others and the clients reach it
    listen = "127.0.0.1"              # the address it binds; the host's where that is an address
    port = 11000                      # of clients; the next one is for other nodes
    ha_listen_port = 11001            # or one by one: listen_port (0: none), ha_listen_port
    store = "stores/a-0"              # relative to this file
    runtime = "/run/towline/a-0"      # its XDG_RUNTIME_DIR; the environment's where it is left out
    settings = { }                    # of this node

Only what stands in the file is checked here, so that a client can read it as well; `derived` checks the settings.
"""

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from towline.limits import NODE_MAX

from .errors import BadCluster, UnreadableCluster
from .nodes import LISTEN, PORTS, SERVICES, Cluster, Group, Node

LOOPBACK: Final = "127.0.0.1"
EVERYWHERE: Final = "0.0.0.0"

_CLUSTER_KEYS: Final = ("name", "etcd", "settings", "group")
_GROUP_KEYS: Final = ("name", "master", "settings", "node")
_NODE_KEYS: Final = ("id", "host", "listen", "port", *PORTS, "store", "runtime", "settings")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_ETCD: Final = re.compile(r"https?://[^\s/,]+:\d{1,5}")
_KINDS: Final = MappingProxyType({str: "text", int: "a whole number", dict: "a table", list: "a list"})

Kind = TypeVar("Kind")


def read_cluster(path: Path) -> Cluster:
    """The cluster in a file. Raises UnreadableCluster, BadCluster."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableCluster(str(path), getattr(error, "strerror", None) or str(error)) from None
    return parse_cluster(text, path)


def parse_cluster(text: str, path: Path) -> Cluster:
    """The cluster in a text; `path` is for errors and relative paths. Raises UnreadableCluster, BadCluster."""
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UnreadableCluster(str(path), f"it is no TOML: {error}") from None
    top = _Table(str(path), "", said, _CLUSTER_KEYS)
    shared = top.get("settings", dict, {})
    cluster = Cluster(
        path=path.absolute(),
        name=top.name("name"),
        etcd=_etcd(top),
        groups=tuple(_group(table, shared, path) for table in _tables(top, "group", _GROUP_KEYS)),
    )
    _check_once(top, "group", "name", [group.name for group in cluster.groups])
    _check_apart(cluster)
    return cluster


class _Table:
    """A table of the file under the name that errors give it."""

    def __init__(self, path: str, where: str, said: Mapping[str, Any], keys: Sequence[str]) -> None:
        self.path, self.where, self.said = path, where, said
        for key in said:
            if key not in keys:
                near = difflib.get_close_matches(key, keys, 1)
                raise self.bad(key, f"is no key here, {f'did you mean {near[0]}?' if near else ', '.join(keys)}")

    def bad(self, key: str, why: str) -> BadCluster:
        return BadCluster(self.path, self.where, key, why)

    def get(self, key: str, kind: type[Kind], otherwise: Kind | None = None) -> Kind:
        """The value of a key; refused where it is missing without `otherwise`, or of another kind."""
        found = self.said.get(key, otherwise)
        if found is None:
            raise self.bad(key, f"is missing; {_KINDS[kind]} is wanted")
        if not isinstance(found, kind) or isinstance(found, bool):
            raise self.bad(key, f"= {found!r}: {_KINDS[kind]} is wanted")
        return found

    def name(self, key: str) -> str:
        name = self.get(key, str)
        if not _NAME.fullmatch(name):
            raise self.bad(key, f"= {name!r}: letters, digits, `.`, `_` and `-`, 64 at most, are a name")
        return name


def _tables(table: _Table, key: str, keys: Sequence[str]) -> Iterator[_Table]:
    """The tables of [[group]] or [[group.node]], numbered from 1 until their names are known."""
    found = table.get(key, list, [])
    if not found:
        raise table.bad(key, f"at least one [[{'group.' * bool(table.where)}{key}]] is wanted")
    for number, said in enumerate(found, 1):
        if not isinstance(said, dict):
            raise table.bad(key, f"= {said!r}: a table is wanted")
        shown = said.get("name" if key == "group" else "id")
        name = f"{key} {shown}" if isinstance(shown, str | int) else f"{key} number {number}"
        yield _Table(table.path, ", ".join(filter(None, (table.where, name))), said, keys)


def _group(table: _Table, shared: Mapping[str, Any], path: Path) -> Group:
    name = table.name("name")
    nodes = tuple(_node(node, name, path) for node in _tables(table, "node", _NODE_KEYS))
    ids = [node.id for node in nodes]
    _check_once(table, "node", "id", ids)
    master = table.get("master", int, ids[0])
    if master not in ids:
        raise table.bad("master", f"= {master}: the group has the nodes {', '.join(map(str, ids))}")
    settings = MappingProxyType({**shared, **table.get("settings", dict, {})})
    return Group(name, master, nodes, settings)


def _node(table: _Table, group: str, path: Path) -> Node:
    number = table.get("id", int)
    if not 0 <= number <= NODE_MAX:
        raise table.bad("id", f"= {number}: 0 to {NODE_MAX} is wanted")
    host = _host(table)
    runtime = table.said.get("runtime")
    return Node(
        group=group,
        id=number,
        host=host,
        listen=_listen(table, host),
        ports=_ports(table),
        store=_place(path, table.get("store", str)),
        runtime=None if runtime is None else _place(path, table.get("runtime", str)),
        settings=MappingProxyType(dict(table.get("settings", dict, {}))),
    )


def _host(table: _Table) -> str:
    host = table.get("host", str, LOOPBACK)
    if ":" in host:
        raise table.bad("host", f"= {host!r}: an IPv4 address or a name is wanted, the port stands beside it")
    if not _HOST.fullmatch(host):
        raise table.bad("host", f"= {host!r}: an IPv4 address or a name is wanted")
    return host


def _listen(table: _Table, host: str) -> str:
    """What is bound has to be an address: ZeroMQ looks up no name for that."""
    if "listen" not in table.said:
        return host if is_address(host) else LOOPBACK if host == "localhost" else EVERYWHERE
    listen = table.get("listen", str)
    if not is_address(listen):
        raise table.bad("listen", f"= {listen!r}: an IPv4 address is wanted")
    return listen


def is_address(text: str) -> bool:
    """Whether it is an IPv4 address, as opposed to a name."""
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _ports(table: _Table) -> MappingProxyType[str, int]:
    ports = {}
    for service, (key, above) in SERVICES.items():
        if key in table.said:
            port = table.get(key, int)
        elif "port" in table.said:
            key, port = "port", table.get("port", int) + above
        else:
            raise table.bad("port", f"is missing, and so is {key}")
        least = 0 if key == LISTEN else 1
        if not least <= port <= 65_535:
            raise table.bad(key, f"makes {port} the port of {service}: {least} to 65535 is wanted")
        ports[service] = port
    return MappingProxyType(ports)


def _place(path: Path, text: str) -> Path:
    """Relative to the directory of the cluster file."""
    return Path(os.path.normpath(path.absolute().parent / Path(text).expanduser()))


def _etcd(top: _Table) -> tuple[str, ...]:
    endpoints = top.get("etcd", list, [])
    for endpoint in endpoints:
        if not isinstance(endpoint, str) or not _ETCD.fullmatch(endpoint):
            raise top.bad("etcd", f"= {endpoint!r}: http://host:port is wanted")
    return tuple(endpoints)


def _check_once(table: _Table, kind: str, key: str, values: Sequence[object]) -> None:
    for value in values:
        if values.count(value) > 1:
            where = ", ".join(filter(None, (table.where, f"{kind} {value}")))
            raise BadCluster(table.path, where, key, f"= {value}: {values.count(value)} tables have it, one may")


def _check_apart(cluster: Cluster) -> None:
    """No two nodes of a machine share a port, a store or a runtime directory."""
    ports: dict[tuple[str, int], str] = {}
    for node in cluster.nodes:
        for service, port in filter(itemgetter(1), node.ports.items()):
            whose = f"{service} of node {node.id} of group {node.group}"
            if (before := ports.setdefault((_machine(node), port), whose)) != whose:
                raise _of(cluster, node, SERVICES[service][0], f"= {port} on {node.host}: it is {before} as well")
    nodes = list(cluster.nodes)
    for place, node in enumerate(nodes):
        for other in nodes[:place]:
            if _machine(other) != _machine(node):
                continue
            who = f"node {other.id} of group {other.group}"
            if node.store == other.store or node.store in other.store.parents or other.store in node.store.parents:
                raise _of(cluster, node, "store", f"= {node.store}: {who} has {other.store}")
            if node.runtime is not None and node.runtime == other.runtime:
                raise _of(cluster, node, "runtime", f"= {node.runtime}: {who} has it")


def _machine(node: Node) -> str:
    return LOOPBACK if node.host == "localhost" else node.host


def _of(cluster: Cluster, node: Node, key: str, why: str) -> BadCluster:
    return BadCluster(str(cluster.path), f"group {node.group}, node {node.id}", key, why)
