"""A pair whose TCP ports are locked: the slave follows, clients with a key work, everybody else is told why not."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from tests.processes.nodes import Pair, TestNode, ended, free_port
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused
from towline.client.link.connection import own_facts
from towline.client.link.rpc import Caller
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import BadSetting, LinkRefused, TowlineError, UnknownTopic
from towline.link.dealer import HANDSHAKE_FAILURES
from towline.link.keys import ENVIRONMENT, change_key, make_node_keys, new_key, read_key, revoke_key
from towline.link.tls import TlsRefused
from towline.node.process.context import runtime_of


class Locked:
    """`endpoint` is the master's, `ring` the directory that both nodes were given."""

    def __init__(self, root: Path) -> None:
        self.ring = root / "ring"
        make_node_keys(self.ring)
        port = free_port()
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self.nodes = f"tcp://127.0.0.1:{(ha_port := free_port())}"
        self.pair = Pair(root, keys_dir=self.ring, listen_port=port, ha_listen_port=ha_port)
        self.pair.slave.flags += ["--set", f"ha_master_address=127.0.0.1:{ha_port}"]
        self.slave_port = free_port()
        self.pair.slave.flags += ["--set", f"keys_dir={self.ring}", "--set", f"listen_port={self.slave_port}"]

    def key(self, name: str, *roles: str) -> str:
        return str(new_key(self.ring, name, roles))


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    made = Locked(tmp_path_factory.mktemp("locked"))
    made.pair.start()
    yield made
    made.pair.stop()
    for _ in ended(*made.pair.nodes):
        pass


def test_a_slave_follows_and_clients_work_with_their_keys(locked: Locked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, locked.key("alice", "producer"))
    with Producer(locked.endpoint) as producer:
        assert producer.send(Message("orders", b"hello")).acknowledged  # on the slave too
    monkeypatch.setenv(ENVIRONMENT, locked.key("bob", "consumer"))
    with Consumer(locked.endpoint, "orders", start="first") as consumer:
        await_(lambda: [message.body for message in consumer.poll(100)] == [b"hello"], 60, "the message")
    locked.pair.await_caught_up()


