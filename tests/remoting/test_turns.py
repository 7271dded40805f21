"""Clients that ask again at once are served by a kernel: from their sockets into put's ring and back."""

import os
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from towline.format.record.record import Host
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import LENGTH, Command, Form, decode, encode, frame_size
from towline.format.remoting.wire_message import encode_message
from towline.format.wire.frames import (
    PUT,
    Group,
    decode_put,
    decode_put_answer,
    encode_put,
    encode_put_answer,
    encode_put_refusal,
)
from towline.format.wire.put_ring import Cut, entry_max, read_request_word
from towline.format.wire.status import PutStatus
from towline.kernels.remoting import turns
from towline.link.put_ring import ClientRing, NodeRing, Offer
from towline.remoting.connections import Connection, Connections
from towline.remoting.plain_sends import PlainSends

from .raw import sent

AREA = 1 << 20
STORE = Host(bytes([10, 0, 0, 1]), 10_911)
WAIT_S = 10.0


class Client:
    """The other end of a connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._came = b""

    def read(self) -> Command:
        while len(self._came) < LENGTH.size or len(self._came) < LENGTH.size + LENGTH.unpack_from(self._came)[0]:
            data = self.socket.recv(1 << 16)
            assert data, "the connection was closed"
            self._came += data
        size = LENGTH.size + LENGTH.unpack_from(self._came)[0]
        frame, self._came = self._came[:size], self._came[size:]
        return decode(frame)

    def has_answer(self) -> bool:
        return bool(self._came or select.select([self.socket], [], [], 0)[0])


class Port:
    """Connections, a ring to put, whose end is here too, and what the interpreter got."""

    def __init__(self, tmp_path: Path) -> None:
        bell = tmp_path / "bell"
        os.mkfifo(bell)
        self.interpreted: list[bytes] = []
        self.full = False
        self._ring = ClientRing(Offer(AREA, 1, bell))
        self.put = NodeRing(self._ring.facts, AREA, 1)
        none: Any = SimpleNamespace(begin=lambda data: None)
        counts: Any = Mock()
        self.connections = Connections([("127.0.0.1", 0)], self._take, lambda: self.full, none, counts)
        (listening,) = self.connections._listening
        self.port = listening.getsockname()[1]
        self.plain = PlainSends(
            self._ring,
            AREA,
            cluster="c1",
            store_host=STORE,
            store_ipv6=False,
            wall_ms=lambda: 1_000,
            deadline_ms=3_000,
            refused=lambda code: None,
        )
        self.plain.know(b"plain", 0)
        self.other_in, self.other = os.pipe2(os.O_NONBLOCK)
        self._epoll = select.epoll()
        for descriptor in (self.connections.fileno(), self._ring.fileno(), self.other_in):
            self._epoll.register(descriptor, select.EPOLLIN)
        self._clients: list[Client] = []

    def _take(self, connection: Connection, data: bytes) -> int:
        at = 0
        while (size := frame_size(data, at)) and at + size <= len(data):
            self.interpreted.append(data[at : at + size])
            at += size
        return at

    def connect(self, count: int = 1, *, puts: bool = False) -> list[Client]:
        """Clients of whom the interpreter has had a first frame."""
        made = [Client(self.port) for _ in range(count)]
        for each in made:
            each.socket.sendall(ROUTE)
        wanted = len(self.interpreted) + count
        while len(self.interpreted) < wanted:
            assert select.select([self.connections.fileno()], [], [], WAIT_S)[0]
            self.connections.cycle()
        for connection in self.connections:
            connection.puts = puts
            self.connections._count(connection)
        self._clients += made
        return made

    def stay(self, *, until: int | None = None) -> int:
        """Turns until nobody asks any more, or for that reason."""
        while (why := self.once()) not in (turns.IDLE, until):
            assert why != turns.OVER
            if why == turns.CLIENT:
                self.connections.cycle()
        return why

    def once(self) -> int:
        why = self.plain.stay(self.connections, self._epoll.fileno(), 1_000)
        self.connections.flush()
        return why

    def requests(self) -> list[tuple[int, bytes, bytes]]:
        """(number, head, records) of what has come to put."""
        found = []
        while (taken := self.put.requests.take(entry_max(AREA))) is not None:
            head_size = read_request_word(taken[0])[0]
            head = taken[1][:head_size]
            found.append((PUT.unpack_from(head)[3], head, taken[1][head_size:]))
        return found

    def answer_all(self, requests: list[tuple[int, bytes, bytes]], offset: int = 0) -> None:
        for at, (number, _, _) in enumerate(requests):
            assert self.put.answer(encode_put_answer(number, 0, [(offset + at, 1_000 * (offset + at))]))
        self.put.wake()

    def close(self) -> None:
        for client in self._clients:
            client.socket.close()
        self.plain.close()
        self.connections.close()
        self.put.close(Cut.CLOSING)
        self._ring.close()
        self._epoll.close()
        os.close(self.other_in)
        os.close(self.other)


def frame(command: Command) -> bytes:
    return b"".join(encode(command))


def plain(number: int, body: bytes = b"body", form: Form = Form.ROCKETMQ, topic: str = "plain") -> bytes:
    fields = {name: str(value) for name, value in sent(topic, f"UNIQ_KEY\x01{number:032X}\x02").items()}
    return frame(Command(RequestCode.SEND_MESSAGE_V2, number, fields=fields, body=body, form=form))


def ours(number: int, records: bytes) -> bytes:
    head = encode_put(number, 0, 0, [Group(b"plain", 0, 1, len(records))])
    return b"".join(encode_message([head, records], from_node=False))


ROUTE = frame(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, fields={"topic": "plain"}))


@pytest.fixture
def port(tmp_path: Path) -> Iterator[Port]:
    made = Port(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("form", Form)
def test_a_send_goes_to_put_and_its_answer_back(port: Port, form: Form) -> None:
    (client,) = port.connect()
    client.socket.sendall(plain(7, form=form))
    assert port.stay() == turns.IDLE
    assert port.interpreted == [ROUTE]
    (request,) = port.requests()
    assert decode_put(request[1], 8)[2] >= 3_000 + 1_000 - 1_000
    port.answer_all([request], offset=5)
    assert port.stay() == turns.IDLE
    answer = client.read()
    assert (answer.code, answer.opaque, answer.fields["queueOffset"]) == (0, 7, "5")


def test_clients_that_ask_together_get_each_their_own_answers_in_their_order(port: Port) -> None:
    clients = port.connect(5)
    for number in range(40):
        clients[number % 5].socket.sendall(plain(number, b"%d" % number))
    port.stay()
    requests = port.requests()
    assert len(requests) == 40
    port.answer_all(requests)
    port.stay()
    for at, client in enumerate(clients):
        assert [client.read().opaque for _ in range(8)] == list(range(at, 40, 5))


def test_a_frame_that_comes_in_two_parts_waits_for_its_rest_wherever_it_is_cut(port: Port) -> None:
    """Of less than its length nobody can tell what it wants: that is the interpreter's."""
    (client,) = port.connect()
    whole = plain(3, b"x" * 50)
    for cut in range(LENGTH.size, len(whole)):
        client.socket.sendall(whole[:cut])
        port.stay()
        assert not port.requests()
        client.socket.sendall(whole[cut:])
        port.stay()
        (request,) = port.requests()
        assert b"x" * 50 in request[2]
        port.answer_all([request], offset=cut)
        port.stay()
        assert client.read().fields["queueOffset"] == str(cut)
    assert port.interpreted == [ROUTE]


