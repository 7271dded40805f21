"""Topics that are changed and deleted on a running master with its slave, and what both count."""

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.nodes import Pair, TestNode, ending
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused, PutRefused, ReadRefused
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import UnknownTopic
from towline.format.files.consume_queue import SIZE
from towline.log.repair.verify import verify
from towline.log.repair.verify_report import Weight
from towline.node.process.context import open_node
from towline.node.report.statistics import take
from towline.node.supervise.recover import recovery_settings
from towline.runtime.positions import Position
from towline.runtime.settings import Settings

PER_FILE = 50  # entries of a queue file
PUT_MS = 20_000
SECOND = b"second life %d"
SOON_S = 60.0


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    settings = {"mapped_file_size_consume_queue": PER_FILE * SIZE, "auto_create_topic_enable": False}
    made = Pair(tmp_path_factory.mktemp("topics"), **settings)
    made.slave.flags += ["--set", f"mapped_file_size_consume_queue={PER_FILE * SIZE}"]
    with ending(*made.nodes):
        made.start()
        yield made


@pytest.fixture
def admin(pair: Pair) -> Iterator[AdminClient]:
    with AdminClient(pair.master.endpoint, timeout_ms=20_000) as made:
        yield made


def serve_of(node: TestNode) -> str:
    return f"ipc://{node.runtime / 'serve.sock'}"


def put(pair: Pair, topic: str, bodies: list[bytes], *, queue_id: int = 0) -> list[int]:
    """The queue offsets they got."""
    with Producer(pair.master.endpoint) as producer:
        messages = [Message(topic, body, keys=("k",), queue_id=queue_id) for body in bodies]
        results = producer.send_batch(messages)
    assert all(result.acknowledged for result in results)
    pair.await_caught_up()
    return [result.queue_offset for result in results]


def read(node: TestNode, topic: str, count: int) -> list[tuple[int, bytes]]:
    """Number and body of the first messages of queue 0."""
    found: list[tuple[int, bytes]] = []
    with Consumer(serve_of(node), topic, start="first", queues=[0]) as consumer:
        await_(lambda: _more(consumer, found) >= count, SOON_S, f"{count} messages of {topic}")
    return found


def _more(consumer: Consumer, found: list[tuple[int, bytes]]) -> int:
    """A slave hears of topics and permissions a little later."""
    with contextlib.suppress(UnknownTopic, ReadRefused):
        found += [(message.queue_offset, message.body) for message in consumer.poll(100)]
    return len(found)


def bounds(node: TestNode, topic: str) -> dict[int, tuple[int, int]] | None:
    """None for a topic that the node does not know."""
    with AdminClient(serve_of(node), timeout_ms=20_000) as asked:
        try:
            return asked.bounds(topic)
        except UnknownTopic:
            return None


