"""Ports of nodes beyond loopback: only who has the nodes' own key connects; too much memory cuts every peer. And the
files of a ring of keys."""

import json
import os
import select
import socket as sockets
import struct
from collections.abc import Iterator
from contextlib import suppress
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
    ENVIRONMENT,
    NODE,
    AuthorizedKeys,
    BadKeys,
    Key,
    RoleRefused,
    certificate_of,
    check_ask,
    environment_key,
    list_keys,
    make_node_keys,
    new_key,
    read_key,
    revoke_key,
)
from towline.link.poller import Poller
from towline.link.server import Server

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
        except NoAnswer as error:
            return error.trouble if "breaks the connection off" in error.trouble else ""
        raise AssertionError("it was welcomed")

    return str(until(told, "the end of the handshake"))


def test_what_goes_over_the_wire_cannot_be_read(context: Context, keys_dir: Path, tmp_path: Path) -> None:
    """Behind a relay that keeps what passes, neither greeting nor request stands in clear."""
    server = Server(context, ["tcp://127.0.0.1:0"], own=OWN, keys=AuthorizedKeys(keys_dir))
    address = address_of(server)
    listener = sockets.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    key = AuthorizedKeys(keys_dir).as_client
    link = Link(context, f"tcp://127.0.0.1:{listener.getsockname()[1]}", facts("alice"), key=key)
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
    link = Link(context, server.endpoints[1], facts("peer"), key=AuthorizedKeys(other).as_client)
    assert "our key is for other nodes" in trouble_of(link, server)
    assert not server.sessions
    link.close()


def test_a_node_shows_the_nodes_own_key(context: Context, server: Server, keys_dir: Path) -> None:
    link = Link(context, server.endpoints[1], facts("slave"), key=AuthorizedKeys(keys_dir).as_client)
    assert greet(link, server)["name"] == "broker-a"
    assert link.send(REQUEST)
    assert receive(server).session.facts["role"] == "slave"
    link.close()


