"""Promotion of a running node by the command: checked with its peers before anything is stopped."""

from pathlib import Path
from typing import Any

from towline.node.process.context import open_node
from towline.node.report.status import node_facts
from towline.node.roles.agreement import report_of
from towline.node.roles.role_commands import OUTCOME_MAX_S, PROMOTE, run_command

from .peer_client import ask_all, check_promotion
from .peer_server import STATE, state_of


def promote(store_root: Path, *, accept_loss: bool = False, timeout_s: float = OUTCOME_MAX_S) -> dict[str, Any]:
    """Makes the running node a master; {"role", "epoch", "stages_ms", ...} once it serves.

    Refused, it goes on as what it is, without a break if that could be known beforehand. Raises PromotionRefused,
    NodeNotRunning, OrderUndone, and what keeps a node from starting.
    """
    node_facts(store_root)
    node = open_node(store_root)
    try:
        if not accept_loss:
            heard = ask_all(node, {"op": STATE})
            check_promotion(node, report_of(state_of(node)), heard, heard.answers.keys())
    finally:
        node.positions.close()
    return run_command(store_root, {"order": PROMOTE, "accept_loss": accept_loss}, timeout_s)
