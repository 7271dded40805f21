"""The way of puts to a node: over the socket or, on the node's own machine, through a put ring in shared memory.

The link is kept beside a ring: it announces the ring, carries questions, notices that put has ended, and carries
requests that are too large for the ring. Puts change to the other way only when all have their answers, so their order
stays.
"""

import logging
import select
import time
from collections import deque
from typing import Final

from towline.client.link.connection import Connection
from towline.client.link.rpc import PendingCall
from towline.errors import MalformedFrame
from towline.format.wire.frames import Buffer
from towline.link.endpoints import parse
from towline.link.poller import Poller, Writing
from towline.link.put_ring import ClientRing, Offer
from towline.link.wire import Link

from .futures import MS

log = logging.getLogger(__name__)

OPEN_RING: Final = "open_ring"
AGREED_MS: Final = 2_000  # put has so long to take the ring
SPIN_S: Final = 200e-6  # an answer that is there sooner costs no sleep; other threads wait meanwhile
AWAITED_MS: Final = 2  # likewise, of one over a socket
CALMER: Final = 0.9
TRIED_EVERY: Final = 32
SPINS_FROM: Final = 0.2  # share of waits that ended while spinning, lately


class Transport:
    """The way of puts of one I/O thread. `calls` go over its link, and end with it."""

    def __init__(self, poller: Poller, calls: deque[PendingCall]) -> None:
        self._poller, self._calls = poller, calls
        self._ring: ClientRing | None = None
        self._offer_call: PendingCall | None = None  # whether put takes the ring
        self._agreed = False
        self._declined = False  # put has cut one off: no other one is made
        self._over_socket = 0  # puts without an answer
        self._through_ring = 0
        self._full = False
        self._hits = 1.0
        self._sleeps = 0

    def begin(self, connection: Connection) -> None:
        """After a new link: makes a ring where the node offers one."""
        offer = Offer.of(connection.welcome)
        if offer is None or self._declined or parse(connection.endpoint).scheme != "ipc":
            return
        try:
            self._ring = ClientRing(offer)
        except OSError as error:
            log.info("puts go over the socket: a ring cannot be made (%s)", error)
            return
        self._poller.add(self._ring.fileno())
        self._offer_call = PendingCall(OPEN_RING, self._ring.facts, AGREED_MS, time.monotonic() + AGREED_MS / MS)
        self._calls.appendleft(self._offer_call)

    def check_offer(self) -> None:
        """Uses the ring once put has accepted it, and closes it when put has refused."""
        call = self._offer_call
        if call is None or not call.answered.is_set():
            return
        self._offer_call = None
        if call.error is None:
            self._agreed = True
        else:
            log.info("puts go over the socket: %s", call.error)
            self._close_ring()

    def end(self) -> int:
        """Ends a lost link, with every put that has no answer. Returns the id of the call that ends with it."""
        call, self._offer_call = self._offer_call, None
        if call is not None and call in self._calls:
            self._calls.remove(call)
        self._over_socket = self._through_ring = 0
        self._full = False
        self._close_ring()
        return call.request_id if call is not None else 0

    def _close_ring(self) -> None:
        self._agreed = False
        ring, self._ring = self._ring, None
        if ring is not None:
            self._poller.remove(ring.fileno())
            ring.close()

    # --- puts

    @property
    def uses_ring(self) -> bool:
        """Whether the newest put went through the ring."""
        return self._through_ring > 0

    @property
    def is_full(self) -> bool:
        """Whether nothing can be sent before something is answered."""
        return self._full

    @property
    def is_ring(self) -> bool:
        """Whether puts that fit go through the ring now."""
        return self._ring is not None and self._agreed and not self._over_socket

    def put(self, link: Link | None, head: bytes, records: Buffer) -> bool:
        """Sends a put, without a `link` through the ring alone; False when it was not sent. Raises MalformedFrame."""
        ring = self._ring if self._agreed else None
        if ring is not None and ring.fits(len(head) + len(records)):
            if self._over_socket or not ring.send(head, records):
                self._full = bool(self._over_socket or self._through_ring)
                return False
            self._through_ring += 1
            return True
        if self._through_ring:
            self._full = True
            return False
        if link is None or not link.send([head, records]):
            return False
        self._over_socket += 1
        return True

    def receive(self) -> list[Buffer] | None:
        """The next answer out of the ring; None without one. Raises MalformedFrame when put has cut the ring off."""
        if self._ring is None:
            return None
        try:
            answer = self._ring.receive()
        except MalformedFrame:
            self._declined = True
            raise
        if answer is None:
            return None
        self._through_ring = max(0, self._through_ring - 1)
        self._full = False
        return [answer]

    def answered(self) -> None:
        """Counts an answer that came over the socket."""
        self._over_socket = max(0, self._over_socket - 1)
        self._full = False

    # --- waiting

    def takes_alone(self, link: Link) -> bool:
        """Whether the next put may be sent, and its answer taken, on any thread: through the ring, which is empty, or
        over a link that takes turns."""
        if self._through_ring or self._over_socket:
            return False
        return self.is_ring or (link.takes_turns and self._ring is None)

    def await_answer(self, link: Link) -> bool:
        """Waits for an answer: spins at the ring, sleeps at a socket; False where none comes soon."""
        if self._ring is not None:
            return self._spin(self._ring)
        (source,) = link.sockets
        poll = select.poll()
        if isinstance(source, Writing):
            poll.register(source.descriptor, select.POLLIN | select.POLLOUT)
        else:
            poll.register(source, select.POLLIN)
        return bool(poll.poll(AWAITED_MS))

    def arm(self) -> bool:
        """Prepares for sleep; False when an answer is there already."""
        ring = self._ring
        if ring is None:
            return True
        self._sleeps += 1
        worth = self._hits >= SPINS_FROM or self._sleeps % TRIED_EVERY == 0
        if self._through_ring and worth and self._spin(ring):
            return False
        return ring.arm()

    def stay_awake(self) -> None:
        """Takes the answers of the ring while the I/O thread sleeps; ends with `arm_ring`."""
        if self._ring is not None:
            self._ring.stay_awake()

    def arm_ring(self) -> bool:
        """Prepares for the I/O thread's sleep once more; False when an answer is there already."""
        return self._ring is None or self._ring.arm()

    def disarm(self) -> None:
        if self._ring is not None:
            self._ring.disarm()

    def _spin(self, ring: ClientRing) -> bool:
        """Whether an answer came meanwhile. Where that is rare it is tried only now and then."""
        until = time.perf_counter() + SPIN_S
        found = ring.waits
        while not found and time.perf_counter() < until:
            found = ring.waits
        self._hits = self._hits * CALMER + (1 - CALMER) * found
        return found
