"""The nodes of a cluster file on this machine: their state, and the role in which each starts."""

import os
import shutil
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import psutil

from towline.cluster.derived import MASTER, SLAVE, check_settings, flags_of, given_to, settings_of
from towline.cluster.state import NodeState, Seen
from towline.errors import NodeNotRunning
from towline.log.files.config_file import read_config
from towline.log.state.in_sync_file import ids_of
from towline.node.peers.peer_client import ask_all
from towline.node.peers.peer_server import STATE
from towline.node.process.context import open_node, runtime_base
from towline.node.report.running import node_facts
from towline.node.roles.agreement import Report
from towline.node.supervise.launch import Launched, running_pid, spawn_node
from towline.places import Runtime, Store
from towline.route.errors import UnknownNode
from towline.route.file import read_cluster
from towline.route.nodes import Cluster, Group, Node
from towline.runtime.positions import Position
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole

RUNTIME: Final = "XDG_RUNTIME_DIR"
# They differ with who is master, not with the file.
_NOT_COMPARED: Final = frozenset({"broker_role", "ha_master_address"})


def whole_cluster(file: Path) -> Cluster:
    """The file, checked whole: itself and the settings of every node. Raises the errors of `towline.cluster`."""
    cluster = read_cluster(file)
    check_settings(cluster)
    return cluster


def chosen(cluster: Cluster, names: Sequence[str]) -> tuple[Group, ...]:
    """The groups that were named, all without a name. Raises UnknownNode."""
    for name in names:
        group_of(cluster, name)
    return tuple(group for group in cluster.groups if not names or group.name in names)


def group_of(cluster: Cluster, name: str) -> Group:
    """Raises UnknownNode."""
    try:
        return cluster.group(name)
    except KeyError:
        known = ", ".join(group.name for group in cluster.groups)
        raise UnknownNode(str(cluster.path), f"group {name}", f"the groups {known}") from None


def node_of(cluster: Cluster, group: Group, number: int) -> Node:
    """Raises UnknownNode."""
    try:
        return group.node(number)
    except KeyError:
        known = ", ".join(str(node.id) for node in group.nodes)
        raise UnknownNode(str(cluster.path), f"node {number} in group {group.name}", f"the nodes {known}") from None


def is_here(node: Node) -> bool:
    """Whether the node's host is an address of this machine."""
    return not _addresses(node.host).isdisjoint(_own_addresses())


@cache
def _addresses(host: str) -> frozenset[str]:
    with suppress(OSError):
        return frozenset(str(found[4][0]) for found in socket.getaddrinfo(host, None, socket.AF_INET))
    return frozenset()  # a name that nobody knows is not this machine's


@cache
def _own_addresses() -> frozenset[str]:
    found = (address for addresses in psutil.net_if_addrs().values() for address in addresses)
    return frozenset(address.address for address in found if address.family == socket.AF_INET)


@dataclass(frozen=True)
class ObservedGroup:
    """A group, observed at once: every node of it, and the master's view of its slaves."""

    group: Group
    nodes: tuple[Seen, ...]

    @property
    def master(self) -> Seen | None:
        """The running master of the greatest epoch."""
        masters = [node for node in self.nodes if node.role == MASTER]
        return max(masters, key=lambda node: node.epoch, default=None)

    def seen(self, number: int) -> Seen:
        return next(node for node in self.nodes if node.id == number)


def observe(group: Group, *, ask: bool = False) -> ObservedGroup:
    """From files and shared memory alone: no node is asked, so none is held up.

    `ask`: nodes of other machines are asked, where one of the group runs here that they know; a second at most.
    """
    nodes = [_seen(node) for node in group.nodes]
    if ask:
        nodes = _with_far(group, nodes)
    masters = [node for node in nodes if node.role == MASTER]
    if not masters:
        return ObservedGroup(group, tuple(nodes))
    master = max(masters, key=lambda node: node.epoch)
    if master.runs:
        connected = _connected(group.node(master.id))
    else:  # its own list is there; a slave of its epoch was welcomed by it
        connected = {node.id for node in nodes if node.role == SLAVE and node.epoch == master.epoch}
    # A master takes a moment to notice that a killed slave has gone.
    gone = (NodeState.STOPPED, NodeState.STARTING)
    return ObservedGroup(
        group, tuple(replace(node, follows=node.id in connected and node.state not in gone) for node in nodes)
    )


