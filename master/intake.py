"""Requests as they come off the socket: puts are stamped and wait for their turn, questions for a moment between."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from towline.errors import MalformedFrame
from towline.format.frames import ASK, Buffer, Group, Kind, decode_put, encode_put_refusal, expect, kind_of, read_json
from towline.format.refusals import Cause
from towline.limits import KIB, MIB, PARTS_MAX, REQUEST_GROUPS_MAX
from towline.link.server import Request, Sent, Server
from towline.node.context import Node
from towline.node.secret import SCHEDULE_ROLE
from towline.runtime.positions import Counter

from .admission import Refusal

# Beyond these, requests wait in ZeroMQ and are stamped late. What waits longer than wait_time_mills_in_send_queue is
# refused anyway: at 200 ms these are 160 MiB and 20,000 requests a second, less than put takes.
WAITING_MAX: Final = 4096
WAITING_BYTES_MAX: Final = 32 * MIB
GROUP_MEMORY: Final = 256  # bytes that a decoded group takes beside its topic: a request may be all groups, no records
TAKEN_PER_TURN: Final = 256  # so that answers are not kept back by what comes in
QUESTION_SIZE_MAX: Final = 4 * KIB
ASKED_NS: Final = 5_000_000  # spent on questions per turn: a new topic is several syncs, and puts wait for it


@dataclass(slots=True)
class Arrived:
    """A put that waits for its turn since `arrived_ms` (monotonic). `deadline` is ms since 1970, `memory` bytes.

    `trusted`: a piece of this node sent it.
    """

    peer: bytes
    request_id: int
    deadline: int
    groups: list[Group]
    records: Buffer
    arrived_ms: int
    memory: int
    trusted: bool


@dataclass(slots=True)
class Question:
    """`text` is a JSON object. Its sender cannot be cut off any more: the descriptor may be another connection's."""

    peer: bytes
    request_id: int
    text: bytes


class Intake:
    """The socket's requests in the order of their arrival. Used by whoever holds the front's lock."""

    def __init__(self, node: Node, server: Server, ask: Callable[[Question], None]) -> None:
        self._node = node
        self._server = server
        self._ask = ask
        self._line = node.line
        self._refused = node.positions.refused
        self._waiting: deque[Arrived] = deque()
        self._questions: deque[Question] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        return len(self._waiting) + len(self._questions) >= WAITING_MAX or self._bytes >= WAITING_BYTES_MAX

    def take(self) -> int:
        """Takes what the socket has, within bounds; how many requests that were."""
        done = 0
        now_ms = time.monotonic_ns() // 1_000_000
        while done < TAKEN_PER_TURN and not self.full:
            request = self._server.receive()
            if request is None:
                break
            done += 1
            self._sort(request, now_ms)
        return done

    def answer(self) -> int:
        """Answers questions, one at least if there are any, until ASKED_NS are over; how many."""
        done, began_ns = 0, time.monotonic_ns()
        while self._questions and (not done or time.monotonic_ns() - began_ns < ASKED_NS):
            self._ask(self._questions.popleft())
            done += 1
        return done

    def next(self) -> Arrived:
        """The oldest request that waits."""
        arrived = self._waiting.popleft()
        self._bytes -= arrived.memory
        return arrived

    def refuse(self, arrived: Arrived, refusal: Refusal) -> None:
        self._count(refusal.cause)
        answer = encode_put_refusal(
            arrived.request_id,
            refusal.status,
            refusal.rule,
            refusal.record,
            refusal.retry_after_ms,
            refusal.sentence,
        )
        if self._server.send(arrived.peer, [answer]) is Sent.PAUSED:
            self._server.forget(arrived.peer)  # it does not read its answers: it has to greet again (H20)

    def _sort(self, request: Request, now_ms: int) -> None:
        try:
            kind = kind_of(request.parts[0])
            if kind == Kind.PUT and len(request.parts) == 2:
                head, records = request.parts
                request_id, _epoch, deadline, groups = decode_put(head, REQUEST_GROUPS_MAX)
                memory = len(head) + len(records) + GROUP_MEMORY * len(groups)
                trusted = request.session.facts.get("role") == SCHEDULE_ROLE  # its greeting showed the secret
                self._waiting.append(
                    Arrived(request.peer, request_id, deadline, groups, records, now_ms, memory, trusted)
                )
                self._bytes += memory
            elif kind == Kind.ASK and len(request.parts) == 2:
                self._questions.append(_question(request))
            else:
                raise MalformedFrame(
                    f"kind {kind} in {len(request.parts)} parts is no request to put ({PARTS_MAX} at most)"
                )
        except MalformedFrame as error:
            self._count(Cause.MALFORMED)
            self._node.log.warning("a peer is dropped: %s", error)
            self._server.drop(request)

    def _count(self, cause: Cause) -> None:
        self._line.count(Counter.REFUSED)
        self._refused.add(cause, time.monotonic_ns())


def _question(request: Request) -> Question:
    head, text = request.parts
    if len(text) > QUESTION_SIZE_MAX:
        raise MalformedFrame(f"a question of {len(text)} bytes; {QUESTION_SIZE_MAX} are allowed")
    _, request_id = expect(ASK, head)
    read_json(text)
    return Question(request.peer, request_id, bytes(text))
