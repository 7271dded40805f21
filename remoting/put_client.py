"""The way from remoting to put: a ring in shared memory for records, put's socket for questions about topics."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from towline.errors import MalformedFrame
from towline.format.wire.frames import Buffer, Group, PutAnswer, decode_put_answer, encode_put
from towline.limits import KIB
from towline.link.dealer import Link
from towline.link.poller import Poller
from towline.link.put_ring import ClientRing, Offer
from towline.node.peers.local_links import LocalLink

from .questions import Facts, Questions, Told

QUESTION_MAX: Final = 4 * KIB
OPEN_RING: Final = "open_ring"
SPIN_NS: Final = 100_000
DEADLINE_MS: Final = 3_000  # put refuses what it takes up later: the client has given up by then

Done: TypeAlias = Callable[[PutAnswer | None], None]  # None: whether it is stored is not known


class PutClient:
    """Puts, and questions to put. Used by one thread."""

    def __init__(self, local: LocalLink, poller: Poller, wall_ms: Callable[[], int]) -> None:
        self._poller, self._wall_ms = poller, wall_ms
        self._questions = Questions(local, QUESTION_MAX, self._lose)
        self._link: Link | None = None  # that the ring was made for
        self._ring: ClientRing | None = None
        self._agreed = False
        self._puts: dict[int, Done] = {}
        self._waiting: deque[tuple[bytes, Buffer, int]] = deque()  # for room in the ring: head, records, request
        self._next_id = 0

    @property
    def welcome(self) -> Facts:
        return self._questions.welcome

    @property
    def is_full(self) -> bool:
        """Whether puts wait for room in the ring: nothing more is to be taken from clients meanwhile."""
        return bool(self._waiting)

    @property
    def link(self) -> Link | None:
        return self._questions.link

    def cycle_link(self, now_ms: int) -> int:
        """Connects, takes answers to questions; returns how many."""
        done = self._questions.cycle(now_ms)
        if self._questions.link is not self._link:
            self._link = self._questions.link
            if self._link is not None:
                self._begin()
        return done

    def cycle(self, now_ms: int) -> int:
        """Takes answers to puts, sends what waits; returns how much of both."""
        try:
            return self._receive() + self._send_waiting()
        except MalformedFrame:
            self._questions.lose(now_ms)
            return 1

    def put(self, groups: Sequence[Group], records: Buffer, done: Done) -> bool:
        """Sends records, which are stored whole or not at all. False where put is away, or never takes so much."""
        if self._ring is None or not self._agreed:
            return False
        self._next_id += 1
        head = encode_put(self._next_id, 0, self._wall_ms() + DEADLINE_MS, groups)
        if not self._ring.fits(len(head) + len(records)):
            return False
        self._puts[self._next_id] = done
        if self._waiting or not self._ring.send(head, records):
            self._waiting.append((head, records, self._next_id))
        return True

    def await_answer(self) -> None:
        """Waits a moment for put, which stores in microseconds: to sleep and be woken takes longer."""
        ring = self._ring
        if ring is None or not self._puts:
            return
        until = time.perf_counter_ns() + SPIN_NS
        while not ring.waits and time.perf_counter_ns() < until:
            pass

    def ask(self, op: str, facts: Facts, told: Told) -> bool:
        return self._questions.ask(op, facts, told)

    def arm(self) -> bool:
        """Prepares for sleep; False when an answer is there already."""
        return self._ring is None or self._ring.arm()

    def disarm(self) -> None:
        if self._ring is not None:
            self._ring.disarm()

    def close(self) -> None:
        self._questions.close()

    def _begin(self) -> None:
        """Makes a ring, and asks put to take it."""
        offer = Offer.of(dict(self.welcome))
        if offer is None:
            return
        self._ring = ClientRing(offer)
        self._poller.add(self._ring.fileno())
        self.ask(OPEN_RING, self._ring.facts, self._opened)

    def _opened(self, facts: Facts | None, _: list[Buffer]) -> None:
        self._agreed = facts is not None and "error" not in facts

    def _receive(self) -> int:
        done = 0
        while self._ring is not None and (answer := self._ring.receive()) is not None:
            found = decode_put_answer(answer)
            put = self._puts.pop(found.request_id, None)
            if put is not None:
                put(found)
            done += 1
        return done

    def _send_waiting(self) -> int:
        done = 0
        while self._waiting and self._ring is not None and self._ring.send(*self._waiting[0][:2]):
            self._waiting.popleft()
            done += 1
        return done

    def _lose(self) -> None:
        """The fate of what has no answer is unknown."""
        if self._ring is not None:
            self._poller.remove(self._ring.fileno())
            self._ring.close()
        self._ring, self._agreed = None, False
        self._waiting.clear()
        puts, self._puts = list(self._puts.values()), {}
        for put in puts:
            put(None)
