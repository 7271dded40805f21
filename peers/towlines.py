"""Towline's clients over ZeroMQ or TCP: requests of many messages (of one where one at a time is sent), made before."""

import math
import select
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import zmq

from towline.client.consumer import Consumer
from towline.client.kernels import load_kernels
from towline.errors import BenchFailed, TowlineError
from towline.format.wire.frames import Buffer, Group, decode_put_answer, encode_put
from towline.format.wire.status import PutStatus
from towline.link.context import close_context, new_context
from towline.link.poller import Writing
from towline.link.wire import Link
from towline.loadtest.bench.client import PutClient
from towline.loadtest.bench.fill import loads_of, records_of
from towline.loadtest.bench.shapes import NEVER, TOPIC, Shape

from .plan import Answer, Kind, Setup, Work
from .stream_client import SILENT_S
from .towline_node import TowlineNode

NAME: Final = "Towline"
FIRST_TOPIC: Final = "first"
FIRST_MAX_S: Final = 120.0
AGAIN_S: Final = 0.002
QUIET_MS: Final = 5_000
SETTLED_MS: Final = 500  # until a consumer has found the end
_STATUS_AT: Final = 1

Request = tuple[bytes, Buffer]


def version() -> str:
    return f"towline {metadata.version('towline')}"


def start(directory: Path, setup: Setup) -> TowlineNode:
    return TowlineNode(directory, setup)


def client() -> list[str]:
    return [sys.executable, "-m", "peers.client", "towline"]


def run(address: str, work: Work, go: Callable[[], None]) -> Answer:
    """In a client process."""
    put, serve = address.split()
    match work.kind:
        case Kind.REPLAY:
            return replay(serve, work, go)
        case Kind.FIRST:
            return _first(put, work, go)
        case _:
            return _put(put, work, go)


def listen(address: str, work: Work, go: Callable[[], None]) -> npt.NDArray[np.int64]:
    """In a client process."""
    put, serve = address.split()
    _make_topic(put, TOPIC, work.queues)  # a consumer begins at the end of what is there
    found, times = [0], [0]
    with Consumer(serve, TOPIC, start="last") as consumer:
        consumer.poll_columns(SETTLED_MS)
        go()
        while sum(found) < work.expected:
            columns = consumer.poll_columns(int(1000 * SILENT_S))
            if columns is None:
                raise BenchFailed(f"{sum(found)} of {work.expected} messages came")
            found.append(len(columns))
            times.append(time.perf_counter_ns())
    return np.repeat(np.array(times, dtype=np.int64), found)[: work.expected]


def requests_of(work: Work, together: int, window: int) -> list[Request]:
    """Requests of `together` messages that go round the queues; no two in a window have the same id."""
    queues = work.queues
    if queues == 1:
        load = loads_of(Shape(together, work.body), (TOPIC,), 1)[0]
        of_turn = [([Group(TOPIC.encode(), 0, together, len(load.records))], load.records)]
    else:
        each = [records for _, _, records in records_of(Shape(1, work.body), (TOPIC,), queues)]
        turns = math.lcm(queues, together) // together
        # A queue has one group in a request: of fewer queues than messages, some have several in it.
        chosen = [Counter((turn * together + number) % queues for number in range(together)) for turn in range(turns)]
        of_turn = [
            (
                [Group(TOPIC.encode(), queue, count, count * len(each[queue])) for queue, count in some.items()],
                b"".join(each[queue] * count for queue, count in some.items()),
            )
            for some in chosen
        ]
    records = [cast(Buffer, zmq.Frame(data, copy=False)) for _, data in of_turn]  # sent many times, copied never
    count = len(of_turn) * math.ceil(2 * window / len(of_turn))
    turns_of = [number % len(of_turn) for number in range(count)]
    return [(encode_put(number, 0, NEVER, of_turn[turn][0]), records[turn]) for number, turn in enumerate(turns_of)]


def _put(endpoint: str, work: Work, go: Callable[[], None]) -> Answer:
    context = new_context()
    try:
        client = _Client(context, endpoint)
        try:
            client.make_topic(queues=work.queues)
            return client.run(work, go)
        finally:
            client.close()
    finally:
        close_context(context)


