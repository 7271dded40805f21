"""A node in a thread: it answers puts, pulls and questions from memory as the processes do, and misbehaves on order."""

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.client.front import Front
from towline.format.java_hash import string_hash
from towline.format.record.properties import KEYS, TAGS
from towline.format.record.properties import decode as decode_properties
from towline.format.record.record import Record, decode, encode
from towline.format.wire.frames import (
    ANSWER,
    ASK,
    PULL_ANSWER,
    Kind,
    Pull,
    decode_pull,
    decode_put,
    encode_put_answer,
    encode_put_refusal,
    expect,
    json_part,
    kind_of,
    read_json,
)
from towline.format.wire.status import GetStatus, PutStatus
from towline.limits import REQUEST_GROUPS_MAX
from towline.link.context import close_context, new_context
from towline.link.endpoints import ipc_endpoint
from towline.link.poller import Poller
from towline.link.server import Request, Server

STORE_TIME = 1_700_000_000_000


@dataclass(slots=True)
class Put:
    """One put as it came."""

    request_id: int
    deadline: int
    groups: list[tuple[str, int, int]]  # topic, queue, records
    records: bytes


@dataclass(slots=True)
class Refuse:
    status: PutStatus
    sentence: str = "told to refuse"
    retry_after: int = 0


@dataclass(slots=True)
class Store:
    """Store, and answer with this status."""

    status: PutStatus = PutStatus.PUT_OK


@dataclass(slots=True)
class StoreAndCut:
    """Store, and cut the connection without an answer."""


@dataclass(slots=True)
class Silence:
    """No answer, nothing stored."""


Order = Refuse | Store | StoreAndCut | Silence


