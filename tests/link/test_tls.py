"""TLS of a link over a remoting port, against a peer that deals its bytes out as the test says."""

import contextlib
import os
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.processes.waiting import await_
from tests.remoting.certificates import Certificate, certificate
from towline.errors import InvalidEndpoint, NoAnswer
from towline.format.remoting.command import decode, frame_size
from towline.format.remoting.wire_message import decode_message, encode_message
from towline.format.wire.frames import Buffer
from towline.limits import MIB
from towline.link import tcp_link
from towline.link.endpoints import parse
from towline.link.handshake import encode_welcome
from towline.link.poller import Poller
from towline.link.tcp_link import OUT_MAX, TcpLink
from towline.link.tls import TlsRefused, client_context

FACTS: Final = {"role": "producer", "cluster": "c", "store": "", "name": "n"}
WAIT_S: Final = 10.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("authority"), name="authority")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, authority: Certificate) -> Certificate:
    return certificate(tmp_path_factory.mktemp("pair"), by=authority)


class TlsPeer:
    """Listens, and has one connection, of which it is the server. `pieces`: bytes that it sends at once."""

    def __init__(self, pair: Certificate, options: str, *, asks: Certificate | None = None, pieces: int = MIB) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        if asks is not None:
            context.load_verify_locations(asks.certificate)
            context.verify_mode = ssl.CERT_REQUIRED
        self._came, self.goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._came, self.goes, server_side=True)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.link = TcpLink(f"tls://127.0.0.1:{self.port}{options and '?'}{options}", FACTS)
        self.connection, _ = self.listening.accept()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection.setblocking(False)
        self._pieces, self._shaken = pieces, False
        self._plain = bytearray()
        self.has_ended = False

    def turn(self) -> None:
        """Takes what has come, and goes on with the handshake."""
        with contextlib.suppress(BlockingIOError):
            data = self.connection.recv(64 * 1024)
            if data:
                self._came.write(data)
            else:
                self._came.write_eof()
        try:
            if not self._shaken:
                self.tls.do_handshake()
                self._shaken = True
            while data := self.tls.read(64 * 1024):
                self._plain += data
            self.has_ended = True
        except ssl.SSLWantReadError:
            pass
        finally:
            self.flush()  # an alert, too

    def flush(self) -> None:
        while data := self.goes.read(self._pieces):
            self.connection.sendall(data)

    def say(self, *messages: list[Buffer]) -> None:
        """In as few records of TLS as there can be."""
        self.tls.write(b"".join(b"".join(encode_message(parts, from_node=True)) for parts in messages))
        self.flush()

    def take(self) -> list[Buffer] | None:
        """The next message of the link."""
        self.turn()
        size = frame_size(self._plain)
        if not size or len(self._plain) < size:
            return None
        frame = bytes(self._plain[:size])
        del self._plain[:size]
        return decode_message(decode(frame).body)

    def greet(self) -> None:
        def greeting() -> object:
            assert self.link.try_greet() is None
            return self.take()

        await_(greeting, WAIT_S, "the greeting")
        self.say(encode_welcome(1, {"epoch": 3}))
        assert await_(self.link.try_greet, WAIT_S, "the welcome") == {"epoch": 3}

    def close(self) -> None:
        self.link.close()
        self.connection.close()
        self.listening.close()


@pytest.fixture
def peer(pair: Certificate, authority: Certificate) -> Iterator[TlsPeer]:
    made = TlsPeer(pair, f"ca={authority.certificate}")
    yield made
    made.close()


def refused(peer: TlsPeer, kind: type[Exception] = TlsRefused) -> str:
    def found() -> str:
        with contextlib.suppress(OSError):
            peer.turn()
        try:
            assert peer.link.try_greet() is None
        except kind as error:
            return str(error)
        return ""

    said = await_(found, WAIT_S, "the refusal")
    assert peer.link.lost
    return said


# --- bytes


def test_messages_pass_both_ways_also_byte_by_byte(pair: Certificate, authority: Certificate) -> None:
    peer = TlsPeer(pair, f"ca={authority.certificate}", pieces=1)
    peer.greet()
    assert peer.link.own_port == peer.connection.getpeername()[1]
    assert peer.link.send([b"head", b"", memoryview(b"records")])
    assert [bytes(part) for part in await_(peer.take, WAIT_S, "a message")] == [b"head", b"", b"records"]
    peer.say([b"a", os.urandom(5_000)], [b"c"])
    assert bytes(await_(peer.link.receive, WAIT_S, "a message")[0]) == b"a"
    assert bytes(await_(peer.link.receive, WAIT_S, "a message")[0]) == b"c"
    peer.close()


