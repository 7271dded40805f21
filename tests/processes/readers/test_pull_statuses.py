"""What pulls get of a running master and slave, and what readers make of it while topics change under them."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.processes.nodes import Pair, ending
from tests.processes.pulling import PullLink, serve_of
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.group.consumer import GroupConsumer
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.errors import UnknownQueue, UnknownTopic
from towline.format.files.consume_queue import SIZE as ENTRY_SIZE
from towline.format.wire.status import GetStatus
from towline.limits import KIB
from towline.log.files.segment_files import segment_name

DEADLINE_S = 60.0
ENTRIES_PER_FILE = 100
POLL_MS = 100


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Of the slave nothing counts as in memory."""
    more = {
        "mapped_file_size_consume_queue": ENTRIES_PER_FILE * ENTRY_SIZE,
        "max_transfer_count_on_message_in_memory": 50,
        "max_transfer_bytes_on_message_in_memory": 128 * KIB,
        "max_transfer_count_on_message_in_disk": 20,
        "max_transfer_bytes_on_message_in_disk": 80 * KIB,
    }
    made = Pair(tmp_path_factory.mktemp("pair"), **more)
    more["access_message_in_memory_max_ratio"] = 0
    made.slave.flags += [word for key, value in more.items() for word in ("--set", f"{key}={value}")]
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


BOTH = pytest.mark.parametrize("role", ["master", "slave"])
SAME = -1  # the offset that was asked for
BEHIND = "NO_MATCHED_LOGIC_QUEUE"  # as a slave may be of topics


@pytest.fixture(scope="module")
def table(pair: Pair) -> None:
    with AdminClient(pair.master.endpoint) as admin:
        for topic, queues in (("table", 2), ("again", 1), ("holes", 1), ("unread", 1)):
            admin.create_topic(topic, queues)
        fill(pair, "table", numbered(30))
        fill(pair, "again", numbered(10))
        fill(pair, "holes", numbered(ENTRIES_PER_FILE + 1))
        admin.delete_topic("again")
        admin.create_topic("again", 1)
        fill(pair, "again", numbered(5))
        admin.alter_topic("unread", perm=2)
    for node in pair.nodes:
        (node.store.consumequeue / "holes" / "0" / segment_name(0)).unlink()
        with AdminClient(serve_of(node)) as asking:
            await_(lambda asking=asking: knows_all(asking), DEADLINE_S, "the topics are as they were made last")


