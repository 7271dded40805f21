"""Groups as the duty cycle of serve meets them: the same few calls on a master and on a slave."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from serve.filtering import bloom_of, facts_of
from serve.lookup import Lookup
from serve.settling import StillStarting
from serve.topics import TopicsView
from towline.clock import Clock, boottime_ns
from towline.errors import MalformedFile, TowlineError
from towline.filter.subscriptions import FilterData
from towline.format.files.epochs import node_of
from towline.format.record.transactions import TRANSACTION_GROUP
from towline.format.wire.frames import ANSWER, Kind, json_part
from towline.link.server import Sent
from towline.log.state.epoch_file import EpochFile
from towline.node.process.context import Node
from towline.node.process.secret import SCHEDULE_ROLE
from towline.runtime.positions import Counter, Position
from towline.runtime.queue_ends import QueueEnds
from towline.runtime.settings_model import BrokerRole

from .errors import GroupRefused, Refusal
from .filters import GroupFilters
from .followed import ANSWERED, FollowedGroups
from .forwarding import Forwarder, MasterRefused, NotMaster
from .service import GroupService, Line, Queues
from .watching import Asker

PREFIX: Final = "group_"
_READING: Final = frozenset({"group_offsets", "group_describe"})
_NEVER_MS: Final = 1 << 62
_LOOK_MS: Final = 5  # while the master's answer is waited for

Say = Callable[[bytes, list[Any]], Sent]


class Groups(Protocol):
    """`turn` has something to do from `due_ms` (monotonic) on."""

    due_ms: int

    def ask(self, peer: bytes, request_id: int, question: dict[str, Any]) -> None: ...

    def subscription(self, topic: str, group: str) -> FilterData | None: ...

    def turn(self, now_ms: int) -> int: ...

    def gone(self, peer: bytes) -> None: ...

    def close(self) -> None: ...


def is_group_question(question: Mapping[str, Any]) -> bool:
    return str(question.get("op")).startswith(PREFIX)


def check_asker(question: Mapping[str, Any], role: object) -> None:
    """Raises GroupRefused NODES_OWN for a client that would change the group of the node's own transactions.

    `role` is that of its greeting; the role of a piece of the node was shown with a secret.
    """
    if question.get("group") == TRANSACTION_GROUP and role != SCHEDULE_ROLE and question["op"] not in _READING:
        sentence = f"{question['op']}: the group {TRANSACTION_GROUP!r} is the node's own"
        raise GroupRefused(Refusal.NODES_OWN, sentence)


def groups_of(node: Node, topics: TopicsView, ends: QueueEnds, lookup: Lookup, say: Say) -> Groups:
    """`say` sends the parts of an answer to a peer."""
    wire, sight = _Wire(node, say), _Sight(node, topics, ends, lookup)
    if node.settings.broker_role is BrokerRole.SLAVE:
        followed = FollowedGroups(node.store, sight.read_queues, sight.bounds, node.log)
        return SlaveGroups(followed, Forwarder(node), node.clock, wire)
    queues = Queues(
        sight.read_queues,
        sight.topics,
        sight.bounds,
        sight.search,
        sight.settled,
        sight.epoch,
        lookup.end_of_epoch,
        sight.leads,
        sight.succeeds,
    )
    line = Line(wire.send, wire.refuse)
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


class SlaveGroups:
    """Nobody is waited for but the master, which answers what is forwarded to it."""

    def __init__(self, followed: FollowedGroups, forwarder: Forwarder, clock: Clock, wire: "_Wire") -> None:
        self._followed, self._forwarder, self._clock, self._wire = followed, forwarder, clock, wire
        self.due_ms = _NEVER_MS

    def ask(self, peer: bytes, request_id: int, question: dict[str, Any]) -> None:
        asker = Asker(peer, request_id)
        try:
            if question["op"] in ANSWERED:
                self._wire.send(asker, self._followed.answer(question))
                return
            self._forwarder.submit(asker, question)
        except TowlineError as error:
            self._wire.refuse(asker, error)
            return
        self.due_ms = min(self.due_ms, self._clock.monotonic_ms() + _LOOK_MS)

    def subscription(self, topic: str, group: str) -> FilterData | None:
        """None: this node's reput may have read a subscription later than the master's did."""
        return None

    def turn(self, now_ms: int) -> int:
        done = self._forwarder.finished()
        for asker, answer in done:
            if isinstance(answer, TowlineError):
                self._wire.refuse(asker, answer)
            else:
                self._wire.send(asker, answer)
        self.due_ms = now_ms + _LOOK_MS if self._forwarder.waiting else _NEVER_MS
        return len(done)

    def gone(self, peer: bytes) -> None:
        return

    def close(self) -> None:
        self._forwarder.close()


class _Wire:
    def __init__(self, node: Node, say: Say) -> None:
        self._line, self._say = node.line, say

    def send(self, asker: Asker, facts: Mapping[str, Any]) -> Sent:
        head = ANSWER.pack(Kind.ANSWER, 0, asker.request_id, 0)
        return self._say(asker.peer, [head, json_part(dict(facts))])

    def refuse(self, asker: Asker, error: TowlineError) -> Sent:
        self._line.count(Counter.REFUSED)
        head = ANSWER.pack(Kind.ANSWER, 1, asker.request_id, 0)
        return self._say(asker.peer, [head, json_part(refusal_facts(error))])


class _Sight:
    """Topics and queues as groups see them."""

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
        """No other epoch was promised, and the lease lasts; without etcd it does for ever."""
        over = self._get(Position.LEASE_UNTIL) <= boottime_ns()
        return not over and self._get(Position.PROMISED) <= self._get(Position.EPOCH)

    def succeeds(self) -> bool:
        """Another node opened the epoch before this one. Raises EpochsLost."""
        before = [epoch.number for epoch in self._epochs.load() if 0 < epoch.number < self.epoch()]
        return bool(before) and node_of(before[-1]) != node_of(self.epoch())

    def settled(self) -> bool:
        return self._get(Position.DISPATCHED) >= self._target


def refusal_facts(error: TowlineError) -> dict[str, Any]:
    """An error as answers carry it."""
    facts = facts_of(error)
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
