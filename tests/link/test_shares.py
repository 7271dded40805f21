"""What one peer makes a server hold: seen by connection, bounded, and forgotten with it."""

import socket as sockets
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.processes.flooding import frame, greeted, message
from towline.format.wire.frames import ASK, Kind
from towline.limits import KIB, MIB
from towline.link import server as server_module
from towline.link import shares as shares_module
from towline.link.context import Context
from towline.link.dealer import Link
from towline.link.keys import AuthorizedKeys, make_node_keys
from towline.link.server import STRAYS_MAX, Server
from towline.link.shares import size_on_the_wire

from .meeting import greet, receive, until
from .test_link import FACTS, OWN, REQUEST

SHARE = 4 * MIB
FORGIVEN_MAX = 4 * KIB  # heartbeats of a few seconds, the greeting


@pytest.fixture
def counts() -> list[int]:
    return []


@pytest.fixture
def server(context: Context, counts: list[int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(shares_module, "LINK_SHARE_MAX", SHARE)
    made = Server(context, ["tcp://127.0.0.1:0"], own=OWN, counted=lambda: counts.append(1))
    yield made
    made.close()


def port_of(server: Server) -> int:
    return int(server.endpoints[0].rpartition(":")[2])


def is_cut(connection: sockets.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(MIB):
            continue
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


@pytest.fixture
def flood(server: Server) -> Iterator[sockets.socket]:
    """A greeted peer that is no client of ours."""
    with greeted(str(port_of(server)), "producer") as made:
        yield made


def send(connection: sockets.socket, data: bytes, size: int) -> None:
    """Until it is cut, or so much has gone."""
    try:
        for _ in range(size // len(data)):
            connection.sendall(data)
    except OSError:
        return


def test_who_sends_a_message_without_an_end_is_cut_alone_by_name_and_counted(
    context: Context, server: Server, flood: sockets.socket, counts: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    honest = Link(context, server.endpoints[0], FACTS)
    greet(honest, server)
    until(lambda: server.receive() is None and len(server.sessions) == 2, "the greeting")
    send(flood, frame(bytes(64 * KIB), more=True), 64 * MIB)
    until(lambda: server.receive() is None and counts, "the cut")
    assert is_cut(flood)
    assert "producer 'flood' at 127.0.0.1:" in caplog.text
    assert len(counts) == 1
    assert [session.facts["name"] for session in server.sessions.values()] == [FACTS["name"]]
    honest.send(REQUEST)
    assert receive(server).session.facts["name"] == FACTS["name"]
    honest.close()


@pytest.mark.usefixtures("many_descriptors")
def test_a_server_with_more_than_a_thousand_descriptors_cuts_as_well(
    server: Server, flood: sockets.socket, counts: list[int]
) -> None:
    until(lambda: server.receive() is None and server.sessions, "the greeting")
    send(flood, frame(bytes(64 * KIB), more=True), 64 * MIB)
    until(lambda: server.receive() is None and counts, "the cut")
    assert is_cut(flood)


def test_what_waits_of_one_that_was_cut_is_thrown_away(
    server: Server, flood: sockets.socket, counts: list[int]
) -> None:
    until(lambda: server.receive() is None and server.sessions, "the greeting")
    send(flood, message([ASK.pack(Kind.ASK, 1), bytes(32 * KIB)]), 64 * MIB)
    until(lambda: server._shares.cut, "the cut")
    server.handle_ended()
    for _ in range(100):
        assert server.receive() is None
    assert counts == [1]


def test_taking_what_came_makes_room_for_more(context: Context, server: Server, counts: list[int]) -> None:
    """Many times the share goes through, as long as it is taken."""
    link = Link(context, server.endpoints[0], FACTS)
    greet(link, server)
    for _ in range(64):
        for _ in range(8):
            assert link.send([*REQUEST, bytes(64 * KIB)])
        for _ in range(8):
            receive(server)
    assert not counts
    assert not link.lost
    link.close()


@pytest.mark.parametrize("encrypted", [False, True])
def test_what_waits_of_small_messages_is_counted_as_it_came(context: Context, tmp_path: Path, encrypted: bool) -> None:
    """Or one that sends faster than it is taken would hold any amount of memory, and be seen holding nothing."""
    keys = key = None
    if encrypted:
        make_node_keys(tmp_path / "ring")
        keys = AuthorizedKeys(tmp_path / "ring")
        key = keys.as_client
    server = Server(context, ["tcp://127.0.0.1:0"], own=OWN, keys=keys)
    link = Link(context, server.endpoints[0], FACTS, key=key)
    try:
        greet(link, server)
        (session,) = server.sessions.values()
        connection = session.connection
        assert connection is not None
        sizes = [size for size in (9, 222, 223, 255, 256, 300) for _ in range(2_000)] + 20 * [MIB]
        requests = [[REQUEST[0], bytes(size)] for size in sizes]
        for request in requests:
            until(lambda request=request: link.send(request), "room")
        waits = sum(size_on_the_wire(map(len, request), encrypted) for request in requests)
        for count, request in enumerate(requests):
            if count % 2_000 == 0:
                until(lambda waits=waits: abs(connection.waits - waits) <= FORGIVEN_MAX, "the count of what waits")
            assert list(map(len, receive(server).parts)) == list(map(len, request))
            waits -= size_on_the_wire(map(len, request), encrypted)
    finally:
        link.close()
        server.close()


def test_who_asks_on_and_does_not_greet_is_cut(context: Context, server: Server, counts: list[int]) -> None:
    stranger = context.socket(zmq.DEALER)
    stranger.set(zmq.LINGER, 0)
    stranger.connect(server.endpoints[0])
    for _ in range(STRAYS_MAX + 1):
        stranger.send_multipart(REQUEST)
    until(lambda: server.receive() is None and counts, "the cut")
    stranger.close()


def test_a_peer_that_has_the_descriptor_of_one_that_went_is_not_taken_for_it(
    context: Context, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links come and go, and none of those that stay is ever dropped."""
    monkeypatch.setattr(server_module, "DROPPED_S", 60.0)
    for _ in range(50):
        first = Link(context, server.endpoints[0], FACTS)
        greet(first, server)
        first.close()
        second = Link(context, server.endpoints[0], FACTS)
        greet(second, server)
        server.handle_ended()
        (peer,) = [peer for peer, session in server.sessions.items() if session.connection is not None][-1:]
        assert peer not in server.unheard
        second.close()


def test_the_kernel_counts_what_a_connection_brought() -> None:
    with sockets.create_server(("127.0.0.1", 0)) as listener, sockets.create_connection(listener.getsockname()) as near:
        far, _ = listener.accept()
        with far:
            near.sendall(bytes(1_000))
            until(lambda: shares_module._counts_of(far.fileno())[1] == 1_000, "the bytes")
            far.sendall(bytes(300))
            until(lambda: shares_module._counts_of(far.fileno())[0] in (300, 301), "the acknowledgement")


def test_who_comes_on_the_descriptor_of_others_that_have_gone_is_not_taken_for_gone(server: Server) -> None:
    """libzmq's monitor tells of them later: by then another connection has their number."""
    for _ in range(100):
        with greeted(str(port_of(server)), "producer"):
            until(lambda: server.receive() is None and server.sessions, "the greeting")
            server.handle_ended()
            (session,) = server.sessions.values()
            assert session.peer not in server.unheard
        until(lambda peer=session.peer: not _serves(server, peer), "its end")


def _serves(server: Server, peer: bytes) -> bool:
    server.handle_ended()
    if peer in server.unheard:
        server.sessions.pop(peer, None)
    return peer in server.sessions
