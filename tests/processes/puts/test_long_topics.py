"""Retry topics of up to 255 bytes: records of version 2, from the producer to every way of reading them (spec 2.1)."""

import shutil
from collections.abc import Iterator

import pytest

from tests.processes.nodes import Pair, TestNode, ending
from tests.processes.stored import Stored, check_same_log
from tests.processes.waiting import await_, read_saved
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.errors import MalformedRecord
from towline.format.record.record import MAGIC_V1, MAGIC_V2
from towline.limits import RETRY_TOPIC_PREFIX, RETRY_TOPIC_SIZE_MAX, TOPIC_SIZE_MAX
from towline.runtime.positions import Position

LONGEST = RETRY_TOPIC_PREFIX + "g" * (RETRY_TOPIC_SIZE_MAX - len(RETRY_TOPIC_PREFIX))
JUST_V2 = RETRY_TOPIC_PREFIX + "g" * (TOPIC_SIZE_MAX + 1 - len(RETRY_TOPIC_PREFIX))
LAST_V1 = JUST_V2[:-1]
TOPICS = {LONGEST: MAGIC_V2, JUST_V2: MAGIC_V2, LAST_V1: MAGIC_V1}
BODIES = [b"body %d" % number for number in range(200)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("long"))
    with ending(*made.nodes):
        made.start()
        yield made


def serve_of(node: TestNode) -> str:
    return f"ipc://{node.runtime / 'serve.sock'}"


def read(node: TestNode, topic: str, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    with Consumer(serve_of(node), topic, start="first") as consumer:
        while len(found) < count:
            batch = consumer.poll(5_000)
            assert batch, f"{len(found)} of {count} messages of {topic} came"
            found += batch
    return found


@pytest.fixture(scope="module")
def sent(pair: Pair) -> dict[str, list[str]]:
    """Topic -> unique keys of the messages that have keys of their own."""
    keys: dict[str, list[str]] = {}
    with AdminClient(pair.master.endpoint) as admin:  # made by itself a group's topic would have one queue
        for topic in TOPICS:
            admin.create_topic(topic, 4)
    with Producer(pair.master.endpoint) as producer:
        for topic in TOPICS:
            messages = [Message(topic, b"%d" % n, tags="red", keys=(f"key-{n}",), queue_id=n % 4) for n in range(40)]
            keys[topic] = [result.unique_key for result in producer.send_batch(messages)]
            assert all(result.acknowledged for result in producer.send_bodies(topic, BODIES, queue_id=3))
    end = pair.await_caught_up()
    check_same_log(pair.master.store.commitlog, pair.slave.store.commitlog, end)
    known = pair.slave.store.config / "topics.json"
    await_(lambda: f'{LAST_V1}"'.encode() in read_saved(known), 60.0, "the slave knows the topics")
    return keys


def check_read(node: TestNode, sent: dict[str, list[str]]) -> None:
    for topic, magic in TOPICS.items():
        found = read(node, topic, 40 + len(BODIES))
        assert {int.from_bytes(message.raw[4:8], "big") for message in found} == {magic}
        assert {message.topic for message in found} == {topic}
        assert sorted(message.body for message in found) == sorted([*BODIES, *(b"%d" % n for n in range(40))])
        with AdminClient(serve_of(node)) as admin:
            [by_key] = admin.by_key(topic, "key-7")
            [by_unique_key] = admin.by_unique_key(topic, sent[topic][7])
            assert by_key.raw == by_unique_key.raw
            assert (by_key.body, by_key.queue_id, by_key.tags) == (b"7", 3, "red")
            for same in (admin.by_id(by_key.message_id), admin.by_offset(by_key.physical_offset)):
                assert same is not None
                assert same.raw == by_key.raw
            assert admin.by_time(topic, by_key.store_timestamp, max_count=1_000)


@pytest.mark.parametrize("role", ["master", "slave"])
def test_every_way_of_reading_them(pair: Pair, sent: dict[str, list[str]], role: str) -> None:
    node = pair.node(role)
    check_read(node, sent)
    assert {path.name for path in node.store.consumequeue.iterdir()} == set(TOPICS)


def test_queues_are_what_the_log_says_on_both(pair: Pair, sent: dict[str, list[str]]) -> None:
    end = pair.await_caught_up()
    for node in pair.nodes:
        stored = Stored(node.store, end)
        assert stored.check_queues() == len(TOPICS) * (40 + len(BODIES))
        stored.close()


def test_they_are_there_after_a_kill_and_after_the_loss_of_queues_and_index(
    pair: Pair, sent: dict[str, list[str]]
) -> None:
    end = pair.await_caught_up()
    for node in pair.nodes:
        node.kill_all(seed=5)
    pair.start()
    assert pair.await_caught_up() == end
    check_read(pair.master, sent)
    assert pair.stop() == (True, True)
    for node in pair.nodes:
        shutil.rmtree(node.store.consumequeue)
        shutil.rmtree(node.store.index)
    pair.start()
    assert pair.await_caught_up() == end
    for node in pair.nodes:
        check_read(node, sent)
    with Producer(pair.master.endpoint) as producer:
        result = producer.send(Message(LONGEST, b"one more", queue_id=0))
    assert (result.queue_offset, result.physical_offset) == (10, end)
    assert pair.master.at(Position.APPENDED) > end


@pytest.mark.parametrize("topic", ["t" * (TOPIC_SIZE_MAX + 1), LONGEST + "g"], ids=["plain", "retry"])
def test_a_longer_name_is_refused_before_anything_is_stored(pair: Pair, topic: str) -> None:
    with Producer(pair.master.endpoint) as producer, pytest.raises(Exception, match="the limit is") as caught:
        producer.send(Message(topic, b""))
    assert not isinstance(caught.value, MalformedRecord)
