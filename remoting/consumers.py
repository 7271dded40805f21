"""Consumer groups of RocketMQ's clients: each is a member of the group that serve keeps, beside our own consumers.

A heartbeat joins a client to its groups. For each membership one watch is held at serve, so it lives as long as this
process and the client's connection do; what a watch tells of a change goes to the client as
NOTIFY_CONSUMER_IDS_CHANGED, and the client divides the queues itself, by the list of members that it asks for. Where a
group has no offset yet, the client decides where it begins: a join from here sets none.
"""

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from towline.errors import MalformedFrame
from towline.format.remoting.codes import RequestCode, RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.consumers import BROADCASTING, ConsumerData, SubscriptionData, subscription_of
from towline.format.remoting.headers import ConsumerGroup, ConsumerOffset, read_header
from towline.format.wire.frames import Buffer
from towline.limits import RETRY_TOPIC_PREFIX

from .connections import Answer, Connection, Connections
from .questions import Facts, Questions, refusal_in
from .readers import SERVE_AWAY, Readers
from .topics import TopicDesk

AGAIN_MS: Final = 500  # before a group is joined again after a refusal
_NOT_FOUND: Final = -1
_UNKNOWN_MEMBER: Final = "UNKNOWN_MEMBER"

Queue = tuple[str, int]


@dataclass(slots=True, eq=False)
class Membership:
    """One client in one group. `generation` 0: not joined."""

    client_id: str
    connection: Connection
    data: ConsumerData
    generation: int = 0
    members: list[str] = field(default_factory=list)
    joins: bool = False  # a question of that kind is under way
    watches: bool = False
    stale: bool = True  # its subscriptions are not the ones that serve knows
    again_ms: int = 0
    locked: set[Queue] = field(default_factory=set)
    waiting: list[Callable[[], None]] = field(default_factory=list)  # for the join
    left: bool = False

    @property
    def instance(self) -> str:
        return f"{self.connection.peer[0]}:{self.connection.peer[1]}"


