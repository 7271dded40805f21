"""The put side of request rings in shared memory, beside the socket (docs/decisions/0043).

A producer on the same machine creates a ring and registers it over its socket. A request stays in the ring until it is
the next; it is then copied once and validated. A request is received only while its answer has room.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from towline.errors import MalformedFrame
from towline.fence import fence
from towline.format.wire.frames import Kind, decode_put, kind_of
from towline.format.wire.put_ring import (
    ANSWERS_SIZE,
    PUT_ANSWER_SIZE,
    SENTENCE_MAX,
    Cut,
    answer_room,
    entry_max,
    read_request_word,
    written_ms,
)
from towline.format.wire.status import PutStatus
from towline.kernels.jit.compiled import Numbers
from towline.kernels.put import put_ring as kernel
from towline.kernels.put.put_rows import GROUP_MEMORY
from towline.limits import REQUEST_GROUPS_MAX
from towline.link.put_ring import NodeRing, RingBroken, RingRefused
from towline.node.process.context import Node
from towline.runtime.failpoints import ARMED, reach

from .put_request import PutRequest

_Kept = tuple[bytes, Numbers]
REAP_EVERY_S: Final = 0.5  # between two looks at who has left
SPINS: Final = 1_500  # some 50 us
WORTH_MIN: Final = 0.25  # share of those that found something, lately
RISE: Final = 0.3  # one that finds something serves many requests
FALL: Final = 0.1
TRIED_EVERY: Final = 8
_ROOM: Final = 2 * answer_room(REQUEST_GROUPS_MAX)  # and once more for the end of the area, which may be too small


@dataclass(frozen=True, slots=True)
class RingTerms:
    """The rings that a node accepts: bytes of the request area, maximum count, the node's generation, put's
    doorbell."""

    size: int
    count_max: int
    generation: int
    bell: str

    @classmethod
    def of(cls, node: Node) -> Self:
        settings = node.settings
        count_max = settings.shared_memory_puts_max if settings.shared_memory_puts else 0
        bell = str(node.runtime.bell(node.duty.label))
        return cls(settings.shared_memory_puts_size, count_max, node.generation, bell)

    def offer(self) -> dict[str, Any]:
        """The part of a welcome that offers rings; empty where there are none."""
        facts = {"size": self.size, "generation": self.generation, "bell": self.bell}
        return {"put_ring": facts} if self.count_max else {}


NO_RINGS: Final = RingTerms(0, 0, 0, "")


class SpinWait:
    """Decides whether put spins for the next request before it sleeps: only where spinning has lately paid off."""

    def __init__(self, spins: int = SPINS) -> None:
        self._spins = spins
        self._share = 0.0
        self._checks = 0

    def spins(self) -> int:
        """How many times to look where nothing is."""
        self._checks += 1
        return self._spins if self.is_worth or self._checks % TRIED_EVERY == 0 else 0

    @property
    def is_worth(self) -> bool:
        """Whether spinning has paid off lately."""
        return self._share >= WORTH_MIN

    def found(self, found: bool) -> None:
        """Notes whether a spin found a request."""
        self._share += (1 - self._share) * RISE if found else -self._share * FALL


class Rings:
    """The rings of one put process.

    Used by the thread that holds the stall responder's lock, except while they are `lent` to a kernel.
    """

    def __init__(self, terms: RingTerms, malformed: Callable[[str], None]) -> None:
        """`malformed` is called with the reason when a ring is disconnected."""
        self._terms, self._malformed = terms, malformed
        self._entry_max = entry_max(terms.size)
        self._rings: list[NodeRing] = []
        self._cursor = 0  # whose turn it is
        self._reap_at = 0.0
        self.lent = False
        self.fast_append = False  # a kernel takes what is plain; only what it leaves is taken here
        self._state: Numbers = np.zeros(kernel.STATE_SIZE, np.int64)

    def __iter__(self) -> Iterator[NodeRing]:
        return iter(self._rings)

    def __len__(self) -> int:
        return len(self._rings)

    def open(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Opens the ring that a client describes. Raises RingRefused."""
        terms = self._terms
        if not terms.count_max:
            raise RingRefused("the node's shared_memory_puts is off")
        if len(self._rings) >= terms.count_max:
            self.reap(now=True)
        if len(self._rings) >= terms.count_max:
            raise RingRefused(f"{terms.count_max} rings are in use, which is shared_memory_puts_max")
        ring = NodeRing(facts, terms.size, terms.generation)
        if any(other.is_same(ring) for other in self._rings):
            ring.close(Cut.NOT)
            raise RingRefused("it is in use already")
        self._rings.append(ring)
        return {"rings": len(self._rings)}

    # --- requests

    @property
    def waits(self) -> bool:
        """Whether a request can be received."""
        return not self.lent and self._ready() is not None

    def next(self) -> PutRequest | None:
        """A request of the next ring; None when there is none, or the entry is no request."""
        ring = None if self.lent else self._ready()
        if ring is None:
            return None
        self._cursor += 1
        try:
            return self._receive(ring)
        except RingBroken as broken:
            self._disconnect(ring, broken.cut)
        except MalformedFrame as error:
            self._disconnect(ring, Cut.FORM, f" ({error.describe()})")
        return None

    def _ready(self) -> NodeRing | None:
        """The next ring that holds a request and has room for its answer."""
        rings, count = self._rings, len(self._rings)
        for step in range(count):
            place = (self._cursor + step) % count
            ring = rings[place]
            try:
                mine = ring.special or not self.fast_append
                if mine and ring.requests.waits and ring.has_room(_ROOM):
                    self._cursor = place
                    return ring
            except RingBroken as broken:
                self._disconnect(ring, broken.cut)
                return self._ready()
        return None

    def _receive(self, ring: NodeRing) -> PutRequest | None:
        if ARMED:
            reach("put.ring_before_take")
        taken = ring.requests.take(self._entry_max)
        if taken is None:
            return None
        if ARMED:
            reach("put.ring_taken")
        ring.special = max(0, ring.special - 1)
        word, data = taken
        head_size, _, stamp = read_request_word(word)
        if not 0 < head_size <= len(data) or kind_of(data) != Kind.PUT:
            raise MalformedFrame(f"an entry of {len(data)} bytes with a head of {head_size}")
        request_id, _epoch, deadline, groups = decode_put(data[:head_size], REQUEST_GROUPS_MAX)
        ring.reserved += answer_room(len(groups))
        memory = len(data) + GROUP_MEMORY * len(groups)
        now_ms = time.monotonic_ns() // 1_000_000
        request = PutRequest(ring, request_id, deadline, groups, memoryview(data)[head_size:], now_ms, memory, False)
        request.written_ms = written_ms(stamp, now_ms, ring.since_ms, now_ms)
        return request

    # --- answers

    def answer(self, ring: NodeRing, answer: bytes, groups: int) -> None:
        """Answers a request of so many groups that `next` returned, unless its ring was disconnected meanwhile."""
        if ring.is_closed:
            return
        ring.reserved -= answer_room(groups)
        try:
            if ARMED:
                reach("put.ring_before_answer")
            sent = ring.answer(answer)
            if ARMED:
                reach("put.ring_answered")
        except RingBroken as broken:
            self._disconnect(ring, broken.cut)
        else:
            assert sent, "room was kept for it"

    def answer_kept(self, ring: NodeRing, kept: _Kept, first: int, count: int, status: int) -> None:
        """Sends `count` of the answers that a kernel kept."""
        if ring.is_closed:
            return
        answers, rows = kept
        state = self._state
        state[kernel.ANSWERED], state[kernel.ANSWERS_READ] = ring.answers.places
        ring.reserved -= kernel.answer_ring(
            np.frombuffer(ring.memory.view, np.uint8),
            self._terms.size,
            state,
            np.frombuffer(answers, np.uint8),
            rows,
            first,
            count,
            status,
        )
        tail = int(state[kernel.ANSWERED])
        assert tail - ring.answers.places[1] <= ANSWERS_SIZE, "room was kept for them"
        ring.answers.go_to(tail, ring.answers.places[1])
        ring.rings = True

    def wake(self) -> None:
        """Rings the doorbells of clients that sleep; once after the answers of a cycle."""
        fenced = False
        for ring in self._rings:
            if ring.rings:
                if not fenced:
                    fence()
                    fenced = True
                ring.wake()

    # --- sleeping, and the end of rings

    def arm(self) -> bool:
        """Tells clients that put is about to sleep; False when there is work first (H12)."""
        if not self._rings:
            return True
        for ring in self._rings:
            ring.sleeps(True)
        fence()
        return self.lent or not any(map(_has_work, self._rings))

    def disarm(self) -> None:
        for ring in self._rings:
            ring.sleeps(False)

    def reap(self, *, now: bool = False) -> None:
        """Drops rings whose client has exited; twice a second, or `now`.

        Requests that are still in such a ring wait until the next pass: there may be no room for their answers.
        """
        if not self._rings or not (now or time.monotonic() >= self._reap_at):
            return
        self._reap_at = time.monotonic() + REAP_EVERY_S
        for ring in [ring for ring in self._rings if ring.is_left()]:
            if ring.was_left or not ring.requests.waits:
                self._drop(ring, Cut.CLOSING)
            ring.was_left = True

    def close(self) -> None:
        for ring in list(self._rings):
            self._drop(ring, Cut.CLOSING)

    def _disconnect(self, ring: NodeRing, cut: Cut, more: str = "") -> None:
        self._malformed(f"the ring of process {ring.pid} is cut off: {cut.sentence}{more}")
        self._drop(ring, cut)

    def _drop(self, ring: NodeRing, cut: Cut) -> None:
        self._rings.remove(ring)
        ring.close(cut)


@dataclass(frozen=True, slots=True)
class KeptAnswers:
    """Answers of one ring that a kernel has kept: `Answers` of `acks`."""

    rings: Rings
    ring: NodeRing
    kept: _Kept

    def send(self, first: int, count: int, status: PutStatus) -> None:
        self.rings.answer_kept(self.ring, self.kept, first, count, status)


def _has_work(ring: NodeRing) -> bool:
    """Whether put must look at the ring; a client that does not read its answers has to wait."""
    try:
        return ring.requests.waits and ring.has_room(_ROOM)
    except RingBroken:
        return True


def shortened(answer: bytes) -> bytes:
    """A refusal that fits the room reserved for it: the end of a long sentence is left out."""
    return answer[: PUT_ANSWER_SIZE + SENTENCE_MAX]
