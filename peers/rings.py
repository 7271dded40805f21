"""Towline's clients through shared memory: the requests of `towlines`, sent and answered by a compiled loop."""

import math
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.errors import BenchFailed
from towline.link.context import close_context, new_context
from towline.loadtest.bench.fill import loads_of
from towline.loadtest.bench.ring import RingClient
from towline.loadtest.bench.shapes import TOPIC, Shape

from . import towlines
from .plan import Answer, Kind, Setup, Work
from .towline_node import TowlineNode

NAME: Final = "Towline, shared memory"
CHUNK: Final = {Kind.SINGLE: 2_000, Kind.PUT: 500, Kind.FILL: 500}  # requests of one call; the clock is read then


def version() -> str:
    return towlines.version()


def start(directory: Path, setup: Setup) -> TowlineNode:
    return towlines.start(directory, setup)


def client() -> list[str]:
    return [sys.executable, "-m", "peers.client", "towline-ring"]


def run(address: str, work: Work, go: Callable[[], None]) -> Answer:
    """In a client process. Raises BenchFailed, as for work that is not putting as fast as it goes."""
    if work.kind not in (*CHUNK, Kind.RATE) or work.queues > 1:
        raise BenchFailed(f"through shared memory there is no {work.name}")
    context = new_context()
    try:
        ring = RingClient(context, address.split()[0])
        try:
            ring.make_topic(queues=1)
            return _rated(ring, work, go) if work.kind is Kind.RATE else _run(ring, work, go)
        finally:
            ring.close()
    finally:
        close_context(context)


def listen(address: str, work: Work, go: Callable[[], None]) -> npt.NDArray[np.int64]:
    """In a client process: a consumer is the same for every way to put."""
    return towlines.listen(address, work, go)


def _run(ring: RingClient, work: Work, go: Callable[[], None]) -> Answer:
    together = work.together
    window = 1 if work.kind is Kind.SINGLE else max(1, work.window // together)
    load = loads_of(Shape(together, work.body), (TOPIC,), 1)[0]
    ring.send(load, 1, 1)  # the queue is known from then on
    wanted = math.ceil(work.count / together)
    us, done_s, sent = [], [], 0
    go()
    began = time.perf_counter_ns()
    until = began + int(work.seconds * 1e9)
    while sent < wanted if wanted else time.perf_counter_ns() < until:
        count = min(CHUNK[work.kind], wanted - sent) if wanted else CHUNK[work.kind]
        before = time.perf_counter_ns()
        begun, done = ring.send(load, count, window)
        after = time.perf_counter_ns()
        ns = (after - before) / max(1, int(done[-1] - begun[0]))  # of a cycle
        us.append((done - begun) * (ns / 1e3))
        done_s.append((before - began + (done - begun[0]) * ns) / 1e9)
        sent += count
    seconds = (time.perf_counter_ns() - began) / 1e9
    return Answer.of(sent * together, seconds, np.concatenate(us), np.repeat(np.concatenate(done_s), together), began)


def _rated(ring: RingClient, work: Work, go: Callable[[], None]) -> Answer:
    """What is due is sent together and awaited. What becomes due meanwhile waits; its time runs all the same."""
    load = loads_of(Shape(1, work.body), (TOPIC,), 1)[0]
    ring.send(load, 1, 1)  # the queue is known from then on
    count, finished = work.expected, np.zeros(work.expected, np.int64)
    go()
    began, sent = time.perf_counter_ns(), 0
    due = began + np.arange(count) * (1e9 / work.rate)
    while sent < count:
        left_s = (float(due[sent]) - time.perf_counter_ns()) / 1e9
        if left_s > 0:
            select.select([], [], [], left_s)
        ready = max(sent + 1, int(np.searchsorted(due, time.perf_counter_ns(), side="right")))
        ring.send(load, ready - sent, work.window)
        finished[sent:ready] = time.perf_counter_ns()
        sent = ready
    return Answer.of(count, float(finished[-1] - began) / 1e9, (finished - due) / 1e3, (finished - began) / 1e9, began)
