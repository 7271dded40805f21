"""Requests as they come off the socket: puts are stamped and wait for their turn, questions for a moment between."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from towline.errors import MalformedFrame
from towline.format.wire.frames import (
    ASK,
    Kind,
    decode_put,
    encode_put_refusal,
    expect,
    kind_of,
    read_json,
    with_status,
)
from towline.format.wire.refusals import Cause
from towline.format.wire.status import PutStatus
from towline.limits import KIB, MIB, PARTS_MAX, REQUEST_GROUPS_MAX
from towline.link.put_ring import NodeRing
from towline.link.server import Request, Sent, Server
from towline.node.process.context import Node
from towline.runtime.positions import Counter

from .admission import Refusal
from .put_request import Arrived, Peer
from .rings import NONE as NO_RINGS
from .rings import Rings, Terms, shortened
from .socket_table import Arrivals

# Beyond these, requests wait in ZeroMQ and are stamped late. What waits longer than wait_time_mills_in_send_queue is
# refused anyway: at 200 ms these are 160 MiB and 20,000 requests a second, less than put takes.
WAITING_MAX: Final = 4096
WAITING_BYTES_MAX: Final = 32 * MIB
TAKEN_PER_TURN: Final = 256  # so that answers are not kept back by what comes in
QUESTION_SIZE_MAX: Final = 4 * KIB
ASKED_NS: Final = 5_000_000  # spent on questions per turn: puts wait meanwhile


@dataclass(frozen=True, slots=True)
class Sending:
    """PUT_OK to requests that came alone, or off the socket: `Answers` of `acks`."""

    intake: "Intake"
    told: Sequence[tuple[Peer, bytes, int]]  # who, what, and the request's groups

    def send(self, first: int, count: int, status: PutStatus) -> None:
        for peer, answer, groups in self.told[first : first + count]:
            self.intake.send(peer, with_status(answer, status) if status else answer, groups)


@dataclass(slots=True)
class Question:
    """`text` is a JSON object. Its sender cannot be cut off any more: the descriptor may be another connection's."""

    peer: bytes
    request_id: int
    text: bytes
    key: str
    role: str


class Intake:
    """The socket's requests in the order of their arrival, and those of rings, in turns. Used by whoever holds the
    front's lock. `settle` answers what is due of the questions that could not be at once, and says how many."""

    def __init__(
        self,
        node: Node,
        server: Server,
        ask: Callable[[Question], None],
        terms: Terms = NO_RINGS,
        settle: Callable[[], int] = lambda: 0,
    ) -> None:
        self._node = node
        self._server = server
        self._ask = ask
        self._settle = settle
        self._line = node.line
        self._refused = node.positions.refused
        self.arrivals = Arrivals(server, self._sort)
        self._questions: deque[Question] = deque()
        self.rings = Rings(terms, self._malformed)
        self._from_ring = False  # the last one came from a ring

    def __len__(self) -> int:
        return len(self.arrivals) + (1 if self.rings.waits else 0)

    @property
    def full(self) -> bool:
        return self._room <= 0 or self.arrivals.memory >= WAITING_BYTES_MAX

    @property
    def _room(self) -> int:
        return WAITING_MAX - len(self.arrivals) - len(self._questions)

    def take(self, looks: int = 0) -> int:
        """Takes what the socket has, within bounds; how many requests that were. See `Arrivals.take` for `looks`."""
        if self.full:
            return 0
        return self.arrivals.take(min(TAKEN_PER_TURN, self._room), WAITING_BYTES_MAX, looks)

    def answer(self) -> int:
        """Answers questions, one at least if there are any, until ASKED_NS are over, and what is settled; how many."""
        done, began_ns = 0, time.monotonic_ns()
        while self._questions and (not done or time.monotonic_ns() - began_ns < ASKED_NS):
            self._ask(self._questions.popleft())
            done += 1
        return done + self._settle()

    def next(self) -> Arrived | None:
        """The oldest request that waits, of the socket and of rings in turns; None where a ring holds no request."""
        if len(self.arrivals) and (self._from_ring or not self.rings.waits):
            self._from_ring = False
            return self.arrivals.next()
        self._from_ring = True
        return self.rings.next()

    @property
    def is_empty(self) -> bool:
        """Whether the socket was, when it was looked at last, and nothing waits."""
        return self.arrivals.drained and not len(self.arrivals) and not self._questions

    def lend(self, count: int) -> tuple[int, int]:
        """Of the socket's requests so many for a kernel, or one between two of rings: see `Arrivals.lend`."""
        if not self.rings.waits:
            return self.arrivals.lend(count)
        taken = self.arrivals.lend(1 if self._from_ring else 0)
        self._from_ring = self._from_ring and not taken[1]
        return taken

    def done(self, arrived: Arrived) -> None:
        """Nobody looks at it any more. For each that `next` returned."""
        if arrived.row >= 0:
            self.arrivals.done(arrived)

    def close(self) -> None:
        self.rings.close()
        self.arrivals.close()

    def send(self, peer: Peer, answer: bytes, groups: int) -> None:
        """The answer to a request of so many groups."""
        if isinstance(peer, NodeRing):
            self.rings.answer(peer, answer, groups)
        elif self._server.send(peer, [answer]) is Sent.PAUSED:
            self._server.cut_unread(peer)

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
        answer = answer if isinstance(arrived.peer, bytes) else shortened(answer)
        self.send(arrived.peer, answer, len(arrived.groups))

    def peer_cut(self) -> None:
        """One took more than its share."""
        self._count(Cause.PEER_CUT)

    def _malformed(self, why: str) -> None:
        self._count(Cause.MALFORMED)
        self._node.log.warning("%s", why)

    def _sort(self, request: Request) -> None:
        """What is no put, as far as its head goes."""
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
    session = request.session
    return Question(request.peer, request_id, bytes(text), session.key, str(session.facts.get("role")))
