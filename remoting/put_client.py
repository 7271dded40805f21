"""The way from remoting to put: a ring in shared memory for records, put's socket for all else.

Over the socket go questions about topics, and records that the ring is too small for, or all of them where the machine
or put lets us have no ring. So that records arrive in their order, the one way waits until the other is empty. Into the
ring kernels put plain sends as well (`plain_sends`).
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from towline.errors import MalformedFrame
from towline.format.wire.frames import Buffer, Group, PutAnswer, decode_put_answer, encode_put
from towline.kernels.remoting import puts
from towline.limits import CLIENT_SHARE_MAX, KIB, REQUEST_SIZE_MAX
from towline.link.dealer import Link
from towline.link.poller import Poller
from towline.link.put_ring import ClientRing, Offer
from towline.node.peers.local_links import LocalLink
from towline.runtime.spin_wait import SpinWait

from .plain_sends import Deliver, PlainSends
from .questions import Facts, Questions, Told, refusal_in

QUESTION_MAX: Final = 4 * KIB
OPEN_RING: Final = "open_ring"
SPIN_NS: Final = 100_000
SPIN_RISE: Final = 0.05  # a wait in vain takes as long as two hits save
DEADLINE_MS: Final = 3_000  # put refuses what it takes up later: the client has given up by then

Done: TypeAlias = Callable[[PutAnswer | None], None]  # None: whether it is stored is not known


@dataclass(frozen=True, slots=True)
class Put:
    """Records on their way. `deadline_ms`: of the wall clock; `epoch` of the master that is meant, 0 for any."""

    groups: Sequence[Group]
    records: Buffer
    deadline_ms: int
    epoch: int
    done: Done


class PutClient:
    """Puts, and questions to put. Used by one thread."""

    def __init__(
        self,
        local: LocalLink,
        poller: Poller,
        wall_ms: Callable[[], int],
        make_plain: Callable[[ClientRing, int], PlainSends | None],
        deliver: Deliver,
        end: Callable[[int], None],
        log: logging.Logger,
    ) -> None:
        """`make_plain` gets a ring that put has taken, and its size; `deliver` the frames of answers; `end` the
        connection of a client that is to come again, as what it sent may be stored or not."""
        self._make_plain, self._deliver, self._end = make_plain, deliver, end
        self._poller, self._wall_ms, self._log = poller, wall_ms, log
        self._questions = Questions(local, QUESTION_MAX, self._lose)
        self._link: Link | None = None  # that the ring was made for
        self._ring: ClientRing | None = None
        self._agrees = False  # put was asked to take the ring, and has not answered
        self._plain: PlainSends | None = None
        self._has_no_room = False  # for plain sends
        self._through_ring: dict[int, Done] = {}
        self._over_socket = 0  # bytes of records
        self._waiting: deque[Put] = deque()  # for room, or for the other way to be empty
        self._next_id = 0
        self._spin = SpinWait(1, SPIN_RISE)

    @property
    def welcome(self) -> Facts:
        return self._questions.welcome

    @property
    def is_full(self) -> bool:
        """Whether puts wait: nothing more is to be taken from clients meanwhile."""
        return bool(self._waiting) or self._has_no_room

    @property
    def plain(self) -> PlainSends | None:
        """The way of plain sends, while there is a ring and nothing goes over the socket."""
        return None if self._over_socket else self._plain

    @property
    def may_sleep(self) -> bool:
        """Whether another turn would find nothing: nothing waits for room, nor for an answer that is worth a spin."""
        return not self.is_full and (self._is_ring_empty or not self._spin.is_worth)

    def wait_for_room(self) -> None:
        """Takes nothing more until put has answered something."""
        self._has_no_room = True

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
        except MalformedFrame as error:
            self._questions.lose(now_ms, error)
            return 1

    def put(
        self, groups: Sequence[Group], records: Buffer, done: Done, *, deadline_ms: int = 0, epoch: int = 0
    ) -> bool:
        """Sends records, which are stored whole or not at all. False where put is away, or never takes so much.

        `deadline_ms` is DEADLINE_MS from now by default.
        """
        if self._link is None or len(records) > REQUEST_SIZE_MAX:
            return False
        put = Put(groups, records, deadline_ms or self._wall_ms() + DEADLINE_MS, epoch, done)
        if self._waiting or not self._send(put):
            self._waiting.append(put)
        return True

    def await_answer(self) -> None:
        """Waits a moment for put, which stores in microseconds: to sleep and be woken takes longer.

        Not where that was in vain lately, as put had no core: who spins for nothing gets one later itself.
        """
        ring = self._ring
        if ring is None or self._is_ring_empty or not self._spin.spins():
            return
        until = time.perf_counter_ns() + SPIN_NS
        while not ring.waits and time.perf_counter_ns() < until:
            pass
        self._spin.found(ring.waits)

    def ask(self, op: str, facts: Facts, told: Told) -> bool:
        return self._questions.ask(op, facts, told)

    def arm(self) -> bool:
        """Prepares for sleep; False when an answer is there already."""
        return self._ring is None or self._ring.arm()

    def disarm(self) -> None:
        ring = self._ring
        if ring is not None:
            if self._poller.ready(ring.fileno()):
                ring.disarm()
            else:
                ring.stay_awake()

    def close(self) -> None:
        self._questions.close()

    def _begin(self) -> None:
        """Makes a ring, and asks put to take it."""
        offer = Offer.of(dict(self.welcome))
        if offer is None:
            return
        try:
            self._ring = ClientRing(offer)
        except OSError as error:
            self._log.warning("records go to put over its socket: %s", error)
            return
        ring = self._ring
        self._poller.add(ring.fileno())

        def opened(facts: Facts | None, _: list[Buffer]) -> None:
            if ring is not self._ring:
                return
            self._agrees = False
            problem = refusal_in(facts, "put")
            if problem:
                self._log.warning("records go to put over its socket: %s", problem)
                self._close_ring()
            else:
                self._plain = self._make_plain(ring, offer.size)

        self._agrees = True
        if not self.ask(OPEN_RING, ring.facts, opened):
            self._agrees = False
            self._close_ring()

    def _receive(self) -> int:
        done = self._take_plain()
        while self._ring is not None and (answer := self._ring.receive()) is not None:
            found = decode_put_answer(answer)
            put = self._through_ring.pop(found.request_id, None)
            if put is not None:
                put(found)
            elif self._plain is not None:
                self._tell(self._plain.finish(found))
            done += 1 + self._take_plain()
        if done:
            self._has_no_room = False
        return done

    def _take_plain(self) -> int:
        """Answers plain sends, up to the first answer that is the interpreter's."""
        done = 0
        while self._plain is not None:
            count, why = self._plain.take(self._deliver)
            done += count
            if why == puts.BROKEN:
                raise MalformedFrame("put's ring: a position of its answers is impossible")
            if why != puts.FULL:
                break
        return done

    def _tell(self, ended: tuple[int, bytes] | None) -> None:
        if ended is not None:
            self._deliver(*ended)

    def _send_waiting(self) -> int:
        done = 0
        while self._waiting and self._send(self._waiting[0]):
            self._waiting.popleft()
            done += 1
        return done

    def _send(self, put: Put) -> bool:
        """False where it has to wait."""
        if self._agrees:
            return False
        ring = self._ring
        if ring is not None:
            head = encode_put(self._next_id + 1, put.epoch, put.deadline_ms, put.groups)
            if ring.fits(len(head) + len(put.records)):
                if self._over_socket or not ring.send(head, put.records):
                    return False
                self._next_id += 1
                self._through_ring[self._next_id] = put.done
                return True
        return self._is_ring_empty and self._send_over_socket(put)

    @property
    def _is_ring_empty(self) -> bool:
        return not self._through_ring and (self._plain is None or not self._plain.waits)

    def _send_over_socket(self, put: Put) -> bool:
        size = len(put.records)
        if self._over_socket and self._over_socket + size > CLIENT_SHARE_MAX:
            return False

        def received(parts: list[Buffer]) -> None:
            self._over_socket -= size
            put.done(decode_put_answer(parts[0]) if parts else None)

        def parts_of(number: int) -> list[Buffer]:
            return [encode_put(number, put.epoch, put.deadline_ms, put.groups), put.records]

        self._over_socket += size
        sent = self._questions.request(parts_of, received)
        if not sent:
            self._over_socket -= size
        return sent

    def _lose(self) -> None:
        """The fate of what has no answer is unknown."""
        plain = self._plain
        self._close_ring()
        self._link, self._agrees, self._has_no_room = None, False, False
        for ended in plain.abandon(self._end) if plain is not None else ():
            self._tell(ended)
        left = [*self._through_ring.values(), *(put.done for put in self._waiting)]
        self._through_ring.clear()
        self._waiting.clear()
        for done in left:
            done(None)

    def _close_ring(self) -> None:
        plain, self._plain = self._plain, None
        if plain is not None:
            plain.close()
        ring, self._ring = self._ring, None
        if ring is not None:
            self._poller.remove(ring.fileno())
            ring.close()
