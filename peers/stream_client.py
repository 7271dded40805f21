"""A client over a plain TCP stream: frames encoded beforehand, answers counted, not parsed.

For servers whose answers come in the order of the requests, each with a mark that stands nowhere else in them.
"""

import math
import resource
import select
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.errors import BenchFailed
from towline.limits import MIB

from .plan import Answer, Kind, Work, body_of

SILENT_S: Final = 20.0
CHUNK: Final = 64  # frames that are sent together while the window has room for them
READ: Final = MIB
AGAIN_S: Final = 0.005  # before a server that does not listen yet is tried again
ATTEMPT_S: Final = 1.0
FIRST_MAX_S: Final = 120.0
QUIET_S: Final = 5.0  # without a message: there are no more


@dataclass(frozen=True, slots=True)
class Wire:
    """Each of `frames` asks for one message to be stored: a multiple of CHUNK, sent round and round. Each answer holds
    `mark` once, and `trouble` where it refuses."""

    frames: tuple[bytes, ...]
    mark: bytes
    trouble: bytes

    def chunks(self) -> list[bytes]:
        return [b"".join(self.frames[first : first + CHUNK]) for first in range(0, len(self.frames), CHUNK)]


def frames_of(work: Work, frame: Callable[[int, bytes], bytes]) -> tuple[bytes, ...]:
    """What `frame` makes of a queue and a body: going round the queues, bodies that differ."""
    bodies = [body_of(work.body, number) for number in range(CHUNK)]
    count = math.lcm(work.queues, CHUNK)
    return tuple(frame(number % work.queues, bodies[number % CHUNK]) for number in range(count))


class StreamClient:
    def __init__(self, connected: socket.socket, wire: Wire) -> None:
        self._socket, self._wire = connected, wire
        self._socket.setblocking(False)
        self._rest = b""  # the end of what was read, in which a mark may have begun
        self._done = 0  # answers since `run` was called
        self._times: list[tuple[int, int]] = []  # (answers, ns) at each reading

    def run(self, work: Work, go: Callable[[], None]) -> Answer:
        """Raises BenchFailed where the server refuses or falls silent."""
        chunks = self._wire.chunks()
        go()
        self._done, self._times = 0, []
        match work.kind:
            case Kind.FIRST:
                return self._first()
            case Kind.PUT | Kind.FILL:
                return self._put(work, chunks)
            case Kind.SINGLE:
                return self._single(work)
            case Kind.RATE:
                return self._rated(work)
            case other:
                raise ValueError(f"{other} is not for a client that puts")

    def _first(self) -> Answer:
        began = time.perf_counter()
        self._send(self._wire.frames[0])
        while not self._done:
            self._listen(ATTEMPT_S)
            if time.perf_counter() - began > ATTEMPT_S:
                raise BenchFailed("the server does not acknowledge")
        return Answer(count=1, seconds=time.perf_counter() - began)

    def _put(self, work: Work, chunks: list[bytes]) -> Answer:
        turns, began = cycle(chunks), time.perf_counter_ns()
        until = began + int(work.seconds * 1e9)
        sent = 0
        sent_at: list[int] = []
        while True:
            over = sent >= work.count if work.count else time.perf_counter_ns() >= until
            if over and self._done >= sent:
                break
            if not over and sent - self._done <= work.window - CHUNK:
                sent_at.append(time.perf_counter_ns())
                self._send(next(turns))
                sent += CHUNK
                self._listen(0.0)
            else:
                self._listen(SILENT_S)
        counts, ns = np.array(self._times, dtype=np.int64).reshape(-1, 2).T
        ends = np.cumsum(counts)
        last = ns[np.searchsorted(ends, CHUNK * np.arange(1, len(sent_at) + 1))]  # when each chunk was answered whole
        us = (last - np.array(sent_at)) / 1e3
        done_s = np.repeat((ns - began) / 1e9, counts)
        return Answer.of(self._done, float(ns[-1] - began) / 1e9, us, done_s)

    def _single(self, work: Work) -> Answer:
        began = time.perf_counter_ns()
        until = began + int(work.seconds * 1e9)
        times = [began]
        while times[-1] < until:
            self._send(self._wire.frames[0])
            while self._done < len(times):
                self._listen(SILENT_S)
            times.append(time.perf_counter_ns())
        ns = np.array(times)
        return Answer.of(len(ns) - 1, float(ns[-1] - began) / 1e9, np.diff(ns) / 1e3, (ns[1:] - began) / 1e9)

    def _rated(self, work: Work) -> Answer:
        """Open loop: a message is sent when it is due, or as soon as can be, and timed from when it was due."""
        count = work.expected
        began = time.perf_counter_ns()
        due = began + np.arange(count) * (1e9 / work.rate)
        sent = 0
        while self._done < count:
            now = time.perf_counter_ns()
            ready = min(count, int(np.searchsorted(due, now, side="right")))
            if ready > sent:
                self._send(self._wire.frames[0] * (ready - sent))
                sent = ready
            left = SILENT_S if sent == count else (float(due[sent]) - time.perf_counter_ns()) / 1e9
            self._listen(max(0.0, left))
        counts, ns = np.array(self._times, dtype=np.int64).reshape(-1, 2).T
        finished = np.repeat(ns, counts)[:count]
        return Answer.of(count, float(ns[-1] - began) / 1e9, (finished - due) / 1e3, (finished - began) / 1e9, began)

    def _send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                self._listen(0.0)
                select.select([self._socket], [self._socket], [], SILENT_S)

    def _listen(self, wait_s: float) -> None:
        """Counts the answers that have come; waits for some. Raises BenchFailed where none comes in SILENT_S."""
        if wait_s and not select.select([self._socket], [], [], wait_s)[0]:
            if wait_s >= SILENT_S:
                raise BenchFailed(f"the server says nothing for {SILENT_S:.0f} s")
            return
        try:
            data = self._socket.recv(READ)
        except BlockingIOError:
            return
        if not data:
            raise BenchFailed("the server closed the connection")
        if self._wire.trouble in data:
            at = data.index(self._wire.trouble)
            raise BenchFailed(f"the server refuses: {data[at : at + 200]!r}")
        data = self._rest + data
        count = data.count(self._wire.mark)
        keep = len(self._wire.mark) - 1
        self._rest = data[-keep:] if keep else b""
        if count:
            self._done += count
            self._times.append((count, time.perf_counter_ns()))


