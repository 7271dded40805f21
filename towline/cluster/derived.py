"""Derives a node's settings from the cluster file: what the file says, and what follows from the node's place in it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from towline.errors import BadSetting, UnknownSetting
from towline.route.errors import BadCluster
from towline.route.file import is_address
from towline.route.nodes import SERVICES, Cluster, Group, Node
from towline.runtime.settings import SNAKES, Settings, read_settings
from towline.runtime.settings_model import BrokerRole

MASTER, SLAVE = "master", "slave"
FILES: Final = ("keys_dir", "tls_server_cert_path", "tls_server_key_path")  # relative to the cluster file
# Setting -> what of the file it follows from; written by hand it could only differ.
FOLLOWS: Final = {
    "broker_cluster_name": "`name` of the file",
    "broker_name": "`name` of the group",
    "broker_id": "`id` of the node",
    "listen_host": "`host` or `listen` of the node",
    **{key: f"`{key}` or `port` of the node" for key, _ in SERVICES.values()},
    "ha_peers": "the nodes of the group",
    "ha_master_address": "the group's master",
    "promoted_role": "`broker_role` of the group",
    "etcd_endpoints": "`etcd` of the file",
    "store_path_root_dir": "`store` of the node",
}


def given_to(cluster: Cluster, group: Group, node: Node, role: str, master: Node | None = None) -> dict[str, str]:
    """Every setting that a node is started with, for `role` "master" or "slave"; `master` is the one to follow."""
    said = {SNAKES.get(key, key): _text(value) for key, value in {**group.settings, **node.settings}.items()}
    as_master = said.pop("broker_role", BrokerRole.ASYNC_MASTER.value)
    if as_master == BrokerRole.SYNC_MASTER.value:
        said.setdefault("in_sync_replicas", "2")  # the same on every node: any of them may be promoted
    said.setdefault("total_replicas", str(len(group.nodes)))
    for key in FILES:
        if said.get(key):
            said[key] = str(cluster.path.parent / Path(said[key]).expanduser())
    if is_address(node.host):
        said.setdefault("broker_ip1", node.host)
    follows = {
        "broker_cluster_name": cluster.name,
        "broker_name": group.name,
        "broker_id": str(node.id),
        "listen_host": node.listen,
        **{key: str(node.ports[service]) for service, (key, _) in SERVICES.items()},
        "promoted_role": as_master,
    }
    if len(group.nodes) > 1 or cluster.etcd:
        follows["ha_peers"] = ",".join(f"{peer.id}={peer.address('ha')}" for peer in group.nodes)
    if cluster.etcd:
        follows["etcd_endpoints"] = ",".join(cluster.etcd)
    if role == MASTER:
        return said | follows | {"broker_role": as_master}
    return said | follows | {"ha_master_address": (master or group.first_master).address("ha")}


def flags_of(given: Mapping[str, str]) -> list[str]:
    """Arguments of `python -m towline.master` and `python -m towline.slave`."""
    return [part for key, value in given.items() for part in ("--set", f"{key}={value}")]


def check_settings(cluster: Cluster) -> None:
    """Of every node, in the role it starts with and as the master it may become.

    Raises BadCluster, BadSetting, UnknownSetting; all name the file and the table.
    """
    for group in cluster.groups:
        for node in group.nodes:
            _check_written(cluster, group, node)
            settings_of(cluster, group, node, MASTER)
            if node.id:
                settings_of(cluster, group, node, SLAVE)


def _check_written(cluster: Cluster, group: Group, node: Node) -> None:
    """What no setting shows by itself: keys that follow from the file, and more replicas than nodes."""
    table = f"group {group.name}, node {node.id}"
    said = {SNAKES.get(key, key): value for key, value in {**group.settings, **node.settings}.items()}
    for key in said.keys() & FOLLOWS.keys():
        raise BadCluster(str(cluster.path), table, f"settings.{key}", f"is {FOLLOWS[key]}; take it out")
    if str(said.get("broker_role")) == BrokerRole.SLAVE.value:
        why = "= SLAVE: `master` of the group says which node is none; ASYNC_MASTER or SYNC_MASTER is wanted"
        raise BadCluster(str(cluster.path), table, "settings.broker_role", why)
    waits = "2" if said.get("broker_role") == BrokerRole.SYNC_MASTER.value else "1"
    replicas = str(said.get("in_sync_replicas", waits))
    if replicas.isdecimal() and int(replicas) > len(group.nodes):
        why = f"= {replicas}, and the group has {len(group.nodes)} nodes; add slaves, or lower it"
        raise BadCluster(str(cluster.path), table, "settings.in_sync_replicas", why)


def settings_of(cluster: Cluster, group: Group, node: Node, role: str) -> Settings:
    """What a node started in that role runs with. Raises BadSetting, UnknownSetting, naming the file and the node."""
    source = f"{cluster.path}: group {group.name}, node {node.id}"
    given = given_to(cluster, group, node, role)
    if role == SLAVE:
        given["broker_role"] = BrokerRole.SLAVE.value
    try:
        return read_settings(None, given, {})
    except UnknownSetting as error:
        raise UnknownSetting(error.key, source, error.nearest) from None
    except BadSetting as error:
        raise BadSetting(error.key, error.value, source, error.why) from None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
