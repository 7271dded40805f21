"""Delayed messages through a real node: in their time and order, taken back, and with schedule and the node killed."""

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes.groups import Group
from tests.processes.nodes import Pair, TestNode, ended
from tests.processes.stopping import stopped
from tests.processes.waiting import await_, read_saved
from towline.client.consumer import Consumer
from towline.client.errors import IllegalDelay, PutRefused
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.errors import LinkRefused
from towline.format.record.properties import decode
from towline.limits import SLEEP_MAX_MS
from towline.link.context import close_context, new_context
from towline.link.dealer import Link
from towline.node.process.context import runtime_of
from towline.runtime.positions import Counter as Delivered
from towline.runtime.positions import Duty

DEADLINE_S = 60.0
LEVELS = "1s 2s 1h"
TRIES_MAX = 4  # what is late because others have the CPUs


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    root: Path = tmp_path_factory.mktemp("delays")
    made = TestNode("master", root, message_delay_level=LEVELS, ha_listen_port=0)
    cleaning = ended(made)
    next(cleaning)
    made.start()
    yield made
    next(cleaning, None)


@pytest.fixture
def producer(node: TestNode) -> Iterator[Producer]:
    with Producer(node.endpoint, linger_ms=1.0) as made:
        yield made


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def read(node: TestNode, topic: str, keys: set[str], deadline_s: float = DEADLINE_S) -> list[ReceivedMessage]:
    """The topic from its beginning, until each of these unique keys was seen."""
    found: list[ReceivedMessage] = []
    missing = set(keys)
    until = time.monotonic() + deadline_s
    with Consumer(f"ipc://{runtime_of(node.store.root).socket('serve')}", topic, start="first") as consumer:
        while missing:
            assert time.monotonic() < until, f"{len(missing)} of {len(keys)} never came"
            for message in consumer.poll(200):
                found.append(message)
                missing.discard(message.unique_key or "")
    return found


def offsets(node: TestNode, name: str) -> dict[str, object]:
    path = node.store.config / name
    return json.loads(path.read_text().replace("{1:", '{"1":').replace(",2:", ',"2":').replace(",3:", ',"3":'))


def test_messages_come_in_their_time_and_order(node: TestNode, producer: Producer) -> None:
    began = now_ms()
    due: dict[str, int] = {}
    fields = {"queue_id": 3, "tags": "late", "keys": ["k"]}
    levels = [producer.send_async(Message("ordered", b"level", delay_level=level, **fields)) for level in (2, 1)]
    for number in range(40):
        at = began + 3000 + 37 * (number * 17 % 40)
        future = producer.send_async(Message("ordered", b"%d" % number, queue_id=number % 2, deliver_at=at))
        due[future.unique_key] = at
    for future, delay_ms in zip(levels, (2000, 1000), strict=True):
        assert future.result().topic == "SCHEDULE_TOPIC_XXXX"
        due[future.unique_key] = began + delay_ms
    plain = producer.send(Message("ordered", b"at once", queue_id=2))
    found = read(node, "ordered", {*due, plain.unique_key})
    assert len(found) == len(due) + 1, "nothing came twice"
    for queue_id in (0, 1, 3):
        mine = [message for message in found if message.queue_id == queue_id]
        times = [due[message.unique_key or ""] for message in sorted(mine, key=lambda each: each.queue_offset)]
        assert times == sorted(times)
        assert all(message.store_timestamp >= due[message.unique_key or ""] for message in mine)
    delayed = next(message for message in found if message.body == b"level")
    properties = decode(delayed.record.properties)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"], properties["DELAY"]) == ("ordered", "3", "1")
    assert (delayed.tags, delayed.keys, delayed.topic) == ("late", ("k",), "ordered")


