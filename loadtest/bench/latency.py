"""Measures latencies of a pipelined load at a steady rate: each request from its sending to its acknowledgement."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import zmq

from towline.errors import BenchFailed
from towline.format.wire.frames import Buffer, Group, decode_put_answer, encode_put
from towline.format.wire.status import PutStatus

from .client import ANSWER_MAX_MS, PutClient
from .shapes import NEVER, TOPIC, Load

WINDOW: Final = 512  # far more than are ever on their way, unless the node stands still
NS: Final = 1_000_000_000
QUANTILES: Final = {"p50_us": 50.0, "p99_us": 99.0, "p99_9_us": 99.9, "p99_99_us": 99.99, "max_us": 100.0}


@dataclass(frozen=True, slots=True)
class Timings:
    """Of acknowledged requests, in the order they were appended: when sent and acknowledged in ns, where appended."""

    sent: npt.NDArray[np.int64]
    acked: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]

    def crossed(self, segment_size: int) -> npt.NDArray[np.bool_]:
        """Which requests began a segment, or were on their way when one did: sent before its acknowledgement, and
        acknowledged not before it."""
        found: npt.NDArray[np.bool_] = np.zeros(len(self.sent), dtype=np.bool_)
        for first in self.switches(segment_size):
            at = self.acked[first]
            found |= (self.sent <= at) & (self.acked >= at)
        return found

    def switches(self, segment_size: int) -> npt.NDArray[np.int64]:
        """Rows of the requests that began a segment."""
        return np.flatnonzero(np.diff(self.offset // segment_size)) + 1

    @property
    def seconds(self) -> float:
        """From the first one sent to the last one acknowledged."""
        return float(self.acked[-1] - self.sent[0]) / NS

    @property
    def us(self) -> npt.NDArray[np.float64]:
        return (self.acked - self.sent) / 1000.0


class TimedClient(PutClient):
    """Sends `load` at `rate` requests per second, whether answers come or not."""

    def run(self, load: Load, rate: float, seconds: float, each: Callable[[], None] | None = None) -> Timings:
        """Raises BenchFailed when a put is refused or not answered. `each` is called behind every answer."""
        group = Group(TOPIC.encode(), 0, load.shape.records, len(load.records))
        heads = [encode_put(number, 0, NEVER, [group]) for number in range(WINDOW)]
        records = cast(Buffer, zmq.Frame(load.records, copy=False))
        count = int(rate * seconds)
        sent = np.zeros(count, dtype=np.int64)
        done: list[tuple[int, int, int]] = []
        on_their_way: deque[int] = deque()
        clock, link = time.perf_counter_ns, self._link
        began, number, heard = clock(), 0, clock()
        while len(done) < count:
            due = min(count, int((clock() - began) * rate / NS) + 1)
            while number < due and len(on_their_way) < WINDOW and link.send([heads[number % WINDOW], records]):
                sent[number] = clock()
                on_their_way.append(number)
                number += 1
            while (answer := link.receive()) is not None:
                heard = clock()
                done.append((on_their_way.popleft(), heard, _offset(answer)))
                if each is not None:
                    each()
            if clock() - heard > ANSWER_MAX_MS * 1_000_000:
                raise BenchFailed("the put process does not answer")
            self._poller.poll(1)
        return _timings(sent, done)


def figures(us: npt.NDArray[np.float64]) -> dict[str, float]:
    """Quantiles, and how many there were."""
    found = {name: float(np.percentile(us, share)) for name, share in QUANTILES.items()}
    return found | {"requests": float(len(us))}


def _offset(answer: list[Any]) -> int:
    put = decode_put_answer(answer[0])
    if put.status != PutStatus.PUT_OK:
        raise BenchFailed(f"a put was refused: {put.sentence}")
    return put.places[0][1]


def _timings(sent: npt.NDArray[np.int64], done: list[tuple[int, int, int]]) -> Timings:
    rows = np.array(done, dtype=np.int64)
    return Timings(sent[rows[:, 0]], rows[:, 1], rows[:, 2])
