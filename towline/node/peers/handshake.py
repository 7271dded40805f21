"""Facts of a handshake: a node's own, and the welcome that a server sends."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from towline.log.state.identity import IdentityFile
from towline.log.state.role_file import MASTER, SLAVE
from towline.node.process.context import Node
from towline.runtime.positions import Position
from towline.runtime.settings_model import BrokerRole

FENCED: Final = "fenced master"  # it has promised another node to follow it


def own_facts(node: Node, role: str) -> dict[str, Any]:
    """Compared with the peer's facts: cluster and store must agree where both sides state them."""
    identity = IdentityFile(node.store.root).load()
    store_id = identity.store_id if identity is not None else ""  # a slave that has not met its master yet
    cluster, name = node.settings.broker_cluster_name, node.settings.broker_name
    return {"role": role, "cluster": cluster, "store": store_id, "name": name}


def welcome(node: Node, **limits: object) -> Callable[[dict[str, Any]], Mapping[str, Any]]:
    """Facts for a peer that passed: the server's clock (deadlines are in it), role and epoch, and limits to keep."""
    role = SLAVE if node.settings.broker_role is BrokerRole.SLAVE else MASTER

    def greet(_: dict[str, Any]) -> Mapping[str, Any]:
        epoch = node.positions.get(Position.EPOCH)
        fenced = role == MASTER and node.positions.get(Position.PROMISED) > epoch
        return {"now": node.clock.now_ms(), "epoch": epoch, "broker_role": FENCED if fenced else role, **limits}

    return greet