def test_who_knows_the_servers_key_and_has_another_is_not_accepted(
    context: Context, server: Server, keys_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The public half of the nodes' key is no secret of theirs."""
    public, secret = zmq.curve_keypair()
    shown = AuthorizedKeys(keys_dir).as_client
    real = context.socket

    def socket(kind: int) -> object:
        made = real(kind)
        set_option = made.set
        own = {zmq.CURVE_PUBLICKEY: public, zmq.CURVE_SECRETKEY: secret}
        monkeypatch.setattr(
            made, "set", lambda option, value: set_option(option, own.get(option, value)), raising=False
        )
        return made

    with monkeypatch.context() as patched:
        patched.setattr(context, "socket", socket)
        link = Link(context, server.endpoints[1], facts("slave"), key=shown)
    assert "not accepted" in trouble_of(link, server)
    assert not server.sessions
    link.close()


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

    until(welcomed, "the welcome at the port that was opened again")
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


def roles_of(running: AuthorizedKeys, name: str) -> frozenset[str]:
    found = running.access(name)
    return frozenset() if found is None else found[0].may_greet_as


def test_a_key_that_is_added_is_accepted_by_a_running_node(keys_dir: Path) -> None:
    running = AuthorizedKeys(keys_dir)
    made = key_for(keys_dir, "late", "consumer")
    found = running.access("late")
    assert found is not None
    assert (found[0].may_greet_as, found[1]) == ({"consumer"}, made.access)
    assert running.access("nobody") is None


def test_the_nodes_own_key_forwards_and_is_never_revoked(keys_dir: Path) -> None:
    running = AuthorizedKeys(keys_dir)
    found = running.access(NODE)
    assert found is not None
    assert (found[0].may_greet_as, found[1]) == ({"forwarder"}, running.as_client.access)
    assert running.changed([found[0]]) == {}


def test_a_keys_directory_that_changes_in_any_way_is_noticed(keys_dir: Path, tmp_path: Path) -> None:
    running = AuthorizedKeys(keys_dir)
    key_for(keys_dir, "late", "consumer")
    path = keys_dir / "allowed" / "late.json"
    whole = path.read_text()
    path.write_text(whole[:40])  # half copied: the directory does not change when the rest follows
    assert not roles_of(running, "late")
    path.write_text(whole)
    assert roles_of(running, "late") == {"consumer"}
    was = running.access("late")[0]
    path.write_text(whole.replace("consumer", "producer"))
    assert roles_of(running, "late") == {"producer"}
    ((now, _),) = [running.access("late")]
    assert running.changed([now, was]) == {was: now}, "it may do something else"
    (keys_dir / "allowed").rename(tmp_path / "away")
    assert not roles_of(running, "late")
    assert running.changed([now]) == {}, "nobody is known to be revoked"
    (tmp_path / "away").rename(keys_dir / "allowed")
    assert roles_of(running, "late") == {"producer"}
    revoke_key(keys_dir, "late")
    assert running.changed([now]) == {now: None}
    new_key(keys_dir, "late", ["producer"])
    assert running.changed([now]) == {now: None}, "another key of the same name"
    assert [(listed.key.name, listed.revoked) for listed in list_keys(keys_dir)] == [("late", False), ("late", True)]


def test_a_ring_has_a_certificate_that_key_files_carry_and_its_key_stays_there(keys_dir: Path) -> None:
    whole = certificate_of(keys_dir).read_text()
    assert certificate_of(keys_dir).stat().st_mode & 0o777 == 0o600
    handed = new_key(keys_dir, "alice", ["producer"])
    made = read_key(handed)
    assert made.certificate in whole
    assert "PRIVATE KEY" in whole
    assert "PRIVATE KEY" not in handed.read_text()
    assert make_node_keys(keys_dir) is False
    assert certificate_of(keys_dir).read_text() == whole


def test_a_ring_without_a_certificate_gets_one_and_is_none_before(keys_dir: Path) -> None:
    """One of before certificates."""
    certificate_of(keys_dir).unlink()
    handed = new_key_of_before(keys_dir)
    with pytest.raises(BadKeys, match=r"server\.pem"):
        AuthorizedKeys(keys_dir)
    with pytest.raises(BadKeys, match="by a ring without a certificate: a new one is wanted"):
        read_key(handed)
    assert make_node_keys(keys_dir)
    AuthorizedKeys(keys_dir)


def new_key_of_before(keys_dir: Path) -> Path:
    handed = keys_dir / "handed" / "old.secret.json"
    handed.parent.mkdir()
    pair = [half.decode() for half in zmq.curve_keypair()]
    handed.write_text(json.dumps({"name": "old", "roles": ["admin"], "public": pair[0], "access": "0" * 64}))
    handed.chmod(0o600)
    return handed


def test_what_is_no_file_of_a_client_is_not_used_as_one(keys_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would sign with nothing, and send in clear."""
    new_key(keys_dir, "alice", ["producer"])
    for path in (keys_dir / "allowed" / "alice.json", keys_dir / "server.secret.json"):
        monkeypatch.setenv(ENVIRONMENT, str(path))
        with pytest.raises(BadKeys, match="no file of a client"):
            environment_key()


def test_who_is_renamed_while_the_directory_is_read_locks_nobody_out(
    keys_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = AuthorizedKeys(keys_dir)
    for name in ("alice", "bob"):
        key_for(keys_dir, name, "producer")
    real = os.scandir

    class Renaming:
        def __init__(self, path: Path) -> None:
            self.entries = list(real(path))
            with suppress(FileNotFoundError):
                (keys_dir / "allowed" / "alice.json").rename(keys_dir / "alice.json")

        def __enter__(self) -> "list[os.DirEntry[str]]":
            return self.entries

        def __exit__(self, *_: object) -> None:
            return

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", Renaming)
        assert roles_of(running, "bob") == {"producer"}
    assert not roles_of(running, "alice")


def test_a_certificate_that_others_may_read_or_that_is_none_is_refused(keys_dir: Path) -> None:
    certificate_of(keys_dir).chmod(0o640)
    with pytest.raises(BadKeys, match="chmod 600"):
        AuthorizedKeys(keys_dir)
    certificate_of(keys_dir).chmod(0o600)
    certificate_of(keys_dir).write_text("-----BEGIN PRIVATE KEY-----\n")
    with pytest.raises(BadKeys, match="it holds no certificate"):
        AuthorizedKeys(keys_dir)


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


OF_ADMINS = ["delete_topic", "node_status", "node_stats", "node_segments", "node_settings", "node_configure"]


@pytest.mark.parametrize("op", OF_ADMINS)
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
