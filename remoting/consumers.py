"""Consumer groups of RocketMQ's clients: each is a member of the group that serve keeps, beside our own consumers.

A heartbeat joins a client to its groups. For each membership a watch is held at serve, so it lives as long as this
process and the client's connection do; where that would be too many watches, it is looked for now and then. What is
told of a change goes to the client as NOTIFY_CONSUMER_IDS_CHANGED, and the client divides the queues itself, by the
list of members that it asks for. Where a group has no offset yet, the client decides where it begins: a join from here
sets none. How many members there are is bounded (`check`, `clients`): what serve answers at once must not be too much
for the link, which is everybody's.
"""

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from typing import Any, Final

from towline.errors import MalformedFrame
from towline.format.remoting.codes import RequestCode, RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.consumers import BROADCASTING, ConsumerData, Heartbeat, SubscriptionData
from towline.format.remoting.headers import ConsumerGroup, read_header
from towline.format.wire.frames import Buffer
from towline.limits import KIB, RETRY_TOPIC_PREFIX
from towline.link.permissions import Act

from .connections import Answer, Connection, Connections
from .questions import Facts, Questions, refusal_in
from .readers import SERVE_AWAY
from .topics import TopicDesk

AGAIN_MS: Final = 500  # before a group is joined again after a refusal; twice as long after each further one
AGAIN_MAX_MS: Final = 16_000
HEARTBEATS_MAX: Final = 16  # of one client, that wait for a group to be joined
WATCHES_MAX: Final = 256  # held at once: serve may answer all of them at once, and has room for so many
LOOK_AGAIN_MS: Final = 15_000  # how often who has no watch looks: Java's clients ask for the members every 20 s anyway
LISTED_MAX: Final = 32 * KIB  # of the ids of a group's members here, which each of them is told
RETRY_TOPICS_MAX: Final = 10_000  # that are there, before none is made any more: serve takes as many groups
MAKE_MAX: Final = 64  # of them that are made at once, where none were for a while
MAKE_EVERY_MS: Final = 100  # else one after the other: each costs put, and whoever looks at the topics, milliseconds
_UNKNOWN_MEMBER: Final = "UNKNOWN_MEMBER"
_STARTING: Final = "STARTING"

Queue = tuple[str, int]


@dataclass(slots=True, eq=False)
class Membership:
    """One client in one group. `generation` 0: not joined."""

    client_id: str
    connection: Connection
    data: ConsumerData
    generation: int = 0
    joins: bool = False  # a question of that kind is under way
    watches: bool = False
    stale: bool = True  # its subscriptions are not the ones that serve knows
    again_ms: int = 0
    refusals: int = 0  # one after the other
    missing: tuple[str, ...] = ()  # topics that it subscribes to, and that are not there
    locked: set[Queue] = field(default_factory=set)
    waiting: list[Callable[[], None]] = field(default_factory=list)  # for the join
    appointment: "Appointment | None" = None
    left: bool = False

    @property
    def instance(self) -> str:
        return f"{self.connection.peer[0]}:{self.connection.peer[1]}"


@dataclass(slots=True, order=True)
class Appointment:
    """A time at which a member is to join or watch again; none any more where it has left."""

    at_ms: int
    member: Membership | None = field(compare=False)