@pytest.mark.parametrize("sizes", [[10] * 500, [5 * MIB], [16_000, 3 * MIB, 1, 70_000, 16_384]], ids=str)
def test_nothing_stays_in_tls_that_no_poller_sees(peer: TlsPeer, sizes: list[int]) -> None:
    """Many messages in one record, and one in many: who receives until there is none has all that had come."""
    peer.greet()
    sent = [os.urandom(size) for size in sizes]
    found: list[bytes] = []
    poller = Poller(peer.link)
    peer.tls.write(b"".join(b"".join(encode_message([b"h", data], from_node=True)) for data in sent))
    goes = memoryview(peer.goes.read())
    while goes or len(found) < len(sent):
        with contextlib.suppress(BlockingIOError):
            goes = goes[peer.connection.send(goes) :] if goes else goes
        assert poller.poll(10_000), f"{len(found)} of {len(sent)} came, and the poller sees no more"
        while (parts := peer.link.receive()) is not None:
            found.append(bytes(parts[1]))
    assert found == sent
    poller.remove(peer.link)


def test_what_a_slow_peer_does_not_take_waits_and_more_is_refused(peer: TlsPeer) -> None:
    peer.greet()
    part = os.urandom(3 * MIB)
    count = 0
    while peer.link.send([b"h", part]):
        count += 1
        assert count < 100
    assert count * len(part) > OUT_MAX
    poller = Poller(peer.link)
    for _ in range(count):

        def taken() -> list[Buffer] | None:
            poller.poll(0)
            return peer.take()

        assert bytes(await_(taken, WAIT_S, "a message")[1]) == part
    assert peer.link.send([b"again"])
    assert bytes(await_(peer.take, WAIT_S, "a message")[0]) == b"again"
    poller.remove(peer.link)


def test_parts_may_change_once_they_are_sent(peer: TlsPeer) -> None:
    peer.greet()
    part = bytearray(b"x" * (4 * MIB))
    assert peer.link.send([b"h", part], copy=False)
    part[:] = b"y" * len(part)

    def taken() -> list[Buffer] | None:
        peer.link.tend()
        return peer.take()

    assert b"y" not in bytes(await_(taken, WAIT_S, "the message")[1])


def test_a_link_that_is_closed_says_so_and_is_told(pair: Certificate, authority: Certificate) -> None:
    for ends in ("link", "peer", "cut"):
        peer = TlsPeer(pair, f"ca={authority.certificate}")
        peer.greet()
        if ends == "link":
            peer.link.close()
            await_(lambda found=peer: found.turn() or found.has_ended, WAIT_S, "close_notify")
            peer.connection.close()
            peer.listening.close()
            continue
        with contextlib.suppress(ssl.SSLWantReadError):
            if ends == "peer":
                peer.tls.unwrap()
        peer.flush()
        if ends == "cut":
            peer.connection.close()
        await_(lambda found=peer: found.link.receive() is None and found.link.lost, WAIT_S, "the loss")
        assert not peer.link.send([b"h"])
        peer.close()


def test_what_is_no_tls_behind_the_handshake_loses_the_link(peer: TlsPeer) -> None:
    peer.greet()
    peer.connection.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
    await_(lambda: peer.link.receive() is None and peer.link.lost, WAIT_S, "the loss")


# --- who is trusted


def test_without_ca_the_systems_are_trusted(
    pair: Certificate, authority: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("towline.link.tls._contexts", {})
    peer = TlsPeer(pair, "")
    assert "is not trusted" in refused(peer)
    peer.close()
    monkeypatch.setattr("towline.link.tls._contexts", {})
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    peer = TlsPeer(pair, "")
    peer.greet()
    peer.close()


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({"days": 0}, "has expired: it is to be renewed there"),
        ({"host": "IP:127.0.0.2"}, "is not for '127.0.0.1'"),
        ({"host": "DNS:node.example"}, "is not for '127.0.0.1'"),
        ({"by": None}, r"is not trusted .* by \?ca=FILE"),
    ],
    ids=["expired", "another address", "a name", "a stranger's"],
)
def test_a_certificate_of_no_use_is_refused_by_name(
    tmp_path: Path, authority: Certificate, made: dict[str, object], why: str
) -> None:
    shown = certificate(tmp_path, **({"by": authority} | made))  # type: ignore[arg-type]
    peer = TlsPeer(shown, f"ca={authority.certificate}")
    said = refused(peer)
    assert re.search(why, said), said
    peer.close()


