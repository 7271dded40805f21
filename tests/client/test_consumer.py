"""The consumer against a node in a thread (`standin`), over a real link."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from towline.client.consumer import Consumer
from towline.client.errors import ClientClosed, ReadRefused
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.read.reader import Moved
from towline.errors import LinkRefused, MalformedFrame, MalformedRecord, NoAnswer, UnknownQueue, UnknownTopic
from towline.format.wire.status import GetStatus

from .standin import STORE_TIME, Standin

DEADLINE_S = 60.0


def consumer_of(node: Standin, topic: str = "one", **settings: Any) -> Consumer:
    return Consumer(node.endpoint, topic, **settings)


def fill(node: Standin, count: int, topic: str = "one", **fields: Any) -> list[bytes]:
    bodies = [b"%s %d" % (topic.encode(), number) for number in range(count)]
    with Producer(node.endpoint) as producer:
        producer.send_batch(Message(topic, body, queue_id=0, **fields) for body in bodies)
    return bodies


def read(consumer: Consumer, enough: Callable[[list[ReceivedMessage]], bool]) -> list[ReceivedMessage]:
    deadline = time.monotonic() + DEADLINE_S
    found: list[ReceivedMessage] = []
    while not enough(found):
        assert time.monotonic() < deadline, f"only {len(found)} messages came"
        found += consumer.poll(100)
    return found


def bodies_of(consumer: Consumer, count: int) -> list[bytes]:
    return [message.body for message in read(consumer, lambda found: len(found) >= count)]


class TestReading:
    def test_every_message_comes_once_and_in_order(self, node: Standin) -> None:
        bodies = fill(node, 50)
        with consumer_of(node, max_count=7) as consumer:
            assert bodies_of(consumer, 50) == bodies
            assert consumer.at_end
            assert consumer.position() == {0: 50}
            assert consumer.poll(0) == []

    def test_all_queues_are_read(self, node: Standin) -> None:
        with Producer(node.endpoint) as producer:
            for number in range(8):
                producer.send(Message("t", b"%d" % number))
        with consumer_of(node, "t") as consumer:
            assert sorted(bodies_of(consumer, 8)) == [b"%d" % number for number in range(8)]
            assert consumer.position() == {0: 2, 1: 2, 2: 2, 3: 2}

    def test_chosen_queues_are_read_alone(self, node: Standin) -> None:
        with Producer(node.endpoint) as producer:
            for number in range(8):
                producer.send(Message("t", b"%d" % number))
        with consumer_of(node, "t", queues=[1, 3]) as consumer:
            assert sorted(bodies_of(consumer, 4)) == [b"1", b"3", b"5", b"7"]
            assert consumer.at_end

    def test_a_message_knows_everything_about_itself(self, node: Standin) -> None:
        with Producer(node.endpoint) as producer:
            sent = producer.send(
                Message("t", b"x" * 9_000, tags="a", keys=("k1", "k2"), queue_id=3, properties={"p": "v"}, flag=4)
            )
        with consumer_of(node, "t") as consumer:
            (message,) = read(consumer, lambda found: len(found) == 1)
        assert message.body == b"x" * 9_000
        assert len(message.raw) < 1_000, "it was compressed on the way"
        assert (message.topic, message.queue_id, message.queue_offset) == ("t", 3, 0)
        assert (message.tags, message.keys, message.unique_key) == ("a", ("k1", "k2"), sent.unique_key)
        assert (message.physical_offset, message.flag, message.properties["p"]) == (sent.physical_offset, 4, "v")
        assert message.store_timestamp == STORE_TIME
        assert 0 < message.born_timestamp <= time.time() * 1000
        assert message.message_id == "0" * 24 + f"{message.physical_offset:08X}"
        message.verify()

    def test_messages_that_arrive_later_come_too(self, node: Standin) -> None:
        with consumer_of(node, suspend_ms=60_000) as consumer:
            assert consumer.poll(20) == []
            bodies = fill(node, 3)
            assert bodies_of(consumer, 3) == bodies

    @pytest.mark.parametrize(
        ("damage", "error"),
        [
            pytest.param(lambda parts: [*parts[:2], parts[2][:-1]], MalformedRecord, id="a record is cut short"),
            pytest.param(lambda parts: [*parts, b"more"], MalformedFrame, id="a part too many"),
        ],
    )
    def test_what_came_damaged_comes_again(self, node: Standin, damage, error) -> None:
        bodies = fill(node, 20)
        node.damage.append(damage)
        with consumer_of(node, max_count=5) as consumer:
            with pytest.raises(error):
                bodies_of(consumer, 20)
            assert consumer.position() == {0: 0}
            assert bodies_of(consumer, 20) == bodies

    def test_iteration_ends_when_the_consumer_is_closed(self, node: Standin) -> None:
        fill(node, 5)
        found = []
        consumer = consumer_of(node)
        for message in consumer:
            found.append(message.queue_offset)
            if len(found) == 5:
                consumer.close()
        assert found == [0, 1, 2, 3, 4]
        with pytest.raises(ClientClosed):
            consumer.poll(0)

    def test_columns_hold_the_same_messages(self, node: Standin) -> None:
        bodies = fill(node, 20)
        with consumer_of(node, max_count=6) as consumer:
            found: list[bytes] = []
            for columns in consumer.batches():
                assert columns.queue_id == 0
                assert columns.queue_offset.tolist() == list(range(len(found), len(found) + len(columns)))
                found += columns.bodies()
                if consumer.at_end:
                    break
        assert found == bodies

    def test_the_next_pull_leaves_before_the_answer_is_decoded(self, node: Standin) -> None:
        fill(node, 4)
        with consumer_of(node, max_count=2) as consumer:
            assert len(read(consumer, lambda found: bool(found))) == 2
            node.wait_for(lambda: len(node.pulled) >= 2)
        assert [pull.offset for pull in node.pulled[:2]] == [0, 2]


class TestStarting:
    def test_at_the_last_message_only_new_ones_come(self, node: Standin) -> None:
        fill(node, 5)
        with consumer_of(node, start="last") as consumer:
            assert consumer.position() == {0: 5}
            assert consumer.at_end
            fill(node, 1)
            assert bodies_of(consumer, 1) == [b"one 0"]

    @pytest.mark.parametrize(
        "start",
        [STORE_TIME + 2_500, datetime.fromtimestamp((STORE_TIME + 2_500) / 1000, UTC)],
        ids=["ms", "datetime"],
    )
    def test_at_a_time_the_first_message_stored_then_or_later_comes(self, node: Standin, start: int | datetime) -> None:
        fill(node, 5)
        with consumer_of(node, start=start) as consumer:
            assert consumer.position() == {0: 3}
            assert bodies_of(consumer, 2) == [b"one 3", b"one 4"]

    def test_the_first_message_is_the_oldest_that_is_left(self, node: Standin) -> None:
        fill(node, 5)
        node.first["one", 0] = 2
        with consumer_of(node) as consumer:
            assert bodies_of(consumer, 3)[0] == b"one 2"
            assert not consumer.moved

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"start": "middle"}, "middle"),
            ({"tags": "a || "}, "a || "),
            ({"tags": ""}, "tags"),
            ({"max_bytes": 0}, "max_bytes"),
        ],
        ids=["start", "half a tag list", "no tag", "no bytes"],
    )
    def test_settings_that_cannot_be_are_refused(self, settings: dict[str, Any], words: str) -> None:
        with pytest.raises(ValueError, match=words.replace("|", r"\|")):
            Consumer("tcp://127.0.0.1:1", "t", **settings)

    def test_a_queue_the_topic_has_not_is_refused(self, node: Standin) -> None:
        with consumer_of(node, queues=[1]) as consumer, pytest.raises(UnknownQueue, match="no queue 1"):
            consumer.poll(60_000)

    def test_an_unknown_topic_is_refused(self, node: Standin) -> None:
        with consumer_of(node, "unknown") as consumer, pytest.raises(UnknownTopic):
            consumer.poll(60_000)

    def test_a_topic_that_is_not_readable_is_refused_and_read_on_when_it_is(self, node: Standin) -> None:
        fill(node, 2)
        node.unreadable.add("one")
        with consumer_of(node) as consumer:
            for _ in range(2):
                with pytest.raises(ReadRefused, match="NO_PERMISSION: one is not readable"):
                    bodies_of(consumer, 2)
            node.unreadable.clear()
            assert bodies_of(consumer, 2) == [b"one 0", b"one 1"]


class TestMoving:
    def test_seek_reads_again_from_there(self, node: Standin) -> None:
        fill(node, 5)
        with consumer_of(node) as consumer:
            bodies_of(consumer, 5)
            consumer.seek(0, 3)
            assert not consumer.at_end
            assert bodies_of(consumer, 2) == [b"one 3", b"one 4"]
            consumer.seek_to_time(STORE_TIME + 4_000)
            assert bodies_of(consumer, 1) == [b"one 4"]
            with pytest.raises(KeyError):
                consumer.seek(1, 0)

    def test_the_answer_to_a_pull_from_before_a_seek_does_not_count(self, node: Standin) -> None:
        fill(node, 4)
        with consumer_of(node, max_count=1) as consumer:
            assert bodies_of(consumer, 1) == [b"one 0"]
            node.wait_for(lambda: len(node.pulled) >= 2)
            consumer.seek(0, 3)
            assert bodies_of(consumer, 1) == [b"one 3"]

    @pytest.mark.parametrize(
        ("offset", "moved"),
        [
            (0, Moved(0, 0, 2, GetStatus.OFFSET_TOO_SMALL)),
            (99, Moved(0, 99, 5, GetStatus.OFFSET_OVERFLOW_BADLY)),
        ],
        ids=["too small", "too large"],
    )
    def test_a_position_that_is_not_there_moves_and_is_remembered(
        self, node: Standin, offset: int, moved: Moved
    ) -> None:
        fill(node, 5)
        node.first["one", 0] = 2
        with consumer_of(node) as consumer:
            consumer.seek(0, offset)
            deadline = time.monotonic() + DEADLINE_S
            while not consumer.moved:
                assert time.monotonic() < deadline
                consumer.poll(10)
        assert list(consumer.moved) == [moved]
        assert consumer.missed == (moved.to_offset if moved.status is GetStatus.OFFSET_TOO_SMALL else 0)

    def test_what_was_deleted_under_a_slow_reader_is_counted_and_the_rest_comes(self, node: Standin) -> None:
        """Also from a slave, which answers no better offset than the one it was asked for."""
        fill(node, 8)
        node.corrects = False
        with consumer_of(node, max_count=1) as consumer:
            assert bodies_of(consumer, 2) == [b"one 0", b"one 1"]
            node.wait_for(lambda: len(node.pulled) >= 3 and not node._held)  # its answer has left
            node.first["one", 0] = 6
            assert bodies_of(consumer, 3) == [b"one 2", b"one 6", b"one 7"]
            assert consumer.missed == 3
            assert list(consumer.moved) == [Moved(0, 3, 6, GetStatus.OFFSET_TOO_SMALL)]

    def test_a_paused_queue_is_silent_until_it_is_resumed(self, node: Standin) -> None:
        with Producer(node.endpoint) as producer:
            for queue_id in (0, 1):
                producer.send(Message("t", b"%d" % queue_id, queue_id=queue_id))
        with consumer_of(node, "t") as consumer:
            consumer.pause(0)
            assert bodies_of(consumer, 1) == [b"1"]
            assert consumer.poll(20) == []
            consumer.resume(0)
            assert bodies_of(consumer, 1) == [b"0"]
            consumer.pause()
            fill(node, 1, "t")
            assert consumer.poll(20) == []
            consumer.resume()
            assert bodies_of(consumer, 1) == [b"t 0"]


class TestTags:
    @pytest.mark.parametrize(("tags", "expected"), [("a", {"a"}), ("a||c", {"a", "c"}), ("*", {"a", "b", "c"})])
    def test_only_wanted_tags_come(self, node: Standin, tags: str, expected: set[str]) -> None:
        with Producer(node.endpoint) as producer:
            producer.send_batch(Message("one", b"x", tags="abc"[number % 3]) for number in range(30))
        with consumer_of(node, tags=tags) as consumer:
            found = read(consumer, lambda found: len(found) >= 10 * len(expected))
            assert {message.tags for message in found} == expected
            assert consumer.at_end

    def test_a_tag_of_the_same_hash_does_not_come(self, node: Standin) -> None:
        with Producer(node.endpoint) as producer:
            producer.send_batch(Message("one", b"x", tags=tag) for tag in ("Aa", "BB", "Aa"))
        with consumer_of(node, tags="BB") as consumer:
            (message,) = read(consumer, bool)
            assert message.tags == "BB"
            assert consumer.at_end
        assert node.pulled[0].codes == (2112,)

    def test_a_queue_without_wanted_tags_is_read_to_its_end(self, node: Standin) -> None:
        fill(node, 10, tags="a")
        with consumer_of(node, tags="b", max_count=3) as consumer:
            deadline = time.monotonic() + DEADLINE_S
            while not consumer.at_end:
                assert time.monotonic() < deadline
                assert consumer.poll(10) == []
        assert not consumer.moved


class TestLosing:
    def test_reading_goes_on_where_it_stood_after_a_restart(self, node: Standin) -> None:
        bodies = fill(node, 10)
        with consumer_of(node, max_count=3) as consumer:
            found = bodies_of(consumer, 3)
            node.stop()
            node.start()
            found += bodies_of(consumer, 7)
        assert found == bodies
        assert node.greeted >= 2

    def test_a_pull_that_is_held_when_the_link_is_lost_is_sent_again(self, node: Standin) -> None:
        with consumer_of(node, suspend_ms=60_000) as consumer:
            assert consumer.position() == {0: 0}
            assert consumer.poll(10) == []
            node.wait_for(lambda: node.pulled)
            node.stop()
            node.start()
            assert consumer.poll(50) == []
            bodies = fill(node, 2)
            assert bodies_of(consumer, 2) == bodies

    def test_a_node_that_forgot_the_consumer_is_greeted_again(self, node: Standin) -> None:
        fill(node, 4)
        with consumer_of(node, max_count=2) as consumer:
            bodies_of(consumer, 2)
            node.forget_everyone()
            assert bodies_of(consumer, 2) == [b"one 2", b"one 3"]

    def test_a_node_out_of_reach_is_no_answer_after_a_while(self, node: Standin) -> None:
        with consumer_of(node, timeout_ms=400) as consumer:
            consumer.poll(10)
            node.stop()
            with pytest.raises(NoAnswer, match="nobody listens there"):
                read(consumer, bool)
            node.start()
            fill(node, 1)
            assert bodies_of(consumer, 1) == [b"one 0"]

    def test_nobody_there_is_no_answer(self, tmp_path: Path) -> None:
        with Consumer(f"ipc://{tmp_path}/nobody", "t", timeout_ms=30) as consumer:
            assert consumer.poll(1) == []
            with pytest.raises(NoAnswer):
                consumer.poll(60_000)

    def test_another_cluster_is_refused(self, node: Standin) -> None:
        with (
            consumer_of(node, cluster="c2") as consumer,
            pytest.raises(LinkRefused, match="'c2' and we to cluster 'c1'"),
        ):
            consumer.poll(1_000)

    def test_a_node_that_answers_at_once_is_not_asked_all_the_time(self, node: Standin) -> None:
        with consumer_of(node, suspend_ms=0) as consumer:
            assert consumer.position() == {0: 0}
            consumer.poll(60)
            node.wait_for(lambda: node.pulled)
        assert 1 <= len(node.pulled) <= 2