class TestTheTable:
    """Of two numbers the second is a slave's, which corrects no offset: it may only be behind."""

    @BOTH
    @pytest.mark.parametrize("reads_files", [False, True], ids=["sent", "in files"])
    @pytest.mark.parametrize(
        ("asked", "statuses", "following", "bounds"),
        [
            pytest.param(("table", 0, 20), "FOUND", (30, 30), (0, 30), id="found"),
            pytest.param(("table", 0, 20, 7), "NO_MATCHED_MESSAGE", (30, 30), (0, 30), id="no such tag"),
            pytest.param(("table", 0, 30), "OFFSET_OVERFLOW_ONE", (SAME, SAME), (0, 30), id="at the end"),
            pytest.param(("table", 0, 99), "OFFSET_OVERFLOW_BADLY", (30, SAME), (0, 30), id="beyond the end"),
            pytest.param(("table", 1, 5), "NO_MESSAGE_IN_QUEUE", (0, SAME), (0, 0), id="an empty queue"),
            pytest.param(("again", 0, 3), "OFFSET_TOO_SMALL", (10, SAME), (10, 15), id="before the first"),
            pytest.param(("holes", 0, 5), "OFFSET_FOUND_NULL", (100, 100), (0, 101), id="a file is missing"),
            pytest.param(("unread", 0, 5), "REFUSED NO_PERMISSION", (SAME, SAME), (0, 0), id="not readable"),
            pytest.param(
                ("no", 0, 5), "REFUSED UnknownTopic / NO_MATCHED_LOGIC_QUEUE", (SAME, SAME), (0, 0), id="unknown topic"
            ),
            pytest.param(
                ("table", 9, 5),
                "REFUSED UnknownQueue / NO_MATCHED_LOGIC_QUEUE",
                (SAME, SAME),
                (0, 0),
                id="no such queue",
            ),
        ],
    )
    def test_every_status(self, pair, table, role, reads_files, asked, statuses, following, bounds):
        topic, queue, offset, *codes = asked
        each = statuses.split(" / ")
        status, _, error = each[0 if role == "master" else -1].partition(" ")
        after = following[role == "slave"]
        with PullLink(pair.node(role)) as link:
            found = link.pull(topic, queue, offset, codes=tuple(codes), reads_files=reads_files)
        expected = (GetStatus[status], offset if after == SAME else after, *bounds)
        assert found.table_row == expected
        assert (len(found.sizes), found.error) == (10 if status == "FOUND" else 0, error)

    @pytest.mark.parametrize(("role", "count", "size"), [("master", 50, 128 * KIB), ("slave", 20, 80 * KIB)])
    def test_the_limits_of_what_is_in_memory_and_what_is_not(self, pair, role, count, size):
        if role == "master":
            fill(pair, "many", numbered(60))
            fill(pair, "wide", [os.urandom(5_000) for _ in range(40)])
        with AdminClient(serve_of(pair.node(role))) as asking:
            await_(lambda: {"many", "wide"} <= names(asking), DEADLINE_S, "the topics are known")
        with PullLink(pair.node(role)) as link:
            assert len(link.pull("many", 0, 0).sizes) == count
            sent = link.pull("wide", 0, 0)
            assert size - max(sent.sizes) < len(sent.records) <= size
            read = link.pull("wide", 0, 0, reads_files=True)
            assert (read.in_file, sent.in_file) == (True, False)
            assert (read.sizes, read.records) == (sent.sizes, sent.records)

    @BOTH
    def test_a_message_wakes_the_pulls_of_its_own_queue_alone(self, pair, role):
        first, second = f"first-{role}", f"second-{role}"
        for topic in (first, second):
            fill(pair, topic, [b"0"])
        node = pair.node(role)
        with AdminClient(serve_of(node)) as asking:
            await_(lambda: {first, second} <= names(asking), DEADLINE_S, "the topics are known")
        with PullLink(node) as here, PullLink(node) as there:
            here.send(first, 0, 1, suspend=60_000)
            there.send(second, 0, 1, suspend=60_000)
            fill(pair, second, [b"1"])
            woken = there.answer()
            assert woken is not None
            assert woken.status is GetStatus.FOUND
            assert here.answer(0.2) is None
            fill(pair, first, [b"1"])
            woken = here.answer()
            assert woken is not None
            assert woken.status is GetStatus.FOUND


def names(asking: AdminClient) -> set[str]:
    return {row["topic"] for row in asking.topics()}


def knows_all(asking: AdminClient) -> bool:
    rows = {row["topic"]: row for row in asking.topics()}
    if not {"table", "again", "holes", "unread"} <= rows.keys() or rows["unread"]["perm"] != 2:
        return False
    return asking.bounds("again")[0] == (10, 15)


class TestKeys:
    @BOTH
    def test_are_found_behind_others_of_their_hash_and_within_a_busy_second(self, pair, role):
        if role == "master":
            fill(pair, "keyed", [b"wanted"], keys=["AaAa"])
            fill(pair, "keyed", [b"other"] * 65, keys=["BBBB"])
            fill(pair, "keyed", [b"first"], keys=["same"])
            stored = time.time_ns() // 1_000_000
            await_(lambda: time.time_ns() // 1_000_000 > stored, DEADLINE_S, "the clock goes on")
            fill(pair, "keyed", [b"more"] * 100, keys=["same"])
        with AdminClient(serve_of(pair.node(role))) as asking:
            found = asking.by_key("keyed", "AaAa")
            assert ([message.body for message in found], found.truncated, found.complete) == ([b"wanted"], False, True)
            first = asking.by_time("keyed", 0, max_count=1_000)[66]
            assert first.body == b"first"
            at = first.store_timestamp
            assert [message.body for message in asking.by_key("keyed", "same", begin=at, end=at)] == [b"first"]
            assert asking.by_key("keyed", "same").truncated


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
