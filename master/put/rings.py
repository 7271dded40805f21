"""Rings in shared memory from which put takes requests, beside its socket (docs/decisions/0043).

A producer of this machine makes a ring, and asks over its socket that put looks at it. A request stays there until its
turn comes; it is copied once and judged then. An answer finds room: nothing is taken while it might not.
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

from .put_request import Arrived

_Kept = tuple[bytes, Numbers]
TEND_S: Final = 0.5  # between two looks at who has left
LOOKS: Final = 1_500  # some 50 us
WORTH: Final = 0.25  # share of those that found something, lately
RISE: Final = 0.3  # one that finds something serves many requests
FALL: Final = 0.1
TRIED_EVERY: Final = 8
_ROOM: Final = 2 * answer_room(REQUEST_GROUPS_MAX)  # and once more for the end of the area, which may be too small


@dataclass(frozen=True, slots=True)
class Terms:
    """What rings a node takes: bytes of the requests' area, how many, its generation, put's doorbell."""

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
        """What a welcome says of rings; empty where there are none."""
        facts = {"size": self.size, "generation": self.generation, "bell": self.bell}
        return {"put_ring": facts} if self.count_max else {}


NONE: Final = Terms(0, 0, 0, "")


class Spin:
    """Whether the next request is waited for a moment before put sleeps: it is where that was worth while lately."""

    def __init__(self, looks: int = LOOKS) -> None:
        self._looks = looks
        self._share = 0.0
        self._asked = 0

    def looks(self) -> int:
        """How many times to look where nothing is."""
        self._asked += 1
        return self._looks if self.is_worth or self._asked % TRIED_EVERY == 0 else 0

    @property
    def is_worth(self) -> bool:
        """Whether it was lately."""
        return self._share >= WORTH

    def found(self, found: bool) -> None:
        """Whether something came."""
        self._share += (1 - self._share) * RISE if found else -self._share * FALL


class Rings:
    """Of one put process. Used by whoever holds the front's lock, but not while they are `lent` to a kernel."""

    def __init__(self, terms: Terms, malformed: Callable[[str], None]) -> None:
        """`malformed` is told why a ring was cut off."""
        self._terms, self._malformed = terms, malformed
        self._entry_max = entry_max(terms.size)
        self._rings: list[NodeRing] = []
        self._turn = 0  # whose turn it is
        self._tend_at = 0.0
        self.lent = False
        self.express = False  # a kernel takes what is plain; only what it leaves is taken here
        self._state: Numbers = np.zeros(kernel.STATE_SIZE, np.int64)

    def __iter__(self) -> Iterator[NodeRing]:
        return iter(self._rings)

    def __len__(self) -> int:
        return len(self._rings)

    def open(self, facts: dict[str, Any]) -> dict[str, Any]:
        """From here on requests are taken from the ring that a client describes. Raises RingRefused."""
        terms = self._terms
        if not terms.count_max:
            raise RingRefused("the node's shared_memory_puts is off")
        if len(self._rings) >= terms.count_max:
            self.tend(now=True)
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
        """Whether a request can be taken."""
        return not self.lent and self._ready() is not None

    def next(self) -> Arrived | None:
        """A request from the ring whose turn it is; None when there is none, or what was there is no request."""
        ring = None if self.lent else self._ready()
        if ring is None:
            return None
        self._turn += 1
        try:
            return self._take(ring)
        except RingBroken as broken:
            self._cut(ring, broken.cut)
        except MalformedFrame as error:
            self._cut(ring, Cut.FORM, f" ({error.describe()})")
        return None

    def _ready(self) -> NodeRing | None:
        """The next one that holds a request whose answer finds room."""
        rings, count = self._rings, len(self._rings)
        for step in range(count):
            place = (self._turn + step) % count
            ring = rings[place]
            try:
                mine = ring.special or not self.express
                if mine and ring.requests.waits and ring.has_room(_ROOM):
                    self._turn = place
                    return ring
            except RingBroken as broken:
                self._cut(ring, broken.cut)
                return self._ready()
        return None

    def _take(self, ring: NodeRing) -> Arrived | None:
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
        arrived = Arrived(ring, request_id, deadline, groups, memoryview(data)[head_size:], now_ms, memory, False)
        arrived.written_ms = written_ms(stamp, now_ms, ring.since_ms, now_ms)
        return arrived

    # --- answers

    def answer(self, ring: NodeRing, answer: bytes, groups: int) -> None:
        """To a request of so many groups that `next` has returned. A ring that was cut off meanwhile hears nothing."""
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
            self._cut(ring, broken.cut)
        else:
            assert sent, "room was kept for it"

    def answer_kept(self, ring: NodeRing, kept: _Kept, first: int, count: int, status: int) -> None:
        """To so many of the requests whose answers a kernel kept."""
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
        """Once after the answers of a turn: clients that sleep are rung."""
        fenced = False
        for ring in self._rings:
            if ring.rings:
                if not fenced:
                    fence()
                    fenced = True
                ring.wake()

    # --- sleeping, and the end of rings

    def arm(self) -> bool:
        """Before put sleeps; False when there is something to do first (H12)."""
        if not self._rings:
            return True
        for ring in self._rings:
            ring.sleeps(True)
        fence()
        return self.lent or not any(map(_has_work, self._rings))

    def disarm(self) -> None:
        for ring in self._rings:
            ring.sleeps(False)

    def tend(self, *, now: bool = False) -> None:
        """Rings whose client has gone are let go; twice a second, or `now`. What is still in one may have until the
        next time: there may be no room for its answers."""
        if not self._rings or not (now or time.monotonic() >= self._tend_at):
            return
        self._tend_at = time.monotonic() + TEND_S
        for ring in [ring for ring in self._rings if ring.is_left()]:
            if ring.was_left or not ring.requests.waits:
                self._drop(ring, Cut.CLOSING)
            ring.was_left = True

    def close(self) -> None:
        for ring in list(self._rings):
            self._drop(ring, Cut.CLOSING)

    def _cut(self, ring: NodeRing, cut: Cut, more: str = "") -> None:
        self._malformed(f"the ring of process {ring.pid} is cut off: {cut.sentence}{more}")
        self._drop(ring, cut)

    def _drop(self, ring: NodeRing, cut: Cut) -> None:
        self._rings.remove(ring)
        ring.close(cut)


@dataclass(frozen=True, slots=True)
class KeptAnswers:
    """To requests of one ring that a kernel has stored: `Answers` of `acks`."""

    rings: Rings
    ring: NodeRing
    kept: _Kept

    def send(self, first: int, count: int, status: PutStatus) -> None:
        self.rings.answer_kept(self.ring, self.kept, first, count, status)


def _has_work(ring: NodeRing) -> bool:
    """Whether put has to look at it: whoever does not read its answers has to wait."""
    try:
        return ring.requests.waits and ring.has_room(_ROOM)
    except RingBroken:
        return True


def shortened(answer: bytes) -> bytes:
    """A refusal that fits the room kept for it: the end of a long sentence is left out."""
    return answer[: PUT_ANSWER_SIZE + SENTENCE_MAX]
