"""Idempotent producers and real nodes: whatever is killed, nothing is lost and nothing stands twice."""

import os
import signal
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import count

import numpy as np
import pytest

from tests.etcd_server import running
from tests.processes.arming import Arming
from tests.processes.electing import ElectingGroup
from tests.processes.groups import Group
from tests.processes.load import Load
from tests.processes.nodes import PATIENT, POOLED, Pair, TestNode, check_nothing_is_left, ended, ending
from tests.processes.stored import Stored, check_load
from tests.processes.waiting import await_
from tests.processes.wire import Request, WireClient
from tests.processes.without_rings import without_rings
from towline.client.consumer import Consumer
from towline.client.errors import DeliveryTimeout, PutRefused
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.send import sequencing
from towline.errors import ProducerFenced
from towline.format.record.record import MessageEncoder
from towline.format.record.rules import Rule
from towline.format.record.sequence import Place
from towline.format.record.sequence_columns import numbered
from towline.format.wire.frames import PutAnswer
from towline.format.wire.status import PutStatus
from towline.link.endpoints import ipc_endpoint
from towline.runtime.positions import Position

TOPIC = b"orders"
DEADLINE_S = 60.0
NOT_YET_S = 0.5
NODES = {
    "sync flush": {"flush_disk_type": "SYNC_FLUSH"},
    "async flush": {"flush_disk_type": "ASYNC_FLUSH"},
    "pool": POOLED,
}
# The batch is in the log, and its answer is not sent: whoever sends it again sends what is there.
DOUBLING = {"ring": ("put.after_publish", "put.ring_taken"), "socket": ("put.after_publish", "put.before_answer")}
PRODUCERS = count(1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path_factory.mktemp("idempotent") / "store", **PATIENT)
    cleaning = ended(made)
    next(cleaning)
    made.start()
    yield made
    assert made.stop()
    check_nothing_is_left(made)
    next(cleaning, None)


@contextmanager
def client_of(node: TestNode) -> Iterator[WireClient]:
    made = WireClient(node.endpoint)
    try:
        made.create_topic(TOPIC.decode(), 4)
        yield made
    finally:
        made.close()


def batch(first: Place, records: int = 3, queue_id: int = 0, size: int = 50) -> Request:
    encoder = MessageEncoder(TOPIC, sequenced=True)
    made = [encoder.encode(queue_id, b"x" * size, b"KEYS\x01k\x02") for _ in range(records)]
    data = numbered(b"".join(made), np.cumsum([len(each) for each in made]), first)
    return Request(TOPIC, queue_id, [data[at : at + len(made[0])] for at in range(0, len(data), len(made[0]))])


def begin(client: WireClient, **question: object) -> Place:
    """The place of the first record of a new producer's, or of the one that is asked for."""
    facts = client.ask({"op": "begin_producer", **(question or {"name": ""})})
    return Place(facts["producer"], facts["epoch"], 0)


def statuses(client: WireClient, *made: Request) -> list[PutStatus]:
    return [PutStatus(client.put(each).status) for each in made]


class TestARepeat:
    def test_is_answered_with_the_first_place_and_stores_nothing(self, node: TestNode) -> None:
        with client_of(node) as client:
            made = batch(begin(client))
            first = client.put(made)
            end = node.at(Position.APPENDED)
            again = client.put(made)
            assert (again.status, again.places) == (PutStatus.PUT_OK, first.places)
            assert node.at(Position.APPENDED) == end

    @pytest.mark.parametrize("restart", ["put", "node", "node killed"])
    def test_is_known_after_a_restart(self, node: TestNode, restart: str) -> None:
        with client_of(node) as client:
            place = begin(client)
            made = batch(place), batch(place._replace(number=3), 5), batch(place, 2, queue_id=1)
            first = [client.put(each) for each in made]
        self._restart(node, restart)
        end = node.at(Position.APPENDED)
        with client_of(node) as client:
            assert client.put(made[1]).places == first[1].places
            assert client.put(made[2]).places == first[2].places
            assert client.put(made[0]).status == PutStatus.OUT_OF_ORDER_SEQUENCE, "one behind it is stored"
            assert node.at(Position.APPENDED) == end
            assert statuses(client, batch(place._replace(number=8))) == [PutStatus.PUT_OK]

    def _restart(self, node: TestNode, what: str) -> None:
        if what == "put":
            before = node.pids()
            os.kill(before["put"], signal.SIGKILL)
            node.await_restarted("put", before)
        elif what == "node":
            assert node.stop()
            node.start()
        else:
            node.kill_all(1)
            node.start()

    def test_is_not_promised_before_the_first_one_is(self, node: TestNode) -> None:
        """Flush stands still: both wait for it."""
        with client_of(node) as client, client_of(node) as other:
            made = batch(begin(client))
            flush = node.pids()["flush"]
            os.kill(flush, signal.SIGSTOP)
            try:
                client.send(made)
                await_(lambda: node.at(Position.APPENDED) > node.at(Position.FLUSHED), DEADLINE_S, "it is stored")
                end = node.at(Position.APPENDED)
                other.send(made)
                assert other.receive(NOT_YET_S) is None
                assert node.at(Position.APPENDED) == end
            finally:
                os.kill(flush, signal.SIGCONT)
            first, again = client.answer(), other.answer()
        assert (first.status, again.status) == (PutStatus.PUT_OK, PutStatus.PUT_OK)
        assert first.places == again.places


