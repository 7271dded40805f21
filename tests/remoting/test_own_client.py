"""Our own client, by rocketmq://: the same calls and results at a real broker, and at a node's remoting port."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import count
from typing import Any, Self

import pytest

from peers import rocketmq
from tests.interop.releases import BROKERS
from tests.processes.nodes import free_port
from tests.processes.waiting import await_
from tests.repo.trees import ROOT
from tests.spark.pages import blocks
from towline.client.admin import AdminClient
from towline.client.cluster_admin import ClusterAdmin
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused, FilterRefused, NotInRocketmq, PutRefused, RequestTimeout
from towline.client.group.consumer import GroupConsumer
from towline.client.group.message import GroupMessage
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.request import REPLY_TO_CLIENT, reply
from towline.client.transaction import State, TransactionProducer
from towline.errors import NoAnswer, UnknownTopic

from .conftest import RemotingNode
from .java_clients import start_broker
from .java_member import JavaMember
from .mqadmin import Mqadmin

OLD, NEW = (release.version for release in BROKERS)
PAGE = ROOT / "docs" / "rocketmq-client.md"
WAIT_S = 90.0
NUMBERS = count()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], rocketmq.RocketmqNode]]:
    """Starts the broker of a version when it is first asked for."""
    with ExitStack() as started:

        @cache
        def of(version: str) -> rocketmq.RocketmqNode:
            directory = tmp_path_factory.mktemp("real")
            return started.enter_context(contextmanager(start_broker)(directory, "" if version == NEW else version))

        yield of


@pytest.fixture(params=[NEW, pytest.param(OLD, marks=pytest.mark.slow)])
def real(request: pytest.FixtureRequest, brokers: Callable[[str], rocketmq.RocketmqNode]) -> rocketmq.RocketmqNode:
    """A real broker of both lines."""
    return brokers(request.param)


@pytest.fixture(params=[NEW, pytest.param(OLD, marks=pytest.mark.slow), "node"])
def endpoint(request: pytest.FixtureRequest) -> str:
    """Of a real broker of both lines, and of a node."""
    if request.param == "node":
        node: RemotingNode = request.getfixturevalue("node")
        return f"rocketmq://127.0.0.1:{node.port}"
    return f"rocketmq://{request.getfixturevalue('brokers')(request.param).address}"


@pytest.fixture
def has_timers(request: pytest.FixtureRequest) -> bool:
    """Whether the endpoint has them."""
    return request.node.callspec.params["endpoint"] != OLD


@pytest.fixture
def topic(endpoint: str) -> str:
    """Of four queues."""
    name = f"own-{next(NUMBERS)}"
    with AdminClient(endpoint, timeout_ms=30_000) as admin:

        def is_made() -> bool:
            try:
                return bool(admin.create_topic(name, 4)["write_queues"] == 4)
            except AskRefused as refused:
                if refused.error != "SERVICE_NOT_AVAILABLE":  # put is just starting: try again
                    raise
                return False

        await_(is_made, WAIT_S, "the topic")
    return name


def producer_of(endpoint: str, **more: int) -> Producer:
    """Patient, on a machine that does much else."""
    return Producer(endpoint, **{"send_timeout_ms": 20_000, "delivery_timeout_ms": 60_000, **more})  # type: ignore[arg-type]


def read(endpoint: str, topic: str, wanted: int, **more: object) -> list[tuple[bytes, int, int]]:
    """The first so many messages: body, queue, offset."""
    found: list[tuple[bytes, int, int]] = []
    with Consumer(endpoint, topic, timeout_ms=60_000, **{"start": "first", **more}) as consumer:  # type: ignore[arg-type]

        def enough() -> bool:
            found.extend((each.body, each.queue_id, each.queue_offset) for each in consumer.poll(500))
            return len(found) >= wanted

        await_(enough, WAIT_S, f"{wanted} messages of {topic}")
    return found


class Handler:
    """Takes messages of a group; `fail` says which are not handled."""

    def __init__(self, fail: tuple[bytes, ...] = ()) -> None:
        self._fail = fail
        self.handled: Counter[bytes] = Counter()
        self.times: dict[bytes, int] = {}
        self.queues: set[int] = set()

    def __call__(self, message: GroupMessage) -> None:
        if message.body in self._fail and not message.reconsume_times:
            raise ValueError("not this time")
        self.handled[message.body] += 1
        self.times[message.body] = message.reconsume_times
        self.queues.add(message.queue_id)


def listening(consumer: GroupConsumer, handler: Handler) -> threading.Thread:
    thread = threading.Thread(target=consumer.listen, args=(handler,))
    thread.start()
    return thread


# --- sending and reading


def test_each_message_stands_where_its_result_says(endpoint: str, topic: str) -> None:
    with producer_of(endpoint) as producer:
        one = producer.send(Message(topic, b"one", tags="red", keys=["k1"], properties={"colour": "blue"}))
        futures = [producer.send_async(Message(topic, b"async %d" % number)) for number in range(300)]
        batch = producer.send_batch([Message(topic, bytes([number]) * 6_000) for number in range(8)])
        results = [one, *[future.result() for future in futures], *batch]
    assert all(result.acknowledged for result in results)
    found = {}
    with Consumer(endpoint, topic, start="first", timeout_ms=60_000) as consumer:

        def all_there() -> bool:
            found.update({(each.queue_id, each.queue_offset): each for each in consumer.poll(500)})
            return len(found) >= len(results)

        await_(all_there, WAIT_S, "all messages")
    for result in results:
        message = found[result.queue_id, result.queue_offset]
        assert (message.unique_key, message.physical_offset) == (result.unique_key, result.physical_offset)
    first = found[one.queue_id, one.queue_offset]
    assert (first.body, first.tags, first.keys) == (b"one", "red", ("k1",))
    assert first.properties["colour"] == "blue"
    assert {each.body for each in found.values()} >= {bytes([number]) * 6_000 for number in range(8)}


def test_equal_sharding_keys_go_to_one_queue_in_order(endpoint: str, topic: str) -> None:
    with producer_of(endpoint, in_flight_max=1) as producer:
        for number in range(20):
            producer.send_async(Message(topic, b"%d" % number, sharding_key="customer 7"))
    found = read(endpoint, topic, 20)
    assert [body for body, _, _ in found] == [b"%d" % number for number in range(20)]
    assert len({queue for _, queue, _ in found}) == 1


def test_tags_and_sql_choose_what_is_read(endpoint: str, topic: str) -> None:
    with producer_of(endpoint) as producer:
        for number, tag in enumerate(["red", "green", "blue"] * 3):
            producer.send_async(Message(topic, b"%d" % number, tags=tag, properties={"number": str(number)}))
    assert {body for body, _, _ in read(endpoint, topic, 6, tags="red || blue")} == {b"0", b"2", b"3", b"5", b"6", b"8"}
    assert {body for body, _, _ in read(endpoint, topic, 2, sql="number > 6")} == {b"7", b"8"}
    with Consumer(endpoint, topic, start="first", sql="number >") as consumer, pytest.raises(FilterRefused):
        consumer.poll(20_000)


def test_a_reader_goes_to_an_offset_and_to_a_time(endpoint: str, topic: str) -> None:
    with producer_of(endpoint) as producer:
        sent = [producer.send(Message(topic, b"%d" % number, queue_id=1)) for number in range(5)]
    read(endpoint, topic, len(sent))  # the queue's end follows the log a little later
    with Consumer(endpoint, topic, queues=[1], start="last", timeout_ms=60_000) as consumer:
        assert consumer.position() == {1: sent[-1].queue_offset + 1}
        consumer.seek(1, sent[2].queue_offset)
        messages = consumer.poll(20_000)
        assert [each.body for each in messages] == [b"2", b"3", b"4"]
        consumer.seek_to_time(messages[0].store_timestamp)
        assert consumer.position()[1] <= sent[2].queue_offset
        columns = consumer.poll_columns(20_000)
        assert columns is not None
        assert b"4" in columns.bodies()


def test_a_later_delivery_comes_later_and_a_cancelled_one_never(endpoint: str, topic: str, has_timers: bool) -> None:
    with producer_of(endpoint) as producer:
        now = int(time.time() * 1000)
        if not has_timers:
            producer.send(Message(topic, b"by level", delay_level=1))
            with pytest.raises(PutRefused, match="the broker is older than 5"):
                producer.send(Message(topic, b"by time", deliver_at=now + 3_000))
            assert [body for body, _, _ in read(endpoint, topic, 1)] == [b"by level"]
            return
        producer.send(Message(topic, b"by level", delay_level=1))
        timed = producer.send(Message(topic, b"by time", deliver_at=now + 3_000))
        gone = producer.send(Message(topic, b"cancelled", deliver_at=now + 20_000))
        assert timed.handle
        assert producer.cancel(gone.handle).acknowledged
        assert {body for body, _, _ in read(endpoint, topic, 2)} == {b"by level", b"by time"}
        producer.send(Message(topic, b"last", deliver_at=now + 22_000))
    assert {body for body, _, _ in read(endpoint, topic, 3)} == {b"by level", b"by time", b"last"}


# --- groups


def test_members_share_the_queues_and_what_fails_comes_again(endpoint: str, topic: str) -> None:
    with producer_of(endpoint) as producer:
        for number in range(100):
            producer.send_async(Message(topic, b"%d" % number, queue_id=number % 4))
    group, committed = f"group-of-{topic}", {topic: dict.fromkeys(range(4), 25)}
    handlers = Handler(fail=(b"17",)), Handler(fail=(b"17",))
    members = [GroupConsumer(endpoint, group, topic, start="first", timeout_ms=60_000) for _ in handlers]
    threads = [listening(member, handler) for member, handler in zip(members, handlers, strict=True)]
    try:
        both = lambda: handlers[0].handled + handlers[1].handled  # noqa: E731
        await_(lambda: len(both()) == 100, WAIT_S, "every message was handled")
        await_(lambda: all(len(member.members) == 2 for member in members), WAIT_S, "each sees the other")
        await_(lambda: sorted(_data_queues(members, topic)) == [0, 1, 2, 3], WAIT_S, "the queues are shared out")
        assert max(handler.times.get(b"17", 0) for handler in handlers) == 1
        with AdminClient(endpoint, timeout_ms=30_000) as admin:  # who got a queue before its offset reads it once more
            await_(lambda: admin.group_offsets(group, topic) == committed, WAIT_S, "all is committed")
    finally:
        for member in members:
            member.close()
        for thread in threads:
            thread.join()
    with AdminClient(endpoint, timeout_ms=30_000) as admin:
        assert admin.group_offsets(group, topic) == committed


def _data_queues(members: list[GroupConsumer], topic: str) -> list[int]:
    return [queue for member in members for name, queue in member.assignment() if name == topic]


def test_a_dead_letter_and_the_order_of_a_queue(endpoint: str, topic: str) -> None:
    with producer_of(endpoint) as producer:
        for number in range(8):
            producer.send(Message(topic, b"%d" % number, queue_id=number % 2))
    group = f"ordered-{topic}"
    seen: list[tuple[int, bytes]] = []
    with GroupConsumer(endpoint, group, topic, start="first", ordered=True, timeout_ms=60_000) as consumer:

        def all_seen() -> bool:
            for message in consumer.poll(500):
                seen.append((message.queue_id, message.body))
                if message.body == b"3":
                    assert message.retry_later(-1) is False
            return len(seen) >= 8

        await_(all_seen, WAIT_S, "all eight")
    assert [body for queue, body in seen if queue == 0] == [b"0", b"2", b"4", b"6"]
    assert [body for queue, body in seen if queue == 1] == [b"1", b"3", b"5", b"7"]
    assert [body for body, _, _ in read(endpoint, f"%DLQ%{group}", 1)] == [b"3"]


@pytest.mark.parametrize("version", [pytest.param("4.9.8", marks=pytest.mark.slow), "5.5.0"])
def test_a_group_is_shared_with_a_member_in_java(
    version: str, real: rocketmq.RocketmqNode, request: pytest.FixtureRequest
) -> None:
    endpoint, topic = f"rocketmq://{real.address}", f"shared-{version.replace('.', '-')}"
    with AdminClient(endpoint, timeout_ms=30_000) as admin:
        admin.create_topic(topic, 4)
    handler = Handler()
    with JavaMember(version, real.address, topic, topic, request.config) as java, producer_of(endpoint) as producer:
        member = GroupConsumer(endpoint, topic, topic, start="first", timeout_ms=60_000)
        thread = listening(member, handler)
        try:
            await_(lambda: len(member.members) == 2, WAIT_S, "both are members")
            await_(lambda: len(_data_queues([member], topic)) == 2, WAIT_S, "the queues are shared out")
            ours = [b"python %d" % number for number in range(40)]
            for number, body in enumerate(ours):
                assert producer.send(Message(topic, body, tags="python", queue_id=number % 4)).acknowledged
            java.send(40)
            wanted = {body.decode() for body in ours} | {f"java {number}" for number in range(40)}

            def all_came() -> bool:
                return {body.decode() for body in handler.handled} | set(java.consumed) >= wanted

            await_(all_came, WAIT_S, "every message was consumed by one of both")
            assert java.consumed
            assert handler.handled
            assert {"python", "java"} >= java.tags
        finally:
            member.close()
            thread.join()


# --- requests and replies


class Answering(threading.Thread):
    """Replies to the requests of a topic with their bodies in capitals."""

    def __init__(self, endpoint: str, topic: str) -> None:
        super().__init__()
        self._producer = producer_of(endpoint)
        self._consumer = GroupConsumer(endpoint, f"answering-{topic}", topic, start="first", timeout_ms=60_000)

    def run(self) -> None:
        self._consumer.listen(self._reply)

    def _reply(self, message: GroupMessage) -> None:
        if REPLY_TO_CLIENT in message.properties:
            assert self._producer.send(reply(message, message.body.upper())).acknowledged

    def __enter__(self) -> Self:
        self.start()
        await_(lambda: len(self._consumer.members) == 1, WAIT_S, "it is a member")
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
        self.join()
        self._producer.close()


def test_a_request_comes_back_with_its_reply(endpoint: str, topic: str) -> None:
    with Answering(endpoint, topic), producer_of(endpoint) as producer:
        bodies = [b"one", b"two" * 3_000, b"three"]
        replies = [producer.request(Message(topic, body), 60_000) for body in bodies]
        assert producer.late_replies == 0
    assert [each.body for each in replies] == [body.upper() for body in bodies]
    assert all(each.topic.endswith("_REPLY_TOPIC") for each in replies)


@pytest.mark.parametrize("version", [pytest.param("4.9.8", marks=pytest.mark.slow), "5.5.0"])
def test_requests_and_replies_go_to_java_and_come_from_there(
    version: str, endpoint: str, topic: str, request: pytest.FixtureRequest
) -> None:
    address = endpoint.removeprefix("rocketmq://")
    if request.node.callspec.params["endpoint"] == "node":  # as a name server, or the first heartbeat comes late
        address = f"127.0.0.1:{request.getfixturevalue('node').names}"
    questions = f"{topic}-questions"
    with AdminClient(endpoint, timeout_ms=30_000) as admin:
        admin.create_topic(questions, 4)
    with (
        JavaMember(version, address, topic, f"java-{topic}", request.config) as java,
        producer_of(endpoint) as producer,
        Answering(endpoint, questions),
    ):
        assert producer.request(Message(topic, b"from python"), 60_000).body == b"FROM PYTHON"
        assert java.request(questions, "from java") == "FROM JAVA"


def test_a_reply_for_which_nobody_waits_any_more_is_refused_at_a_broker(real: rocketmq.RocketmqNode) -> None:
    endpoint, topic = f"rocketmq://{real.address}", "given-up"
    with producer_of(endpoint) as asking, pytest.raises(RequestTimeout):
        asking.request(Message(topic, b"x"), 2_000)
    with Consumer(endpoint, topic, start="first", timeout_ms=60_000) as consumer, producer_of(endpoint) as producer:
        (asked,) = await_(lambda: consumer.poll(500), WAIT_S, "the request")
        with pytest.raises(PutRefused):
            producer.send(reply(asked, b"y"))


# --- administration


def test_an_administrator_finds_what_mqadmin_does(
    brokers: Callable[[str], rocketmq.RocketmqNode], request: pytest.FixtureRequest
) -> None:
    real = brokers(NEW)  # mqadmin of 5.5 shows no queues of brokers of 4.9
    endpoint, topic = f"rocketmq://{real.address}", "looked-at"
    with AdminClient(endpoint, timeout_ms=30_000) as admin, producer_of(endpoint) as producer:
        admin.create_topic(topic, 3)
        for number in range(10):
            producer.send(Message(topic, b"%d" % number, keys=["key"], queue_id=number % 3))
        admin.configure_group("looking", retryMaxTimes=3)
        assert admin.set_offset("looking", topic, 0, 2) == 2
        bounds, offsets = admin.bounds(topic), admin.group_offsets("looking", topic)[topic]
        with Mqadmin(real.address, request.config) as mqadmin:
            stats = [line.split() for line in mqadmin.run("topicStatus", "-t", topic)]
        rows = {int(words[1]): (int(words[2]), int(words[3])) for words in stats if words[:1] == ["peer"]}
        assert bounds == rows == {0: (0, 4), 1: (0, 3), 2: (0, 3)}
        assert offsets == {0: 2, 1: -1, 2: -1}
    with ClusterAdmin(endpoint, timeout_ms=30_000) as cluster:
        assert cluster.names == ["peer"]
        assert cluster.bounds(topic) == {"peer": bounds}


def test_messages_are_looked_up_and_topics_are_changed(endpoint: str, topic: str) -> None:
    with AdminClient(endpoint, timeout_ms=30_000) as admin, producer_of(endpoint) as producer:
        sent = producer.send(Message(topic, b"looked up", keys=["42"]))
        await_(lambda: len(admin.by_key(topic, "42")) == 1, WAIT_S, "the index has it")
        (found,) = admin.by_unique_key(topic, sent.unique_key)
        assert found.body == b"looked up"
        for same in (admin.by_id(found.message_id), admin.by_offset(sent.physical_offset)):
            assert same is not None
            assert same.body == b"looked up"
        assert admin.by_key(topic, "no such key") == []
        with pytest.raises(AskRefused, match="TopicExists"):
            admin.create_topic(topic, 4)
        assert admin.alter_topic(topic, write_queues=2)["write_queues"] == 2
        assert {row["write_queues"] for row in admin.topics() if row["topic"] == topic} == {2}
        admin.delete_topic(topic)
        await_(lambda: topic not in {row["topic"] for row in admin.topics()}, WAIT_S, "the topic is gone")


def test_what_no_broker_can_answer_is_refused_by_name(real: rocketmq.RocketmqNode) -> None:
    endpoint = f"rocketmq://{real.address}"
    with AdminClient(endpoint, timeout_ms=30_000) as admin:
        with pytest.raises(NotInRocketmq, match="transaction_status"):
            admin.transaction_status()
        with pytest.raises(UnknownTopic):
            admin.bounds("no-such-topic")
        admin.create_topic("read-only", 1, perm=4)
    with producer_of(endpoint) as producer, pytest.raises(AskRefused, match="NO_PERMISSION"):
        producer.send(Message("read-only", b"x"))
    with producer_of(endpoint) as producer, pytest.raises((PutRefused, AskRefused)):
        producer.send(Message("a" * 200, b"x"))


def test_nobody_at_the_address_of_the_name_server_is_told() -> None:
    with pytest.raises(NoAnswer, match="Connection refused"):
        Producer(f"rocketmq://127.0.0.1:{free_port()}")


# --- transactions


def test_a_transaction_is_committed_rolled_back_or_checked(endpoint: str, topic: str) -> None:
    checked: list[bytes] = []

    def check(message: GroupMessage) -> State:
        checked.append(message.body)
        return State.COMMIT if message.body == b"left open" else State.UNKNOWN

    settings = {"send_timeout_ms": 20_000, "delivery_timeout_ms": 60_000}
    with TransactionProducer(endpoint, f"of-{topic}", check, **settings) as producer:  # type: ignore[arg-type]
        done = producer.send(Message(topic, b"committed"), lambda _: State.COMMIT)
        gone = producer.send(Message(topic, b"rolled back"), lambda _: State.ROLLBACK)
        producer.send(Message(topic, b"left open"), lambda _: State.UNKNOWN)
        assert done.ended is not None
        assert done.ended.acknowledged
        assert gone.ended is not None
        assert gone.ended.acknowledged
        found = read(endpoint, topic, 2)
    assert {body for body, _, _ in found} == {b"committed", b"left open"}
    assert b"left open" in checked


# --- the page


def run_page(endpoint: str) -> dict[str, Any]:
    """Every block of the page, one after the other; the names that they leave."""
    names: dict[str, Any] = {"__name__": "__docs__"}
    found = blocks(PAGE.read_text(encoding="utf-8"))
    assert [block.kind for block in found] == ["python"] * 3
    for block in found:
        code = "\n" * (block.line - 1) + block.code.replace("rocketmq://127.0.0.1:9876", endpoint)
        exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_every_block_of_the_page_runs_and_prints_what_was_sent(
    endpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_page(endpoint)
    *_, single, of_group = capsys.readouterr().out.splitlines()
    sent = {repr(body) for body in (b"hello", *(b"%d" % number for number in range(1_000)))}
    assert single.split(" ")[3] in sent
    assert of_group in sent


def test_what_the_page_moves_has_all_that_a_message_has(real: rocketmq.RocketmqNode, node: RemotingNode) -> None:
    """From a real broker to a node."""
    there, here, topic = f"rocketmq://{real.address}", node.address, f"to-move-{next(NUMBERS)}"
    with AdminClient(there, timeout_ms=30_000) as admin:
        admin.create_topic(topic, 4)
    given = [
        Message(topic, b"%d" % number * 100, tags="ab"[number % 2], keys=[f"k{number}", "all"])
        for number in range(1_000)
    ]
    with producer_of(there) as producer:
        results = producer.send_batch(given)
    assert all(result.acknowledged for result in results)
    run_page(there)["move"](there, here, "movers", topic)
    found: list[ReceivedMessage] = []
    with Consumer(here, topic, start="first") as consumer:
        await_(lambda: found.extend(consumer.poll(500)) or len(found) >= len(given), WAIT_S, "all messages")
        assert consumer.at_end, "each was moved once"
    moved = {each.unique_key: (each.body, each.tags, each.keys) for each in found}
    assert moved == {
        result.unique_key: (message.body, message.tags, tuple(message.keys))
        for result, message in zip(results, given, strict=True)
    }


# --- a broker that dies


def test_nothing_acknowledged_is_lost_with_a_broker_that_is_killed_and_started_again(
    real: rocketmq.RocketmqNode,
) -> None:
    endpoint, topic = f"rocketmq://{real.address}", "killed"
    handler = Handler()
    with producer_of(endpoint, send_timeout_ms=5_000, delivery_timeout_ms=120_000) as producer:
        assert producer.send(Message(topic, b"first")).acknowledged
        member = GroupConsumer(endpoint, "killed-group", topic, start="first", timeout_ms=120_000)
        thread = listening(member, handler)
        try:
            await_(lambda: b"first" in handler.handled, WAIT_S, "the group reads")
            futures = [producer.send_async(Message(topic, b"%d" % number)) for number in range(500)]
            futures[100].result()
            real.kill()
            futures += [producer.send_async(Message(topic, b"%d" % number)) for number in range(500, 700)]
            real.again()
            acknowledged = {b"%d" % number for number, each in enumerate(futures) if each.result().acknowledged}
            assert len(acknowledged) == 700
            await_(lambda: acknowledged <= handler.handled.keys(), WAIT_S, "all that was acknowledged was consumed")
        finally:
            member.close()
            thread.join()
