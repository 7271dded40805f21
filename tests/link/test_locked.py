"""Ports beyond loopback: only allowed keys connect, in their roles; too much memory cuts every peer."""

import json
import select
import socket as sockets
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from towline.errors import LinkRefused, NoAnswer
from towline.format.wire.frames import ASK, Kind
from towline.link import server as server_module
from towline.link import shares as shares_module
from towline.link.context import Context
from towline.link.dealer import Link
from towline.link.endpoints import ipc_endpoint
from towline.link.keys import (
    PUT_ROLES,
    AuthorizedKeys,
    BadKeys,
    Key,
    RoleRefused,
    check_ask,
    list_keys,
    make_node_keys,
    new_key,
    read_key,
    revoke_key,
)
from towline.link.poller import Poller
from towline.link.server import Sent, Server

from .meeting import greet, receive, until

OWN = {"role": "put", "cluster": "c1", "store": "s1", "name": "broker-a"}
REQUEST = [ASK.pack(Kind.ASK, 1), b"{}"]


def facts(role: str) -> dict[str, str]:
    return {"role": role, "cluster": "c1", "store": "", "name": "p"}


@pytest.fixture
def keys_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "ring"
    assert make_node_keys(directory)
    return directory


@pytest.fixture
def server(context: Context, tmp_path: Path, keys_dir: Path) -> Iterator[Server]:
    endpoints = [ipc_endpoint(tmp_path, "put"), "tcp://127.0.0.1:0"]
    made = Server(context, endpoints, own=OWN, keys=AuthorizedKeys(keys_dir))
    yield made
    made.close()


def key_for(keys_dir: Path, name: str, *roles: str) -> Key:
    return read_key(new_key(keys_dir, name, roles))


def address_of(server: Server) -> tuple[str, int]:
    return "127.0.0.1", int(server.endpoints[-1].rpartition(":")[2])


def trouble_of(link: Link, server: Server) -> str:
    """What the link says of the server once libzmq has given up the handshake."""

    def told() -> str:
        server.receive()
        try:
            link.greet(10)
        except LinkRefused as refused:
            return refused.sentence
        except NoAnswer:
            return ""
        raise AssertionError("it was welcomed")

    return str(until(told, "the end of the handshake"))


def test_an_allowed_key_may_connect(context: Context, server: Server, keys_dir: Path) -> None:
    link = Link(context, server.endpoints[1], facts("producer"), key=key_for(keys_dir, "alice", "producer"))
    assert greet(link, server)["name"] == "broker-a"
    assert link.send(REQUEST)
    assert receive(server).session.facts["role"] == "producer"
    link.close()


def test_what_goes_over_the_wire_cannot_be_read(context: Context, keys_dir: Path, tmp_path: Path) -> None:
    """Behind a relay that keeps what passes, neither greeting nor request stands in clear."""
    server = Server(context, ["tcp://127.0.0.1:0"], own=OWN, keys=AuthorizedKeys(keys_dir))
    address = address_of(server)
    listener = sockets.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    key = key_for(keys_dir, "alice", "producer")
    link = Link(context, f"tcp://127.0.0.1:{listener.getsockname()[1]}", facts("producer"), key=key)
    pair: list[sockets.socket] = []
    passed = bytearray()

    def relay() -> None:
        if not pair:
            try:
                pair.extend((listener.accept()[0], sockets.create_connection(address)))
            except BlockingIOError:
                return
            for end in pair:
                end.setblocking(False)
        for source, target in (pair, pair[::-1]):
            try:
                data = source.recv(65_536)
            except BlockingIOError:
                continue
            passed.extend(data)
            target.sendall(data)

    def welcomed() -> bool:
        relay()
        server.receive()
        try:
            return link.try_greet() is not None
        except NoAnswer:
            return False

    until(welcomed, "the welcome")
    assert b"alice" not in passed
    assert b"cluster" not in passed
    assert len(passed) > 300
    link.close()
    server.close()
    for end in (*pair, listener):
        end.close()


