"""What an application does with its messages, through real processes: commits by hand, seeks, pauses, and failures."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from tests.processes.grouping import DEADLINE_S, serve_of
from tests.processes.nodes import TestNode, ended
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.group.consumer import GroupConsumer
from towline.client.group.errors import IllegalPlace
from towline.client.group.message import GroupMessage
from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.record.forms import SCHEDULE_TOPIC

DELAYS_S: Final = (1, 1, 1, 2, 3)
FIRST_LEVEL: Final = 3
CLOCK_STEP_S: Final = 0.01  # store times are whole milliseconds


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    levels = " ".join(f"{delay}s" for delay in DELAYS_S)
    root = tmp_path_factory.mktemp("handling")
    made = TestNode("master", root / "master", ha_listen_port=0, message_delay_level=levels)
    cleaning = ended(made)
    next(cleaning)
    try:
        made.start()
        yield made
        assert made.stop()
    finally:
        next(cleaning, None)


def fill(node: TestNode, topic: str, count: int, queues: int) -> None:
    """The topic's queues are made if they are not there. Body n goes to queue n % queues."""
    with AdminClient(node.endpoint) as admin:
        if topic not in {row["topic"] for row in admin.topics()}:
            admin.create_topic(topic, queues)
    with Producer(node.endpoint) as producer:
        producer.send_batch(Message(topic, b"%d" % number, queue_id=number % queues) for number in range(count))


def member(node: TestNode, group: str, topic: str, **settings: bool | int) -> GroupConsumer:
    return GroupConsumer(serve_of(node), group, topic, start="first", **settings)


def read(consumer: GroupConsumer, count: int) -> dict[int, list[GroupMessage]]:
    """So many, by queue."""
    found: dict[int, list[GroupMessage]] = defaultdict(list)

    def enough() -> bool:
        for message in consumer.poll(100):
            found[message.queue_id].append(message)
        return sum(map(len, found.values())) >= count

    await_(enough, DEADLINE_S, f"{count} messages come")
    return found


def offsets(found: dict[int, list[GroupMessage]]) -> dict[int, list[int]]:
    return {queue: [message.queue_offset for message in messages] for queue, messages in found.items()}


def committed(node: TestNode, group: str, topic: str) -> dict[int, int]:
    with AdminClient(serve_of(node)) as admin:
        return admin.group_offsets(group, topic)[topic]


def delayed(node: TestNode) -> Counter[int]:
    """Level -> how many messages it was given so far: entries in the files of its queue."""
    found: Counter[int] = Counter()
    for queue in (node.store.consumequeue / SCHEDULE_TOPIC).glob("*"):
        entries = b"".join(file.read_bytes() for file in sorted(queue.iterdir()))
        sizes = (entries[at + 8 : at + 12] for at in range(0, len(entries), 20))
        found[int(queue.name) + 1] = sum(size != bytes(4) for size in sizes)
    return found


def letters(node: TestNode, group: str, count: int) -> list[GroupMessage]:
    with member(node, f"undertaker-{group}", f"%DLQ%{group}") as reader:
        return [message for messages in read(reader, count).values() for message in messages]


def test_with_manual_commits_the_group_stands_where_a_thread_said_also_after_a_restart(node: TestNode):
    fill(node, "manual", 20, 2)
    with (
        member(node, "m", "manual", auto_commit=False, commit_interval_ms=50, max_count=4) as consumer,
        ThreadPoolExecutor(1) as worker,
    ):
        found = read(consumer, 20)
        assert committed(node, "m", "manual") == {0: 0, 1: 0}
        consumer.commit(found[0][3])
        assert committed(node, "m", "manual") == {0: 4, 1: 0}
        worker.submit(consumer.commit, found[1][6]).result(DEADLINE_S)
        assert committed(node, "m", "manual") == {0: 4, 1: 7}
    assert node.stop()
    node.start()
    assert committed(node, "m", "manual") == {0: 4, 1: 7}
    with member(node, "m", "manual", auto_commit=False) as consumer:
        assert offsets(read(consumer, 9)) == {0: [4, 5, 6, 7, 8, 9], 1: [7, 8, 9]}
        consumer.commit()
        assert committed(node, "m", "manual") == {0: 10, 1: 10}