class TestARefusal:
    def test_names_a_gap_an_older_epoch_and_a_producer_that_is_not_known(self, node: TestNode) -> None:
        with client_of(node) as client:
            place = begin(client, name="named")
            unknown = place._replace(producer=place.producer ^ 1, number=7)
            assert statuses(
                client, batch(place), batch(place._replace(number=4)), batch(unknown), batch(place._replace(number=3))
            ) == [
                PutStatus.PUT_OK,
                PutStatus.OUT_OF_ORDER_SEQUENCE,
                PutStatus.UNKNOWN_PRODUCER,
                PutStatus.PUT_OK,
            ]
            later = begin(client, name="named")
            assert later.producer == place.producer
            assert statuses(client, batch(place._replace(number=6)), batch(later)) == [
                PutStatus.PRODUCER_FENCED,
                PutStatus.PUT_OK,
            ]
            refused = client.ask({"op": "begin_producer", "producer": place.producer, "epoch": place.epoch})
            assert refused["error"] == ProducerFenced.__name__

    def test_of_places_that_are_not_in_a_row_leaves_nothing(self, node: TestNode) -> None:
        with client_of(node) as client:
            place = begin(client)
            middle = batch(place, 1), batch(place._replace(number=5), 1), batch(place._replace(number=2), 1)
            end = node.at(Position.APPENDED)
            answer: PutAnswer = client.put(Request(TOPIC, 0, [record for each in middle for record in each.records]))
            assert (answer.status, answer.rule) == (PutStatus.MESSAGE_ILLEGAL, Rule.SEQUENCE_ORDER)
            assert node.at(Position.APPENDED) == end
            assert statuses(client, batch(place)) == [PutStatus.PUT_OK]

    def test_meets_delayed_messages(self, node: TestNode) -> None:
        with client_of(node) as client:
            data = batch(begin(client), 1)
            data.topic = b"SCHEDULE_TOPIC_XXXX"
            assert PutStatus(client.put(data).status) is PutStatus.MESSAGE_ILLEGAL


def test_a_slave_that_takes_over_knows_what_its_master_stored(tmp_path: pytest.TempPathFactory) -> None:
    """By its log alone: it has never run put."""
    group = Group(tmp_path, 3)
    with ending(*group.nodes):
        group.start()
        group.await_in_sync(0, 3)
        with client_of(group.nodes[0]) as client:
            place = begin(client)
            made = batch(place), batch(place, 2, queue_id=1), batch(place._replace(number=3), 4)
            first = [client.put(each) for each in made]
        assert [answer.status for answer in first] == [PutStatus.PUT_OK] * 3
        group.await_topic(TOPIC.decode())
        group.nodes[0].kill_all(1)
        group.promote(1)
        group.await_in_sync(1, 2)
        end = group.nodes[1].at(Position.APPENDED)
        with client_of(group.nodes[1]) as client:
            again = [client.put(each) for each in made[1:]]
            assert [answer.places for answer in again] == [answer.places for answer in first[1:]]
            assert [answer.status for answer in again] == [PutStatus.PUT_OK] * 2
            assert group.nodes[1].at(Position.APPENDED) == end
            assert statuses(client, batch(place._replace(number=7)), batch(place._replace(number=9))) == [
                PutStatus.PUT_OK,
                PutStatus.OUT_OF_ORDER_SEQUENCE,
            ]


