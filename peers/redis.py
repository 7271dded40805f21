"""Redis Streams: XADD for each message, an append-only file that is synced each second or before each answer. A queue
is a stream."""

import re
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.errors import BenchFailed

from .plan import Answer, Durability, Kind, Setup, Work
from .server import HOST, Process, free_port, version_of
from .stream_client import READ, StreamClient, Wire, connect, frames_of, held, read_until, run_by

NAME: Final = "Redis Streams"
STREAM: Final = b"bench"
FIELD: Final = b"b"
CLIENTS_MAX: Final = 16_384  # as many as Towline's port takes; 10,000 by default
PAGE: Final = 1000  # entries that are asked for at once
_HEAD: Final = re.compile(rb"(?:\*1\r\n\*2\r\n\$%d\r\n%s\r\n)?\*(\d+)\r\n(?=[*$]|\Z)" % (len(STREAM), STREAM))
_SYNCED: Final = {Durability.ASYNC: "everysec", Durability.SYNC: "always"}


def version() -> str:
    return version_of("redis-server", "--version")


def start(directory: Path, setup: Setup) -> Process:
    port = free_port()
    command = ["redis-server", "--bind", HOST, "--port", str(port), "--dir", str(directory), "--save", ""]
    command += ["--appendonly", "yes", "--appendfsync", _SYNCED[setup.durability]]
    command += ["--maxclients", str(CLIENTS_MAX)]
    return Process(command, directory, port, sync_delay_ms=setup.sync_delay_ms)


def client() -> list[str]:
    return [sys.executable, "-m", "peers.client", "redis"]


def run(address: str, work: Work, go: Callable[[], None]) -> Answer:
    """In a client process."""
    if work.kind is Kind.IDLE:
        return held(partial(connect, HOST, int(address)), _greet, work, go)
    return run_by(work, go, partial(_put, address, work), partial(_replay, address, work))


def listen(address: str, work: Work, go: Callable[[], None]) -> npt.NDArray[np.int64]:
    """In a client process. The stream is empty at first. It asks for what comes after what it has, and waits."""
    found, times, after = [0], [0], b"0"
    with connect(HOST, int(address)) as connected:
        go()
        while sum(found) < work.expected:
            asked = command(b"XREAD", b"BLOCK", b"0", b"STREAMS", STREAM, after)
            count, after = _entries(connected, asked, work)
            found.append(count)
            times.append(time.perf_counter_ns())
    return np.repeat(np.array(times, dtype=np.int64), found)[: work.expected]


def _put(address: str, work: Work, go: Callable[[], None], timeout_s: float) -> Answer:
    elsewhere = work.kind is Kind.FIRST
    frames = frames_of(work, lambda queue, body: command(b"XADD", _stream(queue + elsewhere), b"*", FIELD, body))
    trouble = b"-LOADING" if work.kind is Kind.FIRST else b"-ERR"
    with connect(HOST, int(address), timeout_s) as connected:
        return StreamClient(connected, Wire(frames, b"$", trouble)).run(work, go)


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def _greet(connected: socket.socket) -> None:
    connected.sendall(command(b"PING"))
    read_until(connected, [b"+PONG\r\n"])


def _replay(address: str, work: Work, go: Callable[[], None]) -> Answer:
    """Page after page from the beginning; each is asked for when the one before is whole."""
    with connect(HOST, int(address)) as connected:
        go()
        began = time.perf_counter()
        done, after = 0, b"-"
        while done < work.count:
            asked = command(b"XRANGE", STREAM, after, b"+", b"COUNT", b"%d" % PAGE)
            count, last = _entries(connected, asked, work)
            if not count:
                break
            done, after = done + count, b"(" + last
        return Answer(count=done, seconds=time.perf_counter() - began)


def _entries(connected: socket.socket, asked: bytes, work: Work) -> tuple[int, bytes]:
    """How many entries the answer has, and the id of the last one. Raises BenchFailed."""
    connected.sendall(asked)
    mark = b"*2\r\n$1\r\n%s\r\n$%d\r\n" % (FIELD, work.body)  # before each body
    page = b""
    while True:
        page += connected.recv(READ)
        if page[:1] == b"-":
            raise BenchFailed(f"Redis refuses: {page[:200]!r}")
        head = _HEAD.match(page)
        if not head:
            continue
        count = int(head[1])
        if not count:
            return 0, b""
        if page.count(mark) == count and len(page) >= page.rindex(mark) + len(mark) + work.body + 2:
            return count, page[: page.rindex(mark)].rsplit(b"\r\n", 2)[1]


def _stream(queue: int) -> bytes:
    return STREAM + b"%d" % queue if queue else STREAM