def _make_topic(endpoint: str, topic: str, queues: int) -> None:
    _with_client(endpoint, lambda client: client.make_topic(topic, queues))


def _with_client(endpoint: str, use: Callable[[PutClient], None]) -> None:
    context = new_context()
    try:
        client = PutClient(context, endpoint)
        try:
            use(client)
        finally:
            client.close()
    finally:
        close_context(context)


class _Client(PutClient):
    """Times every request by when it was sent, or due."""

    def run(self, work: Work, go: Callable[[], None]) -> Answer:
        """Raises BenchFailed."""
        together = work.together
        window = 1 if work.kind is Kind.SINGLE else max(1, work.window // together)
        requests = requests_of(work, together, window)
        go()
        total = math.ceil(work.count / together) if work.count else work.expected
        return self._timed(work, requests, together, window, total)

    def _timed(self, work: Work, requests: list[Request], together: int, window: int, total: int) -> Answer:
        link, clock = self._link, time.perf_counter_ns
        began = clock()
        until = began + int(work.seconds * 1e9)
        step = 1e9 / work.rate if work.rate else 0.0
        begun: deque[float] = deque()
        us: list[float] = []
        done: list[int] = []
        sent = 0
        while True:
            now = clock()
            over = sent >= total if total else now >= until
            if over and not begun:
                break
            due = began + sent * step if step else now
            open_ = not over and len(begun) < window
            if open_ and now >= due and link.send(requests[sent % len(requests)]):
                begun.append(due)
                sent += 1
                continue
            answer = link.receive()
            if answer is None:
                if link.lost:
                    raise BenchFailed(f"the link to put was lost after {len(us)} answers")
                wait_s = (due - clock()) / 1e9 if open_ else SILENT_S
                # Nothing is there to be read, so the descriptor says when there is; ZeroMQ's own poll counts in ms.
                if not _await(link, max(0.0, wait_s)) and not open_:
                    raise BenchFailed("the put process does not answer")
                continue
            if answer[0][_STATUS_AT] != PutStatus.PUT_OK:
                raise BenchFailed(f"a put was refused: {decode_put_answer(answer[0]).sentence}")
            ended = clock()
            us.append((ended - begun.popleft()) / 1e3)
            done.append(ended - began)
        done_s = np.array(done) / 1e9
        return Answer.of(sent * together, float(done_s[-1]), np.array(us), np.repeat(done_s, together), began)


def _await(link: Link, seconds: float) -> bool:
    """Whether the link has something to receive within so many seconds, or can send more of what waits."""
    first = link.sockets[0]
    if isinstance(first, Writing):
        return any(select.select([first.descriptor], [first.descriptor], [], seconds))
    return bool(select.select([first if isinstance(first, int) else int(first.get(zmq.FD))], [], [], seconds)[0])


def _first(endpoint: str, work: Work, go: Callable[[], None]) -> Answer:
    """Looks whether the socket is listened to, which is cheap, and greets then."""
    load = loads_of(Shape(1, work.body), (FIRST_TOPIC,), 1)[0]
    _make_topic(endpoint, FIRST_TOPIC, 1)
    go()
    began = time.perf_counter()
    while True:
        try:
            _listens(endpoint.removeprefix("ipc://"))
            _with_client(endpoint, lambda client: client.send(load, 1))
            return Answer(count=1, seconds=time.perf_counter() - began)
        except (TowlineError, OSError):
            if time.perf_counter() - began > FIRST_MAX_S:
                raise
        select.select([], [], [], AGAIN_S)


def _listens(path: str) -> None:
    """Raises OSError."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(path)


def replay(serve: str, work: Work, go: Callable[[], None]) -> Answer:
    """Reads by a Consumer at an address of the node's."""
    load_kernels()
    with Consumer(serve, TOPIC, suspend_ms=0) as consumer:
        consumer.position()  # linked, as the others' clients are
        go()
        began = time.perf_counter()
        done = 0
        while done < work.count:
            columns = consumer.poll_columns(QUIET_MS)
            if columns is None:
                break
            done += len(columns)
        return Answer(count=done, seconds=time.perf_counter() - began)
