"""Messages that a member cannot handle: again later, or among the dead letters, and never a reason to stop a queue."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.standin import Refuse
from towline.client.group.consumer import GroupConsumer
from towline.client.group.message import GroupMessage
from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.record.record import decode
from towline.format.wire.status import PutStatus
from towline.limits import PROPERTIES_SIZE_MAX

from .standin import GroupNode, fill, member, read


@pytest.fixture
def node(tmp_path: Path) -> Iterator[GroupNode]:
    made = GroupNode(tmp_path, {"t": 4, "one": 1})
    made.start()
    yield made
    made.stop()


def fail_all(consumer: GroupConsumer, until: int) -> list[int]:
    """The offsets that came, up to `until`, each of which fails."""
    seen: list[int] = []

    def handle(message: GroupMessage) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == until:
            consumer.close()
        raise RuntimeError("never")

    consumer.listen(handle)
    return seen


def test_a_callback_that_fails_sends_its_message_back(node: GroupNode):
    node.topics["SCHEDULE_TOPIC_XXXX"] = 18
    fill(node, 3, tags="a", keys=("k",))
    seen: list[int] = []

    def handle(message: GroupMessage) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 1:
            raise RuntimeError("not now")
        if message.queue_offset == 2:
            consumer.close()

    consumer = member(node)
    consumer.listen(handle)
    assert seen == [0, 1, 2]
    assert node.group.offsets["one", 0] == 3
    (record,) = node.stored("SCHEDULE_TOPIC_XXXX")
    assert (record.queue_id, record.reconsume_times, record.body) == (2, 1, b"one 1")
    assert b"REAL_TOPIC\x01%RETRY%g\x02" in record.properties
    assert b"RETRY_TOPIC\x01one\x02" in record.properties
    assert b"ORIGIN_MESSAGE_ID\x01" in record.properties
    assert node.topics["%RETRY%g"] == 1


def test_after_the_last_retry_it_is_a_dead_letter(node: GroupNode):
    node.topics["SCHEDULE_TOPIC_XXXX"] = 18
    node.settings = {"retryMaxTimes": 0}
    fill(node, 1)
    with member(node) as consumer:
        (message,) = read(consumer, 1)
        assert message.retry_later() is False
    (record,) = node.stored("%DLQ%g")
    assert (record.body, record.reconsume_times) == (b"one 0", 1)
    assert b"RETRY_TOPIC\x01one\x02" in record.properties
    assert not node.stored("SCHEDULE_TOPIC_XXXX")


@pytest.mark.parametrize(("room", "kept"), [(80, True), (20, False)], ids=["for a dead letter's", "for none"])
def test_without_room_for_the_properties_of_a_retry_it_is_a_dead_letter(
    node: GroupNode, room: int, kept: bool, caplog: pytest.LogCaptureFixture
):
    fill(node, 2, properties={"p": "x"})
    size = PROPERTIES_SIZE_MAX - room - len(decode(node.queues["one", 0][0]).properties)
    node.queues["one", 0].clear()
    fill(node, 2, properties={"p": "x" * (size + 1)})
    consumer = member(node)
    seen = fail_all(consumer, until=1)
    assert (seen, consumer.failures) == ([0, 1], 0)
    letters = node.stored("%DLQ%g")
    assert [letter.body for letter in letters] == [b"one 0", b"one 1"]
    assert {letter.reconsume_times for letter in letters} == {1}
    assert all((b"RETRY_TOPIC\x01one\x02" in letter.properties) is kept for letter in letters)
    assert "becomes a dead letter" in caplog.text
    assert node.group.offsets["one", 0] == 2


def test_one_that_can_never_be_stored_again_is_counted_named_and_passed_over(
    node: GroupNode, caplog: pytest.LogCaptureFixture
):
    node.topics["SCHEDULE_TOPIC_XXXX"] = 18
    fill(node, 3)
    never = Refuse(PutStatus.MESSAGE_ILLEGAL, "it is larger than max_message_size")
    node.judge = lambda put: never if b"one 1" in put.records else None
    consumer = member(node)
    seen = fail_all(consumer, until=2)
    assert (seen, consumer.failures) == ([0, 1, 2], 1)
    assert [record.body for record in node.stored("SCHEDULE_TOPIC_XXXX")] == [b"one 0", b"one 2"]
    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "offset 1 of queue 0 of one" in told
    assert "max_message_size" in told
    assert node.group.offsets["one", 0] == 3


def test_while_a_copy_is_refused_for_a_time_nothing_is_passed_over(node: GroupNode, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("towline.client.group.consumer.SUSPEND_S", 0.01)
    node.topics["SCHEDULE_TOPIC_XXXX"] = 18
    fill(node, 2)
    node.orders.extend([Refuse(PutStatus.NO_PERMISSION)] * 3)
    consumer = member(node)
    assert (fail_all(consumer, until=1), consumer.failures) == ([0, 1], 0)
    assert [record.body for record in node.stored("SCHEDULE_TOPIC_XXXX")] == [b"one 0", b"one 1"]


def test_what_comes_back_shows_its_first_topic(node: GroupNode):
    node.topics["%RETRY%g"] = 1
    with Producer(node.endpoint) as producer:
        producer.send(Message("%RETRY%g", b"x", properties={"RETRY_TOPIC": "one"}))
    with member(node, start="last") as consumer:
        (message,) = read(consumer, 1)
        assert (message.topic, message.stored_topic) == ("one", "%RETRY%g")
        consumer.commit(message)
    assert node.group.offsets["%RETRY%g", 0] == 1
