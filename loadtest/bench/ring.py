"""A put client at wire level through shared memory: the requests of `client.PutClient`, sent by a compiled loop."""

import select
import time
from typing import Any, Final

import numpy as np

from towline.errors import BenchFailed
from towline.format.wire.frames import ASK, Kind, json_part, read_json
from towline.format.wire.put_ring import Word
from towline.kernels.jit.compiled import Numbers
from towline.kernels.put.ring_load import (
    ANSWERED,
    ANSWERED_HEAD,
    ASLEEP,
    DONE,
    REFUSED,
    SENT,
    STATE_SIZE,
    TOLD,
    put_through,
)
from towline.link.context import Context
from towline.link.dealer import Link
from towline.link.poller import Poller
from towline.link.put_ring import ClientRing, Offer

from .client import ANSWER_MAX_MS, FACTS
from .shapes import TOPIC, Load

LOOKS: Final = 600  # at a ring without an answer, some 20 us; then the client sleeps, as a producer does
SILENT_S: Final = 10.0


class RingClient:
    """One greeted link to a put process, and a ring beside it."""

    def __init__(self, context: Context, endpoint: str) -> None:
        """Raises BenchFailed where the node takes no ring."""
        self._link = Link(context, endpoint, FACTS)
        self._poller = Poller(self._link)
        offer = Offer.of(self._link.greet(ANSWER_MAX_MS))
        if offer is None:
            raise BenchFailed("the node offers no rings in shared memory")
        self._area = offer.size
        self.ring = ClientRing(offer)
        answer = self._ask({"op": "open_ring", **self.ring.facts})
        if "error" in answer:
            raise BenchFailed(f"the ring is refused: {answer['sentence']}")
        self._bytes = np.frombuffer(self.ring.memory.view, np.uint8)
        self._state = np.zeros(STATE_SIZE, np.int64)

    def make_topic(self, topic: str = TOPIC, queues: int = 0) -> None:
        """A topic of so many queues; 0: as many as a topic has by default."""
        self._ask(
            {"op": "create_topic", "topic": topic, "queues": queues} if queues else {"op": "route", "topic": topic}
        )

    def measure(self, load: Load, requests: int, window: int) -> float:
        """Seconds for `requests` requests, from the first one sent to the last one acknowledged."""
        self.send(load, max(1, window), window)
        started = time.perf_counter()
        self.send(load, requests, window)
        return time.perf_counter() - started

    def send(self, load: Load, requests: int, window: int) -> tuple[Numbers, Numbers]:
        """Returns when all of them are acknowledged: when each was sent and answered, in cycles.

        Raises BenchFailed.
        """
        if not self.ring.fits(len(load.heads[0]) + len(load.records)):
            raise BenchFailed(f"a request of {len(load.records)} bytes does not fit a ring of {self._area}")
        head, records = np.frombuffer(load.heads[0], np.uint8), np.frombuffer(load.records, np.uint8)
        begun, done = np.zeros(requests, np.int64), np.zeros(requests, np.int64)
        state, size = self._state, self._area
        state[SENT] = state[ANSWERED] = state[TOLD] = 0
        while (
            why := put_through(self._bytes, size, state, head, records, requests, window, LOOKS, begun, done)
        ) != DONE:
            if why == REFUSED:
                raise BenchFailed("a put was refused")
            if why == ASLEEP:
                self.ring.nudge()
            else:
                self._sleep()
        return begun, done

    def _sleep(self) -> None:
        """Until put rings."""
        answers = self.ring.answers
        answers.go_to(answers.places[0], int(self._state[ANSWERED_HEAD]))
        came = not self.ring.arm() or select.select([self.ring], [], [], SILENT_S)[0]
        self.ring.disarm()
        if not came or self.ring.memory.words[Word.CUT]:
            raise BenchFailed("the put process does not answer")

    def close(self) -> None:
        del self._bytes
        self.ring.close()
        self._link.close()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        self._link.send([ASK.pack(Kind.ASK, 0), json_part(question)])
        while (parts := self._link.receive()) is None:
            if self._link.lost or not self._poller.poll(ANSWER_MAX_MS):
                raise BenchFailed("the put process does not answer")
        return read_json(parts[1])
