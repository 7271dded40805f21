"""Connects groups with the rest of a serve process: the same few calls on a master and on a slave."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from towline.clock import boottime_ns
from towline.errors import MalformedFile, TowlineError
from towline.filter.subscriptions import FilterData
from towline.format.files.epochs import node_of
from towline.format.record.transactions import TRANSACTION_GROUP
from towline.format.wire.frames import ANSWER, Kind, json_part
from towline.format.wire.refusals import error_facts
from towline.link.server import Sent
from towline.log.state.epoch_file import EpochFile
from towline.node.process.context import Node
from towline.node.process.secret import SCHEDULE_ROLE
from towline.runtime.positions import Counter, Position
from towline.runtime.queue_ends import QueueEnds
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole
from towline.serve.catch_up import StillStarting
from towline.serve.filtering import bloom_of
from towline.serve.lookup import Lookup
from towline.serve.topics import TopicsView

from .errors import GroupRefused, Refusal
from .filters import GroupFilters
from .forwarding import Forwarder, MasterRefused, NotMaster
from .service import GroupService, Queues, ReplyChannel
from .slave import FollowedGroups, SlaveGroups
from .watching import ReplyAddress

PREFIX: Final = "group_"
_READING: Final = frozenset({"group_offsets", "group_describe"})

SendParts = Callable[[bytes, list[Any]], Sent]


class Groups(Protocol):
    """Consumer groups of a node. `cycle` has work from `due_ms` (monotonic) on."""

    due_ms: int

    def ask(self, peer: bytes, request_id: int, question: dict[str, Any]) -> None: ...

    def subscription(self, topic: str, group: str) -> FilterData | None: ...

    def cycle(self, now_ms: int) -> int: ...

    def gone(self, peer: bytes) -> None: ...

    def adjust(self, settings: Settings) -> None:
        """Works by these settings from now on."""
        ...

    def close(self) -> None: ...


def is_group_question(question: Mapping[str, Any]) -> bool:
    return str(question.get("op")).startswith(PREFIX)


def check_asker(question: Mapping[str, Any], role: object) -> None:
    """Raises GroupRefused NODES_OWN for a client that would change the group of the node's own transactions.

    `role` is that of its greeting; a process of the node has shown a secret for its role.
    """
    if question.get("group") == TRANSACTION_GROUP and role != SCHEDULE_ROLE and question["op"] not in _READING:
        sentence = f"{question['op']}: the group {TRANSACTION_GROUP!r} is the node's own"
        raise GroupRefused(Refusal.NODES_OWN, sentence)


def groups_of(node: Node, topics: TopicsView, ends: QueueEnds, lookup: Lookup, say: SendParts) -> Groups:
    """Builds the groups of this node. `say` sends the parts of an answer to a peer."""
    replies, view = _NodeReplies(node, say), _NodeView(node, topics, ends, lookup)
    if node.settings.broker_role is BrokerRole.SLAVE:
        followed = FollowedGroups(node.store, view.read_queues, view.bounds, node.log)
        return SlaveGroups(followed, Forwarder(node), node.clock, ReplyChannel(replies.send, replies.refuse))
    queues = Queues(
        view.read_queues,
        view.topics,
        view.bounds,
        view.search,
        view.settled,
        view.epoch,
        lookup.end_of_epoch,
        view.leads,
        view.succeeds,
    )
    line = ReplyChannel(replies.send, replies.refuse)
    service = GroupService(node.store, node.settings, node.clock, node.log, queues, line, _filters(node))
    service.load()
    return service


def _filters(node: Node) -> GroupFilters | None:
    """None where reput computes no bitmaps."""
    if not node.settings.enable_calc_filter_bit_map:
        return None
    get = node.positions.get
    newest = partial(get, Position.STORE_TIMESTAMP)  # also of what a killed reput had written units of already
    return GroupFilters(bloom_of(node.settings), node.clock, partial(get, Position.FILTERS), newest)


class _NodeReplies:
    def __init__(self, node: Node, say: SendParts) -> None:
        self._line, self._send = node.line, say

    def send(self, reply_to: ReplyAddress, facts: Mapping[str, Any]) -> Sent:
        head = ANSWER.pack(Kind.ANSWER, 0, reply_to.request_id, 0)
        return self._send(reply_to.peer, [head, json_part(dict(facts))])

    def refuse(self, reply_to: ReplyAddress, error: TowlineError) -> Sent:
        self._line.count(Counter.REFUSED)
        head = ANSWER.pack(Kind.ANSWER, 1, reply_to.request_id, 0)
        return self._send(reply_to.peer, [head, json_part(refusal_facts(error))])


class _NodeView:
    """The node's topics and queues, as groups read them."""

    def __init__(self, node: Node, topics: TopicsView, ends: QueueEnds, lookup: Lookup) -> None:
        self._topics, self._ends, self._lookup = topics, ends, lookup
        self._get = node.positions.get
        self._target = self._get(Position.APPENDED)
        self._epochs = EpochFile(node.store)

    def read_queues(self, topic: str) -> int:
        found = self._topics.table.topics.get(topic)
        if found is None:
            try:
                found = self._topics.get(topic)
            except MalformedFile:  # those that were known before still are
                return 0
        return 0 if found is None else found.read_queue_nums

    def topics(self) -> Mapping[str, object] | None:
        table = self._topics.table.topics
        return table or None

    def bounds(self, topic: str, queue: int) -> tuple[int, int]:
        place = self._ends.find(topic.encode(), queue)
        low, end = self._ends.bounds(place) if place >= 0 else (0, 0)
        low = max(low, self._topics.floor(topic, queue))
        return low, max(low, end)

    def search(self, topic: str, queue: int, time: int) -> int:
        question = {"op": "offset_by_time", "topic": topic, "queue": queue, "time": time}
        return int(self._lookup.answer(question).facts["offset"])

    def epoch(self) -> int:
        return self._get(Position.EPOCH)

    def leads(self) -> bool:
        """Whether no other epoch was promised, and the lease lasts; without etcd it never ends."""
        over = self._get(Position.LEASE_UNTIL) <= boottime_ns()
        return not over and self._get(Position.PROMISED) <= self._get(Position.EPOCH)

    def succeeds(self) -> bool:
        """Whether another node was the master of the previous epoch. Raises EpochsLost."""
        before = [epoch.number for epoch in self._epochs.load() if 0 < epoch.number < self.epoch()]
        return bool(before) and node_of(before[-1]) != node_of(self.epoch())

    def settled(self) -> bool:
        return self._get(Position.DISPATCHED) >= self._target


def refusal_facts(error: TowlineError) -> dict[str, Any]:
    """The facts of an error in an answer."""
    facts = error_facts(error)
    if isinstance(error, StillStarting):
        facts["error"] = Refusal.STARTING.name
    if isinstance(error, MasterRefused):
        return dict(error.facts)
    if isinstance(error, NotMaster) and error.masters:
        facts["master"] = error.masters
    if isinstance(error, GroupRefused):
        facts["error"] = error.code
        if error.retry_after_ms:
            facts["retry_after_ms"] = error.retry_after_ms
    return facts
