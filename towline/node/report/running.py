"""The node that runs on a store of this machine: what it says of itself, and a view of its memory."""

import json
from pathlib import Path
from typing import Any

import psutil

from towline.errors import NodeNotReadable, NodeNotRunning
from towline.node.process.context import Node, open_node
from towline.places import Store


def node_facts(store_root: Path) -> dict[str, Any]:
    """run/node.json: pid, role, endpoints, processes. Raises NodeNotRunning when that pid is gone."""
    store = Store(store_root.resolve())
    try:
        facts: dict[str, Any] = json.loads(store.node.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NodeNotRunning(str(store.root)) from None
    if not psutil.pid_exists(facts["pid"]):
        raise NodeNotRunning(str(store.root))
    return facts


def open_running(store_root: Path) -> tuple[dict[str, Any], Node]:
    """`node_facts`, and a view of that node. Raises NodeNotRunning, NodeNotReadable."""
    facts = node_facts(store_root)
    try:
        return facts, open_node(store_root)
    except NodeNotRunning as error:
        if psutil.pid_exists(facts["pid"]):
            raise NodeNotReadable(error.store, facts["pid"]) from None
        raise
