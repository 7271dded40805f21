"""A client that puts one message at a time, at changing gaps, and tells how long the slowest one took.

A process of its own for each way, so that nothing of its own stands in the way of what it measures:
`python -m tests.soak.round_trips WAY ENDPOINT COUNT SEED`.
"""

import json
import random
import select
import sys
import time
from collections.abc import Callable
from typing import Any, Final, cast

import zmq

from towline.format.wire.put_ring import Word
from towline.format.wire.status import PutStatus
from towline.link.context import close_context, new_context
from towline.link.poller import Poller
from towline.loadtest.bench.client import greeted
from towline.loadtest.bench.fill import loads_of
from towline.loadtest.bench.ring import RingClient
from towline.loadtest.bench.shapes import Load, Shape

TOPIC: Final = "trips"
WAYS: Final = ("tcp", "ipc", "ring")
SILENT_S: Final = 60.0
# Share of trips, and the longest gap before one: none, put still looks, both sleep, put is at rest.
GAPS: Final = ((0.6, 0.0), (0.3, 100e-6), (0.0998, 1e-3), (0.0002, 0.8))
_STATUS_AT: Final = 1


def main() -> None:
    way, endpoint, count, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    context = new_context()
    load = loads_of(Shape(1, 100), (TOPIC,), 1)[0]
    trips = Rings(context, endpoint, load) if way == "ring" else Sockets(context, endpoint, load)
    slowest = measure(trips.trip, count, random.Random(seed))
    trips.close()
    close_context(context)
    json.dump({"count": count, "slowest_s": slowest}, sys.stdout)


def measure(trip: Callable[[], None], count: int, choice: random.Random) -> float:
    """Seconds of the slowest of so many."""
    slowest = 0.0
    weights, longest = [weight for weight, _ in GAPS], [gap for _, gap in GAPS]
    for gap in choice.choices(longest, weights, k=count):
        if gap:
            wait(choice.random() * gap)
        began = time.perf_counter()
        trip()
        slowest = max(slowest, time.perf_counter() - began)
    return slowest


def wait(seconds: float) -> None:
    """Short ones awake: a sleep is no shorter than 50 us."""
    if seconds > 100e-6:
        select.select([], [], [], seconds)
    until = time.perf_counter() + min(seconds, 100e-6)
    while time.perf_counter() < until:
        pass


class Sockets:
    """Over TCP, or put's socket. It sleeps by our poller and by the descriptor in turns."""

    def __init__(self, context: Any, endpoint: str, load: Load) -> None:
        self._link, _ = greeted(context, endpoint)
        self._poller = Poller(self._link)
        first = self._link.sockets[0]
        self._descriptor = first if isinstance(first, int) else int(first.get(zmq.FD))
        self._node_groups = [load.heads[0], load.records]
        self._turn = 0

    def trip(self) -> None:
        """Raises RuntimeError where no PUT_OK comes."""
        self._turn += 1
        assert self._link.send(self._node_groups)
        while (answer := self._link.receive()) is None:
            if self._link.lost:
                raise RuntimeError(f"the link was lost in trip {self._turn}")
            if not self._sleep():
                raise RuntimeError(f"nothing was answered to trip {self._turn} in {SILENT_S} s")
        if answer[0][_STATUS_AT] != PutStatus.PUT_OK:
            raise RuntimeError(f"trip {self._turn} was refused: {bytes(cast(bytes, answer[0]))!r}")

    def _sleep(self) -> bool:
        if self._turn % 2:
            return self._poller.poll(int(1000 * SILENT_S))
        return bool(select.select([self._descriptor], [], [], SILENT_S)[0])

    def close(self) -> None:
        self._link.close()


class Rings:
    """Through shared memory."""

    def __init__(self, context: Any, endpoint: str, load: Load) -> None:
        self._client = RingClient(context, endpoint)
        self._load = load

    def trip(self) -> None:
        """Raises BenchFailed where no PUT_OK comes."""
        self._client.send(self._load, 1, 1)
        assert not self._client.ring.memory.words[Word.CUT]

    def close(self) -> None:
        self._client.close()


if __name__ == "__main__":
    main()