def test_a_local_socket_needs_no_key(context: Context, server: Server) -> None:
    link = Link(context, server.endpoints[0], facts("producer"))
    assert greet(link, server)["role"] == "put"
    link.close()


def test_without_a_key_nobody_comes_in(context: Context, server: Server) -> None:
    link = Link(context, server.endpoints[1], facts("producer"))
    assert "keys" in trouble_of(link, server)
    assert not server.sessions
    link.close()


def test_a_strangers_key_is_not_accepted(context: Context, server: Server, keys_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    make_node_keys(other)
    stranger = key_for(other, "eve", "admin")
    shown = Key("eve", ("admin",), stranger.public, stranger.secret, AuthorizedKeys(keys_dir).server.public)
    link = Link(context, server.endpoints[1], facts("admin"), key=shown)
    assert "not accepted" in trouble_of(link, server)
    assert not server.sessions
    link.close()


@pytest.mark.parametrize("role", ["admin", "consumer", "slave", "peer", "schedule"])
def test_a_producers_key_is_for_producers_alone(context: Context, server: Server, keys_dir: Path, role: str) -> None:
    link = Link(context, server.endpoints[1], facts(role), key=key_for(keys_dir, "alice", "producer"))
    with pytest.raises(LinkRefused, match="is for producer"):
        greet(link, server)
    link.close()


def test_a_node_shows_the_nodes_own_key(context: Context, server: Server, keys_dir: Path) -> None:
    link = Link(context, server.endpoints[1], facts("slave"), key=AuthorizedKeys(keys_dir).as_client)
    assert greet(link, server)["name"] == "broker-a"
    link.close()


def test_a_revoked_key_ends_what_is_open_and_what_comes(
    context: Context, server: Server, keys_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "TEND_S", 0.0)
    key = key_for(keys_dir, "alice", "producer")
    link = Link(context, server.endpoints[1], facts("producer"), key=key)
    greet(link, server)
    revoke_key(keys_dir, "alice")
    poller = Poller(server)
    poller.poll(0)
    assert not server.sessions
    link.send(REQUEST)

    def lost() -> bool:
        assert server.receive() is None
        assert link.receive() is None
        return link.lost

    until(lost, "the end of the link")
    again = Link(context, server.endpoints[1], facts("producer"), key=key)
    assert "not accepted" in trouble_of(again, server)
    assert [(listed.key.name, listed.revoked) for listed in list_keys(keys_dir)] == [("alice", True)]
    for made in (link, again):
        made.close()


def test_what_was_held_for_a_revoked_key_goes_nowhere(
    context: Context, server: Server, keys_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "TEND_S", 0.0)
    link = Link(context, server.endpoints[1], facts("consumer"), key=key_for(keys_dir, "bob", "consumer"))
    greet(link, server)
    link.send(REQUEST)
    peer = receive(server).peer
    assert server.send(peer, [b"now"]) is Sent.SENT
    revoke_key(keys_dir, "bob")
    server.receive()  # a busy server receives and never polls
    assert server.send(peer, [b"later"]) is Sent.GONE
    link.close()


def test_each_port_is_for_its_own_roles(context: Context, keys_dir: Path) -> None:
    """Most of all the ha door: a promise that a producer asked for would depose the master."""
    server = Server(context, ["tcp://127.0.0.1:0"], own=OWN, keys=AuthorizedKeys(keys_dir), roles=PUT_ROLES)
    key = key_for(keys_dir, "alice", "producer", "consumer")
    strangers: list[object] = ["consumer", "peer", ["producer"], {}, None]
    for role in strangers:
        link = Link(context, server.endpoints[0], {**facts("producer"), "role": role}, key=key)
        with pytest.raises(LinkRefused, match="it is for producer"):
            greet(link, server)
        link.close()
    link = Link(context, server.endpoints[0], facts("producer"), key=key)
    greet(link, server)
    link.close()
    server.close()


def test_a_session_is_not_for_another_key_of_the_same_name(
    context: Context, server: Server, keys_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer may choose its identity, and a session is remembered when its connection has gone."""

    def named(key: Key, role: str) -> Link:
        real = context.socket

        def socket(kind: int) -> object:
            made = real(kind)
            made.set(zmq.ROUTING_ID, b"root")
            return made

        with monkeypatch.context() as patched:
            patched.setattr(context, "socket", socket)
            return Link(context, server.endpoints[1], facts(role), key=key)

    admin = named(key_for(keys_dir, "root", "admin"), "admin")
    greet(admin, server)
    admin.close()
    thief = named(key_for(keys_dir, "eve", "producer"), "producer")
    until(lambda: server.receive() or (thief.refused or thief.lost or thief._connected), "the connection")
    assert b"root" in server.sessions
    sent = thief.send(REQUEST)

    def refused() -> bool:
        assert server.receive() is None
        assert thief.receive() is None
        return thief.lost

    assert sent
    until(refused, "the refusal")
    thief.close()


def times_all_were_cut(caplog: pytest.LogCaptureFixture) -> int:
    return sum("every peer is cut off" in message for message in caplog.messages)


def test_two_pollers_of_one_server_both_follow_its_new_socket(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Put's front has a poller of its own."""
    monkeypatch.setattr(shares_module.PeerShares, "memory_max", 1)
    server = Server(context, [ipc_endpoint(tmp_path, "put")], own=OWN)
    pollers = Poller(server), Poller(server)
    pollers[0].poll(0)
    assert times_all_were_cut(caplog) == 1
    pollers[1].poll(0)
    until(lambda: not (pollers[0].poll(5) or server._unbound), "the address")
    link = Link(context, server.endpoints[0], facts("producer"))
    greet(link, server)
    link.send(REQUEST)
    for poller in reversed(pollers):
        assert until(lambda poller=poller: poller.poll(20), "the request")
        poller.remove(server)
    link.close()
    server.close()


def unfinished(server: Server) -> sockets.socket:
    """A connection that has shaken hands as a DEALER and is in the middle of a message."""
    raw = sockets.create_connection(address_of(server))
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
    raw.sendall(greeting + b"\x04" + bytes([len(ready)]) + ready)
    return raw


def test_too_much_memory_cuts_every_peer_and_the_next_comes_in(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = server_module.anonymous_bytes()
    monkeypatch.setattr(shares_module.PeerShares, "memory_max", before + (64 << 20))
    monkeypatch.setattr(shares_module.PeerShares, "_check", lambda *_: None)  # nobody is cut alone
    monkeypatch.setattr(shares_module.PeerShares, "_check_total", lambda *_: None)
    monkeypatch.setattr(server_module, "TEND_S", 0.0)
    server = Server(context, [ipc_endpoint(tmp_path, "put"), "tcp://127.0.0.1:0"], own=OWN)
    endpoints = list(server.endpoints)
    poller = Poller(server)
    raw = unfinished(server)
    raw.setblocking(False)
    writable = select.poll()
    writable.register(raw, select.POLLOUT)
    part = b"\x03" + struct.pack(">Q", 1 << 20) + bytes(1 << 20)  # of a message that says: more comes
    sent = 0

    def cut() -> bool:
        nonlocal sent
        poller.poll(0)
        if not times_all_were_cut(caplog) and writable.poll(20):
            sent += raw.send(part[sent % len(part) :])
        return times_all_were_cut(caplog) > 0

    until(cut, "the end of the flood")
    assert sent < 200 << 20, "it took far more than the limit"
    assert server.endpoints == endpoints
    until(lambda: poller.poll(0) or server_module.anonymous_bytes() < before + (32 << 20), "the memory")
    assert times_all_were_cut(caplog) == 1
    link = Link(context, server.endpoints[1], facts("producer"))

    def welcomed() -> bool:
        poller.poll(0)
        server.receive()
        return link.try_greet() is not None

    until(welcomed, "the welcome at the door that was opened again")
    link.send(REQUEST)
    assert until(lambda: poller.poll(20), "the request")
    receive(server)
    link.close()
    server.close()
    raw.close()


def test_a_keys_directorys_files_are_checked_and_secrets_are_the_owners(keys_dir: Path) -> None:
    handed = new_key(keys_dir, "alice", ["producer", "consumer"])
    assert handed.stat().st_mode & 0o777 == 0o600
    assert read_key(handed).may_greet_as == {"producer", "consumer"}
    for name, roles, why in (
        ("alice", ["admin"], "there is such a key"),
        ("../alice", ["admin"], "letters"),
        ("bob", [], "roles are"),
        ("bob", ["root"], "root"),
    ):
        with pytest.raises(BadKeys, match=why):
            new_key(keys_dir, name, roles)
    handed.chmod(0o644)
    with pytest.raises(BadKeys, match="chmod 600"):
        read_key(handed)
    (keys_dir / "allowed" / "mallory.json").write_text(
        json.dumps({"name": "mallory", "roles": ["admin"], "public": "x"})
    )
    with pytest.raises(BadKeys, match="mallory"):
        AuthorizedKeys(keys_dir)
    with pytest.raises(BadKeys, match="no such key"):
        revoke_key(keys_dir, "nobody")


def test_a_key_that_is_added_is_accepted_by_a_running_server(keys_dir: Path) -> None:
    running = AuthorizedKeys(keys_dir)
    made = key_for(keys_dir, "late", "consumer")
    assert running.roles_of(made.public) == {"consumer"}
    began = time.monotonic()
    assert not running.knows("x" * 40)
    assert time.monotonic() - began < 1


def test_a_keys_directory_that_changes_in_any_way_is_noticed(keys_dir: Path, tmp_path: Path) -> None:
    running = AuthorizedKeys(keys_dir)
    made = key_for(keys_dir, "late", "consumer")
    path = keys_dir / "allowed" / "late.json"
    whole = path.read_text()
    path.write_text(whole[:40])  # half copied: the directory does not change when the rest follows
    assert not running.knows(made.public)
    path.write_text(whole)
    assert running.roles_of(made.public) == {"consumer"}
    path.write_text(whole.replace("consumer", "producer"))
    assert running.roles_of(made.public) == {"producer"}
    assert running.revoked({made.public, running.server.public, "", "x" * 40}) == {"x" * 40}
    (keys_dir / "allowed").rename(tmp_path / "away")
    assert not running.knows(made.public)
    (tmp_path / "away").rename(keys_dir / "allowed")
    assert running.knows(made.public)


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "[]", "null", '{"name": "m", "roles": null, "public": "x"}']
    + [json.dumps({"name": "m", "roles": ["admin"], "public": key}) for key in ("", "\u00e9" * 40, '"' * 40, 5)],
    ids=["deep", "list", "null", "no-roles", "no-key", "not-ascii", "not-z85", "number"],
)
def test_a_file_that_is_no_key_is_told_by_name(keys_dir: Path, text: str) -> None:
    (keys_dir / "allowed").mkdir()
    (keys_dir / "allowed" / "m.json").write_text(text)
    with pytest.raises(BadKeys, match=r"m\.json"):
        AuthorizedKeys(keys_dir)


@pytest.mark.parametrize("op", ["delete_topic", "node_status", "node_stats", "node_settings", "node_configure"])
def test_what_is_everybodys_and_the_node_itself_are_for_admins(op: str) -> None:
    for role in ("producer", "consumer"):
        with pytest.raises(RoleRefused, match=f"{op} is for admins"):
            check_ask(op, "k" * 40, role)
    check_ask(op, "k" * 40, "admin")
    check_ask(op, "", "consumer")


def test_a_question_of_any_shape_is_no_crash() -> None:
    shapes: list[object] = [[], {}, None, 1]
    for op in shapes:
        check_ask(op, "k" * 40, "producer")
