"""Leadership of a group in etcd: who is master, in which term, and the recorded in-sync set.

    /towline/<cluster>/<name>/leader    {node, epoch, broker_role, ha, put, serve}; bound to the master's lease
    /towline/<cluster>/<name>/term      of the last leader: epochs of a new one lie above it
    /towline/<cluster>/<name>/in_sync   {epoch, members, floor}: nobody else may be elected (H14)

Every change is one transaction on what was read before, so of two that try one fails.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from towline.errors import MalformedKey
from towline.format.files.epochs import NODES, node_of, number_of, term_of
from towline.limits import NODE_MAX
from towline.log.state.in_sync_file import FLOOR_UNKNOWN, ids_of, mask_of
from towline.log.state.role_file import MASTER
from towline.node.process.endpoints import reachable
from towline.places import Runtime
from towline.route.etcd import Etcd, KeyValue
from towline.route.leaders import keys_of
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader's key. `created` distinguishes one leadership from the next; `changed` counts updates of the key.

    `role`: its broker_role; SLAVE while it is being promoted.
    """

    node: int
    epoch: int
    lease: int
    created: int
    changed: int
    role: str = ""

    @property
    def waits(self) -> bool:
        """Whether it acknowledges nothing that a member of the recorded set lacks."""
        return self.role == BrokerRole.SYNC_MASTER.value


@dataclass(frozen=True, slots=True)
class RecordedSet:
    """The in-sync set. `changed`: its revision in etcd, 0 before. A missing `floor`, of an older node, counts as 1."""

    epoch: int
    members: int
    changed: int = 0
    floor: int = FLOOR_UNKNOWN

    def __contains__(self, node: int) -> bool:
        return bool(self.members >> node & 1)


@dataclass(frozen=True, slots=True)
class GroupView:
    """The group's keys at one moment. `term` is 0, `leader` and `in_sync` are None where there is no such key."""

    leader: Leader | None
    term: int
    term_changed: int
    in_sync: RecordedSet | None


@dataclass(frozen=True, slots=True)
class NodeProgress:
    """How far a node of the group got: the epoch of its newest byte and the end of its log."""

    node: int
    written: int
    end: int

    @property
    def rank(self) -> tuple[int, int, int]:
        """The sort key: the greatest goes first; among equals the smallest node id."""
        return self.written, self.end, -self.node


def may_stand(view: GroupView, own: int, *, founder: bool) -> str:
    """Empty when a node may be elected now, else why not. `founder`: it was started as the group's first master."""
    if view.leader is not None:
        return f"node {view.leader.node} is master in epoch {view.leader.epoch}"
    if view.in_sync is None:
        return "" if founder else "no in-sync set was recorded yet: the node that is started as master is the first"
    members = ids_of(view.in_sync.members)
    return "" if own in view.in_sync else f"only the nodes {members} hold all that was acknowledged"


def better_candidate(
    view: GroupView, own: NodeProgress, others: Iterable[NodeProgress], *, first: bool = False
) -> NodeProgress | None:
    """The eligible node that should go before this one; `first`: this one goes first whatever it holds."""
    able = (other for other in others if view.in_sync is None or other.node in view.in_sync)
    best = max(able, key=lambda other: other.rank, default=own)
    return best if best.rank > own.rank or (first and best is not own) else None


def facts_of(settings: Settings, runtime: Runtime) -> dict[str, Any]:
    """A leader's facts: how it acknowledges, and the endpoint of each service."""
    return {"broker_role": settings.broker_role.value} | reachable(settings, runtime, MASTER)


def next_epoch(view: GroupView, own: int, known: int) -> int:
    """The epoch of a new leader: above the last term and every epoch that the node knows."""
    recorded = view.in_sync.epoch if view.in_sync is not None else 0
    return number_of(max(view.term, term_of(known), term_of(recorded)) + 1, own)


