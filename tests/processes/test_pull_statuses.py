"""What pulls get of a running master and slave, and what readers make of it while topics change under them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.group.consumer import GroupConsumer
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.errors import UnknownQueue, UnknownTopic

from .nodes import Pair, ending
from .pulling import serve_of
from .waiting import await_

DEADLINE_S = 60.0
POLL_MS = 100


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("pair"))
    with ending(*made.nodes):
        made.start()
        yield made
        assert made.stop() == (True, True)


@pytest.fixture
def admin(pair: Pair) -> Iterator[AdminClient]:
    with AdminClient(pair.master.endpoint) as made:
        yield made


def fill(pair: Pair, topic: str, bodies: list[bytes], queue: int = 0, **fields: Any) -> None:
    """Stored, and readable on both."""
    with Producer(pair.master.endpoint) as producer:
        producer.send_batch(Message(topic, body, queue_id=queue, **fields) for body in bodies)
    pair.await_caught_up()


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def read_until(poll: Callable[[int], list[Any]], last: bytes) -> list[bytes]:
    """Bodies as they come, up to one that was stored last."""
    got: list[bytes] = []

    def has_come() -> bool:
        got.extend(message.body for message in poll(POLL_MS))
        return last in got

    await_(has_come, DEADLINE_S, "the last message")
    return got


def patient(consumer: Consumer, kind: type[Exception]) -> Callable[[int], list[ReceivedMessage]]:
    """Its poll, for which a refusal of that kind is nothing yet: serve looks at the topics now and then."""

    def poll(timeout_ms: int) -> list[ReceivedMessage]:
        with contextlib.suppress(kind):
            return consumer.poll(timeout_ms)
        return []

    return poll


def refusal_of(consumer: Consumer, kind: type[Exception]) -> bool:
    try:
        assert consumer.poll(POLL_MS) == []
    except kind:
        return True
    return False


def shrink(admin: AdminClient, topic: str) -> None:
    admin.alter_topic(topic, write_queues=2)
    admin.alter_topic(topic, read_queues=2)


def grow(admin: AdminClient, topic: str) -> None:
    admin.alter_topic(topic, read_queues=4, write_queues=4)


class TestQueuesThatGoAndComeBack:
    def test_who_asked_for_a_queue_is_told_that_it_has_gone_and_reads_on_when_it_is_back(self, pair, admin):
        admin.create_topic("asked", 4)
        fill(pair, "asked", numbered(100), queue=3)
        with Consumer(serve_of(pair.master), "asked", queues=[3], suspend_ms=POLL_MS) as consumer:
            got = read_until(consumer.poll, b"99")
            shrink(admin, "asked")
            await_(lambda: refusal_of(consumer, UnknownQueue), DEADLINE_S, "the refusal")
            assert consumer.position() == {3: 100}
            grow(admin, "asked")
            fill(pair, "asked", [b"new"], queue=3)
            got += read_until(patient(consumer, UnknownQueue), b"new")
            assert got == [*numbered(100), b"new"]
            assert not consumer.moved

    def test_who_reads_all_queues_reads_the_others_meanwhile(self, pair, admin):
        admin.create_topic("all", 4)
        fill(pair, "all", numbered(100), queue=3)
        with Consumer(serve_of(pair.master), "all", suspend_ms=POLL_MS) as consumer:
            got = read_until(consumer.poll, b"99")
            shrink(admin, "all")
            fill(pair, "all", [b"other"], queue=1)
            got += read_until(consumer.poll, b"other")
            grow(admin, "all")
            fill(pair, "all", [b"new"], queue=3)
            got += read_until(consumer.poll, b"new")
            assert got == [*numbered(100), b"other", b"new"]
            assert not consumer.moved

    def test_a_group_reads_nothing_twice(self, pair, admin):
        admin.create_topic("grouped", 4)
        fill(pair, "grouped", numbered(100), queue=3)
        serve = serve_of(pair.master)
        with (
            GroupConsumer(serve, "g", {"grouped": "*"}, start="first", suspend_ms=POLL_MS) as group,
            AdminClient(serve) as asking,
        ):
            got = read_until(group.poll, b"99")

            def owned() -> set[int]:
                got.extend(message.body for message in group.poll(POLL_MS))
                rows = asking.describe_group("g")["queues"]
                return {row["queue"] for row in rows if row["topic"] == "grouped" and row["owner"]}

            for number in range(3):
                shrink(admin, "grouped")
                await_(lambda: owned() == {0, 1}, DEADLINE_S, "the member gives two queues up")
                grow(admin, "grouped")
                await_(lambda: len(owned()) == 4, DEADLINE_S, "the member has all queues")
                fill(pair, "grouped", [b"new %d" % number], queue=3)
                if b"new %d" % number not in got:
                    got += read_until(group.poll, b"new %d" % number)
            assert got == [*numbered(100), b"new 0", b"new 1", b"new 2"]
            assert not group.moved


class TestDeletedTopics:
    def test_readers_are_told_and_go_on_with_the_topic_that_comes_after(self, pair, admin):
        admin.create_topic("gone", 1)
        fill(pair, "gone", numbered(50))
        with Consumer(serve_of(pair.master), "gone", suspend_ms=POLL_MS) as consumer:
            assert read_until(consumer.poll, b"49") == numbered(50)
            admin.delete_topic("gone")
            await_(lambda: refusal_of(consumer, UnknownTopic), DEADLINE_S, "the refusal")
            assert consumer.position() == {0: 50}
            admin.create_topic("gone", 1)
            fill(pair, "gone", [b"new"])
            assert read_until(patient(consumer, UnknownTopic), b"new") == [b"new"]
            assert (consumer.missed, list(consumer.moved)) == (0, [])

    def test_a_group_goes_on_with_the_topic_that_comes_after(self, pair, admin):
        admin.create_topic("left", 1)
        fill(pair, "left", numbered(50))
        serve = serve_of(pair.master)
        with GroupConsumer(serve, "leaving", {"left": "*"}, start="first", suspend_ms=POLL_MS) as group:
            got = read_until(group.poll, b"49")
            admin.delete_topic("left")
            with Consumer(serve, "left", queues=[0]) as told:
                await_(lambda: refusal_of(told, UnknownTopic), DEADLINE_S, "serve knows")
            admin.create_topic("left", 1)
            fill(pair, "left", [b"new"])
            got += read_until(group.poll, b"new")
            assert got == [*numbered(50), b"new"]
