"""A node in a thread that keeps consumer groups too, as serve does, and misbehaves on order."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.client.standin import Standin
from towline.client.group.consumer import GroupConsumer
from towline.client.group.message import GroupMessage
from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.wire.frames import ANSWER, ASK, Kind, expect, json_part, kind_of, read_json
from towline.link.server import Request, Server

DEADLINE_S: Final = 60.0


@dataclass
class Group:
    """`held` are watches without an answer: member -> (peer, request id)."""

    generation: int = 1_000
    members: dict[str, str] = field(default_factory=dict)  # id -> instance
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)  # member -> what it wants
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    locks: dict[tuple[str, int], str] = field(default_factory=dict)
    resets: dict[str, int] = field(default_factory=dict)
    held: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    strategy: str = "average"
    started: set[str] = field(default_factory=set)


@dataclass
class GroupNode(Standin):
    expires_ms: int = 60_000
    lock_ms: int = 60_000
    settings: dict[str, Any] = field(default_factory=lambda: {"retryMaxTimes": 16})
    refusals: dict[str, str] = field(default_factory=dict)  # op -> error, until it is taken out
    stuck_locks: set[tuple[str, int]] = field(default_factory=set)  # nobody gets these

    def __post_init__(self) -> None:
        super().__post_init__()
        self.group = Group()
        self.commits: list[tuple[str, dict[str, dict[str, int]]]] = []

    # --- orders of a test

    def lose_members(self) -> None:
        """As after a restart of serve: the members are not known, their offsets are."""
        with self.changed:
            self.group.members.clear()
            self.group.locks.clear()

    def expel(self, member: str) -> None:
        self._calls.append(lambda server: self._expel(server, member))

    def reset(self, topic: str, offsets: dict[int, int]) -> None:
        def do(server: Server) -> None:
            with self.changed:
                self.group.generation += 1
                self.group.resets[topic] = self.group.generation
                self.group.offsets |= {(topic, queue): offset for queue, offset in offsets.items()}
            self._wake(server)

        self._calls.append(do)

    def grow(self, topic: str, queues: int) -> None:
        def do(server: Server) -> None:
            self.topics[topic] = queues
            self.group.generation += 1
            self._wake(server)

        self._calls.append(do)

    # --- answers

    def _handle(self, server: Server, request: Request) -> None:
        if kind_of(request.parts[0]) != Kind.ASK:
            super()._handle(server, request)
            return
        question = read_json(request.parts[1])
        if not str(question["op"]).startswith("group_"):
            super()._handle(server, request)
            return
        request_id = int(expect(ASK, request.parts[0])[1])
        self.asked.append(question)
        error = self.refusals.get(question["op"]) or self._report_trouble(question)
        if error:
            _say(server, request.peer, request_id, {"error": error, "sentence": f"told to say {error}"}, 1)
        elif question["op"] == "group_watch" and question["generation"] == self.group.generation:
            self.group.held[question["member"]] = (request.peer, request_id)
        else:
            facts = self._group_answer(server, question)
            _say(server, request.peer, request_id, facts, 0)

    def _report_trouble(self, question: dict[str, Any]) -> str:
        known = self.group.members.get(question.get("member", ""))
        if question["op"] == "group_join":
            return "MEMBER_TAKEN" if known not in (None, question["instance"]) else ""
        return "UNKNOWN_MEMBER" if question["op"] in ("group_watch", "group_commit") and known is None else ""

    def _group_answer(self, server: Server, question: dict[str, Any]) -> dict[str, Any]:
        group, member = self.group, question.get("member", "")
        match question["op"]:
            case "group_join":
                if group.members.get(member) is None:
                    group.generation += 1
                group.members[member] = question["instance"]
                group.topics[member] = question["topics"]
                group.strategy = question["strategy"]
                self._set_first(question)
                self._wake(server)
                return self._facts()
            case "group_watch":
                return self._facts()
            case "group_leave":
                self._expel(server, member)
            case "group_commit":
                self.commits.append((member, question["offsets"]))
                for topic, offsets in question["offsets"].items():
                    if question["generation"] < group.resets.get(topic, 0):
                        continue  # read before the reset
                    group.offsets |= {(topic, int(queue)): offset for queue, offset in offsets.items()}
            case "group_offsets":
                found = {
                    topic: {
                        str(queue): group.offsets.get((topic, queue), -1) for queue in range(self._queues_of(topic))
                    }
                    for topic in question["topics"]
                }
                return {"offsets": found}
            case "group_lock":
                keys = [(topic, queue) for topic, queue in question["queues"]]
                free = [key for key in keys if group.locks.get(key, member) == member and key not in self.stuck_locks]
                group.locks |= dict.fromkeys(free, member)
                return {"locked": [list(key) for key in free]}
            case "group_unlock":
                for topic, queue in question["queues"]:
                    group.locks.pop((topic, queue), None)
        return {}

    def _queues_of(self, topic: str) -> int:
        return self.topics.get(topic, 0)

    def _set_first(self, question: dict[str, Any]) -> None:
        if question["model"] == "broadcasting":
            return
        for topic in question["topics"]:
            known = topic in self.group.started
            self.group.started.add(topic)
            for queue in range(self._queues_of(topic)):
                last = question["from"] == "last" and not known and not topic.startswith("%RETRY%")
                first = len(self.queues[topic, queue]) if last else self.first[topic, queue]
                self.group.offsets.setdefault((topic, queue), first)

    def _facts(self) -> dict[str, Any]:
        group = self.group
        wanted = sorted({topic for topics in group.topics.values() for topic in topics})
        return {
            "generation": group.generation,
            "members": sorted(group.members),
            "queues": {topic: self._queues_of(topic) for topic in wanted},
            "strategy": group.strategy,
            "heartbeat_ms": self.expires_ms // 3,
            "expires_ms": self.expires_ms,
            "lock_ms": self.lock_ms,
            "resets": group.resets,
            "settings": self.settings,
            "warnings": [],
        }

    def _expel(self, server: Server, member: str) -> None:
        with self.changed:
            if self.group.members.pop(member, None) is not None:
                self.group.generation += 1
            self.group.topics.pop(member, None)
            self.group.locks = {key: owner for key, owner in self.group.locks.items() if owner != member}
            self.group.held.pop(member, None)
            self.changed.notify_all()
        self._wake(server)

    def _wake(self, server: Server) -> None:
        held, self.group.held = self.group.held, {}
        for member, (peer, request_id) in held.items():
            if member in self.group.members:
                _say(server, peer, request_id, self._facts(), 0)


def _say(server: Server, peer: bytes, request_id: int, facts: dict[str, Any], status: int) -> None:
    server.send(peer, [ANSWER.pack(Kind.ANSWER, status, request_id, 0), json_part(facts)])


# --- members of its group, and what they read


def member(node: GroupNode, topics: Any = "one", **settings: Any) -> GroupConsumer:
    settings = {"start": "first", "put_endpoint": node.endpoint, "timeout_ms": 5_000} | settings
    return GroupConsumer(node.endpoint, "g", topics, **settings)


def fill(node: GroupNode, count: int, topic: str = "one", queue_id: int = 0, **fields: Any) -> list[bytes]:
    bodies = [b"%s %d" % (topic.encode(), number) for number in range(count)]
    with Producer(node.endpoint) as producer:
        producer.send_batch(Message(topic, body, queue_id=queue_id, **fields) for body in bodies)
    return bodies


def read(consumer: GroupConsumer, count: int) -> list[GroupMessage]:
    deadline = time.monotonic() + DEADLINE_S
    found: list[GroupMessage] = []
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} messages came"
        found += consumer.poll(100)
    return found


def settle(*consumers: GroupConsumer, until: Callable[[], bool]) -> None:
    """Polls without messages until the queues stand as they should."""
    deadline = time.monotonic() + DEADLINE_S
    while not until():
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            assert consumer.poll(10) == []


def bodies_of(messages: list[GroupMessage]) -> list[bytes]:
    return [message.body for message in messages]