def _with_far(group: Group, nodes: list[Seen]) -> list[Seen]:
    """What the nodes of other machines say of themselves to one of ours."""
    ours = [node.id for node in nodes if node.runs]
    if not ours or all(node.state is not NodeState.ELSEWHERE for node in nodes):
        return nodes
    try:
        view = open_node(group.node(ours[0]).store)
    except NodeNotRunning:
        return nodes
    try:
        answers = ask_all(view, {"op": STATE}).answers
    finally:
        view.positions.close()
    far = {node.id for node in nodes if node.state is NodeState.ELSEWHERE} & answers.keys()
    return [_told(node, answers[node.id]) if node.id in far else node for node in nodes]


def _told(node: Seen, report: Report) -> Seen:
    in_sync = () if report.in_sync is None else tuple(report.in_sync.ids)
    return replace(node, role=report.role, epoch=report.following, end=report.end, in_sync=in_sync)


def _connected(master: Node) -> set[int]:
    """Ids of the slaves whose link the master has."""
    with suppress(NodeNotRunning):
        view = open_node(master.store)
        try:
            return {line.node for line in view.positions.slaves() if line.connected}
        finally:
            view.positions.close()
    return set()


def _seen(node: Node) -> Seen:
    if not is_here(node):
        return Seen(node.group, node.id, NodeState.ELSEWHERE)
    try:
        pid = running_pid(node.store)
    except NodeNotRunning:
        return Seen(node.group, node.id, NodeState.STOPPED)
    try:
        facts, view = node_facts(node.store), open_node(node.store)
    except NodeNotRunning:
        return Seen(node.group, node.id, NodeState.STARTING, pid=pid)
    try:
        positions = view.positions
        return Seen(
            group=node.group,
            id=node.id,
            state=NodeState.RUNNING,
            role=facts["role"],
            pid=pid,
            epoch=positions.get(Position.EPOCH),
            end=positions.get(Position.APPENDED),
            in_sync=tuple(ids_of(positions.get(Position.IN_SYNC))),
        )
    finally:
        view.positions.close()


def roles_of(observed: ObservedGroup) -> dict[int, str]:
    """Id -> the role in which each node of the group starts, were it to start now.

    One master: the one that runs, else who recorded that it is one under the greatest epoch, else the file's.
    """
    master = observed.master.id if observed.master is not None else _recorded_master(observed.group)
    return {node.id: MASTER if node.id == master else SLAVE for node in observed.group.nodes}


def _recorded_master(group: Group) -> int:
    recorded = [(recorded_role(node), node.id) for node in group.nodes if is_here(node)]
    masters = [(role.get("epoch", 0), number) for role, number in recorded if role.get("role") == MASTER]
    return max(masters)[1] if masters else group.master


def recorded_role(node: Node) -> dict[str, Any]:
    """What the node itself last agreed to be: empty for one that never asked its peers."""
    return read_config(Store(node.store).role) or {}


def spawn(cluster: Cluster, group: Group, node: Node, role: str, master: Node, more: Sequence[str] = ()) -> Launched:
    """A daemon that does not serve yet, with `more` flags. Raises StoreNotWritable."""
    flags = [*flags_of(given_to(cluster, group, node, role, master)), *more]
    return spawn_node(role, node.store, flags, tied=False, environment=environment_of(node))


def environment_of(node: Node) -> dict[str, str] | None:
    """None: this process's own. The runtime directory is made where the file names one."""
    if node.runtime is None:
        return None
    node.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.environ | {RUNTIME: str(node.runtime)}


def forget_memory(node: Node) -> None:
    """Removes what a killed node left in shared memory, where nobody runs on its store any more."""
    base = runtime_base() if node.runtime is None else node.runtime / "towline"
    shutil.rmtree(Runtime.of(node.store.resolve(), base).root, ignore_errors=True)


def older_settings(cluster: Cluster, group: Group, node: Node) -> list[str]:
    """Settings that a running node has otherwise than the file says: it was started before the file changed."""
    return sorted(newer_settings(cluster, group, node))


def newer_settings(cluster: Cluster, group: Group, node: Node) -> dict[str, str]:
    """What the file says, by key, where a running node has it otherwise; empty for one that never ran."""
    try:
        runs = Settings.from_json(Store(node.store).settings.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    role = SLAVE if runs.broker_role is BrokerRole.SLAVE else MASTER
    wanted = settings_of(cluster, group, node, role)
    given = given_to(cluster, group, node, role)
    compared = given.keys() - _NOT_COMPARED
    return {key: given[key] for key in compared if getattr(runs, key) != getattr(wanted, key)}