def test_more_clients_with_half_a_frame_than_there_are_carries_lose_nothing(port: Port) -> None:
    """Those without a carry are the interpreter's."""
    count = 2 * turns.CARRIES
    clients = port.connect(count)
    whole = [plain(number, b"%03d" % number * 1_000) for number in range(count)]
    for client, data in zip(clients, whole, strict=True):
        client.socket.sendall(data[:-10])
    port.stay()
    for client, data in zip(clients, whole, strict=True):
        client.socket.sendall(data[-10:])
    port.stay()
    by_kernel = port.requests()
    assert len(by_kernel) == turns.CARRIES
    by_interpreter = port.interpreted[count:]
    assert len(by_interpreter) == count - turns.CARRIES
    assert {bytes(decode(each).body) for each in by_interpreter} | {
        body for body in (b"%03d" % number * 1_000 for number in range(count)) if any(body in at[2] for at in by_kernel)
    } == {b"%03d" % number * 1_000 for number in range(count)}


def test_a_carry_is_free_again_when_its_client_has_gone(port: Port) -> None:
    for _ in range(3):
        clients = port.connect(turns.CARRIES)
        for client in clients:
            client.socket.sendall(plain(1)[:-1])
        port.stay()
        assert port.connections.seats.carries == 0
        for client in clients:
            client.socket.close()
        while len(port.connections):
            assert select.select([port.connections.fileno()], [], [], WAIT_S)[0]
            port.connections.cycle()
        assert port.connections.seats.carries == turns.ALL_CARRIES


def test_what_is_no_plain_send_is_the_interpreters_from_there_on(port: Port) -> None:
    (client,) = port.connect()
    client.socket.sendall(plain(1) + ROUTE + plain(2))
    assert port.once() == turns.LEFT
    assert len(port.requests()) == 1
    assert port.interpreted[1:] == [ROUTE, plain_bytes(port, 2)]


def plain_bytes(port: Port, number: int) -> bytes:
    (found,) = [each for each in port.interpreted if decode(each).opaque == number and decode(each).code != 105]
    return found


def test_a_queue_that_the_interpreter_has_not_seen_is_its_own(port: Port) -> None:
    (client,) = port.connect()
    client.socket.sendall(plain(1, topic="new"))
    assert port.once() == turns.LEFT
    assert not port.requests()
    assert decode(port.interpreted[1]).opaque == 1


