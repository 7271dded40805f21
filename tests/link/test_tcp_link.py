"""A link over a remoting port, against a peer that sends what the test says, byte by byte."""

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.processes.waiting import await_
from towline.errors import LinkRefused, MalformedFrame, NoAnswer
from towline.format.remoting.command import decode, frame_size
from towline.format.remoting.wire_message import decode_message, encode_message
from towline.format.wire.frames import Buffer, Kind, kind_of, read_json
from towline.limits import MIB
from towline.link.free_port import free_port
from towline.link.handshake import encode_refusal, encode_welcome
from towline.link.keys import Key
from towline.link.poller import Poller
from towline.link.tcp_link import OUT_MAX, READ_SIZE, TcpLink

from .conftest import FD_SETSIZE

FACTS: Final = {"role": "producer", "cluster": "c", "store": "", "name": "n"}
WAIT_S: Final = 10.0


class Peer:
    """Listens, and has the one connection that comes."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self.listening.getsockname()[1]}"
        self.listening.settimeout(WAIT_S)
        self.link = TcpLink(self.endpoint, FACTS)
        self.connection, _ = self.listening.accept()
        self.connection.settimeout(WAIT_S)
        self.came = bytearray()

    def write(self, *parts: Buffer) -> None:
        self.connection.sendall(b"".join(encode_message(parts, from_node=True)))

    def read(self, turn: Callable[[], object] = lambda: None) -> list[Buffer]:
        """The next message of the link, which has its `turn` meanwhile."""
        self.connection.settimeout(0.01)
        until = time.monotonic() + WAIT_S
        while not (size := frame_size(self.came)) or len(self.came) < size:
            assert time.monotonic() < until, f"{len(self.came)} bytes came"
            turn()
            with contextlib.suppress(TimeoutError):
                self.came += self.connection.recv(MIB)
        frame = bytes(self.came[:size])
        del self.came[:size]
        return decode_message(decode(frame).body)

    def greet(self) -> dict[str, object]:
        """What the link says of itself, after its welcome."""
        assert self.link.try_greet() is None
        parts = await_(lambda: self.link.try_greet() or self.read(), WAIT_S, "the greeting")
        self.write(*encode_welcome(1, {"epoch": 3}))
        assert await_(self.link.try_greet, WAIT_S, "the welcome") == {"epoch": 3}
        return read_json(parts[1])

    def close(self) -> None:
        self.link.close()
        self.connection.close()
        self.listening.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.close()


def received(link: TcpLink) -> list[Buffer]:
    return await_(link.receive, WAIT_S, "a message")


def test_a_connection_that_is_broken_off_before_the_greeting_is_sent_is_given_up(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a process that dies when it has just been connected to: who held such a link waited for ever."""
    connect = peer.link._finish_connecting

    def is_reset() -> bool:
        try:
            peer.link._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True
        raise AssertionError

    def connect_and_be_reset() -> None:
        connect()
        peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.connection.close()
        await_(is_reset, WAIT_S, "the end of the connection")

    monkeypatch.setattr(peer.link, "_finish_connecting", connect_and_be_reset)
    with pytest.raises(NoAnswer, match="breaks the connection off"):
        peer.link.try_greet()
    assert peer.link.lost


def test_it_greets_and_messages_pass_both_ways(peer: Peer) -> None:
    assert peer.greet() == FACTS
    assert peer.link.own_port == peer.connection.getpeername()[1]
    assert peer.link.send([b"head", b"", memoryview(b"records")])
    assert [bytes(part) for part in peer.read()] == [b"head", b"", b"records"]
    peer.write(b"a", b"b")
    peer.write(b"c")
    assert [bytes(part) for part in received(peer.link)] == [b"a", b"b"]
    assert [bytes(part) for part in received(peer.link)] == [b"c"]
    assert peer.link.receive() is None
    assert not peer.link.lost


@pytest.mark.usefixtures("many_descriptors")
def test_a_program_with_more_than_a_thousand_descriptors_connects_as_well() -> None:
    with contextlib.closing(Peer()) as peer:
        assert peer.connection.fileno() > FD_SETSIZE
        assert peer.greet() == FACTS


@pytest.mark.parametrize("size", [0, 1, READ_SIZE - 60, READ_SIZE - 1, READ_SIZE, READ_SIZE + 1, 5 * MIB])
def test_a_message_of_any_size_comes_whole_however_it_is_cut(peer: Peer, size: int) -> None:
    peer.greet()
    data = os.urandom(size)
    frame = b"".join(encode_message([b"h", data], from_node=True)) * 2
    found = []
    peer.connection.settimeout(0.01)
    for cut in (frame[:1], frame[1:30], frame[30:-7], frame[-7:]):
        left = memoryview(cut)
        while left:
            with contextlib.suppress(TimeoutError):
                left = left[peer.connection.send(left) :]
            message = peer.link.receive()
            if message is not None:
                found.append(message)
    while len(found) < 2:
        found.append(received(peer.link))
    assert [bytes(parts[1]) for parts in found] == [data, data]


