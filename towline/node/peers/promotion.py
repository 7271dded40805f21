"""Promotion of a running node by the command: checked with its peers before anything is stopped."""

import socket
from pathlib import Path
from typing import Any, Final

from towline.errors import PromotionRefused
from towline.link.endpoints import parse
from towline.node.process.context import Node
from towline.node.report.running import open_running
from towline.node.roles.agreement import report_of
from towline.node.roles.role_commands import OUTCOME_MAX_S, PROMOTE, read_json_file, run_command
from towline.runtime.positions import Position
from towline.runtime.settings_model import BrokerRole

from .peer_client import ask_all, check_promotion
from .peer_server import question_before_promotion, state_of

PROBE_S: Final = 0.5


def promote(store_root: Path, *, accept_loss: bool = False, timeout_s: float = OUTCOME_MAX_S) -> dict[str, Any]:
    """Makes the running node a master; {"role", "epoch", "stages_ms", ...} once it serves.

    Refused, it goes on as what it is, without a break if that could be known beforehand. Raises PromotionRefused,
    NodeNotRunning, NodeNotReadable, OrderUndone, and what keeps a node from starting.
    """
    _, node = open_running(store_root)
    try:
        if not accept_loss:
            _check_rocketmq_master(node)
            heard = ask_all(node, question_before_promotion())
            check_promotion(node, report_of(state_of(node)), heard, heard.answers.keys())
    finally:
        node.positions.close()
    return run_command(store_root, {"order": PROMOTE, "accept_loss": accept_loss}, timeout_s)


def _check_rocketmq_master(node: Node) -> None:
    """A RocketMQ master can promise nothing: it has to be stopped, and all of it here. Raises PromotionRefused."""
    address, link = node.settings.rocketmq_master_address, read_json_file(node.store.link)
    if node.settings.broker_role is not BrokerRole.SLAVE or not address:
        return
    own, master = node.settings.broker_id, f"its master, the broker of RocketMQ at {address}"
    if (link is not None and link["connected"]) or _listens(address):
        raise PromotionRefused(own, f"{master}, still takes messages: stop that first")
    known, end = (node.positions.get(place) for place in (Position.CONFIRMED, Position.APPENDED))
    if known > end:
        raise PromotionRefused(own, f"{master}, had the log to {known}, and it ends at {end} here")
    if link is None or not link["compared"]:
        why = f"it was not linked to {master}, since it started: nobody knows how far that one's log goes"
        raise PromotionRefused(own, why)


def _listens(address: str) -> bool:
    """Whether a connection is taken there; between two of ours, and where what is there is not followed, too."""
    found = parse(f"tcp://{address}")
    try:
        socket.create_connection((found.host, found.port), PROBE_S).close()
    except OSError:
        return False
    return True