def test_a_ring_without_room_leaves_the_rest_to_the_interpreter(port: Port) -> None:
    (client,) = port.connect()
    body = b"y" * 100_000
    for number in range(12):
        client.socket.sendall(plain(number, body))
        port.stay()
    requests = port.requests()
    assert 0 < len(requests) < 12
    assert len(requests) + len(port.interpreted) - 1 == 12


def test_a_refusal_is_the_interpreters(port: Port) -> None:
    (client,) = port.connect()
    client.socket.sendall(plain(1))
    port.stay()
    ((number, _, _),) = port.requests()
    port.put.answer(encode_put_refusal(number, PutStatus.SYSTEM_BUSY, 0, -1, 0, "busy"))
    assert port.once() == turns.ANSWER
    assert not client.has_answer()
    left = port._ring.receive()
    assert left is not None
    assert decode_put_answer(left).status == PutStatus.SYSTEM_BUSY


def test_an_answer_goes_to_nobody_where_its_client_has_gone_and_another_has_its_descriptor(port: Port) -> None:
    (client,) = port.connect()
    client.socket.sendall(plain(1))
    port.stay()
    (request,) = port.requests()
    client.socket.close()
    while len(port.connections):
        assert select.select([port.connections.fileno()], [], [], WAIT_S)[0]
        port.connections.cycle()
    (other,) = port.connect()
    port.answer_all([request])
    assert port.once() in (turns.ANSWER, turns.IDLE)
    port.stay()
    assert not other.has_answer()


def test_a_client_that_does_not_read_gets_its_answers_later_and_in_order(port: Port) -> None:
    """While some of them wait it is the interpreter's, and the kernel's again afterwards."""
    (client,) = port.connect()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    (connection,) = port.connections
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    count = 400
    for number in range(count):
        client.socket.sendall(plain(number))
        port.stay()
    port.answer_all(port.requests())
    assert port.once() == turns.ANSWER
    assert connection.waits
    client.socket.sendall(plain(count))
    assert port.stay(until=turns.CLIENT) == turns.CLIENT
    found = []
    while len(found) < count:
        found.append(client.read().opaque)
        port.connections.cycle()
        port.connections.flush()
    assert found == list(range(count))
    assert decode(port.interpreted[-1]).opaque == count
    assert not connection.waits
    client.socket.sendall(plain(count + 1))
    port.stay()
    assert len(port.requests()) == 1


def test_answers_of_a_client_that_reads_slowly_keep_their_order_among_those_of_others(port: Port) -> None:
    """Between two tries to send to it, it may have read."""
    slow, other = port.connect(2)
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    for connection in port.connections:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    found: dict[Client, list[int]] = {slow: [], other: []}
    count = 300
    for number in range(count):
        for client in (slow, other):
            client.socket.sendall(plain(number))
            port.stay()
    readers = [
        threading.Thread(target=lambda each=each: found[each].extend(each.read().opaque for _ in range(count)))
        for each in (slow, other)
    ]
    for reader in readers:
        reader.start()
    port.answer_all(port.requests())
    while any(reader.is_alive() for reader in readers):
        port.once()
        port.connections.cycle()
        port.connections.flush()
    assert found == {slow: list(range(count)), other: list(range(count))}


def test_something_else_that_shows_ends_the_stay_and_is_told(port: Port) -> None:
    (client,) = port.connect()
    os.write(port.other, b"x")
    client.socket.sendall(plain(1))
    assert port.once() == turns.SHOWN
    assert port.other_in in port.plain.shown


def test_a_client_that_closes_is_the_interpreters(port: Port) -> None:
    (client,) = port.connect()
    client.socket.close()
    assert select.select([port.connections.fileno()], [], [], WAIT_S)[0]
    assert port.once() == turns.CLIENT
    assert len(port.connections) == 1
    port.connections.cycle()
    assert len(port.connections) == 0


@pytest.mark.parametrize("puts", [True, False])
def test_puts_of_our_own_clients_are_taken_from_who_may_send_them(port: Port, puts: bool) -> None:
    (client,) = port.connect(puts=puts)
    records = b"r" * 300_000  # more than is received at once
    client.socket.sendall(ours(77, records))
    port.stay()
    requests = port.requests()
    assert len(requests) == puts
    assert len(port.interpreted) == 1 + (not puts)
    if puts:
        port.answer_all(requests, offset=9)
        port.stay()
        assert decode_put_answer(bytes(client.read().body)[5:]).request_id == 77


def test_a_client_of_tls_is_never_the_kernels(tmp_path: Path) -> None:
    port = Port(tmp_path)
    passed: Any = SimpleNamespace(decrypt=bytes, encrypt=lambda data: None, outgoing=lambda: b"")
    security: Any = SimpleNamespace(begin=lambda data: passed)
    port.connections._security = security
    (client,) = port.connect()
    client.socket.sendall(plain(1))
    assert port.once() == turns.CLIENT
    port.connections.cycle()
    assert decode(port.interpreted[-1]).opaque == 1
    assert not port.requests()
    port.close()
