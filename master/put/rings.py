"""The put side of request rings in shared memory, beside the socket (docs/decisions/0043).

A producer on the same machine creates a ring and registers it over its socket. A request stays in the ring until it is
stored or refused, and is looked at only while its answer has room; a kernel copies it before that. What was judged is
stored from the copy that was judged: the ring may hold something else by then.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from towline.errors import MalformedFrame
from towline.fence import fence
from towline.format.wire.frames import decode_put, encode_put_answer, encode_put_refusal
from towline.format.wire.put_ring import (
    ANSWERS_SIZE,
    PUT_ANSWER_SIZE,
    SENTENCE_MAX,
    Cut,
    answer_room,
    entry_max,
    padded,
    read_request_word,
    written_ms,
)
from towline.format.wire.status import PutStatus
from towline.kernels.jit.compiled import Bytes, Rows
from towline.kernels.jit.rows import REQUEST, RequestStatus, fields_of
from towline.kernels.put import append
from towline.kernels.put import put_ring as kernel
from towline.kernels.put.append import ANSWER_MAX, Appender
from towline.limits import REQUEST_GROUPS_MAX
from towline.link.native import address_of_call, bytes_from
from towline.link.put_ring import NodeRing, RingBroken, RingRefused
from towline.node.process.context import Node
from towline.node.store.put_checks import Refusal
from towline.runtime.failpoints import ARMED, reach

from .sequences import Repeat

REQUESTS_MAX: Final = 1024  # of one call: below a millisecond, beside which the interpreter between two is little
SPINS_OF_ALL: Final = 8  # times what may be spent on one
REAP_EVERY_S: Final = 0.5  # between two looks at who has left
SPINS: Final = 6_000  # some 200 us: as long as an interpreter takes from an answer to its next request
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


@dataclass(frozen=True, slots=True)
class Kept:
    """Answers that are not due yet, back to back, and the rows of their requests."""

    answers: bytes
    rows: Rows


class RingTable:
    """What kernels work with for one ring at a time: a row for each request of a call, and room for its answers."""

    def __init__(self, area: int) -> None:
        """`area`: bytes of a ring's requests; 0 on a node without rings."""
        self._rows: Rows = np.zeros(REQUESTS_MAX, REQUEST)
        self._fields = fields_of(self._rows)
        self._answers = np.zeros(3 * ANSWER_MAX if area else 0, np.uint8)  # that are kept
        self._entry = np.zeros(entry_max(area) if area else 0, np.uint8)
        self._bell_byte = np.zeros(1, np.uint8)
        self._marks = np.zeros(8 * append.MARKS_SIZE, np.uint8)  # nobody recalls a row
        self._rings: Rows = np.zeros(1, kernel.RING)
        self._ring = fields_of(self._rings)[0]
        self._ring.area = area
        self._ring.entry, self._ring.entry_max = self._entry.ctypes.data, self._entry.size
        self._ring.write, self._ring.bell_byte = address_of_call("write"), self._bell_byte.ctypes.data
        self._ring.give_way = address_of_call("sched_yield")
        self.why = kernel.EMPTY  # the last call came back

    def begin(self, ring: NodeRing, spins: int, *, keeps: bool) -> None:
        """Prepares calls for this ring. The kernel spins so many times for a request that is not there yet.

        `keeps`: no answer is due yet.
        """
        fields = self._ring
        self._memory: Bytes = np.frombuffer(ring.memory.view, np.uint8)
        self._requests = ring.requests
        fields.tail, fields.head = ring.requests.places
        fields.answered, fields.answers_read = ring.answers.places
        fields.reserved, fields.kept = ring.reserved, 0
        fields.woken, fields.keeps = int(ring.woken), int(keeps)
        fields.spins, fields.spins_max = spins, SPINS_OF_ALL * spins
        fields.bell = ring.bell
        fields.received_ms = time.monotonic_ns() // 1_000_000

    def serve(self, appender: Appender) -> bool:
        """Calls the kernel, once a request that was judged is stored; whether a put is left that was not."""
        if appender[0]["judged"][0] and not self._store_judged(appender):
            self.why = kernel.ROW
            return True
        self.why = kernel.serve_ring(self._memory, self._rings, self._rows, self._answers, appender)
        if self.why == kernel.ROW and self.row(int(appender[0]["requests"][0])).status == RequestStatus.MALFORMED:
            self.why = kernel.BROKEN
        return self.why == kernel.ROW

    def _store_judged(self, appender: Appender) -> bool:
        """Stores the request that was left last, as it was copied then, and answers it where that is due; False where
        it cannot be stored. There is room for its answer, or it would not have been left."""
        fields, states = self._ring, appender[0]
        number, kept = int(states["requests"][0]), int(states["written"][0])
        if append.append_rows(self._rows, number, 1, self._marks, self._answers, appender) != append.DONE:
            return False
        self._requests.go_to(fields.tail, fields.head)
        self._requests.skip(fields.taken)
        fields.tail, fields.head = self._requests.places
        if ARMED:
            reach("put.ring_taken")
        if fields.keeps:
            fields.kept += padded(self.row(number).answer_size)
            return True
        if ARMED:
            reach("put.ring_before_answer")
        kernel.answer_ring(self._memory, self._rings, self._answers, self._rows, number, 1, PutStatus.PUT_OK)
        states["written"] = kept
        fields.woken = 1  # so that a kernel which waits for the next request looks whether the client sleeps
        if ARMED:
            reach("put.ring_answered")
        return True

    def end(self, ring: NodeRing, requests: int) -> None:
        """Takes over the ring's places after calls that stored so many requests."""
        fields = self._ring
        del self._memory, self._requests
        ring.requests.go_to(fields.tail, fields.head)
        ring.answers.go_to(fields.answered, fields.answers_read)
        ring.woken = fields.woken != 0
        ring.reserved += fields.kept
        ring.rings = ring.rings or requests > 0

    def row(self, number: int) -> Any:
        """The fields of REQUEST of a row."""
        return self._fields[number]

    @property
    def taken(self) -> int:
        """Bytes in the ring of the request that was not stored."""
        return int(self._ring.taken)

    def kept(self, count: int) -> Kept:
        """The answers to the requests that were stored."""
        last = self.row(count - 1)
        return Kept(self._answers[: last.answer_at + last.answer_size].tobytes(), self._rows[:count].copy())

    def written(self, ring: NodeRing, count: int, now_ms: int) -> Iterator[tuple[int, int]]:
        """Yields (time, count) of the stored requests in their order: when their clients wrote them into the ring.

        A request without a time counts from when the call began. Times are monotonic.
        """
        stamps = self._rows["stamp"][:count]
        ends = [count]
        if stamps.item(0) != stamps.item(count - 1):  # a client's do not move back
            ends[:0] = (np.flatnonzero(stamps[1:] != stamps[:-1]) + 1).tolist()
        first = 0
        for end in ends:
            yield written_ms(stamps.item(first), now_ms, ring.since_ms, self._ring.received_ms), end - first
            first = end

    def answer(self, ring: NodeRing, kept: Kept, first: int, count: int, status: int) -> None:
        """Writes `count` of the kept answers into their ring."""
        fields = self._ring
        fields.answered, fields.answers_read = ring.answers.places
        answers = np.frombuffer(kept.answers, np.uint8)
        memory = np.frombuffer(ring.memory.view, np.uint8)
        if ARMED:
            reach("put.ring_before_answer")
        ring.reserved -= kernel.answer_ring(memory, self._rings, answers, kept.rows, first, count, status)
        if ARMED:
            reach("put.ring_answered")
        assert fields.answered - fields.answers_read <= ANSWERS_SIZE, "room was kept for them"
        ring.answers.go_to(fields.answered, fields.answers_read)
        ring.rings = True


