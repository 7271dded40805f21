"""NATS JetStream: one stream in files, a subject for each queue; a message is published with a reply subject, where it
is acknowledged."""

import json
import re
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from towline.errors import BenchFailed

from .plan import Answer, Durability, Kind, Setup, Work
from .server import HOST, Missing, Process, free_port, version_of
from .stream_client import QUIET_S, StreamClient, Wire, arrivals, connect, frames_of, held, read_until, run_by

NAME: Final = "NATS JetStream"
STREAM: Final = "bench"
INBOX: Final = b"_INBOX.bench"
_CONFIG: Final = 'listen: "{host}:{port}"\njetstream {{ store_dir: "{directory}"{synced} }}\n'
_SYNCED: Final = {Durability.ASYNC: "", Durability.SYNC: ", sync_interval: always"}
_SYNCS_SINCE: Final = (2, 10)


def version() -> str:
    return version_of(_program(), "--version")


def start(directory: Path, setup: Setup) -> Process:
    """Raises Missing: a sync before each acknowledgement came with 2.10."""
    if setup.durability is Durability.SYNC and _number(version()) < _SYNCS_SINCE:
        raise Missing("nats-server before 2.10 has no setting that syncs before an acknowledgement")
    port = free_port()
    config = directory / "nats.conf"
    synced = _SYNCED[setup.durability]
    config.write_text(_CONFIG.format(host=HOST, port=port, directory=directory, synced=synced))
    return Process([_program(), "-c", str(config)], directory, port, sync_delay_ms=setup.sync_delay_ms)


def _program() -> str:
    """That of the extra `peers`, where it is installed; otherwise the machine's own."""
    ours = Path(sys.executable).parent / "nats-server"
    return str(ours) if ours.exists() else "nats-server"


def _number(said: str) -> tuple[int, ...]:
    """`nats-server: v2.15.1` -> (2, 15, 1)."""
    return tuple(int(part) for part in re.findall(r"\d+", said)[:3])


def client() -> list[str]:
    return [sys.executable, "-m", "peers.client", "nats"]


def run(address: str, work: Work, go: Callable[[], None]) -> Answer:
    """In a client process."""
    if work.kind is Kind.IDLE:
        return held(partial(connect, HOST, int(address)), _hello, work, go)
    return run_by(work, go, partial(_put, address, work), partial(_replay, address, work))


def listen(address: str, work: Work, go: Callable[[], None]) -> npt.NDArray[np.int64]:
    """In a client process."""
    with connect(HOST, int(address)) as connected:
        inbox = _greet(connected)
        _deliver(connected, inbox, "new")
        go()
        found = arrivals(connected, _pushed(), work.expected)
    if len(found) < work.expected:
        raise BenchFailed(f"{len(found)} of {work.expected} messages came")
    return found


def _put(address: str, work: Work, go: Callable[[], None], timeout_s: float) -> Answer:
    with connect(HOST, int(address), timeout_s) as connected:
        inbox = _greet(connected)
        elsewhere = work.kind is Kind.FIRST
        frames = frames_of(
            work, lambda queue, body: b"PUB %s %s %d\r\n%s\r\n" % (_subject(queue + elsewhere), inbox, len(body), body)
        )
        return StreamClient(connected, Wire(frames, b'"seq":', b'"error"')).run(work, go)


def _hello(connected: socket.socket) -> bytes:
    """The subject of answers to us."""
    read_until(connected, [b"\r\n"])
    inbox = INBOX + b".%d" % (time.time_ns() % 1_000_000_007)
    connected.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB %s 1\r\nPING\r\n' % inbox)
    read_until(connected, [b"PONG\r\n"])
    return inbox


def _greet(connected: socket.socket) -> bytes:
    """The subject of answers to us; the stream exists."""
    inbox = _hello(connected)
    _ask(connected, inbox, f"STREAM.CREATE.{STREAM}", {"name": STREAM, "subjects": [f"{STREAM}.*"], "storage": "file"})
    return inbox


def _ask(connected: socket.socket, inbox: bytes, name: str, question: dict[str, Any]) -> dict[str, Any]:
    data = json.dumps(question).encode()
    connected.sendall(b"PUB $JS.API.%s %s %d\r\n%s\r\n" % (name.encode(), inbox, len(data), data))
    said = read_until(connected, [b"}\r\n"])
    answer: dict[str, Any] = json.loads(said[said.index(b"{") :])
    if "error" in answer:
        raise BenchFailed(f"NATS refuses {name}: {answer['error']}")
    return answer


def _replay(address: str, work: Work, go: Callable[[], None]) -> Answer:
    """All messages pushed to a subject of ours, none acknowledged."""
    with connect(HOST, int(address)) as connected:
        inbox = _greet(connected)
        go()
        began = time.perf_counter_ns()
        _deliver(connected, inbox, "all")
        found = arrivals(connected, _pushed(), work.count, QUIET_S)
    return Answer(count=len(found), seconds=float(found[-1] - began) / 1e9 if len(found) else QUIET_S)


def _deliver(connected: socket.socket, inbox: bytes, policy: str) -> None:
    target = inbox + b".pushed"
    connected.sendall(b"SUB %s 2\r\n" % target)
    config = {"deliver_subject": target.decode(), "deliver_policy": policy, "ack_policy": "none"}
    data = json.dumps({"stream_name": STREAM, "config": config}).encode()
    asked = b"PUB $JS.API.CONSUMER.CREATE.%s %s %d\r\n%s\r\n" % (STREAM.encode(), inbox, len(data), data)
    connected.sendall(asked)
    if policy == "new":
        read_until(connected, [b"}\r\n"])  # the consumer is there before anything is put


def _pushed() -> bytes:
    """What stands once before each message that is pushed."""
    return b"MSG %s 2 " % _subject(0)


def _subject(queue: int) -> bytes:
    return b"%s.%d" % (STREAM.encode(), queue)