@dataclass
class Standin:
    directory: Path
    topics: dict[str, int]  # name -> queues
    orders: deque[Order] = field(default_factory=deque)  # for the next puts; afterwards Store()
    judge: Callable[[Put], Order | None] = lambda put: None
    welcome: dict[str, Any] = field(default_factory=dict)
    port: int = 0  # where clients come over TCP, beside its socket
    own: dict[str, str] = field(default_factory=lambda: {"role": "put", "cluster": "c1", "store": "s1", "name": "a"})

    def __post_init__(self) -> None:
        self.endpoint = ipc_endpoint(self.directory, "node")
        self.puts: list[Put] = []
        self.asked: list[dict[str, Any]] = []
        self.pulled: list[Pull] = []
        self.queues: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.first: dict[tuple[str, int], int] = defaultdict(int)  # lowest offset that can be read
        self.unreadable: set[str] = set()  # topics whose pulls are refused as NO_PERMISSION
        self.corrects = True  # False: as a slave, which leaves a wrong offset as it was asked
        self.epoch_ends: dict[str, int] = {}  # of the epoch before, by queue
        self.extra: list[bytes] = []  # records served in answer to queries
        self.found: dict[str, bool] = {}  # more facts of such an answer
        self.damage: deque[Callable[[list[bytes]], list[bytes]]] = deque()  # of the next answers to pulls with records
        self.starting = 0  # so often bounds are not known yet
        self.greeted = 0
        self.physical = 0
        self.changed = threading.Condition()
        self._held: list[tuple[bytes, Pull]] = []
        self._stop = threading.Event()
        self._calls: deque[Callable[[Server], None]] = deque()
        self._thread: threading.Thread | None = None
        self._front = Front(self.port, self.endpoint) if self.port else None

    def start(self) -> None:
        self._stop.clear()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(60)
        if self._front is not None:
            self._front.start()

    def stop(self) -> None:
        if self._front is not None:
            self._front.stop()
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def wait_for(self, condition: Callable[[], Any], timeout_s: float = 60) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, timeout_s), "the node did not see it"

    def stored(self, topic: str) -> list[Record]:
        """In the order of queues, then offsets."""
        return [decode(record) for key in sorted(self.queues) if key[0] == topic for record in self.queues[key]]

    def forget_everyone(self) -> None:
        def forget(server: Server) -> None:
            for peer in list(server.sessions):
                server.evict(peer)

        self._calls.append(forget)

    # --- the thread

    def _run(self, started: threading.Event) -> None:
        context = new_context()
        server = Server(context, [self.endpoint], own=self.own, greet=self._greet)
        poller = Poller(server)
        started.set()
        while not self._stop.is_set():
            poller.poll(5)
            while self._calls:
                self._calls.popleft()(server)
            while (request := server.receive()) is not None:
                with self.changed:
                    self._handle(server, request)
                    self.changed.notify_all()
            with self.changed:
                self._serve_held(server)
                self.changed.notify_all()
        self._held.clear()
        server.close()
        close_context(context)

    def _greet(self, _: dict[str, Any]) -> dict[str, Any]:
        self.greeted += 1
        return self.welcome

    def _handle(self, server: Server, request: Request) -> None:
        kind = kind_of(request.parts[0])
        if kind == Kind.PUT:
            self._put(server, request)
        elif kind == Kind.ASK:
            _, request_id = expect(ASK, request.parts[0])
            question = read_json(request.parts[1])
            self.asked.append(question)
            server.send(request.peer, self._answer(int(request_id), question))
        else:
            pull = decode_pull(request.parts)
            self._held.append((request.peer, pull))
            self.pulled.append(pull)

    def _put(self, server: Server, request: Request) -> None:
        request_id, _, deadline, groups = decode_put(request.parts[0], REQUEST_GROUPS_MAX)
        described = [(group.topic.decode(), group.queue_id, group.count) for group in groups]
        put = Put(request_id, deadline, described, bytes(request.parts[1]))
        self.puts.append(put)
        order = self.judge(put) or (self.orders.popleft() if self.orders else Store())
        if isinstance(order, Refuse):
            refusal = encode_put_refusal(request_id, order.status, 0, -1, order.retry_after, order.sentence)
            server.send(request.peer, [refusal])
        elif not isinstance(order, Silence):
            places = self._store(put)
            if isinstance(order, StoreAndCut):
                server.drop(request)
            else:
                server.send(request.peer, [encode_put_answer(request_id, order.status, places)])

    def _store(self, put: Put) -> list[tuple[int, int]]:
        at, places = 0, []
        for topic, queue_id, count in put.groups:
            queue = self.queues[topic, queue_id]
            places.append((len(queue), self.physical))
            for _ in range(count):
                record = decode(put.records, at)
                assert (record.topic.decode(), record.queue_id) == (topic, queue_id)
                size = int.from_bytes(put.records[at : at + 4], "big")
                queue.append(stamped(put.records[at : at + size], len(queue), self.physical))
                self.physical += size
                at += size
        assert at == len(put.records)
        return places

    # --- questions

    def _answer(self, request_id: int, question: dict[str, Any]) -> list[bytes]:
        topic = question.get("topic", "")
        if question["op"] == "create_topic":
            self.topics[topic] = question["queues"]
        if topic and topic not in self.topics:
            return _error(request_id, "UnknownTopic", f"no topic {topic}")
        match question["op"]:
            case "route" | "create_topic":
                return encode_facts(request_id, self._route(topic))
            case "topics":
                return encode_facts(request_id, {"topics": [self._route(name) for name in self.topics]})
            case "bounds" if self.starting:
                self.starting -= 1
                return _error(request_id, "STARTING", "still starting")
            case "bounds":
                bounds = [
                    {"queue": queue, "min": self.first[topic, queue], "max": len(self.queues[topic, queue])}
                    for queue in range(self.topics[topic])
                ]
                return encode_facts(request_id, {"topic": topic, "queues": bounds})
            case "epoch_ends":
                return encode_facts(request_id, {"epoch": self.welcome.get("epoch", 0), "ends": self.epoch_ends})
            case "offset_by_time":
                records = map(decode, self.queues[topic, question["queue"]])
                times = [record.store_timestamp for record in records]
                return encode_facts(request_id, {"offset": sum(time < question["time"] for time in times)})
            case "query_key" | "query_unique_key" | "query_id" | "query_offset" | "query_time":
                head = ANSWER.pack(Kind.ANSWER, 0, request_id, len(self.extra))
                parts = [head, json_part({"found": len(self.extra), **self.found})]
                return parts + ([sizes_of(self.extra), b"".join(self.extra)] if self.extra else [])
        return _error(request_id, "MalformedFrame", f"no operation {question['op']}")

    def _route(self, topic: str) -> dict[str, Any]:
        queues = self.topics[topic]
        return {"topic": topic, "write_queues": queues, "read_queues": queues, "perm": 6}

    # --- pulls

    def _serve_held(self, server: Server) -> None:
        held = []
        for peer, pull in self._held:
            answer = self._pull(pull)
            if answer is None:
                held.append((peer, pull))
            else:
                server.send(peer, self.damage.popleft()(answer) if self.damage and len(answer) == 3 else answer)
        self._held = held

    def _pull(self, pull: Pull) -> list[bytes] | None:
        """None while it is held. Without `suspend` it is answered at once."""
        key = (pull.topic.decode(), pull.queue_id)
        first, queue = self.first[key], self.queues[key]
        if key[0] in self.unreadable:
            why = json_part({"error": "NO_PERMISSION", "sentence": f"{key[0]} is not readable"})
            return [*_pull_answer(pull, GetStatus.REFUSED, [], pull.offset, 0, 0), why]
        if pull.offset < first:
            following = first if self.corrects else pull.offset
            return _pull_answer(pull, GetStatus.OFFSET_TOO_SMALL, [], following, first, len(queue))
        if pull.offset > len(queue):
            return _pull_answer(pull, GetStatus.OFFSET_OVERFLOW_BADLY, [], len(queue), first, len(queue))
        if pull.offset == len(queue):
            if pull.suspend:
                return None
            return _pull_answer(pull, GetStatus.OFFSET_OVERFLOW_ONE, [], pull.offset, first, len(queue))
        end = min(len(queue), pull.offset + pull.max_count)
        found: list[bytes] = []
        size = 0
        for record in queue[pull.offset : end]:
            if found and size + len(record) > pull.max_bytes:
                end = pull.offset + len(found)
                break
            found.append(record)
            size += len(record)
        if pull.codes:
            found = [record for record in found if _tag_hash(record) in pull.codes]
        status = GetStatus.FOUND if found else GetStatus.NO_MATCHED_MESSAGE
        return _pull_answer(pull, status, found, end, first, len(queue))


