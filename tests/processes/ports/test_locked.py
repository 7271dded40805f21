"""A pair whose TCP ports are locked: the slave follows, clients with a key work, everybody else is told why not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.nodes import Pair, TestNode, ended, free_port
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused
from towline.client.link.connection import own_facts
from towline.client.link.rpc import Caller
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import BadSetting, LinkRefused, TowlineError
from towline.link.keys import ENVIRONMENT, make_node_keys, new_key, revoke_key
from towline.link.tls import TlsRefused
from towline.node.process.context import runtime_of


class Locked:
    """`endpoint` is the master's, `ring` the directory that both nodes were given."""

    def __init__(self, root: Path) -> None:
        self.ring = root / "ring"
        make_node_keys(self.ring)
        port = free_port()
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self.pair = Pair(root, keys_dir=self.ring, listen_port=port)
        self.pair.slave.flags += ["--set", f"keys_dir={self.ring}"]

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
