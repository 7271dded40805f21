"""Our own clients at a remoting port over TLS: all that they do without, and who is refused."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.processes.nodes import check_nothing_is_left, ending, free_port
from towline.cli.main import run
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import ClientForked
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import InvalidEndpoint, LinkRefused
from towline.link.keys import ENVIRONMENT, make_node_keys, new_key
from towline.link.tls import TlsRefused

from .certificates import Certificate, certificate
from .conftest import RemotingNode, remoting_node, remoting_node_of
from .test_own_clients import (
    bodies,
    test_a_kill_loses_nothing_acknowledged_and_clients_go_on,  # noqa: F401
    test_a_message_and_an_answer_of_megabytes_pass,  # noqa: F401
    test_a_request_is_replied_to,  # noqa: F401
    test_an_admin_asks_put_and_serve_at_one_address,  # noqa: F401
    test_delays_and_their_cancellation,  # noqa: F401
    test_members_share_a_group_also_with_those_of_the_other_port,  # noqa: F401
    test_transactions_end_and_are_checked,  # noqa: F401
    test_what_a_member_sends_back_comes_again_by_the_same_port,  # noqa: F401
    test_what_is_sent_in_each_way_is_read_once,  # noqa: F401
)

DEADLINE_S: Final = 60.0


class TlsNode(RemotingNode):
    """Nobody is served here without TLS."""

    ca: Path

    @property
    def address(self) -> str:
        return f"tls://127.0.0.1:{self.port}?ca={self.ca}"


def tls_node(store: Path, pair: Certificate, ca: Path, **settings: object) -> TlsNode:
    files = {"tls_server_cert_path": pair.certificate, "tls_server_key_path": pair.key}
    made = remoting_node_of(TlsNode, store, **files, **({"tls_server_mode": "ENFORCING"} | settings))
    made.ca = ca
    return made


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("authority"), name="authority")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, authority: Certificate) -> Certificate:
    return certificate(tmp_path_factory.mktemp("pair"), by=authority)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, authority: Certificate, pair: Certificate) -> Iterator[RemotingNode]:
    made = tls_node(tmp_path_factory.mktemp("remoting") / "store", pair, authority.certificate)
    with ending(made):
        made.start()
        yield made
        assert made.stop()
        check_nothing_is_left(made)


# --- who is refused


def test_a_certificate_that_nothing_vouches_for_is_refused_at_once(node: RemotingNode, tmp_path: Path) -> None:
    stranger = certificate(tmp_path / "stranger", name="stranger").certificate
    for options in ("", f"?ca={stranger}"):
        address = f"tls://127.0.0.1:{node.port}{options}"
        with Producer(address) as producer, pytest.raises(TlsRefused, match=r"is not trusted .* by \?ca=FILE"):
            producer.send(Message("never", b"x"))
        with Consumer(address, "never") as consumer, pytest.raises(TlsRefused, match="is not trusted"):
            consumer.poll(10_000)
        with AdminClient(address) as admin, pytest.raises(TlsRefused, match="is not trusted"):
            admin.topics()
    with AdminClient(node.address) as admin:
        assert "never" not in {row["topic"] for row in admin.topics()}


def test_a_host_that_the_certificate_does_not_name_is_refused(node: TlsNode) -> None:
    address = node.address.replace("127.0.0.1", "localhost")
    with Producer(address) as producer, pytest.raises(TlsRefused, match="is not for 'localhost'"):
        producer.send(Message("never", b"x"))


def test_an_expired_certificate_is_refused(tmp_path: Path, authority: Certificate) -> None:
    old = certificate(tmp_path / "old", by=authority, days=0)
    node = tls_node(tmp_path / "store", old, authority.certificate)
    with ending(node):
        node.start()
        check_refused(node.address, "has expired")
        assert node.stop()


def check_refused(endpoint: str, why: str) -> None:
    with Producer(endpoint) as producer, pytest.raises(TlsRefused, match=why):
        producer.send(Message("never", b"x"))


def test_without_tls_an_enforcing_port_says_what_to_write(node: RemotingNode) -> None:
    plain = f"tcp://127.0.0.1:{node.port}"
    check_refused(plain, r"TLS only: .* or write tls://HOST:PORT")
    with Consumer(plain, "never") as consumer, pytest.raises(TlsRefused, match="TLS only"):
        consumer.poll(10_000)


def test_with_tls_a_port_without_a_certificate_and_one_for_nodes_say_what_to_do(tmp_path: Path) -> None:
    node = remoting_node(tmp_path / "store", ha_listen_port=(ha := free_port()))
    with ending(node):
        node.start()
        for port, why in (
            (node.port, "offers no TLS .* set tls_server_cert_path"),
            (ha, "not speak TLS: write tcp://"),
        ):
            check_refused(f"tls://127.0.0.1:{port}", why)
        assert node.stop()


def test_of_several_addresses_one_that_is_refused_costs_nothing(node: TlsNode, tmp_path: Path) -> None:
    stranger = certificate(tmp_path / "stranger", name="stranger").certificate
    several = f"tls://127.0.0.1:{node.port}?ca={stranger},{node.address}"
    with Producer(several) as producer:
        assert producer.send(Message("several", b"x")).acknowledged
    with Consumer(several, "several", start="first") as consumer:
        assert bodies(consumer, 1) == [b"x"]


@pytest.mark.parametrize("given", ["?ca=/nowhere.pem", "?cert=/nowhere.pem", "?key=/k.pem", "?colour=red", "?", "?ca="])
def test_an_address_with_files_of_no_use_is_refused_before_anything_is_sent(given: str) -> None:
    with pytest.raises(InvalidEndpoint):
        Producer(f"tls://127.0.0.1:1{given}")


# --- what goes on


def test_where_both_are_served_each_client_gets_what_it_asks_for(
    tmp_path: Path, authority: Certificate, pair: Certificate
) -> None:
    node = tls_node(tmp_path / "store", pair, authority.certificate, tls_server_mode="PERMISSIVE")
    with ending(node):
        node.start()
        with Producer(node.address) as secret, Producer(f"tcp://127.0.0.1:{node.port}") as plain:
            for number in range(50):
                assert secret.send(Message("both", b"%d" % number, queue_id=0)).acknowledged
                assert plain.send(Message("both", b"%d" % (1_000 + number), queue_id=0)).acknowledged
        with Consumer(node.address, "both", start="first") as consumer:
            assert len(set(bodies(consumer, 100))) == 100
        assert node.stop()


def test_keys_sign_greetings_inside_of_tls(
    tmp_path: Path, authority: Certificate, pair: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_node_keys(ring := tmp_path / "ring")
    handed = new_key(ring, "payer", ["producer"])
    node = tls_node(tmp_path / "store", pair, authority.certificate, keys_dir=ring)
    with ending(node):
        node.start()
        with Producer(node.address) as producer, pytest.raises(LinkRefused, match="a key is wanted"):
            producer.send(Message("signed", b"x"))
        monkeypatch.setenv(ENVIRONMENT, str(handed))
        with Producer(node.address) as producer:
            assert producer.send(Message("signed", b"x")).acknowledged
        assert node.stop()


def test_a_key_file_leads_to_tls_by_itself_beside_any_other_certificate(
    tmp_path: Path, authority: Certificate, pair: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ring's certificate is for whoever has its key file, the other for clients that look at the host."""
    make_node_keys(ring := tmp_path / "ring")
    make_node_keys(other := tmp_path / "other")
    handed = new_key(ring, "payer", ["producer"])
    stranger = new_key(other, "payer", ["producer"])
    node = tls_node(tmp_path / "store", pair, authority.certificate, keys_dir=ring)
    plain = f"tcp://127.0.0.1:{node.port}"
    with ending(node):
        node.start()
        with Producer(plain) as producer, pytest.raises(TlsRefused, match="TLS only: TOWLINE_KEYS=FILE"):
            producer.send(Message("signed", b"x"))
        monkeypatch.setenv(ENVIRONMENT, str(handed))
        for endpoint in (plain, node.address):
            with Producer(endpoint) as producer:
                assert producer.send(Message("signed", b"x")).acknowledged
        monkeypatch.setenv(ENVIRONMENT, str(stranger))
        with Producer(plain) as producer, pytest.raises(TlsRefused, match="not the one of our key's ring"):
            producer.send(Message("signed", b"x"))
        assert node.stop()


