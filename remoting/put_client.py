"""The way from remoting to put: a ring in shared memory for records, put's socket for questions about topics."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from towline.errors import MalformedFrame
from towline.format.remoting.command import Command, encode
from towline.format.wire.frames import Buffer, Group, PutAnswer, decode_put_answer, encode_put
from towline.kernels.remoting import puts
from towline.limits import KIB
from towline.link.dealer import Link
from towline.link.poller import Poller
from towline.link.put_ring import ClientRing, Offer
from towline.node.peers.local_links import LocalLink

from .plain_sends import Deliver, PlainSends
from .questions import Facts, Questions, Told

QUESTION_MAX: Final = 4 * KIB
OPEN_RING: Final = "open_ring"
SPIN_NS: Final = 100_000
DEADLINE_MS: Final = 3_000  # put refuses what it takes up later: the client has given up by then

Done: TypeAlias = Callable[[PutAnswer | None], None]  # None: whether it is stored is not known


class PutClient:
    """Puts, and questions to put. Used by one thread."""

    def __init__(
        self,
        local: LocalLink,
        poller: Poller,
        wall_ms: Callable[[], int],
        make_plain: Callable[[ClientRing, int], PlainSends | None],
        deliver: Deliver,
    ) -> None:
        """`make_plain` gets a ring that put has taken, and its size; `deliver` the frames of answers."""
        self._poller, self._wall_ms = poller, wall_ms
        self._questions = Questions(local, QUESTION_MAX, self._lose)
        self._link: Link | None = None  # that the ring was made for
        self._ring: ClientRing | None = None
        self._agreed = False
        self._puts: dict[int, Done] = {}
        self._make_plain, self._deliver = make_plain, deliver
        self.plain: PlainSends | None = None  # the way of plain sends, while there is a ring
        self._has_no_room = False  # for plain sends
        self._waiting: deque[tuple[bytes, Buffer, int]] = deque()  # for room in the ring: head, records, request
        self._next_id = 0

    @property
    def welcome(self) -> Facts:
        return self._questions.welcome

    @property
    def is_full(self) -> bool:
        """Whether puts wait for room in the ring: nothing more is to be taken from clients meanwhile."""
        return bool(self._waiting) or self._has_no_room

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
        if ring is None or not (self._puts or (self.plain is not None and self.plain.waits)):
            return
        until = time.perf_counter_ns() + SPIN_NS
        while not ring.waits and time.perf_counter_ns() < until:
            pass

    def wait_for_room(self) -> None:
        """Takes nothing more until put has answered something."""
        self._has_no_room = True

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
        ring = self._ring = ClientRing(offer)
        self._poller.add(ring.fileno())

        def opened(facts: Facts | None, _: list[Buffer]) -> None:
            if facts is not None and "error" not in facts and ring is self._ring:
                self._agreed = True
                self.plain = self._make_plain(ring, offer.size)

        self.ask(OPEN_RING, ring.facts, opened)

    def _receive(self) -> int:
        done = self._take_plain()
        while self._ring is not None and (answer := self._ring.receive()) is not None:
            found = decode_put_answer(answer)
            put = self._puts.pop(found.request_id, None)
            if put is not None:
                put(found)
            elif self.plain is not None:
                self._tell(self.plain.finish(found))
            done += 1 + self._take_plain()
        if done:
            self._has_no_room = False
        return done

    def _take_plain(self) -> int:
        """Answers plain sends, up to the first answer that is the interpreter's."""
        done = 0
        while self.plain is not None:
            count, why = self.plain.take(self._deliver)
            done += count
            if why == puts.BROKEN:
                raise MalformedFrame("put's ring: a position of its answers is impossible")
            if why != puts.FULL:
                break
        return done

    def _tell(self, ended: tuple[int, Command] | None) -> None:
        if ended is not None:
            self._deliver(ended[0], b"".join(encode(ended[1])))

    def _send_waiting(self) -> int:
        done = 0
        while self._waiting and self._ring is not None and self._ring.send(*self._waiting[0][:2]):
            self._waiting.popleft()
            done += 1
        return done

    def _lose(self) -> None:
        """The fate of what has no answer is unknown."""
        plain, self.plain = self.plain, None
        if plain is not None:
            plain.close()
            for ended in plain.abandon():
                self._tell(ended)
        if self._ring is not None:
            self._poller.remove(self._ring.fileno())
            self._ring.close()
        self._ring, self._agreed, self._has_no_room = None, False, False
        self._waiting.clear()
        lost, self._puts = list(self._puts.values()), {}
        for put in lost:
            put(None)