@pytest.mark.parametrize("way", ["ring", "socket"])
def test_nothing_is_sent_to_a_node_that_does_not_say_that_it_judges_places(
    node: TestNode, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    with (
        without_rings() if way == "socket" else nullcontext(),
        Producer(node.endpoint, idempotent=True, delivery_timeout_ms=2000) as producer,
    ):
        for body in (b"a", b"b"):
            assert producer.send(Message("said", body)).status is PutStatus.PUT_OK
        assert (producer.statistics.through_ring > 0) is (way == "ring")
        end, requests = node.at(Position.APPENDED), producer.statistics.requests
        with monkeypatch.context() as patched:
            patched.setattr(sequencing, "JUDGES", "said by no node")
            with pytest.raises(DeliveryTimeout, match=sequencing.OLDER):
                producer.send(Message("said", b"c"))
        assert (node.at(Position.APPENDED), producer.statistics.requests) == (end, requests)
        assert producer.send(Message("said", b"d")).status is PutStatus.PUT_OK


def test_readers_see_the_message_and_not_its_place(node: TestNode) -> None:
    with Producer(node.endpoint, idempotent=True) as producer:
        result = producer.send(Message("seen", b"x", properties={"a": "b"}))
    with Consumer(ipc_endpoint(node.runtime, "serve"), "seen", start="first", suspend_ms=50) as consumer:
        message = next(iter(consumer))
    assert message.properties == {"a": "b", "UNIQ_KEY": result.unique_key}
    assert b"__PSEQ__" in message.record.properties


def check(node: TestNode, load: Load) -> int:
    """Nothing is lost; how many stand twice."""
    end = node.at(Position.APPENDED)
    await_(lambda: node.at(Position.DISPATCHED) >= end, DEADLINE_S, "everything is dispatched")
    await_(lambda: node.at(Position.FLUSHED) >= end, DEADLINE_S, "everything is in the files")
    stored = Stored(node.store, end)
    try:
        stored.check_queues()
        return check_load(stored, load)
    finally:
        stored.close()


def kill_put(node: TestNode, arming: Arming, way: str, step: str, *, idempotent: bool) -> int:
    """Kills put at this step of a load; the load's doubles."""
    topic = f"{way}-{step.replace('.', '-')}-{idempotent}"
    load = Load(node.endpoint, topic, zlib.crc32(topic.encode()), count=1200, window=120, idempotent=idempotent)
    load.hold(400)
    with without_rings() if way == "socket" else nullcontext():
        load.start()
        load.await_acked(150)
        before = node.pids()
        arming.arm(f"{step}=kill@3")
        arming.await_fired()
        node.await_restarted("put", before)
        load.finish()
    assert len(load.acked) == load.count
    return check(node, load)


@pytest.mark.parametrize("way", DOUBLING)
def test_put_is_killed_between_storing_and_answering(
    tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The same kill makes another producer's messages stand twice."""
    node, arming = TestNode("master", tmp_path / "store", **NODES["async flush"]), Arming(tmp_path)
    with ending(node):
        arming.announce(monkeypatch)
        node.start()
        for step in DOUBLING[way]:
            assert kill_put(node, arming, way, step, idempotent=True) == 0
        assert kill_put(node, arming, way, DOUBLING[way][0], idempotent=False) > 0
        assert node.stop()


@pytest.mark.slow
@pytest.mark.parametrize("kind", NODES)
def test_the_node_is_killed_again_and_again(tmp_path: pytest.TempPathFactory, kind: str) -> None:
    node = TestNode("master", tmp_path / "store", **NODES[kind])
    with ending(node):
        node.start()
        load = Load(node.endpoint, "killed", 7, count=20_000, rate=1500, idempotent=True)
        load.hold(500)
        load.start()
        for kill in range(6):
            load.await_acked(len(load.acked) + 300)
            node.kill_all(kill)
            node.start()
        load.finish()
        assert len(load.acked) == load.count
        assert check(node, load) == 0
        assert node.stop()


@pytest.mark.slow
def test_processes_of_a_pair_are_killed_in_turns(tmp_path: pytest.TempPathFactory) -> None:
    pair = Pair(tmp_path)
    with ending(*pair.nodes):
        pair.start()
        load = Load(pair.master.endpoint, "turns", 8, count=20_000, rate=1500, idempotent=True)
        load.hold(500)
        load.start()
        for label in ("put", "send", "flush", "put", "put"):
            load.await_acked(len(load.acked) + 300)
            before = pair.master.pids()
            os.kill(before[label], signal.SIGKILL)
            pair.master.await_restarted(label, before)
        load.finish()
        assert len(load.acked) == load.count
        assert check(pair.master, load) == 0


@pytest.mark.slow
def test_the_master_of_three_nodes_is_killed_again_and_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each time another node takes over, which has only its log to know the producer by."""
    for etcd in running(tmp_path_factory.mktemp("etcd")):
        group = ElectingGroup(tmp_path_factory.mktemp("group"), 3, etcd, slave_timeout=1000)
        with ending(*group.nodes):
            group.start()
            load = Load(group.endpoint, "failover", 9, count=200_000, window=100, rate=1500, idempotent=True)
            load.start()
            for kill in range(4):
                load.await_acked(len(load.acked) + 300)
                old = group.await_master(0, 1, 2)
                group.nodes[old].kill_all(kill)
                group.await_master(*{0, 1, 2} - {old})
                load.await_acked(len(load.acked) + 300)
                group.nodes[old].start()
                group.await_in_sync(0, 1, 2)
            load.stop()
            load.join(DEADLINE_S)
            assert not load.is_alive()
            assert load.error is None
            assert set(load.outcomes) == {"PUT_OK"}
            master = group.nodes[group.await_master(0, 1, 2)]
            assert check(master, load) == 0


def test_a_refusal_of_the_topic_is_told_and_the_next_message_goes_on(node: TestNode) -> None:
    with Producer(node.endpoint, idempotent=True, retries=0) as producer:
        producer.send(Message("one", b"x", queue_id=0))
        with pytest.raises(PutRefused):
            producer.send(Message("one", b"x", queue_id=99))
        assert producer.send(Message("one", b"y", queue_id=0)).queue_offset == 1