def test_what_is_due_alone_on_a_node_at_rest_is_no_later_than_a_sleep(node: TestNode) -> None:
    topic, apart_ms = "at-rest", (900, 2350, 3800, 5290, 6730)
    late: list[int] = []
    for _ in range(TRIES_MAX):
        began = now_ms()
        with Producer(node.endpoint) as producer:
            due = {producer.send(Message(topic, b"", deliver_at=began + ms)).unique_key: began + ms for ms in apart_ms}
        last = began + apart_ms[-1]
        await_(lambda last=last: now_ms() > last, DEADLINE_S, "nobody asks meanwhile")
        found = read(node, topic, set(due))
        late.append(max(each.store_timestamp - due[each.unique_key] for each in found if each.unique_key in due))
        if late[-1] <= SLEEP_MAX_MS:
            break
    assert min(late) <= SLEEP_MAX_MS, f"latest of {len(apart_ms)}, each try: {late} ms late"


def test_a_level_above_the_highest_is_the_highest(node: TestNode, producer: Producer) -> None:
    assert producer.send(Message("far", b"", delay_level=99)).queue_id == 2


def test_what_is_cancelled_never_comes_and_the_rest_does(node: TestNode, producer: Producer) -> None:
    at = now_ms() + 5000
    sent = [producer.send(Message("taken-back", b"%d" % number, deliver_at=at)) for number in range(20)]
    for result in sent[::2]:
        assert producer.cancel(result.handle).acknowledged
    assert producer.cancel(sent[0].handle).acknowledged, "twice is no error"
    last = producer.send(Message("taken-back", b"later", deliver_at=at + 300))
    found = read(node, "taken-back", {result.unique_key for result in [*sent[1::2], last]})
    assert {message.unique_key for message in found} == {result.unique_key for result in [*sent[1::2], last]}
    with pytest.raises(PutRefused, match="CANCEL_TOO_LATE"):
        producer.cancel(sent[1].handle)


def test_what_cannot_be_is_refused_by_name(node: TestNode, producer: Producer) -> None:
    producer.send(Message("refused", b""))
    far = now_ms() + 4 * 24 * 3_600_000
    for message in (Message("refused", b"", delay_level=-1), Message("refused", b"", deliver_at=far)):
        with pytest.raises(IllegalDelay):
            producer.send(message)


def test_nobody_without_the_secret_is_a_process_of_the_node(node: TestNode) -> None:
    secret = runtime_of(node.store.root).secret
    assert len(secret.read_text()) == 64
    assert secret.stat().st_mode & 0o777 == 0o600
    context = new_context()
    for shown, taken in ((None, False), ("0" * 64, False), (secret.read_text(), True)):
        facts = {"role": "schedule", "cluster": "", "store": "", "name": "", "secret": shown}
        link = Link(context, node.endpoint, facts)
        with contextlib.nullcontext() if taken else pytest.raises(LinkRefused, match="schedule"):
            assert link.greet(5000)["role"] == "put"
        link.close()
    close_context(context)


