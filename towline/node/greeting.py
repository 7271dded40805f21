"""What every server of a node says of itself when a link begins, and what it tells a peer that may stay."""

from collections.abc import Callable, Mapping
from typing import Any

from towline.log.identity import IdentityFile

from .context import Node


def own_facts(node: Node, role: str) -> dict[str, Any]:
    """Compared with the peer's facts: cluster and store must agree where both sides state them."""
    identity = IdentityFile(node.store.root).load()
    store_id = identity.store_id if identity is not None else ""  # a slave that has not met its master yet
    cluster, name = node.settings.broker_cluster_name, node.settings.broker_name
    return {"role": role, "cluster": cluster, "store": store_id, "name": name}


def welcome(node: Node, **limits: int) -> Callable[[dict[str, Any]], Mapping[str, Any]]:
    """Facts for a peer that passed: the server's clock (deadlines are in it), the epoch, and limits to keep."""

    def greet(_: dict[str, Any]) -> Mapping[str, Any]:
        return {"now": node.clock.now_ms(), "epoch": 0, **limits}

    return greet
