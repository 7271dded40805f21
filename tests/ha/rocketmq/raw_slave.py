"""A slave by RocketMQ's protocol, in a socket: what it reports is up to the test. And nodes that it follows."""

import contextlib
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np

from tests.processes.nodes import TestNode, free_port
from tests.processes.waiting import await_
from towline.client.message import Message
from towline.client.producer import Producer
from towline.runtime.positions import Position

HEAD: Final = struct.Struct(">qi")
REPORT: Final = struct.Struct(">q")
WAIT_S: Final = 20.0
SIZE: Final = 1_000  # bytes of a body
MESSAGE: Final = 400  # more than one of test_real_slaves.py takes


class Frame(NamedTuple):
    offset: int
    body: bytes


class RawSlave:
    """Reports its end when it is told to, and reads frames when it is told to. `log` is what it has since `start`."""

    def __init__(self, port: int, receive_buffer: int = 0) -> None:
        self.sock = socket.socket()
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(("127.0.0.1", port))
        self.start = -1
        self.log = bytearray()

    @property
    def end(self) -> int:
        return self.start + len(self.log)

    @property
    def address(self) -> str:
        host, port = self.sock.getsockname()
        return f"{host}:{port}"

    def report(self, offset: int) -> Self:
        self.sock.sendall(REPORT.pack(offset))
        return self

    def frame(self) -> Frame:
        """The next one, a heartbeat too. Raises ConnectionError where the node has closed."""
        offset, size = HEAD.unpack(self._exactly(HEAD.size))
        if self.start < 0:
            self.start = offset
        assert offset == self.end, f"a frame at {offset} for a slave that ends at {self.end}"
        found = Frame(offset, self._exactly(size))
        self.log += found.body
        return found

    def follow(self, end: int) -> list[Frame]:
        """Frames until it has all before `end`, each reported."""
        found = []
        until = time.monotonic() + WAIT_S
        while self.start < 0 or self.end < end:
            found.append(self.frame())
            if found[-1].body:
                self.report(self.end)
            assert time.monotonic() < until, f"it has {self.end} of {end} bytes"
        return found

    def await_closed(self) -> None:
        """Reads frames, of which it reports nothing, until the node closes."""
        until = time.monotonic() + WAIT_S
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < until:
                self.frame()
        assert time.monotonic() < until, "it is not closed"

    def is_closed(self) -> bool:
        """Whether the node closes it without a word more."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            came = self.sock.recv(size - len(data))
            if not came:
                raise ConnectionResetError("the node has closed")
            data += came
        return bytes(data)

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def port_of(node: TestNode) -> int:
    return int(next(flag.partition("=")[2] for flag in node.flags if flag.startswith("rocketmq_ha_port=")))


def clients_port(node: TestNode) -> int:
    """The last one that is given."""
    return int([flag.partition("=")[2] for flag in node.flags if flag.startswith("listen_port=")][-1])


def followed(root: Path, **settings: object) -> TestNode:
    """A master that slaves of RocketMQ can follow."""
    given = {"listen_port": client_port(), "rocketmq_ha_port": free_port(), "flush_disk_type": "ASYNC_FLUSH"}
    given |= {"flush_interval_commit_log": 20, "flush_commit_log_least_pages": 0}
    return TestNode("master", root, **(given | settings))


def client_port() -> int:
    """A free one, with a free one 2 below, where a broker asks for topics."""
    for _ in range(100):
        port = free_port()
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port - 2))
            except OSError:
                continue
            return port
    raise AssertionError("no two ports are free")


def put(node: TestNode, count: int, topic: str = "handed", first: int = 0) -> int:
    """So many messages, acknowledged, and as far as slaves may have them; the end of the log."""
    with Producer(node.endpoint) as producer:
        results = producer.send_batch(Message(topic, body(number)) for number in range(first, first + count))
    assert all(result.acknowledged for result in results)
    end = node.at(Position.APPENDED)
    await_(lambda: min(node.at(Position.FLUSHED), node.at(Position.REPLICATED)) >= end, WAIT_S, "slaves may have them")
    return end


def body(number: int) -> bytes:
    return b"%08d" % number + bytes(SIZE - 8)


def log_of(store: Path, start: int, end: int) -> bytes:
    """The bytes [start, end) of a store's log, ours or a broker's."""
    return b"".join(_pieces(sorted((store / "commitlog").glob("[0-9]*")), start, end))


def assert_same_log(theirs: Path, ours: Path, start: int, end: int, torn: int | None = None) -> None:
    """The bytes [start, end) of both stores. Where they differ: how many, and the first with those around it.

    `torn`: where the log of a broker ended when it was killed. Its recovery checks bodies alone, so of one message it
    may have zeros for the rest of the properties.
    """
    found, expected = (np.frombuffer(log_of(store, start, end), np.uint8) for store in (theirs, ours))
    assert found.size == expected.size == end - start
    unlike = np.flatnonzero(found != expected)
    if not unlike.size:
        return
    first, last = start + int(unlike[0]), start + int(unlike[-1])
    if torn is not None and torn <= first <= last < torn + MESSAGE and not found[unlike].any():
        return
    around = slice(max(first - start - 256, 0), first - start + 256)
    said = f"{unlike.size} bytes differ, from {first} to {last} of [{start}, {end}); torn at {torn}"
    assert found[around].tobytes() == expected[around].tobytes(), said


def end_of(store: Path) -> int:
    """Behind the last byte of a log that is not zero."""
    segment = max(each for each in (store / "commitlog").glob("[0-9]*") if each.read_bytes().strip(b"\0"))
    return int(segment.name) + len(segment.read_bytes().rstrip(b"\0"))


def _pieces(segments: Sequence[Path], start: int, end: int) -> Iterator[bytes]:
    for segment in segments:
        base, size = int(segment.name), segment.stat().st_size
        if base < end and base + size > start:
            with segment.open("rb") as file:
                low = max(start - base, 0)
                file.seek(low)
                yield file.read(min(end - base, size) - low)
