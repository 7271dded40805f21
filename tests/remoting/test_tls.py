"""TLS on the port of remoting: who begins with a handshake gets it."""

import random
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.nodes import check_nothing_is_left, ending
from towline.errors import TowlineError
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import Form
from towline.limits import MIB
from towline.runtime.remoting_counts import Ending

from .certificates import Certificate, certificate
from .conftest import RemotingNode, remoting_node
from .java_clients import VERSIONS, run
from .raw import RawClient, sent


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("certificate"))


def started(store: Path, pair: Certificate | None, **settings: object) -> Iterator[RemotingNode]:
    files = {} if pair is None else {"tls_server_cert_path": pair.certificate, "tls_server_key_path": pair.key}
    made = remoting_node(store, **files, **settings)
    with ending(made):
        made.start()
        yield made
        assert made.stop()
        check_nothing_is_left(made)


@pytest.fixture(scope="module")
def permissive(tmp_path_factory: pytest.TempPathFactory, pair: Certificate) -> Iterator[RemotingNode]:
    yield from started(tmp_path_factory.mktemp("permissive") / "store", pair)


class TlsClient(RawClient):
    """Trusts this certificate alone."""

    def __init__(self, port: int, trusted: Certificate, form: Form = Form.JSON) -> None:
        super().__init__(port, form)
        context = ssl.create_default_context(cafile=str(trusted.certificate))
        self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")


@pytest.mark.parametrize("form", Form)
def test_clients_with_tls_and_without_are_served_beside_each_other(
    permissive: RemotingNode, pair: Certificate, form: Form
) -> None:
    with TlsClient(permissive.port, pair, form) as secret, RawClient(permissive.port, form) as plain:
        for number in range(100):
            body = b"%d" % number
            assert secret.put("both", body, f"UNIQ_KEY\x01{number:032X}\x02").code == 0
            assert plain.put("both", body, f"UNIQ_KEY\x01{number:032X}\x02").code == 0
        assert isinstance(secret.socket, ssl.SSLSocket)
        assert secret.socket.version() in ("TLSv1.2", "TLSv1.3")


def test_large_messages_and_many_at_once_come_through_whole(permissive: RemotingNode, pair: Certificate) -> None:
    large = random.Random(1).randbytes(3 * MIB)
    with TlsClient(permissive.port, pair) as client:
        assert client.put("large", large).code == 0
        for number in range(500):
            client.send(RequestCode.SEND_MESSAGE_V2, sent("many", ""), b"%d" % number)
        assert {client.read().code for _ in range(500)} == {0}
        answer = client.pull("g", "large", 0, 0)
        assert answer.code == 0
        assert large in bytes(answer.body)


@pytest.mark.parametrize(
    "said",
    [b"\x16", b"\x16\x03\x01\x02\x00" + bytes(512), b"\x16\x03\x01\xff\xff" + b"x" * 70_000, b"\x16" * 5_000],
    ids=["a byte", "zeros", "too long", "no record"],
)
def test_what_is_no_handshake_ends_its_connection_alone(
    permissive: RemotingNode, pair: Certificate, said: bytes
) -> None:
    before, counted = permissive.pids()["remoting"], permissive.ended(Ending.TLS)
    with TlsClient(permissive.port, pair) as honest, socket.create_connection(("127.0.0.1", permissive.port)) as other:
        try:
            other.sendall(said)
            other.shutdown(socket.SHUT_WR)
            while other.recv(4096):
                pass
        except ConnectionError:
            pass
        assert honest.put("honest", b"x").code == 0
    assert permissive.pids()["remoting"] == before
    assert permissive.ended(Ending.TLS) == counted + (len(said) > 1), "one byte may be the begin of a handshake"


def test_a_client_that_ends_in_the_middle_of_a_record_costs_nobody_anything(
    permissive: RemotingNode, pair: Certificate
) -> None:
    before = permissive.pids()["remoting"]
    for size in (1, 5, 100, 1_000):
        client = TlsClient(permissive.port, pair)
        assert client.put("cut", b"x").code == 0
        assert isinstance(client.socket, ssl.SSLSocket)
        bare = socket.socket(fileno=client.socket.detach())
        bare.sendall((b"\x17\x03\x03\x04\x00" + bytes(1_024))[:size])
        bare.close()
    with TlsClient(permissive.port, pair) as honest:
        assert honest.put("cut", b"y").code == 0
    assert permissive.pids()["remoting"] == before


def test_where_it_is_enforced_nobody_goes_without(tmp_path: Path, pair: Certificate) -> None:
    for node in started(tmp_path / "store", pair, tls_server_mode="ENFORCING"):
        with RawClient(node.port) as plain:
            plain.write(struct.pack(">I", 100))
            assert plain.is_closed()
        with TlsClient(node.port, pair) as secret:
            assert secret.put("enforced", b"x").code == 0
        assert node.ended(Ending.TLS) == 1
        assert "begins without TLS, which is enforced" in node.store.node_log.read_text()


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DISABLED"])
def test_without_a_certificate_or_where_it_is_disabled_nobody_gets_it(
    tmp_path: Path, pair: Certificate, mode: str
) -> None:
    for node in started(tmp_path / "store", pair if mode == "DISABLED" else None, tls_server_mode=mode):
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            TlsClient(node.port, pair)
        with RawClient(node.port) as plain:
            assert plain.put("plain", b"x").code == 0
        assert node.ended(Ending.TLS) == 1


def test_a_certificate_of_no_use_keeps_the_node_from_starting(tmp_path: Path, pair: Certificate) -> None:
    (tmp_path / "bad.key").write_text("no key")
    wrong = Certificate(pair.certificate, tmp_path / "bad.key")
    with pytest.raises(TowlineError, match=r"the certificate .* is of no use"):
        next(started(tmp_path / "store", wrong))


@pytest.mark.parametrize("version", VERSIONS)
def test_real_producers_speak_tls(
    permissive: RemotingNode, pair: Certificate, version: str, request: pytest.FixtureRequest
) -> None:
    flags = ["-Dtls.enable=true", "-Dtls.test.mode.enable=false", "-Dtls.client.authServer=true",
             f"-Dtls.client.trustCertPath={pair.certificate}"]  # fmt: skip
    address, topic = f"127.0.0.1:{permissive.port}", f"tls-{version.replace('.', '-')}"
    said = run("Produce", version, address, topic, request.config, flags)
    assert said == run("Produce", version, address, f"plain-{version.replace('.', '-')}", request.config)