@pytest.mark.parametrize("victim", ["schedule", "node"])
@pytest.mark.parametrize("kind", ["level", "time"])
def test_a_kill_loses_nothing_and_doubles_only_what_the_offsets_missed(node: TestNode, victim: str, kind: str) -> None:
    topic = f"killed-{victim}-{kind}"
    before = node.positions.duty(Duty.SCHEDULE).counter(Delivered.MESSAGES)
    with Producer(node.endpoint, linger_ms=1.0) as producer:
        at = now_ms() + 8000
        later = [producer.send(Message(topic, b"later", deliver_at=at)) for _ in range(40 * (kind == "time"))]
        for result in later[::2]:
            assert producer.cancel(result.handle).acknowledged
        start = now_ms() + 600
        futures = []
        for number in range(4000):
            when = {"delay_level": 1} if kind == "level" else {"deliver_at": start + number // 4}
            futures.append(producer.send_async(Message(topic, b"%d" % number, queue_id=number % 3, **when)))
        results = [future.result() for future in futures]
    keys = {result.unique_key: number for number, result in enumerate(results)}
    line = node.positions.duty(Duty.SCHEDULE)
    await_(lambda: line.counter(Delivered.MESSAGES) - before >= 1000, DEADLINE_S, "a part is delivered")
    if victim == "schedule":
        pids = node.pids()
        os.kill(pids["schedule"], signal.SIGKILL)
        saved = offsets(node, "delayOffset.json"), offsets(node, "timerOffset.json")
        node.await_restarted("schedule", pids)
    else:
        node.kill_all(seed=len(topic))
        saved = offsets(node, "delayOffset.json"), offsets(node, "timerOffset.json")
        node.start()
    with Producer(node.endpoint) as producer:
        last = producer.send(Message(topic, b"last", delay_level=1))
    found = read(node, topic, {*keys, last.unique_key, *(result.unique_key for result in later[1::2])})
    taken_back = {result.unique_key for result in later[::2]}
    assert not taken_back & {message.unique_key for message in found}
    times = Counter(message.unique_key or "" for message in found)
    doubles = [keys[key] for key, count in times.items() if count > 1 and key in keys]
    assert max(times.values()) <= 2
    for number in doubles:
        result = results[number]
        if kind == "level":
            assert result.queue_offset >= saved[0]["offsetTable"]["1"]
        else:
            through = saved[1]["deliveredDue"], saved[1]["deliveredOffset"]
            assert (start + number // 4, result.queue_offset) > through
    print(f"\n{victim} killed, {kind}: {len(keys)} messages, {len(doubles)} doubles")


def test_a_slave_that_becomes_a_master_goes_on(tmp_path: Path) -> None:
    levels = "1s 2s 6s"
    pair = Pair(tmp_path, message_delay_level=levels)
    heir = TestNode("master", pair.slave.store.root, message_delay_level=levels, ha_listen_port=0)
    cleaning = ended(*pair.nodes, heir)
    next(cleaning)
    try:
        pair.start()
        with Producer(pair.master.endpoint) as producer:
            early = [producer.send(Message("orders", b"", deliver_at=now_ms() + 100)) for _ in range(20)]
            read(pair.master, "orders", {result.unique_key for result in early})
            late = [producer.send(Message("orders", b"", deliver_at=now_ms() + 6000)) for _ in range(20)]
            late += [producer.send(Message("orders", b"", delay_level=3)) for _ in range(20)]
        saved = [pair.master.store.config / name for name in ("timerOffset.json", "delayOffset.json")]
        through = b'"deliveredOffset":%d,' % (len(early) - 1)
        await_(lambda: through in read_saved(saved[0]), DEADLINE_S, "the offsets are written")
        await_(lambda: all(map(followed(pair), saved)), DEADLINE_S, "the slave has what its master has")
        pair.await_caught_up()
        pair.master.kill_all(seed=1)
        pair.slave.stop()
        heir.start()
        keys = {result.unique_key for result in [*early, *late]}
        assert len(read(heir, "orders", keys)) == len(keys), "what its master had delivered is not delivered again"
    finally:
        next(cleaning, None)


def test_a_promoted_slave_delivers_to_a_topic_of_which_its_master_had_no_time_to_tell(tmp_path: Path) -> None:
    group = Group(tmp_path, 3, message_delay_level="1s 8s")
    cleaning = ended(*group.nodes)
    next(cleaning)
    try:
        group.start()
        with contextlib.ExitStack() as behind, Producer(group.nodes[0].endpoint) as producer:
            for node in group.nodes[1:]:
                behind.enter_context(stopped(node.pids()["follow"]))
            sent = [producer.send(Message("fresh", b"", delay_level=2)) for _ in range(3)]
            sent += [producer.send(Message("fresh", b"", deliver_at=now_ms() + 8000, queue_id=3)) for _ in range(3)]
            for number, node in enumerate(group.nodes):
                node.kill_all(seed=number)
        heir = group.nodes[1]
        for node in (group.nodes[2], heir):
            node.start()
        assert b'"fresh"' not in read_saved(heir.store.config / "topics.json")
        group.promote(1)
        group.await_role(1, "master")
        await_(lambda: b'"fresh"' in read_saved(heir.store.config / "topics.json"), DEADLINE_S, "the topic is made")
        keys = {result.unique_key for result in sent}
        assert len(read(heir, "fresh", keys)) == len(keys)
        assert heir.positions.duty(Duty.SCHEDULE).lost == 0
    finally:
        next(cleaning, None)


def followed(pair: Pair) -> Callable[[Path], bool]:
    def same(path: Path) -> bool:
        return read_saved(pair.slave.store.config / path.name) == read_saved(path)

    return same
