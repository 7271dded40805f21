"""Derives the state of a group and of a cluster from the states of its nodes. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class NodeState(StrEnum):
    RUNNING = "running"
    STARTING = "starting"  # its store is taken, it does not serve yet
    STOPPED = "stopped"
    ELSEWHERE = "elsewhere"  # on another machine: what is known of it, it was asked


class GroupState(StrEnum):
    OK = "ok"  # one master, and every other node follows it
    DEGRADED = "degraded"  # a master, and not every other node follows it
    NO_MASTER = "no master"  # nodes run, none is master
    TWO_MASTERS = "two masters"
    STOPPED = "stopped"
    ELSEWHERE = "elsewhere"  # no node is of this machine, or its master is not and all that is here runs


@dataclass(frozen=True, slots=True)
class Seen:
    """One node, as it was observed. Offsets are -1 where nothing is known."""

    group: str
    id: int
    state: NodeState
    role: str = ""  # "master" or "slave" while it runs; of one elsewhere, when it has answered
    pid: int = 0
    epoch: int = 0
    end: int = -1  # bytes appended
    follows: bool = False  # a slave that its master counts as connected; with a master elsewhere, one of its epoch
    in_sync: tuple[int, ...] = ()  # ids of the recorded in-sync set, as this node knows it

    @property
    def runs(self) -> bool:
        return self.state is NodeState.RUNNING


def group_state(nodes: Sequence[Seen]) -> GroupState:
    masters = [node for node in nodes if node.role == "master"]
    if len(masters) > 1:
        return GroupState.TWO_MASTERS
    if masters:
        others = [node for node in nodes if node.id != masters[0].id]
        return GroupState.OK if all(node.follows for node in others) else GroupState.DEGRADED
    here = [node for node in nodes if node.state is not NodeState.ELSEWHERE]
    if not here:
        return GroupState.ELSEWHERE
    if not any(node.runs for node in here):
        return GroupState.STOPPED
    unknown = any(node.state is NodeState.ELSEWHERE and not node.role for node in nodes)
    return GroupState.ELSEWHERE if unknown else GroupState.NO_MASTER


# From good to bad.
_ORDER = (
    GroupState.OK,
    GroupState.ELSEWHERE,
    GroupState.DEGRADED,
    GroupState.STOPPED,
    GroupState.NO_MASTER,
    GroupState.TWO_MASTERS,
)


def cluster_state(groups: Sequence[GroupState]) -> str:
    """The one state that all groups are in, else `partly` and the worst of them."""
    worst = max(groups, key=_ORDER.index)
    return str(worst) if len(set(groups)) == 1 else f"partly {worst}"
