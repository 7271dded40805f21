"""A node that appends property CRCs, with its clients and its slave; and what changes when it stops doing so."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.processes.nodes import INDEXES, QUEUE_FILE, SEGMENT, SLOTS, Pair, TestNode, ending
from tests.processes.stored import Stored, check_same_log
from tests.processes.waiting import await_, read_saved
from tests.processes.wire import WireClient, records_of
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import PutRefused
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.errors import IllegalProperty, TowlineError
from towline.format.record import property_crc
from towline.format.record.properties import decode as decode_properties
from towline.format.record.rules import Rule
from towline.format.wire.status import PutStatus
from towline.log.recovery.recovery import RecoverySettings, recover
from towline.log.repair.verify import verify
from towline.places import Store
from towline.runtime.positions import Position

TOPIC = "orders"
SWITCH = {"enabled_append_prop_crc": "true", "force_verify_prop_crc": "true"}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("crc"))
    for node in made.nodes:
        node.flags += [word for key, value in SWITCH.items() for word in ("--set", f"{key}={value}")]
    with ending(*made.nodes):
        made.start()
        yield made


def serve_of(node: TestNode) -> str:
    return f"ipc://{node.runtime / 'serve.sock'}"


def sent_every_way(producer: Producer) -> list[str]:
    """The unique keys of what was sent by each call of a producer."""
    keys = [producer.send(Message(TOPIC, b"one")).unique_key]
    keys.append(
        producer.send(Message(TOPIC, b"big" * 3000, tags="red", keys=("k1", "k2"), properties={"p": "v"})).unique_key
    )
    futures = [producer.send_async(Message(TOPIC, b"async %d" % n, keys=(f"a{n}",))) for n in range(50)]
    keys += [future.result(10).unique_key for future in futures]
    keys += [result.unique_key for result in producer.send_batch([Message(TOPIC, b"", queue_id=1)] * 20)]
    for result in producer.send_bodies(TOPIC, [b"body %d" % n for n in range(300)], tags="bulk"):
        assert result.status is PutStatus.PUT_OK
    return keys


def records_in(node: TestNode) -> list[bytes]:
    """Every record of the log, by the log's own sizes."""
    end, found, at = node.at(Position.APPENDED), [], 0
    stored = Stored(node.store, end)
    while at < end:
        found.append(bytes(stored.log.record(at, end)))
        at += len(found[-1])
    stored.close()
    return found


def test_every_call_of_a_producer_leaves_room_and_put_fills_it(pair: Pair) -> None:
    with Producer(pair.master.endpoint) as producer:
        keys = sent_every_way(producer)
    end = pair.await_caught_up()
    for node in pair.nodes:
        records = records_in(node)
        assert len(records) == len(keys) + 300
        assert all(property_crc.filled(record) == record for record in records)
    check_same_log(pair.master.store.commitlog, pair.slave.store.commitlog, end)
    topics = pair.slave.store.config / "topics.json"
    await_(lambda: TOPIC.encode() in read_saved(topics), 60.0, "the slave knows the topic")
    with Consumer(serve_of(pair.slave), TOPIC, start="first") as consumer:
        found: list[ReceivedMessage] = []
        while len(found) < len(keys) + 300:
            found += consumer.poll(5_000)
    for message in found:
        message.verify(property_crc=True)
        assert "__CRC32#" not in message.properties
        assert "__CRC32#" in decode_properties(message.record.properties)
    big = next(message for message in found if message.tags == "red")
    assert (big.body, big.keys, big.properties["p"]) == (b"big" * 3000, ("k1", "k2"), "v")
    with AdminClient(serve_of(pair.master)) as admin:
        looked_up = [*admin.by_key(TOPIC, "k2"), *admin.by_unique_key(TOPIC, keys[0])]
    assert [message.unique_key for message in looked_up] == [keys[1], keys[0]]
    for message in looked_up:
        message.verify(property_crc=True)


def test_a_received_message_can_be_sent_on(pair: Pair) -> None:
    with Producer(pair.master.endpoint) as producer, Consumer(serve_of(pair.master), TOPIC, start="first") as consumer:
        [first, *_] = consumer.poll(5_000)
        names = ("UNIQ_KEY", "TAGS", "KEYS")
        own = {name: value for name, value in first.properties.items() if name not in names}
        assert producer.send(Message(TOPIC, first.body, properties=own)).acknowledged