class Leadership:
    """The keys of one group. Raises EtcdUnavailable; MalformedKey for a key that somebody else has written."""

    def __init__(self, etcd: Etcd, cluster: str, name: str) -> None:
        self._etcd = etcd
        self._prefix = f"{keys_of(cluster)}{quote(name, safe='')}/"

    def read(self) -> GroupView:
        found = self._etcd.read(self._prefix)
        leader, term, in_sync = (found.get(self._prefix + name) for name in ("leader", "term", "in_sync"))
        return GroupView(
            leader=None if leader is None else _leader(leader),
            term=0 if term is None else _number(term, _facts(term), "term"),
            term_changed=0 if term is None else term.changed,
            in_sync=None if in_sync is None else _recorded(in_sync),
        )

    def claim(self, view: GroupView, epoch: int, lease: int, facts: Mapping[str, Any]) -> bool:
        """Claims the leadership, if there is still none and nothing else has changed since `view`.

        `facts`: what `facts_of` returns for the node.
        """
        unchanged, absent = self._as_seen(view)
        return self._etcd.swap(unchanged, [*absent, self._key("leader")], self._leader(epoch, lease, facts))

    def begin_term(self, view: GroupView, begins: RecordedSet, facts: Mapping[str, Any]) -> bool:
        """Has the leader of `view` publish its epoch, and record the in-sync set that it begins with."""
        assert view.leader is not None
        return self._record(view, begins, self._leader(begins.epoch, view.leader.lease, facts))

    def record(self, view: GroupView, wanted: RecordedSet) -> bool:
        """Records the leader's in-sync set. False when it lost the leadership, or the set has changed."""
        return self._record(view, wanted, {})

    def _record(self, view: GroupView, wanted: RecordedSet, puts: dict[str, tuple[bytes, int]]) -> bool:
        assert view.leader is not None
        unchanged, absent = {self._key("leader"): view.leader.changed}, []
        if view.in_sync is None:
            absent.append(self._key("in_sync"))
        else:
            unchanged[self._key("in_sync")] = view.in_sync.changed
        value = {"epoch": wanted.epoch, "members": ids_of(wanted.members), "floor": wanted.floor}
        return self._etcd.swap(unchanged, absent, puts | {self._key("in_sync"): (json.dumps(value).encode(), 0)})

    def _as_seen(self, view: GroupView) -> tuple[dict[str, int], list[str]]:
        seen = {"term": view.term_changed, "in_sync": view.in_sync.changed if view.in_sync is not None else 0}
        unchanged = {self._key(name): changed for name, changed in seen.items() if changed}
        return unchanged, [self._key(name) for name, changed in seen.items() if not changed]

    def _leader(self, epoch: int, lease: int, facts: Mapping[str, Any]) -> dict[str, tuple[bytes, int]]:
        leader = {"node": node_of(epoch), "epoch": epoch, **facts}
        term = {"term": term_of(epoch)}
        return {
            self._key("leader"): (json.dumps(leader).encode(), lease),
            self._key("term"): (json.dumps(term).encode(), 0),
        }

    def _key(self, name: str) -> str:
        return self._prefix + name


def _leader(found: KeyValue) -> Leader:
    facts = _facts(found)
    epoch = _number(found, facts, "epoch")
    return Leader(node_of(epoch), epoch, found.lease, found.created, found.changed, str(facts.get("broker_role", "")))


def _recorded(found: KeyValue) -> RecordedSet:
    facts = _facts(found)
    members = facts.get("members")
    if not isinstance(members, list) or not all(type(node) is int and 0 <= node <= NODE_MAX for node in members):
        raise MalformedKey(found.key, f"it names no nodes: {members!r}", found.changed)
    floor = facts.get("floor", FLOOR_UNKNOWN)
    if type(floor) is not int or not 1 <= floor <= NODE_MAX + 1:
        why = f"its floor is {floor!r}, and a set has 1 to {NODE_MAX + 1} members"
        raise MalformedKey(found.key, why, found.changed)
    return RecordedSet(_number(found, facts, "epoch"), mask_of(members), found.changed, floor)


def _facts(found: KeyValue) -> dict[str, Any]:
    try:
        facts = json.loads(found.value)
    except ValueError as error:
        raise MalformedKey(found.key, f"it is not JSON: {error}", found.changed) from None
    if not isinstance(facts, dict):
        raise MalformedKey(found.key, "it holds no JSON object", found.changed)
    return facts


def _number(found: KeyValue, facts: dict[str, Any], name: str) -> int:
    value = facts.get(name)
    if type(value) is not int or not 0 <= value < NODES << 48:
        raise MalformedKey(found.key, f"its {name} is {value!r}", found.changed)
    return value