def files(node: TestNode, topic: str) -> list[int]:
    """First numbers of the files of queue 0."""
    directory = node.store.consumequeue / topic / "0"
    return sorted(int(path.name) // SIZE for path in directory.iterdir()) if directory.is_dir() else []


def check_sound(node: TestNode) -> None:
    settings = Settings.from_json(node.store.settings.read_text())
    limit = node.at(Position.DISPATCHED) if node.launched is not None else None
    found = verify(node.store, recovery_settings(settings), limit=limit)
    assert [row for row in found.findings.rows if row.weight is not Weight.NOTE] == []


def deleted_and_made_again(pair: Pair, admin: AdminClient, topic: str) -> int:
    """The number at which the second life of the topic begins."""
    admin.create_topic(topic, 2)
    count = 3 * PER_FILE + 7
    assert put(pair, topic, [b"first life %d" % number for number in range(count)]) == list(range(count))
    end = admin.delete_topic(topic)["log_offset"]
    assert end == pair.master.at(Position.APPENDED)
    for node in pair.nodes:
        await_(lambda node=node: bounds(node, topic) is None, SOON_S, "nobody knows the topic any more")
        await_(lambda node=node: files(node, topic) == [3 * PER_FILE], SOON_S, "its files go, but the newest")
    admin.create_topic(topic, 2)
    return count


def check_second_life(pair: Pair, topic: str, first: int, count: int) -> None:
    for node in pair.nodes:
        await_(lambda node=node: (bounds(node, topic) or {}).get(0) == (first, first + count), SOON_S, "bounds")
        assert read(node, topic, count) == [(first + number, SECOND % number) for number in range(count)]
        with AdminClient(serve_of(node)) as asked:
            assert {message.queue_offset for message in asked.by_key(topic, "k", max_count=64)} <= set(
                range(first, first + count)
            )


class TestDeleting:
    def test_a_topic_made_again_goes_on_with_the_numbers_and_shows_nothing_of_before(
        self, pair: Pair, admin: AdminClient
    ) -> None:
        first = deleted_and_made_again(pair, admin, "again")
        assert put(pair, "again", [SECOND % number for number in range(5)]) == list(range(first, first + 5))
        check_second_life(pair, "again", first, 5)

    def test_a_put_for_a_topic_that_was_deleted_is_refused_by_name(self, pair: Pair, admin: AdminClient) -> None:
        admin.create_topic("fleeting", 1)
        with Producer(pair.master.endpoint) as producer:
            assert producer.send(Message("fleeting", b"stored")).acknowledged
            admin.delete_topic("fleeting")
            with pytest.raises((PutRefused, UnknownTopic), match="fleeting") as refused:
                producer.send(Message("fleeting", b"too late"))
        if isinstance(refused.value, PutRefused):
            assert refused.value.status == "TOPIC_NOT_EXIST"
        with pytest.raises(UnknownTopic):
            admin.delete_topic("fleeting")

    def test_of_puts_in_flight_each_is_stored_before_or_refused(self, pair: Pair, admin: AdminClient) -> None:
        admin.create_topic("busy", 1)
        stored, refused = 0, 0
        with Producer(pair.master.endpoint, linger_ms=0, batch_bytes_max=1024) as producer:
            futures = [producer.send_async(Message("busy", b"x" * 200, queue_id=0)) for _ in range(3000)]
            futures[100].result(PUT_MS / 1000)
            admin.delete_topic("busy")
            for future in futures:
                try:
                    stored += future.result(PUT_MS / 1000).acknowledged
                except PutRefused as error:
                    refused += error.status == "TOPIC_NOT_EXIST"
                except UnknownTopic:  # the producer asked for the topic again before it sent the message
                    refused += 1
        assert stored + refused == len(futures)
        assert stored > 100
        admin.create_topic("busy", 1)
        assert put(pair, "busy", [SECOND % 0]) == [stored]
        check_second_life(pair, "busy", stored, 1)

    def test_kills_and_the_loss_of_all_queues_bring_nothing_back(self, pair: Pair, admin: AdminClient) -> None:
        first = deleted_and_made_again(pair, admin, "kept")
        admin.create_topic("gone", 1)
        put(pair, "gone", [b"x"] * (PER_FILE + 1))
        admin.delete_topic("gone")
        for node in pair.nodes:
            node.kill_all(seed=3)
        pair.start()
        assert put(pair, "kept", [SECOND % number for number in range(4)]) == list(range(first, first + 4))
        check_second_life(pair, "kept", first, 4)
        assert pair.stop() == (True, True)
        for node in pair.nodes:
            check_sound(node)
            shutil.rmtree(node.store.consumequeue)
        pair.start()
        pair.await_caught_up()
        check_second_life(pair, "kept", first, 4)
        for node in pair.nodes:
            assert bounds(node, "gone") is None
            check_sound(node)
        with Producer(pair.master.endpoint) as producer:
            assert producer.send(Message("kept", b"", queue_id=0)).queue_offset == first + 4

    def test_put_and_reput_may_die_right_after(self, pair: Pair, admin: AdminClient) -> None:
        admin.create_topic("die", 1)
        put(pair, "die", [b"x"] * (2 * PER_FILE))
        before = pair.master.pids()
        admin.delete_topic("die")
        for duty in ("reput", "put"):
            os.kill(before[duty], signal.SIGKILL)
            pair.master.await_restarted(duty, before)
        admin.create_topic("die", 1)
        assert put(pair, "die", [SECOND % 0]) == [2 * PER_FILE]
        check_second_life(pair, "die", 2 * PER_FILE, 1)


class TestAltering:
    def test_permissions_hold_for_writers_and_readers(self, pair: Pair, admin: AdminClient) -> None:
        admin.create_topic("may", 1)
        put(pair, "may", [SECOND % 0])
        admin.alter_topic("may", perm=4)
        with Producer(pair.master.endpoint) as producer, pytest.raises(PutRefused) as refused:
            producer.send(Message("may", b""))
        assert refused.value.status == "NO_PERMISSION"
        assert read(pair.master, "may", 1) == [(0, SECOND % 0)]
        admin.alter_topic("may", perm=2)
        for node in pair.nodes:
            with Consumer(serve_of(node), "may", start="first") as consumer:
                await_(lambda consumer=consumer: _is_refused(consumer), SOON_S, "readers are refused")
        assert put(pair, "may", [b"unread"]) == [1]
        admin.alter_topic("may", perm=6)
        assert len(read(pair.slave, "may", 2)) == 2

    def test_queues_grow_and_shrink_write_queues_first(self, pair: Pair, admin: AdminClient) -> None:
        admin.create_topic("wide", 2)
        assert admin.alter_topic("wide", read_queues=4, write_queues=4)["write_queues"] == 4
        put(pair, "wide", [b"x"], queue_id=3)
        with pytest.raises(AskRefused, match="lower the write queues"):
            admin.alter_topic("wide", read_queues=2, write_queues=2)
        admin.alter_topic("wide", write_queues=2)
        with Producer(pair.master.endpoint) as producer, pytest.raises(PutRefused, match="queues 0 to 1"):
            producer.send(Message("wide", b"", queue_id=3))
        with Consumer(serve_of(pair.master), "wide", start="first", queues=[3]) as consumer:
            await_(lambda: consumer.poll(100), SOON_S, "what stands in it is still read")
        admin.alter_topic("wide", read_queues=2)
        for node in pair.nodes:
            await_(lambda node=node: len(bounds(node, "wide") or {}) == 2, SOON_S, "two queues are left")

    def test_the_brokers_own_topics_stay_as_they_are(self, admin: AdminClient) -> None:
        for refused in (lambda: admin.delete_topic("TBW102"), lambda: admin.alter_topic("TBW102", perm=6)):
            with pytest.raises(AskRefused, match="broker's own"):
                refused()


def _is_refused(consumer: Consumer) -> bool:
    try:
        consumer.poll(100)
    except ReadRefused:
        return True
    except UnknownTopic:
        return False
    return False


def numbers(node: TestNode, topic: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Messages and bytes by queue, in and out."""
    opened = open_node(Path(node.store.root))
    try:
        found = take(opened)
    finally:
        opened.positions.close()
    sides = [
        [side.queues[key][:2] for key in sorted(side.queues) if key[0] == topic] for side in (found.put, found.get)
    ]
    return sides[0], sides[1]


def requests(node: TestNode) -> int:
    """Put requests that were answered, by how long they took."""
    opened = open_node(Path(node.store.root))
    try:
        return sum(take(opened).put.buckets)
    finally:
        opened.positions.close()


class TestCounting:
    def test_puts_and_gets_are_counted_by_queue_and_survive_the_piece(self, pair: Pair, admin: AdminClient) -> None:
        admin.create_topic("counted", 2)
        for queue_id, count in ((0, 3), (1, 5)):
            put(pair, "counted", [b"x" * 100] * count, queue_id=queue_id)
        (low, high), read_before = numbers(pair.master, "counted")
        assert (low[0], high[0], read_before) == (3, 5, [])
        assert low[1] / 3 == high[1] / 5 > 100
        await_(lambda: numbers(pair.slave, "counted")[0] == [low, high], SOON_S, "the slave counts what followed")
        timed = requests(pair.master)
        assert (timed >= 2, requests(pair.slave)) == (True, 0)
        before = pair.master.pids()
        os.kill(before["put"], signal.SIGKILL)
        pair.master.await_restarted("put", before)
        put(pair, "counted", [b"x" * 100])
        assert numbers(pair.master, "counted")[0][0][0] == 4
        for node in pair.nodes:
            assert len(read(node, "counted", 4)) == 4
            wanted = (4, low[1] // 3 * 4)
            await_(lambda node=node, wanted=wanted: wanted in numbers(node, "counted")[1], SOON_S, "gets are counted")
            await_(lambda node=node, wanted=wanted: wanted in numbers(node, "counted")[0], SOON_S, "puts are counted")
        assert requests(pair.master) == timed + 1

    def test_a_new_start_begins_at_zero(self, pair: Pair) -> None:
        assert pair.stop() == (True, True)
        pair.start()
        assert numbers(pair.master, "counted") == ([], [])