def test_without_a_key_or_with_a_strangers_nobody_gets_in(
    locked: Locked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(locked.endpoint) as producer, pytest.raises(LinkRefused, match="a key is wanted"):
        producer.send(Message("orders", b"in clear"))
    other = tmp_path / "other"
    make_node_keys(other)
    monkeypatch.setenv(ENVIRONMENT, str(new_key(other, "eve", ["admin"])))
    with (
        Producer(locked.endpoint, delivery_timeout_ms=3_000) as producer,
        pytest.raises(TlsRefused, match="key's ring"),
    ):
        producer.send(Message("orders", b"of another cluster"))


def test_a_key_opens_what_it_is_for(locked: Locked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, locked.key("carol", "producer", "consumer"))
    with AdminClient(locked.endpoint) as admin, pytest.raises(LinkRefused, match="greets as 'admin'"):
        admin.delete_topic("orders")
    caller = Caller(locked.endpoint, own_facts("producer", "carol", ""))
    with pytest.raises(AskRefused, match="is for admins"):
        caller.ask("delete_topic", {"topic": "orders"}, 5_000)
    caller.close()
    monkeypatch.setenv(ENVIRONMENT, locked.key("root", "admin"))
    with AdminClient(locked.endpoint) as admin:
        admin.create_topic("made-by-an-admin", 2)
        assert "made-by-an-admin" in {topic["topic"] for topic in admin.topics()}


def test_a_slaves_serve_forwards_commits_through_the_masters_locked_port(
    locked: Locked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, locked.key("erin", "admin"))
    with AdminClient(locked.endpoint) as admin:
        admin.create_topic("forwarded", 1)
    with Producer(locked.endpoint) as producer:
        assert producer.send_bodies("forwarded", [b"1", b"2", b"3"])[-1].acknowledged
    locked.pair.await_caught_up()
    slave_serve = f"ipc://{runtime_of(locked.pair.slave.store.root).socket('serve')}"
    with AdminClient(slave_serve) as slave, AdminClient(locked.endpoint) as master:
        assert slave.ask("group_commit", group="g", offsets={"forwarded": {"0": 2}}).facts == {}
        assert master.group_offsets("g", "forwarded") == {"forwarded": {0: 2}}


def test_a_client_s_key_with_every_role_does_not_replicate(locked: Locked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at the port of nodes, whatever key pair it shows there, nor by a greeting at the port of clients."""
    path = locked.key("mallory", "producer", "consumer", "admin")
    monkeypatch.setenv(ENVIRONMENT, path)
    for role in ("slave", "node", "peer", "forwarder"):
        caller = Caller(locked.endpoint, own_facts(role, "mallory", ""))
        with pytest.raises(LinkRefused, match=r"no use at this port|greets as 'forwarder'"):
            caller.ask("topics", {}, 5_000)
        caller.close()
    held, own = read_key(Path(path)), zmq.curve_keypair()
    server = read_key(locked.ring / "server.secret.json").public
    pairs = [(held.public, own[1].decode()), (own[0].decode(), own[1].decode())]
    for public, secret in pairs:
        assert not is_let_in(locked.nodes, server, public, secret)
    assert is_let_in(locked.nodes, server, server, read_key(locked.ring / "server.secret.json").secret), (
        "the nodes' own key is"
    )


def is_let_in(endpoint: str, server: str, public: str, secret: str) -> bool:
    """Whether the handshake of this key pair (CURVE) ends well."""
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | HANDSHAKE_FAILURES)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.CURVE_SERVERKEY, server.encode())
    socket.set(zmq.CURVE_PUBLICKEY, public.encode())
    socket.set(zmq.CURVE_SECRETKEY, secret.encode())
    socket.connect(endpoint)
    assert monitor.poll(10_000), "the handshake has no end"
    event = recv_monitor_message(monitor)["event"]
    socket.disable_monitor()
    monitor.close()
    socket.close()
    context.term()
    return bool(event == zmq.EVENT_HANDSHAKE_SUCCEEDED)


def test_a_slave_judges_by_the_ring_that_it_has(locked: Locked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, locked.key("writer", "admin"))
    with Producer(locked.endpoint) as producer:
        for topic in ("read-there", "not-there"):
            assert producer.send(Message(topic, b"x")).acknowledged
    locked.pair.await_caught_up()
    monkeypatch.setenv(ENVIRONMENT, str(new_key(locked.ring, "peter", ["consumer:read-there"], ["g"])))
    slave = f"tcp://127.0.0.1:{locked.slave_port}"

    def read(topic: str) -> list[bytes]:
        with Consumer(slave, topic, start="first") as consumer, suppress(UnknownTopic):  # its copy of them comes later
            return [message.body for message in consumer.poll(1_000)]
        return []

    await_(lambda: read("read-there") == [b"x"], 60, "the message")
    with Consumer(slave, "not-there", start="first") as consumer, pytest.raises(AskRefused, match="NotPermitted"):
        consumer.poll(5_000)
    change_key(locked.ring, "peter", ["consumer:not-there"], ["g"])
    await_(lambda: read("not-there") == [b"x"], 60, "the message")


def test_a_revoked_key_ends_within_seconds(locked: Locked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, locked.key("dave", "producer"))
    with Producer(locked.endpoint, delivery_timeout_ms=3_000) as producer:
        assert producer.send(Message("orders", b"still there")).acknowledged
        revoke_key(locked.ring, "dave")

        def refused() -> bool:
            try:
                producer.send(Message("orders", b"still there"))
            except TowlineError:
                return True
            return False

        await_(refused, 60, "the end of the key")


def test_a_port_beyond_loopback_without_keys_is_refused(tmp_path: Path) -> None:
    node = TestNode("master", tmp_path, listen_host="0.0.0.0", ha_listen_port=0)
    with pytest.raises(BadSetting, match="a port that other machines reach needs keys"):
        node.start()
    node.flags += ["--set", "insecure=true"]
    node.start()
    assert node.stop()
