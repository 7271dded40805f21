"""The sink without a JVM: tasks write to a running node, fail, run again, and lose their answers."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from tests.processes.nodes import TestNode, ending, free_port
from tests.processes.waiting import await_
from towline.client.consumer import Consumer
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.transaction import State, TransactionProducer
from towline.runtime.positions import Position
from towline.spark.errors import (
    BadOption,
    CannotLookBack,
    NoTable,
    NotTheSameRows,
    SeveralGroups,
    UnknownOption,
    UnwritableRow,
)
from towline.spark.idempotent_producer import CLOCKS_MS, TAKE_TIMEOUT_MS
from towline.spark.sink import SinkOptions, Task, stem_of, write_rows

from .reads import read

WAIT_S = 60.0
PORTS = (("a", 10_000), ("b", 11_000))
MAP = pa.map_(pa.string(), pa.string())


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    made = TestNode(
        "master",
        tmp_path_factory.mktemp("sink") / "master",
        ha_listen_port=free_port(),
        default_topic_queue_nums=4,
    )
    with ending(made):
        made.start()
        yield made
        made.stop()


class Died(Exception):
    """What ends a task in the middle."""


def options(node: TestNode, topic: str = "", **more: str) -> SinkOptions:
    """A task of these tests is gone when it ends, and leaves no more than requests behind."""
    given = {"path": str(node.store.root), "topic": topic, "replayWaitMs": str(TAKE_TIMEOUT_MS + CLOCKS_MS)}
    return SinkOptions.parse(given | more)


def task(name: str, *, attempt: int = 0) -> Task:
    return Task(stem_of(name, 0, 0, ""), attempt, looks_back=True)


def batches(count: int, size: int = 100, dies_at: int = -1, **columns: object) -> Iterator[pa.RecordBatch]:
    """Rows 0 to `count` in batches of `size`; the task dies before it gets batch number `dies_at`."""
    for number, first in enumerate(range(0, count, size)):
        if number == dies_at:
            raise Died
        rows = range(first, min(first + size, count))
        yield pa.RecordBatch.from_pydict({"body": [f"body {row}".encode() for row in rows]} | columns)


def stored(node: TestNode, topic: str) -> list[ReceivedMessage]:
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), WAIT_S, "everything is dispatched")
    found = []
    with Consumer(serve_of(node), topic, suspend_ms=0) as consumer:
        while not consumer.at_end:
            found += consumer.poll(1_000)
    return found


def serve_of(node: TestNode) -> str:
    return node.endpoint.replace("put", "serve")


def bodies(count: int) -> Counter[bytes]:
    return Counter(f"body {row}".encode() for row in range(count))


def is_whole(node: TestNode, topic: str, count: int) -> None:
    found = stored(node, topic)
    assert Counter(message.body for message in found) == bodies(count)
    assert len({message.unique_key for message in found}) == count


def test_every_column_becomes_its_part_of_a_message(node: TestNode) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["full", None],
            "body": [b"one", b"two"],
            "tags": ["red", None],
            "keys": ["k1 k2", None],
            "queueId": pa.array([3, None], pa.int32()),
            "flag": pa.array([-7, None], pa.int32()),
            "properties": pa.array([[("own", "ü"), ("UNIQ_KEY", "of another")], None], MAP),
        }
    )
    sent = write_rows(options(node, "otherwise"), task("columns"), [batch])
    assert (sent.sent, sent.there) == (2, 0)
    (one,), (two,) = stored(node, "full"), stored(node, "otherwise")
    assert (one.body, one.tags, one.keys, one.queue_id, one.flag) == (b"one", "red", ("k1", "k2"), 3, -7)
    assert one.properties["own"] == "ü"
    assert (two.body, two.tags, two.keys, two.flag) == (b"two", None, (), 0)
    stem = task("columns").stem
    assert (one.unique_key, two.unique_key) == (f"{stem}00000000", f"{stem}00000001")


def test_rows_of_one_sharding_key_go_where_a_producers_messages_go(node: TestNode) -> None:
    keys = [f"k{row % 7}" for row in range(70)] + [None]
    frame = pa.RecordBatch.from_pydict({"body": [str(key).encode() for key in keys], "shardingKey": keys})
    write_rows(options(node, "sharded"), task("sharded"), [frame])
    with Producer(node.endpoint) as producer:
        for key in sorted(set(keys[:-1])):
            producer.send(Message("sharded", key.encode(), sharding_key=key))
    found = [message for message in stored(node, "sharded") if message.body != b"None"]
    assert len(found) == 77
    assert len({(message.body, message.queue_id) for message in found}) == 7
    assert all(message.properties["__SHARDINGKEY"].encode() == message.body for message in found)


@pytest.mark.parametrize("again", [False, True])
def test_rows_that_are_due_later_come_later_each_once(node: TestNode, again: bool) -> None:
    """Also where an attempt died behind the first rows: what stands in the system topics is not sent again."""
    topic, now = f"later-{again}", datetime.now(UTC)

    def frames(dies_at: int = -1) -> Iterator[pa.RecordBatch]:
        for number in range(3):
            if number == dies_at:
                raise Died
            rows = range(30 * number, 30 * number + 30)
            yield pa.RecordBatch.from_pydict(
                {
                    "body": [f"body {row}".encode() for row in rows],
                    "delayLevel": pa.array([1 if row % 3 == 0 else None for row in rows], pa.int32()),
                    "deliverAt": [now + timedelta(seconds=3) if row % 3 == 1 else None for row in rows],
                }
            )

    if again:
        with pytest.raises(Died):
            write_rows(options(node, topic), task(topic), frames(dies_at=2))
    sent = write_rows(options(node, topic), task(topic), frames())
    assert (sent.sent + sent.there, bool(sent.there)) == (90, again)
    await_(lambda: len(stored(node, topic)) >= 90, WAIT_S, "all are delivered")
    is_whole(node, topic, 90)
    assert write_rows(options(node, topic), task(topic), frames()).there == 90
    due_ms = round(now.timestamp() * 1000) + 3_000
    for message in stored(node, topic):
        if int(message.body.split()[1]) % 3 == 1:
            assert message.store_timestamp >= due_ms


def test_rows_without_a_queue_are_spread_over_the_topics_queues(node: TestNode) -> None:
    large = (pa.RecordBatch.from_pydict({"body": [bytes(50_000)] * 20}) for _ in range(4))
    write_rows(options(node, "spread", compression="none"), task("spread"), large)
    assert Counter(message.queue_id for message in stored(node, "spread")) == dict.fromkeys(range(4), 20)


def test_large_bodies_go_alone(node: TestNode) -> None:
    bodies = [os.urandom(size) for size in (3_000_000, 300_000, 10, 1_000_000)]
    write_rows(options(node, "large"), task("large"), [pa.RecordBatch.from_pydict({"body": bodies})])
    assert sorted(message.body for message in stored(node, "large")) == sorted(bodies)


def test_a_task_that_runs_again_adds_nothing(node: TestNode) -> None:
    first = write_rows(options(node, "again"), task("again"), batches(950))
    second = write_rows(options(node, "again"), task("again"), batches(950, size=400))
    assert (first.sent, first.there, second.sent, second.there) == (950, 0, 0, 950)
    is_whole(node, "again", 950)


@pytest.mark.parametrize("dies_at", [0, 1, 5, 8])
def test_a_task_that_died_is_finished_by_the_next(node: TestNode, dies_at: int) -> None:
    topic = f"died-{dies_at}"
    with pytest.raises(Died):
        write_rows(options(node, topic), task(topic), batches(900, dies_at=dies_at))
    sent = write_rows(options(node, topic), task(topic), batches(900))
    assert sent.sent + sent.there == 900
    is_whole(node, topic, 900)


def test_rows_of_several_topics_are_found_again(node: TestNode) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        return batches(300, topic=[f"several-{row % 3}" for row in range(100)])

    assert write_rows(options(node), task("several"), rows()).sent == 300
    assert write_rows(options(node), task("several"), rows()).there == 300
    assert sum(len(stored(node, f"several-{number}")) for number in range(3)) == 300


def test_what_differs_from_the_run_before_is_told(node: TestNode) -> None:
    write_rows(options(node, "differs"), task("differs"), batches(200))
    changed = (batch.set_column(0, "body", pa.array([b"other"] * len(batch))) for batch in batches(200))
    with pytest.raises(NotTheSameRows, match="its body is another"):
        write_rows(options(node, "differs"), task("differs"), changed)
    is_whole(node, "differs", 200)


def test_another_partition_batch_or_query_is_another_write(node: TestNode) -> None:
    stems = {
        stem_of(*one) for one in [("q", 0, 0, ""), ("q", 0, 1, ""), ("q", 1, 0, ""), ("r", 0, 0, ""), ("q", 0, 0, "t")]
    }
    assert len(stems) == 5
    for stem in stems:
        write_rows(options(node, "others"), Task(stem, 0, looks_back=True), batches(10))
    assert Counter(message.body for message in stored(node, "others")) == dict.fromkeys(bodies(10), 5)


def test_a_miss_counts_only_when_everything_was_dispatched(node: TestNode) -> None:
    """H22: what the task before wrote is in the log, and in no queue or index yet."""
    reput = node.pids()["reput"]
    outcome: list[tuple[int, int]] = []

    def again() -> None:
        sent = write_rows(options(node, "undispatched"), task("undispatched"), batches(300))
        outcome.append((sent.sent, sent.there))

    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), WAIT_S, "all is dispatched")
    os.kill(reput, signal.SIGSTOP)
    try:
        write_rows(options(node, "undispatched"), Task(task("undispatched").stem, 0, looks_back=False), batches(300))
        end = node.at(Position.APPENDED)
        assert node.at(Position.DISPATCHED) < end
        other = threading.Thread(target=again)
        other.start()
        other.join(1.0)
        assert other.is_alive()
        assert node.at(Position.APPENDED) == end
    finally:
        os.kill(reput, signal.SIGCONT)
    other.join(WAIT_S)
    assert outcome == [(0, 300)]
    is_whole(node, "undispatched", 300)


@pytest.mark.parametrize("level", [0, 1])
def test_lost_answers_make_no_doubles(node: TestNode, level: int) -> None:
    """Put dies while requests are under way: some of them are in the log, and nobody was told."""
    topic = f"killed-{level}"
    killed: list[dict[str, int]] = []

    def rows() -> Iterable[pa.RecordBatch]:
        for number, batch in enumerate(batches(6_000, size=500, delayLevel=[level] * 500)):
            if number in (3, 7):
                if killed:
                    node.await_restarted("put", killed[-1])
                killed.append(node.pids())
                os.kill(killed[-1]["put"], signal.SIGKILL)
            yield batch

    sent = write_rows(options(node, topic), task(topic), rows())
    assert len(killed) == 2
    assert sent.sent == 6_000
    await_(lambda: len(stored(node, topic)) >= 6_000, WAIT_S, "all are delivered")
    is_whole(node, topic, 6_000)


def test_a_later_attempt_waits_for_requests_of_the_one_before(node: TestNode) -> None:
    with pytest.raises(Died):
        write_rows(options(node, "attempts"), task("attempts"), batches(500, dies_at=3))
    sent = write_rows(options(node, "attempts"), task("attempts", attempt=1), batches(500))
    assert sent.sent + sent.there == 500
    is_whole(node, "attempts", 500)


def test_rows_that_no_queue_can_take_are_refused(node: TestNode) -> None:
    with pytest.raises(UnwritableRow, match="has queues 0 to 3"):
        write_rows(options(node, "queues"), task("queues"), batches(10, queueId=pa.array([4] * 10)))


def test_an_open_half_is_in_no_default_view(node: TestNode) -> None:
    """Here, where a node runs: no store made by hand has one exactly as a producer sends it."""
    with TransactionProducer(node.endpoint, "g") as producer:
        transaction, _ = producer.begin(Message("halves", b"half"))
        kept = producer.send(Message("halves", b"seen"), lambda _: State.COMMIT)
        await_(lambda: node.now(Position.DISPATCHED) == node.now(Position.APPENDED), WAIT_S, "all is dispatched")
        for where in ({"readMode": "scan"}, {"readMode": "queue"}, {"endpoint": serve_of(node), "subscribe": "halves"}):
            store = None if "endpoint" in where else node.store.root
            found = [row["body"] for row in read(store, ("topic", "body"), **where) if row["topic"] == "halves"]
            assert found == [b"seen"]
            assert b"half" not in [row["body"] for row in read(store, ("body",), **where)]
        shown = [row["body"] for row in read(node.store.root, ("body",), includeHalves="true")]
        assert b"half" in shown
        producer.rollback(transaction)
    assert kept.half.acknowledged


def test_no_rows_need_no_node(tmp_path: Path) -> None:
    nowhere = SinkOptions.parse({"endpoint": f"ipc://{tmp_path}/put", "topic": "t"})
    assert write_rows(nowhere, task("empty"), []).sent == 0
    empty = pa.RecordBatch.from_pydict({"body": pa.array([], pa.binary())})
    assert write_rows(nowhere, task("empty"), [empty]).sent == 0


def test_without_an_index_nobody_can_look_back(tmp_path: Path) -> None:
    made = TestNode("master", tmp_path / "master", ha_listen_port=free_port(), message_index_enable=False)
    with ending(made):
        made.start()
        with pytest.raises(CannotLookBack):
            write_rows(options(made, "t"), task("t"), batches(10))
        sent = write_rows(options(made, "t", idempotent="false"), task("t"), batches(10))
        assert sent.sent == 10
        made.stop()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"topik": "t"}, "did you mean topic"),
        ({"topic": "t"}, "give either it or the path"),
        ({}, "CREATE TEMPORARY VIEW"),
        ({"endpoint": "tcp://h:1", "path": "/tmp"}, "give either it or the path"),
        ({"path": "/nowhere"}, "no master runs on this store"),
        ({"endpoint": "tcp://h:1", "txnVersion": "3"}, "txnAppId"),
        ({"endpoint": "tcp://h:1", "txnVersion": "x", "txnAppId": "a"}, "whole number"),
        ({"endpoint": "tcp://h:1", "idempotent": "yes"}, "true or false"),
        ({"endpoint": "tcp://h:1", "compression": "gzip"}, "one of zlib"),
    ],
)
def test_options_that_the_sink_cannot_take_are_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises((BadOption, NoTable, UnknownOption), match=why):
        SinkOptions.parse(given)


def test_several_groups_of_nodes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    groups = (
        f'[[group]]\nname = "{name}"\n[[group.node]]\nid = 0\nhost = "127.0.0.1"\nport = {port}\nstore = "{name}"'
        for name, port in PORTS
    )
    path.write_text("\n".join(['name = "c"', *groups]))
    given = SinkOptions.parse({"endpoint": f"cluster:{path}", "topic": "t"})
    with pytest.raises(SeveralGroups):
        write_rows(given, Task(task("g").stem, 0, looks_back=False), batches(3))