class Consumers:
    """All memberships, and what is asked about groups."""

    def __init__(
        self,
        serve: Questions,
        topics: TopicDesk,
        connections: Connections,
        broker: str,
        log: logging.Logger,
    ) -> None:
        self._serve, self._topics = serve, topics
        self._connections, self._broker, self._log = connections, broker, log
        self._known: dict[tuple[str, str], Membership] = {}  # by group and client
        self._of_group: dict[str, dict[str, Membership]] = {}
        self._of_client: dict[str, dict[str, Membership]] = {}
        self._of_connection: dict[Connection, set[Membership]] = {}
        self._members: dict[str, list[str]] = {}  # of all groups that have one here, as serve told them last
        self._due: dict[Membership, None] = {}  # who has to join or to watch
        self._lacking: set[Membership] = set()  # who misses topics
        self._known_changes, self._compare_at = topics.changes, 0
        self._later: list[Appointment] = []  # a heap of those who have to, but not yet
        self._watching = 0  # watches that are held
        self._retry_topics = topics.count_of(RETRY_TOPIC_PREFIX)  # that are there at most
        self._counted_at = topics.changes
        self._unmade: dict[str, None] = {}  # groups whose retry topic is to be made
        self._makes_of_ms = 0  # what is made is booked up to then, MAKE_EVERY_MS for each
        self._makes = 0  # that put has not answered

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """The newest of all members of the group here: each of them may have raised its version."""
        members = self._of_group.get(group, {}).values()
        found = [member.data.subscriptions[topic] for member in members if topic in member.data.subscriptions]
        return max(found, key=lambda each: each.version, default=None)

    def members_of(self, group: str) -> list[Membership]:
        """The clients of a group that are connected here, by their ids."""
        return [member for _, member in sorted(self._of_group.get(group, {}).items())]

    def known_members(self, group: str) -> list[str]:
        """The ids of all members of a group that has a client here, as serve told them last."""
        return self._members.get(group, [])

    # --- heartbeats

    def check(self, said: Heartbeat) -> None:
        """Raises RequestRefused for a heartbeat that waits beside too many, or makes a group too large, or too many."""
        waiting = (self._known.get((group, said.client_id)) for group in said.consumers)
        if any(member is not None and len(member.waiting) >= HEARTBEATS_MAX for member in waiting):
            why = f"{HEARTBEATS_MAX} heartbeats wait for serve to know of the client; try again"
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, why)
        for group in said.consumers:
            others = self._of_group.get(group, {})
            if said.client_id not in others and sum(map(len, others)) + len(said.client_id) > LISTED_MAX:
                why = f"{len(others)} members of the group {group!r} are here, whose names take {LISTED_MAX} bytes"
                raise RequestRefused(ResponseCode.SYSTEM_BUSY, f"{why}; no more may: use several groups")
        groups = [each.group for each in said.consumers.values() if each.model != BROADCASTING]
        makes = sum(not self._has_retry_topic(group) and group not in self._unmade for group in groups)
        if makes:
            self._check_retry_topics(makes)
            self._retry_topics += makes

    def _check_retry_topics(self, makes: int) -> None:
        """Raises RequestRefused where so many more would be too many. Counted anew when they seem to be, and the topics
        have changed."""
        if self._retry_topics + makes > RETRY_TOPICS_MAX and self._counted_at != self._topics.changes:
            self._counted_at = self._topics.changes
            self._retry_topics = self._topics.count_of(RETRY_TOPIC_PREFIX) + len(self._unmade)
        if self._retry_topics + makes > RETRY_TOPICS_MAX:
            why = f"{self._retry_topics} groups have a topic {RETRY_TOPIC_PREFIX}... here, and {RETRY_TOPICS_MAX} may"
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, f"{why}: delete groups that nobody uses")

    def heard(
        self, client_id: str, connection: Connection, data: Iterable[ConsumerData], then: Callable[[], None]
    ) -> None:
        """Joins a client to the groups of a heartbeat, takes it out of others, and calls `then` when serve knows."""
        wanted = {each.group: each for each in data}
        if not all(self._topics.has(topic) for each in wanted.values() for topic in each.subscriptions):
            self._topics.refresh()
        for group, member in list(self._of_client.get(client_id, {}).items()):
            if group not in wanted:
                self._leave(member)
        waits = [self._update(client_id, connection, each) for each in wanted.values()]
        joining = [member for member in waits if member is not None]
        left = len(joining)
        if not left:
            then()
            return

        def one_less() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        for member in joining:
            member.waiting.append(one_less)

    def unregister(self, client_id: str, group: str) -> None:
        member = self._known.get((group, client_id))
        if member is not None:
            self._leave(member)

    def leave_what_is_not_permitted(self, connection: Connection) -> None:
        """Takes out of their groups those on a connection whose key does not reach them, or their topics, any more."""
        permit = connection.permit
        for member in list(self._of_connection.get(connection, ())):
            data = member.data
            if permit is not None and not (
                permit.may(Act.JOIN, data.group) and all(permit.may(Act.CONSUME, topic) for topic in data.subscriptions)
            ):
                self._leave(member)

    def ended(self, connection: Connection) -> None:
        """Takes out whoever was on a connection."""
        for member in list(self._of_connection.get(connection, ())):
            self._leave(member)

    def cycle(self, now_ms: int) -> None:
        """Makes topics, joins and watches."""
        self._make_retry_topics(now_ms)
        if self._serve.link is None:
            return
        if self._lacking and self._known_changes != self._topics.changes and now_ms >= self._compare_at:
            self._known_changes, self._compare_at = self._topics.changes, now_ms + AGAIN_MS
            for member in self._lacking:
                if any(map(self._topics.has, member.missing)):
                    member.stale = True
                    self._due[member] = None
        while self._later and self._later[0].at_ms <= now_ms:
            found = heappop(self._later).member
            if found is not None:
                found.appointment = None
                self._due[found] = None
        for member in list(self._due):
            if member.again_ms > now_ms:
                self._put_off(member)
            elif member.joins:
                del self._due[member]  # until that is answered
            elif member.generation == 0 or member.stale:
                self._join(member, now_ms)
            elif not member.watches:
                self._watch(member, now_ms)
            else:
                del self._due[member]

    def _put_off(self, member: Membership) -> None:
        del self._due[member]
        if member.appointment is None:
            member.appointment = Appointment(member.again_ms, member)
            heappush(self._later, member.appointment)

    @property
    def are_due(self) -> bool:
        """Whether a member has to be joined or watched, now or in a moment."""
        return bool(self._due or self._later or self._unmade)

    def lost(self) -> None:
        """Serve has ended, and its members with it."""
        for member in self._known.values():
            member.generation, member.joins, member.watches = 0, False, False
            self._due[member] = None

    def _update(self, client_id: str, connection: Connection, data: ConsumerData) -> Membership | None:
        """The membership, where serve is still to hear of it."""
        member = self._known.get((data.group, client_id))
        if member is not None and member.connection is not connection:
            self._leave(member)
            member = None
        if member is None:
            if data.model != BROADCASTING and not self._has_retry_topic(data.group):
                self._unmade[data.group] = None
            member = self._known[data.group, client_id] = Membership(client_id, connection, data)
            self._of_group.setdefault(data.group, {})[client_id] = member
            self._of_client.setdefault(client_id, {})[data.group] = member
            self._of_connection.setdefault(connection, set()).add(member)
            self._due[member] = None
        elif member.data != data:
            changed = _readable(member.data) != _readable(data)
            member.data, member.stale = data, member.stale or changed
            self._due[member] = None
        if member.generation or member.refusals:
            return None
        self._due[member] = None
        return member

    def _has_retry_topic(self, group: str) -> bool:
        """Whether it is there, or will be."""
        name = RETRY_TOPIC_PREFIX + group
        return self._topics.has(name) or self._topics.is_being_made(name)

    def _make_retry_topics(self, now_ms: int) -> None:
        """Makes as many as it is time for: put answers those before first."""
        if not self._unmade or self._makes:
            return
        self._makes_of_ms = max(self._makes_of_ms, now_ms - MAKE_MAX * MAKE_EVERY_MS)
        for group in list(islice(self._unmade, (now_ms - self._makes_of_ms) // MAKE_EVERY_MS)):
            name = RETRY_TOPIC_PREFIX + group

            def made(problem: str, name: str = name) -> None:
                self._makes -= 1
                if problem:
                    self._log.warning("%s: %s", name, problem)

            self._makes_of_ms += MAKE_EVERY_MS
            if self._topics.find(name) is None:
                try:
                    self._topics.make_for(name, "", 1, made)
                except RequestRefused:  # put is away
                    return
                self._makes += 1
            del self._unmade[group]

    def _join(self, member: Membership, now_ms: int) -> None:
        subscriptions = member.data.subscriptions
        member.missing = tuple(topic for topic in subscriptions if not self._topics.has(topic))
        (self._lacking.add if member.missing else self._lacking.discard)(member)
        if len(member.missing) == len(subscriptions):
            del self._due[member]
            _release(member)
            return
        topics = {
            topic: {"expression": each.expression, "type": each.kind}
            for topic, each in subscriptions.items()
            if self._topics.has(topic)
        }
        facts = {
            "group": member.data.group,
            "member": member.client_id,
            "instance": member.instance,
            "model": "broadcasting" if member.data.model == BROADCASTING else "clustering",
            "topics": topics,
            "from": "none",
        }

        def told(found: Facts | None, _: list[Buffer]) -> None:
            member.joins = False
            self._again(member)
            problem = refusal_in(found, "serve")
            if found is None or problem:
                if not member.refusals:
                    self._log.warning("%s is not in group %s: %s", member.client_id, member.data.group, problem)
                member.again_ms = now_ms + min(AGAIN_MAX_MS, AGAIN_MS << min(member.refusals, 8))
                member.refusals += found is not None and found["error"] != _STARTING
                member.stale = True
            else:
                member.refusals = 0
                self._changed(member, found)
            _release(member)

        member.joins, member.stale = True, False
        if not self._serve.ask("group_join", facts, told):
            member.joins, member.stale = False, True

    def _watch(self, member: Membership, now_ms: int) -> None:
        holds = self._watching < WATCHES_MAX
        facts = {
            "group": member.data.group,
            "member": member.client_id,
            "instance": member.instance,
            "generation": member.generation if holds else 0,  # of another one serve tells at once
        }

        def told(found: Facts | None, _: list[Buffer]) -> None:
            self._watching -= holds
            member.watches = False
            pause_ms = LOOK_AGAIN_MS if found is None else int(found.get("heartbeat_ms", LOOK_AGAIN_MS))
            member.again_ms = 0 if holds else now_ms + min(LOOK_AGAIN_MS, pause_ms)
            self._again(member)
            if found is None or "error" in found:
                member.generation = 0
                member.again_ms = 0 if found is not None and found["error"] == _UNKNOWN_MEMBER else now_ms + AGAIN_MS
            else:
                self._changed(member, found)

        member.watches = True
        self._watching += holds
        if not self._serve.ask("group_watch", facts, told, held=holds):
            self._watching -= holds
            member.watches = False

    def _again(self, member: Membership) -> None:
        if not member.left:
            self._due[member] = None

    def _changed(self, member: Membership, found: Facts) -> None:
        if member.left:
            return
        moved = member.generation != found["generation"]
        member.generation = int(found["generation"])
        self._members[member.data.group] = [str(each) for each in found["members"]]
        if moved:
            fields = {"consumerGroup": member.data.group}
            code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            self._connections.ask(member.connection, code, fields, b"", one_way=True)

    def _leave(self, member: Membership) -> None:
        member.left, group = True, member.data.group
        self._due.pop(member, None)
        self._lacking.discard(member)
        if member.appointment is not None:
            member.appointment.member = None  # nothing is kept of it until then
        del self._known[group, member.client_id]
        _discard(self._of_group, group, member.client_id)
        if group not in self._of_group:
            self._members.pop(group, None)
            self._unmade.pop(group, None)
        _discard(self._of_client, member.client_id, group)
        of_connection = self._of_connection[member.connection]
        of_connection.discard(member)
        if not of_connection:
            del self._of_connection[member.connection]
        facts = {"group": member.data.group, "member": member.client_id, "instance": member.instance}
        self._serve.ask("group_leave", facts, lambda found, rest: None)
        _release(member)

    # --- questions

    def members(self, request: Command, answer: Answer) -> None:
        """GET_CONSUMER_LIST_BY_GROUP. Raises MalformedFrame, RequestRefused."""
        group = read_header(ConsumerGroup, request.fields).consumer_group
        found = self.known_members(group)
        if not found:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        answer(ResponseCode.SUCCESS, body=json.dumps({"consumerIdList": found}).encode())

    def lock(self, request: Command, answer: Answer) -> None:
        """LOCK_BATCH_MQ. Raises MalformedFrame, RequestRefused."""
        member, queues = self._queues(request)

        def told(found: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(found, "serve")
            if found is None or problem:
                answer(ResponseCode.SYSTEM_ERROR, remark=problem)
                return
            locked = {(str(topic), int(queue)) for topic, queue in found["locked"]}
            member.locked = (member.locked - set(queues)) | locked
            answer(ResponseCode.SUCCESS, body=self._listed("lockOKMQSet", locked))

        self._ask("group_lock", self._claim(member, queues), told)

    def unlock(self, request: Command, answer: Answer) -> None:
        """UNLOCK_BATCH_MQ. Raises MalformedFrame, RequestRefused."""
        member, queues = self._queues(request)

        def told(found: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(found, "serve")
            answer(ResponseCode.SYSTEM_ERROR if problem else ResponseCode.SUCCESS, remark=problem)

        facts = self._claim(member, queues)
        member.locked -= set(queues)
        self._ask("group_unlock", facts, told)

    # --- helpers

    def _queues(self, request: Command) -> tuple[Membership, list[Queue]]:
        match request.json():
            case {"consumerGroup": str(group), "clientId": str(client_id), "mqSet": list(found)}:
                member = self._known.get((group, client_id))
                if member is None:
                    raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{client_id!r} is no member of {group!r}")
                return member, [_queue(each) for each in found]
        raise MalformedFrame("a lock has a consumerGroup, a clientId and a mqSet")

    def _claim(self, member: Membership, queues: list[Queue]) -> dict[str, Any]:
        there = [(topic, queue) for topic, queue in queues if self._has(topic, queue)]
        return {
            "group": member.data.group,
            "member": member.client_id,
            "instance": member.instance,
            "queues": [list(each) for each in there],
            "claims": [list(each) for each in sorted(member.locked)],
        }

    def _has(self, topic: str, queue: int) -> bool:
        found = self._topics.find(topic)
        return found is not None and queue < found.read_queue_nums

    def _listed(self, name: str, queues: Iterable[Queue]) -> bytes:
        rows = [{"brokerName": self._broker, "queueId": queue, "topic": topic} for topic, queue in sorted(queues)]
        return json.dumps({name: rows}).encode()

    def _ask(self, op: str, facts: Facts, told: Callable[[Facts | None, list[Buffer]], None]) -> None:
        if not self._serve.ask(op, facts, told):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, SERVE_AWAY)


def _readable(data: ConsumerData) -> dict[str, tuple[str, str]]:
    """What of the subscriptions counts in a group: clients raise their versions also without a change."""
    return {topic: (each.expression, each.kind) for topic, each in data.subscriptions.items()}


def _queue(said: Any) -> Queue:
    match said:
        case {"topic": str(topic), "queueId": int(queue)} if queue >= 0:
            return topic, queue
    raise MalformedFrame("a queue has a topic and a queueId")


def _discard(table: dict[str, dict[str, Membership]], name: str, member: str) -> None:
    of_name = table[name]
    del of_name[member]
    if not of_name:
        del table[name]


def _release(member: Membership) -> None:
    waiting, member.waiting = member.waiting, []
    for then in waiting:
        then()