class Consumers:
    """All memberships, and what is asked about groups."""

    def __init__(
        self,
        serve: Questions,
        readers: Readers,
        topics: TopicDesk,
        connections: Connections,
        broker: str,
        log: logging.Logger,
    ) -> None:
        self._serve, self._readers, self._topics = serve, readers, topics
        self._connections, self._broker, self._log = connections, broker, log
        self._known: dict[tuple[str, str], Membership] = {}  # by group and client
        self._of_group: dict[str, dict[str, Membership]] = {}
        self._of_client: dict[str, dict[str, Membership]] = {}
        self._of_connection: dict[Connection, set[Membership]] = {}
        self._due: dict[Membership, None] = {}  # who has to join or to watch, and may wait for `again_ms`

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """The newest of all members of the group here: each of them may have raised its version."""
        members = self._of_group.get(group, {}).values()
        found = [member.data.subscriptions[topic] for member in members if topic in member.data.subscriptions]
        return max(found, key=lambda each: each.version, default=None)

    def members_of(self, group: str) -> list[Membership]:
        """The clients of a group that are connected here, by their ids."""
        return [member for _, member in sorted(self._of_group.get(group, {}).items())]

    # --- heartbeats

    def heard(
        self, client_id: str, connection: Connection, data: Iterable[ConsumerData], then: Callable[[], None]
    ) -> None:
        """Joins a client to the groups of a heartbeat, takes it out of others, and calls `then` when serve knows."""
        wanted = {each.group: each for each in data}
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

    def ended(self, connection: Connection) -> None:
        """Takes out whoever was on a connection."""
        for member in list(self._of_connection.get(connection, ())):
            self._leave(member)

    def cycle(self, now_ms: int) -> None:
        """Joins and watches."""
        if self._serve.link is None:
            return
        for member in [each for each in self._due if now_ms >= each.again_ms]:
            if member.joins:
                del self._due[member]  # until that is answered
            elif member.generation == 0 or member.stale:
                self._join(member, now_ms)
            elif not member.watches:
                self._watch(member, now_ms)
            else:
                del self._due[member]

    @property
    def are_due(self) -> bool:
        """Whether a member has to be joined or watched, now or in a moment."""
        return bool(self._due)

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
            if data.model != BROADCASTING:
                self._make_retry_topic(data.group)
            member = self._known[data.group, client_id] = Membership(client_id, connection, data)
            self._of_group.setdefault(data.group, {})[client_id] = member
            self._of_client.setdefault(client_id, {})[data.group] = member
            self._of_connection.setdefault(connection, set()).add(member)
            self._due[member] = None
        elif member.data != data:
            changed = _readable(member.data) != _readable(data)
            member.data, member.stale = data, member.stale or changed
            self._due[member] = None
        return member if member.generation == 0 else None

    def _make_retry_topic(self, group: str) -> None:
        name = RETRY_TOPIC_PREFIX + group

        def made(problem: str) -> None:
            if problem:
                self._log.warning("%s: %s", name, problem)

        if self._topics.find(name) is None:
            self._topics.make_for(name, "", 1, made)

    def _join(self, member: Membership, now_ms: int) -> None:
        topics = {
            topic: {"expression": each.expression, "type": each.kind}
            for topic, each in member.data.subscriptions.items()
            if self._topics.find(topic) is not None
        }
        if not topics:
            member.again_ms = now_ms + AGAIN_MS
            _release(member)
            return
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
                self._log.warning("%s is not in group %s: %s", member.client_id, member.data.group, problem)
                member.again_ms = now_ms + AGAIN_MS
            else:
                member.stale = len(topics) != len(member.data.subscriptions)
                if member.stale:
                    member.again_ms = now_ms + AGAIN_MS
                self._changed(member, found)
            _release(member)

        member.joins = True
        if not self._serve.ask("group_join", facts, told):
            member.joins = False

    def _watch(self, member: Membership, now_ms: int) -> None:
        facts = {
            "group": member.data.group,
            "member": member.client_id,
            "instance": member.instance,
            "generation": member.generation,
        }

        def told(found: Facts | None, _: list[Buffer]) -> None:
            member.watches = False
            self._again(member)
            if found is None or "error" in found:
                member.generation = 0
                member.again_ms = 0 if found is not None and found["error"] == _UNKNOWN_MEMBER else now_ms + AGAIN_MS
            else:
                self._changed(member, found)

        member.watches = True
        if not self._serve.ask("group_watch", facts, told):
            member.watches = False

    def _again(self, member: Membership) -> None:
        if not member.left:
            self._due[member] = None

    def _changed(self, member: Membership, found: Facts) -> None:
        if member.left:
            return
        members = [str(each) for each in found["members"]]
        moved = member.generation != found["generation"]
        member.generation, member.members = int(found["generation"]), members
        if moved:
            fields = {"consumerGroup": member.data.group}
            code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            self._connections.ask(member.connection, code, fields, b"", one_way=True)

    def _leave(self, member: Membership) -> None:
        member.left, group = True, member.data.group
        self._due.pop(member, None)
        del self._known[group, member.client_id]
        _discard(self._of_group, group, member.client_id)
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
        newest = max(self._of_group.get(group, {}).values(), key=lambda each: each.generation, default=None)
        if newest is None or not newest.members:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        answer(ResponseCode.SUCCESS, body=json.dumps({"consumerIdList": newest.members}).encode())

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

    def check_filter(self, request: Command, answer: Answer) -> None:
        """CHECK_CLIENT_CONFIG. Raises MalformedFrame, RequestRefused."""
        match request.json():
            case {"subscriptionData": said}:
                self._readers.check(subscription_of(said)[1])
                answer(ResponseCode.SUCCESS)
            case _:
                raise MalformedFrame("what is to be checked has a subscriptionData")

    # --- offsets

    def offset(self, request: Command, answer: Answer) -> None:
        """QUERY_CONSUMER_OFFSET. Raises MalformedFrame, RequestRefused."""
        header = read_header(ConsumerOffset, request.fields)

        def begins(low: int, high: int) -> None:
            if low == 0 and header.set_zero_if_not_found:
                answer(ResponseCode.SUCCESS, {"offset": "0"})
            else:
                answer(ResponseCode.QUERY_NOT_FOUND, remark="not found: the group has no offset of this queue")

        def told(found: Facts | None, _: list[Buffer]) -> None:
            if found is None:
                answer(ResponseCode.SYSTEM_ERROR, remark=SERVE_AWAY)
                return
            stored = found.get("offsets", {}).get(header.topic, {}).get(str(header.queue_id), _NOT_FOUND)
            if stored != _NOT_FOUND:
                answer(ResponseCode.SUCCESS, {"offset": str(stored)})
                return
            try:
                self._readers.bounds(header.topic, header.queue_id, begins)
            except RequestRefused as refused:
                answer.refuse(refused)

        self._ask("group_offsets", {"group": header.consumer_group, "topics": [header.topic]}, told)

    def update_offset(self, request: Command, answer: Answer) -> None:
        """UPDATE_CONSUMER_OFFSET. Raises MalformedFrame, RequestRefused."""
        header = read_header(ConsumerOffset, request.fields)
        if header.commit_offset < 0:  # clients in Go and Node say so of a queue of which they know no offset
            answer(ResponseCode.SUCCESS)
            return

        def told(found: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(found, "serve")
            answer(ResponseCode.SYSTEM_ERROR if problem else ResponseCode.SUCCESS, remark=problem)

        facts = _commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        self._ask("group_commit", facts, told)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commits without an answer, as a pull does."""
        if queue_id >= 0:
            self._serve.ask("group_commit", _commit(group, topic, queue_id, offset), lambda found, rest: None)

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


def _commit(group: str, topic: str, queue_id: int, offset: int) -> dict[str, Any]:
    return {"group": group, "offsets": {topic: {str(queue_id): offset}}}


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