def test_a_certificate_that_breaks_the_rules_is_told_from_one_that_nobody_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = ssl.create_default_context
    careless = certificate(tmp_path / "careless", name="careless", extensions="basicConstraints=CA:TRUE\n")

    def strict(purpose: ssl.Purpose, **files: str) -> ssl.SSLContext:
        context = default(purpose, **files)
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # Python sets it from 3.13 on
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    peer = TlsPeer(certificate(tmp_path / "made", by=careless), f"ca={careless.certificate}")
    assert "is not made by the rules (Basic Constraints of CA cert not marked critical)" in refused(peer)
    peer.close()


def test_our_own_certificate_is_shown_where_one_is_wanted(
    tmp_path: Path, pair: Certificate, authority: Certificate
) -> None:
    ours = certificate(tmp_path, name="us", by=authority)
    trusted = f"ca={authority.certificate}"
    peer = TlsPeer(pair, trusted, asks=authority)
    assert "give one that it trusts by ?cert=FILE&key=FILE" in refused(peer)
    peer.close()
    both = tmp_path / "both.pem"
    both.write_bytes(ours.certificate.read_bytes() + ours.key.read_bytes())
    for own in (f"cert={ours.certificate}&key={ours.key}", f"cert={both}"):
        peer = TlsPeer(pair, f"{trusted}&{own}", asks=authority)
        peer.greet()
        peer.close()


# --- who is no peer


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak TLS: write tcp://"),
        (b"\xff" + bytes(8) + b"\x7f", "does not speak TLS: write tcp://"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "it offers no TLS .* set tls_server_cert_path"),
    ],
    ids=["http", "zeromq", "an alert"],
)
def test_what_speaks_no_tls_is_named(peer: TlsPeer, said: bytes, why: str) -> None:
    peer.link.try_greet()
    peer.connection.sendall(said)
    with pytest.raises(TlsRefused, match=why):
        await_(peer.link.try_greet, WAIT_S, "the refusal")


def test_one_that_breaks_off_may_be_better_the_next_time(peer: TlsPeer) -> None:
    peer.link.try_greet()
    peer.connection.close()
    with pytest.raises(NoAnswer, match="breaks TLS off before it has begun"):
        await_(peer.link.try_greet, WAIT_S, "the refusal")


def test_one_that_does_not_go_on_is_given_up(peer: TlsPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    await_(lambda: peer.link.try_greet() or peer.link.own_port, WAIT_S, "the connection")
    assert "does not go on with TLS" in peer.link.trouble
    monkeypatch.setattr(peer.link, "_shake_until", time.monotonic())
    with pytest.raises(NoAnswer, match=f"does not go on with TLS, for {tcp_link.SHAKE_S:.0f} s"):
        await_(peer.link.try_greet, WAIT_S, "the end")


# --- files


def test_a_renewed_certificate_is_noticed_and_a_broken_one_is_not_taken(tmp_path: Path, pair: Certificate) -> None:
    ca = tmp_path / "ca.pem"
    endpoint = parse(f"tls://127.0.0.1:1?ca={ca}")
    with pytest.raises(InvalidEndpoint, match="No such file"):
        client_context(endpoint)
    ca.write_text("nothing")
    with pytest.raises(InvalidEndpoint, match="of no use"):
        client_context(endpoint)
    ca.write_bytes(pair.certificate.read_bytes())
    first = client_context(endpoint)
    assert client_context(endpoint) is first
    ca.write_text("half of i")
    assert client_context(endpoint) is first
    ca.unlink()
    assert client_context(endpoint) is first
    ca.write_bytes(pair.certificate.read_bytes() * 2)
    assert client_context(endpoint) is not first


def test_a_key_with_a_password_is_refused_without_asking(tmp_path: Path, pair: Certificate) -> None:
    locked = tmp_path / "locked.key"
    words = ["openssl", "rsa", "-aes128", "-passout", "pass:secret", "-in", str(pair.key), "-out", str(locked)]
    subprocess.run(words, check=True, capture_output=True)
    with pytest.raises(InvalidEndpoint, match="locked by a password"):
        client_context(parse(f"tls://127.0.0.1:1?cert={pair.certificate}&key={locked}"))