def test_what_the_peer_does_not_take_waits_up_to_a_bound_and_wakes_a_poller_when_it_can_go_on(peer: Peer) -> None:
    peer.greet()
    poller = Poller()
    poller.add(peer.link)
    part = bytes(MIB)
    sent = 0
    while peer.link.send([b"h", part]):
        sent += 1
        assert sent < 2 * OUT_MAX // MIB + 100
    assert sent > OUT_MAX // MIB
    for _ in range(sent):
        assert bytes(peer.read(lambda: poller.poll(0))[1]) == part
    poller.remove(peer.link)


def test_parts_may_change_once_they_are_sent(peer: Peer) -> None:
    peer.greet()
    part = bytearray(b"x" * (4 * MIB))
    assert peer.link.send([b"h", part])
    part[:] = b"y" * len(part)
    peer.connection.settimeout(0.05)
    came = bytearray()
    until = time.monotonic() + WAIT_S
    while len(came) < len(part):
        assert time.monotonic() < until
        try:
            came += peer.connection.recv(1 << 20)
        except TimeoutError:
            peer.link.tend()
    assert b"y" not in came


@pytest.mark.parametrize(
    ("said", "why"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "is no Towline node"), (b"\0\0\0\x21\1" + bytes(32), "is no Towline node"),
     (b"", "breaks the connection off")],
    ids=["http", "another frame", "nothing"],
)  # fmt: skip
def test_what_is_no_node_is_named(peer: Peer, said: bytes, why: str) -> None:
    peer.link.try_greet()
    peer.connection.sendall(said)
    peer.connection.shutdown(socket.SHUT_WR)
    with pytest.raises(NoAnswer, match=why):
        await_(peer.link.try_greet, WAIT_S, "the refusal")


def test_a_port_for_nodes_is_named_with_the_one_that_is_meant(peer: Peer) -> None:
    peer.link.try_greet()
    peer.connection.sendall(b"\xff" + bytes(8) + b"\x7f")
    with pytest.raises(NoAnswer, match="clients come to its listen_port"):
        await_(peer.link.try_greet, WAIT_S, "the first byte")


def test_a_refusal_is_raised_also_later_and_a_node_that_forgot_the_link_loses_it(peer: Peer) -> None:
    peer.greet()
    peer.write(*encode_refusal(LinkRefused("NOT_GREETED", "greet")))
    await_(lambda: peer.link.receive() is None and peer.link.lost, WAIT_S, "the loss")


def test_another_cluster_is_refused(peer: Peer) -> None:
    peer.link.try_greet()
    peer.read()
    peer.write(*encode_welcome(1, {"cluster": "another"}))
    with pytest.raises(LinkRefused, match="'another'"):
        await_(peer.link.try_greet, WAIT_S, "the refusal")


def test_a_message_that_cannot_be_is_malformed(peer: Peer) -> None:
    peer.greet()
    frame = bytearray(b"".join(encode_message([b"head"], from_node=True)))
    frame[-5] += 1  # one byte more than there are
    peer.connection.sendall(frame)
    with pytest.raises(MalformedFrame):
        await_(peer.link.receive, WAIT_S, "the refusal")


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_lost_connection_is_noticed_by_whoever_receives_or_sends(peer: Peer, end: str) -> None:
    peer.greet()
    if end == "reset":
        peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
    peer.connection.close()
    await_(lambda: peer.link.receive() is None and peer.link.lost, WAIT_S, "the loss")
    assert not peer.link.send([b"h"])


def greets(link: TcpLink) -> Callable[[], object]:
    return lambda: link.try_greet()


@pytest.mark.parametrize(
    ("host", "why"),
    [("127.0.0.1", "nobody listens there"), ("nohost.invalid", "the host 'nohost.invalid' has no address")],
)
def test_a_dead_port_and_a_host_without_an_address_are_told_apart(host: str, why: str) -> None:
    link = TcpLink(f"tcp://{host}:{free_port()}", FACTS)
    with pytest.raises(NoAnswer, match=why):
        await_(greets(link), WAIT_S, "the refusal")
    assert link.refused
    link.close()


def test_with_a_key_the_greeting_is_signed() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    link = TcpLink(f"tcp://127.0.0.1:{listening.getsockname()[1]}", FACTS, key=Key("me", (), "p", access="secret"))
    connection, _ = listening.accept()
    await_(lambda: link.try_greet() or link.own_port, WAIT_S, "the connection")
    came = connection.recv(1 << 16)
    parts = decode_message(decode(came).body)
    facts = read_json(parts[1])
    assert kind_of(parts[0]) == Kind.GREETING
    assert (facts["access_key"], len(str(facts["signature"]))) == ("me", 64)
    assert "secret" not in parts[1].tobytes().decode()  # type: ignore[union-attr]
    for each in (link, connection, listening):
        each.close()