def test_a_record_without_room_is_refused_by_name(pair: Pair) -> None:
    client = WireClient(pair.master.endpoint)
    assert client.welcome["append_property_crc"] == 1
    before = pair.master.at(Position.APPENDED)
    answer = client.put(records_of(TOPIC.encode(), 3))
    client.close()
    assert (answer.status, answer.rule) == (PutStatus.MESSAGE_ILLEGAL, Rule.PROPERTY_CRC_MISSING)
    assert pair.master.at(Position.APPENDED) == before


def test_a_client_may_not_name_it_itself(pair: Pair) -> None:
    with Producer(pair.master.endpoint) as producer, pytest.raises(IllegalProperty, match="__CRC32#"):
        producer.send(Message(TOPIC, b"", properties={"__CRC32#": "1"}))


def test_the_node_starts_again_and_insists(pair: Pair) -> None:
    """Killed, so that recovery walks; a flipped bit of a property below the durable offset is then corruption."""
    end = pair.await_caught_up()
    for node in pair.nodes:
        node.kill_all(seed=3)
    pair.start()
    assert [node.at(Position.APPENDED) for node in pair.nodes] == [end, end]
    assert pair.stop() == (True, True)


SIZES = RecoverySettings(segment_size=SEGMENT, queue_file_size=QUEUE_FILE, index_slots=SLOTS, index_indexes=INDEXES)


def recovered(store: Store, **checks: bool) -> int:
    return recover(store, replace(SIZES, **checks)).end


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path / "alone", ha_listen_port=0)
    with ending(made):
        yield made


def test_a_flipped_bit_of_a_property_is_refused_by_who_insists_and_noted_otherwise(node: TestNode) -> None:
    node.start("--without", "serve", "--set", "enabled_append_prop_crc=true")
    with Producer(node.endpoint) as producer:
        places = [producer.send(Message(TOPIC, b"x", properties={"price": "100"})).physical_offset for _ in range(3)]
    end = node.at(Position.APPENDED)
    assert node.stop()
    assert recovered(node.store, force_property_crc=True) == end
    segment = node.store.commitlog / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    at = data.index(b"price\x01100", places[1])
    data[at + 6] ^= 0x08
    segment.write_bytes(data)
    with pytest.raises(TowlineError, match="PROPERTY_CRC") as caught:
        recovered(node.store, force_property_crc=True)
    assert str(places[1]) in str(caught.value)
    assert [(row.at, row.rule) for row in verify(node.store, SIZES).findings.rows] == [
        (places[1], "PROPERTY_CRC_FOREIGN")
    ]
    assert recovered(node.store) == end  # nothing tells it from one that a sender copied


def test_a_producer_learns_what_a_restarted_node_wants(node: TestNode) -> None:
    """Encoded before the node changed its mind, the first message is refused by name; the next one fits."""
    node.start("--without", "serve")
    with Producer(node.endpoint) as producer:
        assert producer.send(Message(TOPIC, b"plain")).acknowledged
        plain_end = node.at(Position.APPENDED)
        assert node.stop()
        node.start("--without", "serve", "--set", "enabled_append_prop_crc=true")
        with pytest.raises(PutRefused, match="PROPERTY_CRC_MISSING"):
            producer.send(Message(TOPIC, b"refused"))
        assert producer.send(Message(TOPIC, b"with a CRC")).acknowledged
        assert node.stop()
        node.start("--without", "serve")
        with pytest.raises(PutRefused, match="PROPERTY_CRC_MISPLACED"):
            producer.send(Message(TOPIC, b"refused"))
        assert producer.send(Message(TOPIC, b"plain again")).acknowledged
    bodies = [ReceivedMessage(record).body for record in records_in(node)]
    assert bodies == [b"plain", b"with a CRC", b"plain again"]
    assert node.stop()
    with pytest.raises(TowlineError, match="PROPERTY_CRC_MISSING"):
        recovered(node.store, force_property_crc=True)
    assert recovered(node.store) > plain_end
