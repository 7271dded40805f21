"""The source over running nodes: their files up to what is confirmed, and through their brokers. Without a JVM."""

import contextlib
import json
import os
import signal
from collections import deque

import numpy as np
import pytest

from tests.processes.nodes import Pair, check_nothing_is_left, ending
from tests.processes.ports.test_spread_over_groups import Cluster
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.cluster_admin import ClusterAdmin
from towline.client.columns import Columns
from towline.client.errors import DamagedMessage
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.read.reader import Moved
from towline.format.record.record import Record, encode
from towline.format.wire.status import GetStatus
from towline.node.process.context import runtime_of
from towline.runtime.positions import Position
from towline.spark import remote
from towline.spark.errors import BadOption, DamagedAnswer, MessagesGone, UnknownRead
from towline.spark.options import SourceOptions
from towline.spark.planning import selection_of
from towline.spark.reading import QueueSplit, Reading
from towline.spark.remote import RemotePartition
from towline.spark.stores import StoreKind, StoreView

from .reads import by_place, only, planned, read, read_plan

WAIT_S = 30.0
COUNT = 300
SAME = ("topic", "queueId", "queueOffset", "body", "tags", "keys", "uniqKey", "properties", "commitLogOffset", "size")


def serve_of(node):
    return f"ipc://{runtime_of(node.store.root).socket('serve')}"