def connect(host: str, port: int, timeout_s: float = SILENT_S) -> socket.socket:
    made = socket.create_connection((host, port), timeout=timeout_s)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MIB)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * MIB)
    return made


def held(
    open_one: Callable[[], socket.socket], greet: Callable[[socket.socket], object], work: Work, go: Callable[[], None]
) -> Answer:
    """This client's part of `work.count` connections: open and greeted before `go` is called, closed behind it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    count = work.count // work.clients
    began = time.perf_counter()
    with ExitStack() as opened:
        for _ in range(count):
            greet(opened.enter_context(open_one()))
        seconds = time.perf_counter() - began
        go()
    return Answer(count=count, seconds=seconds)


def run_by(
    work: Work,
    go: Callable[[], None],
    put: Callable[[Callable[[], None], float], Answer],
    replay: Callable[[Callable[[], None]], Answer],
) -> Answer:
    """The work, by a system's own ways to put (given how long to wait for the server) and to replay."""
    match work.kind:
        case Kind.FIRST:
            go()
            return _until_acknowledged(lambda: put(lambda: None, ATTEMPT_S))
        case Kind.REPLAY:
            return replay(go)
        case _:
            return put(go, SILENT_S)


def _until_acknowledged(attempt: Callable[[], Answer]) -> Answer:
    """Tries until the server listens and acknowledges. Raises what the last attempt met."""
    deadline = time.monotonic() + FIRST_MAX_S
    while True:
        try:
            return attempt()
        except (OSError, BenchFailed):
            if time.monotonic() > deadline:
                raise
        time.sleep(AGAIN_S)


def arrivals(connected: socket.socket, mark: bytes, count: int, within_s: float = SILENT_S) -> npt.NDArray[np.int64]:
    """ns at which each of `count` marks was read, or of those that came until nothing came for so long."""
    connected.settimeout(within_s)
    found, times, done, rest = [0], [0], 0, b""
    keep = len(mark) - 1
    while done < count:
        try:
            more = connected.recv(READ)
        except TimeoutError:
            break
        if not more:
            raise BenchFailed(f"the server closed the connection after {done} messages")
        data = rest + more
        new = data.count(mark)
        rest = data[-keep:]
        done += new
        found.append(new)
        times.append(time.perf_counter_ns())
    return np.repeat(np.array(times, dtype=np.int64), found)[:count]


def read_until(connected: socket.socket, ends: Sequence[bytes]) -> bytes:
    """What comes until it ends so; for what is asked before anything is measured."""
    found = b""
    while not any(found.endswith(end) for end in ends):
        more = connected.recv(READ)
        if not more:
            raise BenchFailed(f"the server closed the connection after {found[-200:]!r}")
        found += more
    return found