def test_a_sought_queue_goes_on_there_and_a_paused_one_waits(node: TestNode):
    fill(node, "sought", 20, 2)
    with member(node, "s", "sought") as consumer:
        read(consumer, 20)
        consumer.seek("sought", 0, 7)
        assert offsets(read(consumer, 3)) == {0: [7, 8, 9]}
        with pytest.raises(IllegalPlace):
            consumer.seek("sought", 0, -5)
        consumer.seek("sought", 1, 1_000)  # beyond the end: it goes on there
        await_(lambda: consumer.poll(10) == [] and bool(consumer.moved), DEADLINE_S, "the queue is back at its end")
        assert [(move.queue_id, move.from_offset, move.to_offset) for move in consumer.moved] == [(1, 1_000, 10)]
        consumer.pause(("sought", 0))
        fill(node, "sought", 4, 2)
        assert offsets(read(consumer, 2)) == {1: [10, 11]}
        assert consumer.poll(300) == []
        consumer.resume(("sought", 0))
        assert offsets(read(consumer, 2)) == {0: [10, 11]}
        consumer.commit()
        assert committed(node, "s", "sought") == {0: 12, 1: 12}


def test_failures_of_several_queues_at_once_come_again_after_growing_delays_each_as_often_as_it_fails(node: TestNode):
    """Message n fails n times. The highest level there is serves for all above it."""
    fill(node, "work", 5, 2)
    before = delayed(node)
    attempts: dict[bytes, list[tuple[int, float]]] = defaultdict(list)
    lock = threading.Lock()

    def handle(message: GroupMessage) -> None:
        with lock:
            times = message.reconsume_times
            attempts[message.body].append((times, time.monotonic()))
            if sum(map(len, attempts.values())) == 15:
                consumer.close()
        if times < int(message.body):
            raise RuntimeError("not yet")

    consumer = member(node, "w", "work", commit_interval_ms=50)
    consumer.listen(handle, threads=2)
    for number in range(5):
        came = attempts[b"%d" % number]
        assert [times for times, _ in came] == list(range(number + 1))
        for times in range(number):
            delay_s = DELAYS_S[min(FIRST_LEVEL + times, len(DELAYS_S)) - 1]
            assert came[times + 1][1] - came[times][1] >= delay_s - CLOCK_STEP_S
    assert delayed(node) - before == {FIRST_LEVEL: 4, FIRST_LEVEL + 1: 3, FIRST_LEVEL + 2: 2 + 1}
    assert (consumer.failures, committed(node, "w", "work")) == (0, {0: 3, 1: 2})


def test_in_order_what_fails_too_often_in_its_place_is_a_dead_letter_and_the_next_comes(node: TestNode):
    fill(node, "steps", 3, 1)
    seen: list[int] = []

    def handle(message: GroupMessage) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 1:
            raise RuntimeError("never")
        if message.queue_offset == 2:
            consumer.close()

    consumer = member(node, "o", "steps", ordered=True)
    consumer.listen(handle, attempts_max=2)
    assert (seen, consumer.failures) == ([0, 1, 1, 2], 1)
    (letter,) = letters(node, "o", 1)
    assert (letter.body, letter.properties["RETRY_TOPIC"], letter.reconsume_times) == (b"1", "steps", 1)
    assert committed(node, "o", "steps") == {0: 3}


def test_a_message_without_room_for_a_retrys_properties_is_a_dead_letter_and_stops_nothing(node: TestNode):
    with AdminClient(node.endpoint) as admin:
        admin.create_topic("tight", 1)
    wide = "x" * 32_650
    with Producer(node.endpoint) as producer:
        producer.send_batch([Message("tight", b"wide", properties={"p": wide}), Message("tight", b"plain")])
    seen: list[tuple[bytes, int]] = []

    def handle(message: GroupMessage) -> None:
        seen.append((message.body, message.reconsume_times))
        if message.reconsume_times:
            consumer.close()
        else:
            raise RuntimeError("not yet")

    consumer = member(node, "t", "tight", commit_interval_ms=50)
    consumer.listen(handle)
    assert (seen, consumer.failures) == ([(b"wide", 0), (b"plain", 0), (b"plain", 1)], 0)
    (letter,) = letters(node, "t", 1)
    assert (letter.body, letter.properties["p"], letter.reconsume_times) == (b"wide", wide, 1)
    assert committed(node, "t", "tight") == {0: 2}