def message(number):
    topic = "bills" if number % 4 == 0 else "orders"
    body = f"body {number} ".encode() * (1 + number % 3)
    return Message(topic, body, tags=f"t{number % 3}", keys=[f"k{number}"], queue_id=number // 4 % 3)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """With messages of two topics, on both nodes and dispatched."""
    made = Pair(tmp_path_factory.mktemp("pair"), slave_timeout=60_000, broker_name="broker-p")
    with ending(*made.nodes):
        made.start()
        with AdminClient(made.master.endpoint) as admin:
            for topic in ("orders", "bills"):
                admin.create_topic(topic, 3)
        with Producer(made.master.endpoint) as producer:
            for number in range(COUNT):
                producer.send_async(message(number))
            producer.flush()
        made.await_caught_up()
        yield made
        assert made.stop() == (True, True)
        check_nothing_is_left(*made.nodes)


class TestFiles:
    @pytest.mark.parametrize("role", ["master", "slave"])
    @pytest.mark.parametrize("mode", ["scan", "queue"])
    def test_of_a_live_node(self, pair, role, mode):
        node = pair.node(role)
        view = StoreView.open(node.store.root)
        assert (view.kind, view.facts().end_from) == (StoreKind.LIVE, "positions")
        assert view.safe_end == pair.master.at(Position.APPENDED)
        rows = read(node.store.root, readMode=mode)
        assert sorted(row["body"] for row in rows) == sorted(message(number).body for number in range(COUNT))
        for row in rows:
            number = int(row["keys"].removeprefix("k"))
            sent = message(number)
            assert (row["topic"], row["tags"], row["brokerName"]) == (sent.topic, sent.tags, row["brokerName"])

    def test_of_master_and_slave_are_the_same(self, pair):
        ours, theirs = (read(node.store.root) for node in pair.nodes)
        assert only(ours, SAME) == only(theirs, SAME)
        assert {row["brokerName"] for row in ours} == {"broker-p"}

    def test_never_past_what_the_slave_has_too(self, pair):
        """What only the master holds could be taken back, though its bytes and their CRC are good."""
        receiver = pair.slave.pids()["receive"]
        before = pair.await_caught_up()
        os.kill(receiver, signal.SIGSTOP)
        try:
            with Producer(pair.master.endpoint, delivery_timeout_ms=60_000, send_timeout_ms=60_000) as producer:
                waiting = producer.send_async(Message("orders", b"unconfirmed" * 100))
                await_(lambda: pair.master.at(Position.APPENDED) > before, WAIT_S, "the master has it")
                view = StoreView.open(pair.master.store.root)
                assert view.safe_end == before
                assert len(read(pair.master.store.root, ("topic",))) == COUNT
                os.kill(receiver, signal.SIGCONT)
                waiting.result(60)
        finally:
            os.kill(receiver, signal.SIGCONT)
        pair.await_caught_up()
        assert StoreView.open(pair.slave.store.root).safe_end > before

    def test_while_messages_come_every_read_is_a_beginning_of_the_log(self, pair):
        """Nothing is missing in it and nothing torn, whatever is just being written."""
        before = seen = len(read(pair.master.store.root, ("topic",)))
        with Producer(pair.master.endpoint, linger_ms=0) as producer:
            for turn in range(6):
                for number in range(150):
                    producer.send_async(Message("orders", b"%d" % number * 40, queue_id=number % 3))
                for mode in ("scan", "queue"):
                    rows = read(pair.master.store.root, ("topic", "queueId", "queueOffset"), readMode=mode)
                    numbers: dict[tuple[str, int], list[int]] = {}
                    for row in rows:
                        numbers.setdefault((row["topic"], row["queueId"]), []).append(row["queueOffset"])
                    assert all(found == list(range(len(found))) for found in numbers.values()), (turn, mode)
                    assert mode == "queue" or len(rows) >= seen
                    seen = len(rows) if mode == "scan" else seen
            producer.flush()
        pair.await_caught_up()
        assert len(read(pair.master.store.root, ("topic",))) == before + 6 * 150 >= seen


class TestEndpoint:
    @pytest.mark.parametrize("role", ["master", "slave"])
    def test_gives_what_the_files_hold(self, pair, role):
        node = pair.node(role)
        options = {"subscribe": "orders,bills", "endingOffsets": _ends(node)}
        plan = planned(endpoint=serve_of(node), minPartitions="5", **options)
        assert plan.mode == "endpoint"
        assert len(plan.partitions) == 5
        files = read(node.store.root, **options)
        assert len(files) >= COUNT
        assert by_place(read_plan(plan)) == files

    def test_chooses_as_the_files_do(self, pair):
        endpoint = serve_of(pair.master)
        orders = [row for row in by_place(read(pair.master.store.root)) if row["topic"] == "orders"]
        when = orders[len(orders) // 2]["storeTimestamp"].isoformat()
        middle = json.dumps({"orders": {"0": when, "1": when}})
        for options in (
            {"assign": '{"orders": [1]}'},
            {"subscribe": "bills", "subExpression": "t1 || t2"},
            {"subscribePattern": "b.*", "keys": "k8,k12"},
            {"startingOffsets": '{"orders": {"0": 4}}', "assign": '{"orders": [0]}'},
            {"startingOffsetsByTimestamp": middle, "subscribe": "orders"},
            {"endingOffsetsByTimestamp": middle, "subscribe": "orders"},
        ):
            expected = by_place(read(pair.master.store.root, readMode="queue", **options))
            assert expected
            assert by_place(read(endpoint=endpoint, **options)) == expected

    def test_times(self, pair):
        rows = by_place(read(pair.master.store.root))
        start, end = (round(row["storeTimestamp"].timestamp() * 1000) for row in (rows[50], rows[-20]))
        options = {"startingTimestamp": str(start), "endingTimestamp": str(end)}
        expected = [row for row in rows if start <= round(row["storeTimestamp"].timestamp() * 1000) < end]
        assert by_place(read(endpoint=serve_of(pair.master), **options)) == expected

    def test_mistakes(self, pair):
        endpoint = serve_of(pair.master)
        with pytest.raises(UnknownRead, match="did you mean orders"):
            planned(endpoint=endpoint, subscribe="order")
        with pytest.raises(BadOption, match="ends at"):
            planned(endpoint=endpoint, startingOffsets='{"orders": {"0": 99999}}')

    def test_of_a_cluster_every_group_is_read(self, tmp_path):
        cluster = Cluster(tmp_path)
        with contextlib.ExitStack() as stack:
            stack.enter_context(ending(*cluster.nodes.values()))
            for node in cluster.nodes.values():
                node.start()
            with ClusterAdmin(cluster.endpoint) as admin:
                admin.create_topic("t", 2)
            with Producer(cluster.endpoint) as producer:
                sent = [b"%d" % number for number in range(100)]
                for number, body in enumerate(sent):
                    producer.send_async(Message("t", body, broker_name=("left", "right")[number % 2]))
                producer.flush()
            for node in cluster.nodes.values():
                await_(lambda node=node: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), WAIT_S, "queues")
            rows = read(endpoint=cluster.endpoint, subscribe="t")
            assert sorted(row["body"] for row in rows) == sorted(sent)
            assert {row["brokerName"] for row in rows} == set(cluster.nodes)
            one = '{"t": {"left": {"0": -1, "1": -1}}}'
            rest = read(endpoint=cluster.endpoint, startingOffsets=one, subscribe="t")
            assert {row["brokerName"] for row in rest} == {"right"}


class Jumping:
    """A consumer whose broker deleted messages 3 to 7 before it asked for them."""

    def __init__(self, *_, **__):
        self.moved: deque[Moved] = deque()
        self._at = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def seek(self, queue_id, offset):
        self._at = offset

    def position(self):
        return {0: self._at}

    def poll_columns(self, timeout_ms):
        if self._at == 3:
            self.moved.append(Moved(0, 3, 8, GetStatus.OFFSET_TOO_SMALL))
            self._at = 8
            return None
        number, self._at = self._at, self._at + 1
        data = encode(Record(topic=b"t", body=b"%d" % number, queue_offset=number))
        return Columns(np.array([len(data)], ">u4").tobytes(), data, queue_id=0)


class Garbling(Jumping):
    """No node of its group has message 9 whole."""

    def poll_columns(self, timeout_ms):
        if self._at == 9:
            raise DamagedMessage("t", 0, 9, 4711, "BODYCRC differs")
        return super().poll_columns(timeout_ms)


class TestGapsOfABroker:
    @pytest.fixture
    def partition(self, monkeypatch):
        monkeypatch.setattr(remote, "Consumer", Jumping)
        return RemotePartition(("tcp://127.0.0.1:1",), "b", (QueueSplit("t", 0, 1, 10),))

    def how(self, **options):
        parsed = SourceOptions.parse({"endpoint": "tcp://127.0.0.1:1"} | options)
        return Reading.of(parsed, ("body",), selection_of(parsed))

    def test_are_an_error(self, partition):
        with pytest.raises(MessagesGone, match=r"messages 3 to 7 of queue 0 of t .*\(5 messages\)"):
            list(partition.read(self.how()))

    def test_or_counted(self, partition, caplog):
        batches = partition.read(self.how(failOnDataLoss="false"))
        assert [row["body"] for batch in batches for row in batch.to_pylist()] == [b"1", b"2", b"8", b"9"]
        assert "(5 messages)" in caplog.text


class TestDamageOfABroker:
    @pytest.fixture
    def partition(self, monkeypatch):
        monkeypatch.setattr(remote, "Consumer", Garbling)
        return RemotePartition(("tcp://127.0.0.1:1",), "b", (QueueSplit("t", 0, 8, 11),))

    def rows(self, partition, **options):
        parsed = SourceOptions.parse({"endpoint": "tcp://127.0.0.1:1"} | options)
        batches = partition.read(Reading.of(parsed, ("body",), selection_of(parsed)))
        return [row["body"] for batch in batches for row in batch.to_pylist()]

    def test_is_named_by_its_queue_number_and_byte(self, partition):
        with pytest.raises(DamagedAnswer, match="message 9 of queue 0 of t: at byte 4711 of the log: BODYCRC differs"):
            self.rows(partition)

    @pytest.mark.parametrize(("mode", "left"), [("skip", [b"8", b"10"]), ("stop", [b"8"])])
    def test_or_left_out(self, partition, caplog, mode, left):
        assert self.rows(partition, onCorruption=mode) == left
        assert "message 9 of queue 0" in caplog.text


def _ends(node):
    """What there is now, so that two reads are of the same."""
    ends: dict[str, list[str]] = {}
    for queue in StoreView.open(node.store.root).queues:
        if queue.topic in ("orders", "bills"):
            ends.setdefault(queue.topic, []).append(f'"{queue.queue_id}": {queue.max_offset}')
    return "{" + ", ".join(f'"{topic}": {{{", ".join(queues)}}}' for topic, queues in ends.items()) + "}"


def test_a_node_that_was_stopped_is_read_to_its_end(tmp_path):
    pair = Pair(tmp_path)
    with ending(*pair.nodes):
        pair.start()
        with Producer(pair.master.endpoint) as producer:
            assert all(result.acknowledged for result in producer.send_bodies("t", [b"%d" % n for n in range(50)]))
        end = pair.await_caught_up()
        assert pair.stop() == (True, True)
        for node in pair.nodes:
            view = StoreView.open(node.store.root)
            assert (view.kind, view.safe_end) == (StoreKind.STOPPED, end)
            assert len(read(node.store.root, ("body",))) == 50
