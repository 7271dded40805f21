"""Whether a node is ready: the one judgement of `/ready`, of `towline_ready`, and of the exit status of `status`.

It reads positions and files, and asks no process. The requests that put has not answered yet are in put's own memory: a
node that refuses puts only for their number (`put_waiting_max`) counts as ready.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from towline.format.record.halts import remedy, why
from towline.format.wire.refusals import Cause
from towline.node.process.context import Node
from towline.node.roles.role_commands import read_json_file
from towline.node.store.put_checks import judge, limits_of, store_state
from towline.runtime.positions import Duty, Position, State
from towline.runtime.settings_model import BrokerRole

from .processes import standing_still

NO_LINK = "it has not reached a master since it was started"


class Reason(Enum):
    """Why a node is not ready. The value is the label of `towline_not_ready`."""

    RECOVERING = "recovering"
    STANDING_STILL = "standing_still"
    DISPATCH_STOPPED = "dispatch_stopped"
    SYNC_FAILED = "sync_failed"
    NO_MASTER = "no_master"
    PUTS_REFUSED = "puts_refused"


def not_ready(node: Node, processes: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Why it is not ready: reason, sentence, remedy (or ""); nothing for a node that is. `processes`: `processes_of`.

    Of a node whose start is not over nothing else is said: its positions are not believed yet.
    """
    if node.positions.duty(Duty.SUPERVISE).state is not State.RUNNING:
        return [_reason(Reason.RECOVERING, "it starts: the store is recovered, and its processes begin to run")]
    found = [_reason(Reason.STANDING_STILL, still["sentence"]) for still in standing_still(processes)]
    if stopped := node.positions.get(Position.DISPATCH_STOPPED):
        number = node.positions.get(Position.DISPATCH_STOPPED_WHY)
        sentence = f"dispatching has stopped before the record at {stopped - 1} of the log: {why(number)[1]}"
        found.append(_reason(Reason.DISPATCH_STOPPED, sentence, remedy(number, stopped - 1)))
    if node.positions.get(Position.SYNC_FAILED):
        found.append(_reason(Reason.SYNC_FAILED, "a sync of the log failed", Cause.SYNC_FAILED.remedy))
    return found + (_of_a_slave(node) if node.settings.broker_role is BrokerRole.SLAVE else _of_a_master(node))


def is_alive(node: Node, processes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the supervisor runs, or starts the node: neither gone nor standing still."""
    supervisor = [process for process in processes if process["duty"] == Duty.SUPERVISE.label]
    return node.positions.duty(Duty.SUPERVISE).state is not State.RUNNING or not standing_still(supervisor)


def _of_a_slave(node: Node) -> list[dict[str, str]]:
    link = read_json_file(node.store.link)
    if link is not None and link["connected"]:
        return []
    return [_reason(Reason.NO_MASTER, f"it follows nobody: {NO_LINK if link is None else link['why']}")]


def _of_a_master(node: Node) -> list[dict[str, str]]:
    """What put refuses is known by the checks of put; a cause that was named already is not named twice."""
    limits = limits_of(node.settings)
    refused = judge(limits, store_state(node.positions, limits, 0, stopping=False))
    if refused is None or refused.cause in (Cause.DISPATCH_STOPPED, Cause.SYNC_FAILED):
        return []
    remedy = refused.cause.remedy_at(str(node.store.root))
    return [_reason(Reason.PUTS_REFUSED, f"puts are refused: {refused.sentence}", remedy)]


def _reason(reason: Reason, sentence: str, remedy: str = "") -> dict[str, str]:
    return {"reason": reason.value, "sentence": sentence, "remedy": remedy}