class Rings:
    """The rings of one put process.

    Used by the thread that holds the stall responder's lock, except for the one that is `lent` to a kernel.
    """

    def __init__(self, terms: RingTerms, malformed: Callable[[str], None]) -> None:
        """`malformed` is called with the reason when a ring is disconnected."""
        self._terms, self._malformed = terms, malformed
        self._rings: list[NodeRing] = []
        self._reap_at = 0.0
        self.table = RingTable(terms.size if terms.count_max else 0)
        self.lent: NodeRing | None = None

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

    def judge(self, ring: NodeRing) -> None:
        """Disconnects a ring that a kernel came back from, if what stands in it cannot be."""
        try:
            match self.table.why:
                case kernel.FULL:
                    ring.has_room(_ROOM)
                case kernel.BROKEN:
                    ring.requests.take(entry_max(self._terms.size))
                    raise RingBroken(Cut.FORM)
        except RingBroken as broken:
            self._disconnect(ring, broken.cut)

    def refuse(self, ring: NodeRing, number: int, refusal: Refusal) -> None:
        """Takes the request of a row off the ring, which a kernel did not store, and answers it."""
        row = self.table.row(number)
        ring.requests.skip(self.table.taken)
        self._answer_refusal(ring, bytes_from(row.head, row.head_size), refusal)

    def repeat(self, ring: NodeRing, number: int, repeat: Repeat) -> "KeptAnswers":
        """Takes the request of a row off the ring, which is stored already, and returns its answer, for which room is
        kept."""
        row = self.table.row(number)
        ring.requests.skip(self.table.taken)
        request_id = decode_put(bytes_from(row.head, row.head_size), REQUEST_GROUPS_MAX)[0]
        answer = encode_repeat(request_id, repeat)
        rows: Rows = np.zeros(1, REQUEST)
        rows["answer_size"] = len(answer)
        ring.reserved += padded(len(answer))
        return KeptAnswers(self, ring, Kept(answer, rows))

    def refuse_waiting(self, refusal: Refusal) -> int:
        """Refuses what waits in rings that no kernel has, as far as there is room for answers; returns how many."""
        done = 0
        for ring in [ring for ring in self._rings if ring is not self.lent]:
            try:
                while not ring.is_closed and ring.requests.waits and ring.has_room(_ROOM):
                    taken = ring.requests.take(entry_max(self._terms.size))
                    if taken is None:
                        break
                    word, data = taken
                    self._answer_refusal(ring, data[: read_request_word(word)[0]], refusal)
                    done += 1
            except RingBroken as broken:
                self._disconnect(ring, broken.cut)
        return done

    def _answer_refusal(self, ring: NodeRing, head: bytes, refusal: Refusal) -> None:
        try:
            request_id = decode_put(head, REQUEST_GROUPS_MAX)[0]
            assert ring.answer(shortened(encode_refusal(request_id, refusal))), "room was kept for it"
        except RingBroken as broken:
            self._disconnect(ring, broken.cut)
        except MalformedFrame as error:
            self._disconnect(ring, Cut.FORM, f" ({error.describe()})")

    def answer_kept(self, ring: NodeRing, kept: Kept, first: int, count: int, status: int) -> None:
        """Sends `count` of the answers that a kernel kept."""
        if not ring.is_closed:
            self.table.answer(ring, kept, first, count, status)

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
        return not any(map(_has_work, self._rings))

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
        for ring in [ring for ring in self._rings if ring is not self.lent and ring.is_left()]:
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
    kept: Kept

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


def encode_repeat(request_id: int, repeat: Repeat) -> bytes:
    """PUT_OK by the place where the request's records stand."""
    return encode_put_answer(request_id, PutStatus.PUT_OK, [(repeat.queue_offset, repeat.physical_offset)])


def encode_refusal(request_id: int, refusal: Refusal) -> bytes:
    return encode_put_refusal(
        request_id, refusal.status, refusal.rule, refusal.record, refusal.retry_after_ms, refusal.sentence
    )
