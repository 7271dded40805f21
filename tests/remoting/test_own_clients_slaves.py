"""Our own clients at the remoting ports of a group of nodes, slaves among them, through a change of the master."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.processes.groups import Group
from tests.processes.nodes import ended, free_port
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused
from towline.client.group.consumer import GroupConsumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.transaction import State, TransactionProducer
from towline.errors import LinkRefused
from towline.format.wire.frames import ASK, Kind, encode_put, json_part, read_json
from towline.format.wire.frames import Group as Records
from towline.link.handshake import encode_greeting
from towline.link.keys import ENVIRONMENT, make_node_keys, new_key
from towline.link.tls import TlsRefused
from towline.remoting.tunnels import WAITING_MAX

from .certificates import certificate
from .test_own_clients import DEADLINE_S, WireClient, bodies

MASTER, SLAVE = 0, 1
REFUSED: Final = r"node 1 is a slave and takes no messages; the master of epoch .* is node 0"


class PortsGroup(Group):
    """Nodes that listen to clients at their remoting ports alone."""

    scheme = "tcp"
    options = ""
    ports: list[int]

    def address(self, *numbers: int) -> str:
        """Of these nodes, in this order."""
        return ",".join(f"{self.scheme}://127.0.0.1:{self.ports[number]}{self.options}" for number in numbers)

    @classmethod
    def made(cls, root: Path, count: int, **settings: object) -> "PortsGroup":
        made = cls(root, count, **settings)
        made.ports = [free_port() for _ in made.nodes]
        for node, port in zip(made.nodes, made.ports, strict=True):
            node.flags += ["--set", f"listen_port={port}"]
        return made

    def fill(self, topic: str, sent: list[bytes], queues: int = 2) -> None:
        """On every node."""
        with AdminClient(self.address(MASTER)) as admin, Producer(self.address(MASTER), compression=None) as producer:
            admin.create_topic(topic, queues)
            assert all(result.acknowledged for result in producer.send_bodies(topic, sent))
        self.await_topic(topic)
        self.await_level(*(number for number, node in enumerate(self.nodes) if node.launched is not None))


def running(made: PortsGroup) -> Iterator[PortsGroup]:
    ending = ended(*made.nodes)
    next(ending)
    made.start()
    yield made
    next(ending, None)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PortsGroup]:
    """A master and a slave; whatever is read is far behind, and better read from the slave."""
    far = {"slave_read_enable": True, "access_message_in_memory_max_ratio": 0, "enable_property_filter": True}
    counts = {"in_sync_replicas": 1, "min_in_sync_replicas": 1, "broker_role": "ASYNC_MASTER"}
    made = PortsGroup.made(tmp_path_factory.mktemp("slaves"), 2, **far, **counts)
    yield from running(made)


# --- reading


@pytest.mark.parametrize("reads_files", [True, False])
def test_everything_is_read_from_a_slave_and_what_comes_meanwhile(group: PortsGroup, reads_files: bool) -> None:
    topic = f"read-{reads_files}"
    sent = [os.urandom(700) for _ in range(3_000)]
    group.fill(topic, sent)
    with (
        Consumer(group.address(SLAVE), topic, reads_files=reads_files) as consumer,
        Producer(group.address(MASTER)) as producer,
    ):
        assert sorted(bodies(consumer, len(sent))) == sorted(sent)
        for number in range(20):  # the pulls are held by the slave until something comes
            body = b"later %d" % number
            assert producer.send(Message(topic, body)).acknowledged
            assert bodies(consumer, 1) == [body]


def test_a_slave_filters_and_finds_by_time_as_the_master_does(group: PortsGroup) -> None:
    group.fill("filtered", [b"before"])
    with Producer(group.address(MASTER)) as producer:
        for number in range(20):
            properties = {"number": str(number)}
            producer.send(Message("filtered", b"%d" % number, tags="ab"[number % 2], properties=properties))
    group.await_level(MASTER, SLAVE)
    with Consumer(group.address(SLAVE), "filtered", tags="a") as consumer:
        assert sorted(map(int, bodies(consumer, 10))) == list(range(0, 20, 2))
    with Consumer(group.address(SLAVE), "filtered", sql="number > 14 AND number IS NOT NULL") as consumer:
        assert sorted(map(int, bodies(consumer, 5))) == list(range(15, 20))
    with Consumer(group.address(SLAVE), "filtered") as consumer:
        consumer.seek_to_time(0)
        assert len(bodies(consumer, 21)) == 21


def test_a_member_that_the_master_sends_away_reads_from_the_slave(group: PortsGroup) -> None:
    sent = {b"%d" % number for number in range(2_000)}
    group.fill("away", sorted(sent))
    with (
        GroupConsumer(group.address(MASTER, SLAVE), "far", "away", start="first", max_count=50) as consumer,
        AdminClient(group.address(MASTER)) as admin,
    ):
        found: list[bytes] = []
        until = time.monotonic() + DEADLINE_S
        while set(found) != sent:
            assert time.monotonic() < until, f"{len(set(found))} came"
            found += [message.body for message in consumer.poll(100)]
        assert len(found) == len(sent)
        assert consumer.from_slaves > 1_000
        consumer.commit()
        await_(lambda: admin.describe_group("far")["lag"] == 0, DEADLINE_S, "the commits")


def test_a_member_that_knows_the_slave_alone_is_led_to_the_master(group: PortsGroup) -> None:
    group.fill("led", [b"x"])
    with GroupConsumer(group.address(SLAVE), "led", "led", start="first") as consumer:
        found = await_(lambda: consumer.poll(100), DEADLINE_S, "the message")
        assert [message.body for message in found] == [b"x"]
        assert found[0].retry_later(1)
        again = await_(lambda: consumer.poll(100), DEADLINE_S, "the retry")
        assert (again[0].body, again[0].reconsume_times) == (b"x", 1)


# --- administration


def test_a_slave_answers_what_is_no_change_and_an_admin_of_both_changes_at_the_master(group: PortsGroup) -> None:
    group.fill("asked", [b"x"])
    with Producer(group.address(MASTER)) as producer:
        sent = producer.send(Message("asked", b"found", keys=["key"]))
    group.await_level(MASTER, SLAVE)
    with AdminClient(group.address(SLAVE)) as admin:
        assert admin.welcome()["broker_role"] == "slave"
        assert "asked" in {row["topic"] for row in admin.topics()}
        await_(lambda: admin.by_key("asked", "key"), DEADLINE_S, "its index")
        assert admin.by_unique_key("asked", sent.unique_key)[0].body == b"found"
        with pytest.raises(LinkRefused, match=REFUSED):
            admin.create_topic("not here", 1)
        with pytest.raises(AskRefused, match="this node is a slave, and transaction_list is for the master"):
            admin.ask("transaction_list", group="g")
        assert "asked" in {row["topic"] for row in admin.topics()}
    with AdminClient(group.address(SLAVE, MASTER)) as admin:
        assert admin.create_topic("made-there", 3)["read_queues"] == 3
        assert admin.ask("transaction_list", group="g").facts is not None


# --- what is not a slave's


def test_producers_are_told_where_the_master_is_and_find_it_among_several(group: PortsGroup) -> None:
    with Producer(group.address(SLAVE)) as producer, pytest.raises(LinkRefused, match=REFUSED):
        producer.send(Message("produced", b"never"))
    both = group.address(SLAVE, MASTER)
    with Producer(both) as producer:
        assert producer.send(Message("produced", b"x")).acknowledged
    with TransactionProducer(both, "payers", check=lambda _: State.COMMIT) as producer:
        producer.commit(producer.begin(Message("produced", b"y"))[0])
    with Consumer(group.address(SLAVE), "produced", start="first") as consumer:
        assert sorted(bodies(consumer, 2)) == [b"x", b"y"]


def test_no_message_of_a_client_harms_a_slaves_process(group: PortsGroup) -> None:
    before = group.nodes[SLAVE].pids()
    question = [ASK.pack(Kind.ASK, 1), json_part({"op": "create_topic", "topic": "t", "queues": 1})]
    with WireClient(group.ports[SLAVE]) as client, pytest.raises(LinkRefused, match="takes no messages"):
        client.greet("producer")
    for role in ("producer", "consumer", "admin"):
        with WireClient(group.ports[SLAVE]) as client:
            if role == "producer":
                client.say(*encode_greeting({"role": role, "cluster": "", "store": "", "name": "raw"}))
            else:
                client.greet(role)
            client.say(encode_put(1, 0, 0, [Records(b"t", 0, 1, 100)]), bytes(100))
            assert read_json(client.hear()[1])["code"] in ("MALFORMED", "NOT_MASTER", "NOT_GREETED")
    with WireClient(group.ports[SLAVE]) as client:
        client.greet("admin")
        client.say(*question)
        assert read_json(client.hear()[1])["code"] == "NOT_MASTER"
        for _ in range(WAITING_MAX + 1):  # whichever comes first ends it: the refusal, or too many that wait for it
            client.say(*question)
    with WireClient(group.ports[SLAVE]) as client:
        client.greet("consumer")
        client.say(b"\xee" * 40)
        assert read_json(client.hear()[1])["code"] == "MALFORMED"
        assert client.is_closed()
    assert group.nodes[SLAVE].pids() == before


# --- kills


@pytest.mark.parametrize("label", ["remoting", "serve"])
def test_a_reader_goes_on_where_it_was_after_a_kill_at_the_slave(group: PortsGroup, label: str) -> None:
    topic = f"killed-{label}"
    sent = [b"%d" % number for number in range(400)]
    group.fill(topic, sent[:200])
    with (
        Consumer(group.address(SLAVE), topic, max_count=20, timeout_ms=30_000) as consumer,
        Producer(group.address(MASTER)) as producer,
    ):
        found = bodies(consumer, 100)
        before = group.nodes[SLAVE].pids()
        os.kill(before[label], signal.SIGKILL)
        assert all(result.acknowledged for result in producer.send_bodies(topic, sent[200:]))
        found += bodies(consumer, len(sent) - len(found))
        group.nodes[SLAVE].await_restarted(label, before)
    assert sorted(found) == sorted(sent)


def taken(member: GroupConsumer, wanted: set[bytes]) -> None:
    """Until all these have come."""
    found: set[bytes] = set()
    until = time.monotonic() + 2 * DEADLINE_S
    while not wanted <= found:
        assert time.monotonic() < until, f"{len(wanted - found)} are missing"
        found.update(message.body for message in member.poll(100))


def numbered(text: str) -> list[bytes]:
    return [b"%s %d" % (text.encode(), number) for number in range(200)]


def test_clients_go_on_with_the_same_addresses_when_a_slave_becomes_master(tmp_path: Path) -> None:
    """Three nodes, of which clients know the remoting ports: the master is killed, and another one is promoted."""
    for group in running(PortsGroup.made(tmp_path, 3)):
        everywhere = group.address(2, 1, 0)
        with (
            Producer(everywhere, delivery_timeout_ms=120_000) as producer,
            Consumer(everywhere, "moved", start="first", timeout_ms=120_000) as consumer,
            GroupConsumer(everywhere, "movers", "moved", start="first") as member,
            AdminClient(everywhere, timeout_ms=60_000) as admin,
        ):
            admin.create_topic("moved", 2)
            group.await_topic("moved")
            assert all(result.acknowledged for result in producer.send_bodies("moved", numbered("before")))
            found = bodies(consumer, 200)
            taken(member, set(numbered("before")))
            group.await_in_sync(0, 3)
            group.await_level(0, 1, 2)
            group.nodes[0].kill_all(seed=69)
            futures = [producer.send_async(Message("moved", body)) for body in numbered("after")]
            assert group.promote(1)["role"] == "master"
            group.await_role(1, "master")
            assert all(future.result().acknowledged for future in futures)
            until = time.monotonic() + 2 * DEADLINE_S
            while not set(numbered("after")) <= set(found):
                assert time.monotonic() < until, f"{len(set(numbered('after')) - set(found))} are missing"
                found += [message.body for message in consumer.poll(100)]
            taken(member, set(numbered("after")))
            assert admin.create_topic("made-after", 1)
            group.nodes[0].start()  # as a slave, which nobody is led to
            group.await_role(0, "slave")
            assert producer.send(Message("moved", b"at last")).acknowledged
            taken(member, {b"at last"})


# --- keys and TLS


def test_a_slave_asks_for_keys_and_tls_as_the_master_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_node_keys(ring := tmp_path / "ring")
    handed = {role: new_key(ring, f"the-{role}", [role]) for role in ("admin", "consumer")}
    pair = certificate(tmp_path / "pair")
    counts = {"in_sync_replicas": 1, "min_in_sync_replicas": 1, "broker_role": "ASYNC_MASTER"}
    tls = {"tls_server_cert_path": pair.certificate, "tls_server_key_path": pair.key, "tls_server_mode": "ENFORCING"}
    made = PortsGroup.made(tmp_path, 2, keys_dir=ring, **tls, **counts)
    made.scheme, made.options = "tls", f"?ca={pair.certificate}"
    monkeypatch.setenv(ENVIRONMENT, str(handed["admin"]))
    for group in running(made):
        group.fill("secret", [b"x"])
        monkeypatch.setenv(ENVIRONMENT, str(handed["consumer"]))
        with Consumer(group.address(SLAVE), "secret") as consumer:
            assert bodies(consumer, 1) == [b"x"]
        with GroupConsumer(group.address(SLAVE), "led", "secret", start="first") as member:  # to the master, by TLS too
            taken(member, {b"x"})
        with AdminClient(group.address(SLAVE)) as admin, pytest.raises(LinkRefused, match="greets as 'admin'"):
            admin.topics()
        with Consumer(f"tcp://127.0.0.1:{group.ports[SLAVE]}", "secret") as consumer:  # by the ring's certificate
            assert bodies(consumer, 1) == [b"x"]
        monkeypatch.delenv(ENVIRONMENT)
        with Consumer(f"tcp://127.0.0.1:{group.ports[SLAVE]}", "secret") as consumer, pytest.raises(TlsRefused):
            consumer.poll(5_000)
        with Consumer(group.address(SLAVE), "secret") as consumer, pytest.raises(LinkRefused, match="a key is wanted"):
            consumer.poll(5_000)
