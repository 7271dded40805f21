"""Requests of the socket: puts are stamped and queued, questions wait until puts allow an answer."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from towline.errors import MalformedFrame
from towline.format.wire.frames import ASK, Kind, decode_put, expect, kind_of, read_json, with_status
from towline.format.wire.refusals import Cause
from towline.format.wire.status import PutStatus
from towline.limits import KIB, MIB, PARTS_MAX, REQUEST_GROUPS_MAX
from towline.link.put_ring import NodeRing
from towline.link.server import Request, Sent, Server
from towline.node.process.context import Node
from towline.node.store.put_checks import Refusal
from towline.runtime.positions import Counter

from .rings import NO_RINGS, Rings, RingTerms, encode_refusal, encode_repeat
from .sequences import Repeat
from .socket_table import Detached, SocketTable

# Beyond these, requests wait in ZeroMQ and are stamped late. What waits longer than wait_time_mills_in_send_queue is
# refused anyway: at 200 ms these are 160 MiB and 20,000 requests a second, less than put takes.
WAITING_MAX: Final = 4096
WAITING_BYTES_MAX: Final = 32 * MIB
TAKEN_PER_TURN: Final = 256  # so that answers are not kept back by what comes in
QUESTION_SIZE_MAX: Final = 4 * KIB
QUESTIONS_NS_MAX: Final = 5_000_000  # spent on questions per turn: puts wait meanwhile


@dataclass(frozen=True, slots=True)
class DetachedAnswers:
    """PUT_OK to requests of the socket: `Answers` of `acks`."""

    request_queue: "RequestQueue"
    rows: Detached

    def send(self, first: int, count: int, status: PutStatus) -> None:
        for number in range(first, first + count):
            answer = self.rows.answers[number]
            self.request_queue.send(self.rows.peers[number], with_status(answer, status) if status else answer)


@dataclass(slots=True)
class Question:
    """A request in JSON (`text`). Its sender cannot be cut off any more: the descriptor may be another connection's."""

    peer: bytes
    request_id: int
    text: bytes


class RequestQueue:
    """The socket's requests in the order of their arrival, and the rings beside it.

    Used by the thread that holds the stall responder's lock. `finish_changes` answers questions whose change of topics
    is durable, and returns how many.
    """

    def __init__(
        self,
        node: Node,
        server: Server,
        ask: Callable[[Question], None],
        terms: RingTerms = NO_RINGS,
        finish_changes: Callable[[], int] = lambda: 0,
    ) -> None:
        self._node = node
        self._server = server
        self._ask = ask
        self._finish_changes = finish_changes
        self._line = node.line
        self._refused = node.positions.refused
        self.socket_table = SocketTable(server, self._handle_other)
        self._questions: deque[Question] = deque()
        self.rings = Rings(terms, self._malformed)

    def __len__(self) -> int:
        return len(self.socket_table)

    @property
    def full(self) -> bool:
        return self._room <= 0 or self.socket_table.memory >= WAITING_BYTES_MAX

    @property
    def _room(self) -> int:
        return WAITING_MAX - len(self.socket_table) - len(self._questions)

    def receive(self, spins: int = 0) -> int:
        """Receives what the socket holds, within bounds; returns how many requests. For `spins` see
        `SocketTable.receive`."""
        if self.full:
            return 0
        return self.socket_table.receive(min(TAKEN_PER_TURN, self._room), WAITING_BYTES_MAX, spins)

    def answer(self) -> int:
        """Answers questions for QUESTIONS_NS_MAX, at least one, then those of finished changes; returns how many."""
        done, began_ns = 0, time.monotonic_ns()
        while self._questions and (not done or time.monotonic_ns() - began_ns < QUESTIONS_NS_MAX):
            self._ask(self._questions.popleft())
            done += 1
        return done + self._finish_changes()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and the last receive found the socket empty."""
        return self.socket_table.drained and not len(self.socket_table) and not self._questions

    def close(self) -> None:
        self.rings.close()
        self.socket_table.close()

    def send(self, peer: bytes, answer: bytes) -> None:
        if self._server.send(peer, [answer]) is Sent.PAUSED:
            self._server.cut_unread(peer)

    def refuse_next(self, refusal: Refusal) -> None:
        """Refuses the oldest request of the socket."""
        number = self.socket_table.next()
        if number is not None:
            self._count(refusal.cause)
            peer, request_id = self.socket_table.request_of(number)
            self.send(peer, encode_refusal(request_id, refusal))
            self.socket_table.release(number)

    def repeat_next(self, repeat: Repeat) -> "DetachedAnswers | None":
        """Takes the oldest request of the socket, which is stored already, and returns its answer; None if its sender
        has gone."""
        number = self.socket_table.next()
        if number is None:
            return None
        peer, request_id = self.socket_table.request_of(number)
        self.socket_table.release(number)
        return DetachedAnswers(self, Detached([peer], [encode_repeat(request_id, repeat)], [], []))

    def refuse_rings(self, refusal: Refusal) -> None:
        """Refuses what waits in rings that no kernel has."""
        for _ in range(self.rings.refuse_waiting(refusal)):
            self._count(refusal.cause)
        self.rings.wake()

    def refuse_in_ring(self, ring: NodeRing, number: int, refusal: Refusal) -> None:
        """Refuses the request of a ring that a kernel left in this row."""
        self._count(refusal.cause)
        self.rings.refuse(ring, number, refusal)

    def peer_cut(self) -> None:
        """Counts a peer that was cut off for exceeding its share."""
        self._count(Cause.PEER_CUT)

    def _malformed(self, why: str) -> None:
        self._count(Cause.MALFORMED)
        self._node.log.warning("%s", why)

    def _handle_other(self, request: Request) -> None:
        """Queues a request that is no put, as far as its head tells; drops a malformed one."""
        try:
            kind = kind_of(request.parts[0])
            if kind == Kind.PUT and len(request.parts) == 2:
                decode_put(request.parts[0], REQUEST_GROUPS_MAX)
            if kind != Kind.ASK or len(request.parts) != 2:
                raise MalformedFrame(
                    f"kind {kind} in {len(request.parts)} parts is no request to put ({PARTS_MAX} at most)"
                )
            self._questions.append(_question(request))
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