def test_with_a_key_file_a_node_without_a_ring_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_node_keys(ring := tmp_path / "ring")
    monkeypatch.setenv(ENVIRONMENT, str(new_key(ring, "payer", ["producer"])))
    node = remoting_node(tmp_path / "store", ha_listen_port=(ha := free_port()))
    with ending(node):
        node.start()
        for port, why in (
            (node.port, "on a node set keys_dir, or leave the key file out"),
            (ha, "not speak TLS: leave the key file out where nobody wants one, or its listen_port"),
        ):
            check_refused(f"tcp://127.0.0.1:{port}", why)
        assert node.stop()


def test_a_renewed_certificate_is_taken_over_when_the_node_starts_again(
    tmp_path: Path, authority: Certificate, pair: Certificate
) -> None:
    """A client that was there before goes on: it trusts what vouches for the new one, too."""
    node = tls_node(tmp_path / "store", pair, authority.certificate)
    with ending(node):
        node.start()
        with Producer(node.address) as producer:
            assert producer.send(Message("renewed", b"before")).acknowledged
            assert node.stop()
            renewed = certificate(tmp_path / "renewed", by=authority)
            node.flags += ["--set", f"tls_server_cert_path={renewed.certificate}"]
            node.flags += ["--set", f"tls_server_key_path={renewed.key}"]
            node.start()
            assert producer.send(Message("renewed", b"after")).acknowledged
        assert node.stop()


def ports(pid: int, to: int) -> set[int]:
    """Our ends of this process's connections to a port."""
    found = psutil.Process(pid).net_connections("tcp")
    return {each.laddr.port for each in found if each.raddr and each.raddr.port == to}


def test_a_fork_leaves_the_parents_connection_alone(node: RemotingNode) -> None:
    with Producer(node.address) as producer, Consumer(node.address, "forked", start="first") as consumer:
        assert producer.send(Message("forked", b"before")).acknowledged
        assert bodies(consumer, 1) == [b"before"]
        before = ports(os.getpid(), node.port)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for use in (lambda: producer.send(Message("forked", b"of the child")), lambda: consumer.poll(0)):
                    try:
                        use()
                    except ClientForked:
                        code += 1
                with Producer(node.address) as own:
                    code += own.send(Message("forked", b"of its own")).acknowledged
                del producer, consumer
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        assert producer.send(Message("forked", b"after")).acknowledged
        assert sorted(bodies(consumer, 2)) == [b"after", b"of its own"]
        assert ports(os.getpid(), node.port) == before


def test_commands_take_the_address_too(node: RemotingNode, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> str:
        status = run([*words, "--endpoint", node.address, "--json"])
        out, err = capsys.readouterr()
        assert status == 0, err
        return out

    assert "PUT_OK" in said("put", "commanded", "hello")
    assert "hello" in said("get", "commanded")
    assert "commanded" in said("topic", "list")
    said("group", "list")
    assert run(["put", "commanded", "x", "--endpoint", f"tls://127.0.0.1:{node.port}"]) != 0
    assert "?ca=FILE" in capsys.readouterr().err.replace("\n", "")