def stamped(record: bytes, queue_offset: int, physical_offset: int) -> bytes:
    fields = {name: getattr(decode(record), name) for name in Record.__slots__}
    fields |= {"queue_offset": queue_offset, "physical_offset": physical_offset}
    return encode(Record(**fields | {"store_timestamp": STORE_TIME + 1000 * queue_offset}))


def sizes_of(records: list[bytes]) -> bytes:
    return np.array([len(record) for record in records], dtype=">u4").tobytes()


def keys_of(record: Record) -> str:
    return decode_properties(record.properties).get(KEYS, "")


def _tag_hash(record: bytes) -> int:
    return string_hash(decode_properties(decode(record).properties).get(TAGS, ""))


def encode_facts(request_id: int, facts: dict[str, Any]) -> list[bytes]:
    return [ANSWER.pack(Kind.ANSWER, 0, request_id, 0), json_part(facts)]


def _error(request_id: int, error: str, sentence: str) -> list[bytes]:
    return [ANSWER.pack(Kind.ANSWER, 1, request_id, 0), json_part({"error": error, "sentence": sentence})]


def _pull_answer(
    pull: Pull, status: GetStatus, found: list[bytes], following: int, first: int, end: int
) -> list[bytes]:
    facts = (pull.queue_id, pull.request_id, len(found), following, first, end, 0)
    head = PULL_ANSWER.pack(Kind.PULL_ANSWER, status, *facts)
    return [head, sizes_of(found), b"".join(found)] if found else [head]
