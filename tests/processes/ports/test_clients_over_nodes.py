"""Clients of several real nodes: the master is killed, its slave is promoted, and they go on there."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.processes.nodes import Pair, TestNode, check_nothing_is_left, ended, free_port
from tests.processes.stopping import stopped
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused
from towline.client.group.consumer import GroupConsumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.send.futures import SendFuture
from towline.client.transaction import TransactionProducer
from towline.format.wire.status import PutStatus
from towline.node.peers.promotion import promote
from towline.node.process.context import runtime_of
from towline.runtime.positions import Position

DEADLINE_S: Final = 60.0
DEADLINE_MS: Final = 20_000
FAILOVER_MS: Final = 40_000  # a promotion, on a busy machine
INTERVAL_MS: Final = 200


def serve_of(node: TestNode) -> str:
    return f"ipc://{runtime_of(node.store.root).socket('serve')}"


def puts_of(pair: Pair) -> list[str]:
    return [node.endpoint for node in pair.nodes]


def serves_of(pair: Pair) -> list[str]:
    return [serve_of(node) for node in pair.nodes]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("pair"), listen_port=free_port(), flush_consumer_offset_interval=INTERVAL_MS)
    ending = ended(*made.nodes)
    next(ending)
    try:
        made.start()
        with AdminClient(made.master.endpoint) as admin:
            admin.create_topic("t", 1)
        yield made
        assert made.stop() == (True, True)
        check_nothing_is_left(*made.nodes)
    finally:
        next(ending, None)


def fill(pair: Pair, count: int, topic: str = "t") -> None:
    with Producer(puts_of(pair)[::-1]) as producer:  # the slave's comes first: nobody listens there
        assert all(result.acknowledged for result in producer.send_bodies(topic, [b"%d" % n for n in range(count)]))
    pair.await_caught_up()


def await_followed(pair: Pair, group: str, offsets: dict[int, int]) -> None:
    with AdminClient(serve_of(pair.slave)) as slave:

        def followed() -> bool:
            known = group in [row["group"] for row in slave.groups()]
            return known and slave.group_offsets(group, "t") == {"t": offsets}

        await_(followed, DEADLINE_S, "the slave has the offsets of its master")


class TestASlave:
    def test_its_serve_forwards_commits_to_the_master(self, pair: Pair):
        fill(pair, 100)
        with AdminClient(serve_of(pair.master)) as master, AdminClient(serve_of(pair.slave)) as slave:
            assert master.welcome()["broker_role"] == "master"
            assert slave.welcome()["broker_role"] == "slave"
            commit = {"group": "g", "offsets": {"t": {"0": 42}}}
            assert slave.ask("group_commit", **commit).facts == {}
            assert master.group_offsets("g", "t") == {"t": {0: 42}}
            assert slave.ask("group_commit", group="g", offsets={"t": {"7": 1}}).facts == {"unknown": {"t": ["7"]}}
            with pytest.raises(AskRefused, match="queue numbers and offsets"):
                slave.ask("group_commit", group="g", offsets={"t": {"0": -1}})
        await_followed(pair, "g", {0: 42})

    def test_it_tells_a_member_where_its_master_is(self, pair: Pair):
        fill(pair, 10)
        with GroupConsumer(serve_of(pair.slave), "members", "t", start="first") as consumer:
            found = consumer.poll(DEADLINE_MS)
            assert found
            consumer.commit()
        with AdminClient(serve_of(pair.master)) as admin:
            assert admin.group_offsets("members", "t")["t"][0] == found[-1].queue_offset + 1

    def test_it_tells_whoever_changes_something_where_its_master_is(self, pair: Pair):
        with AdminClient(serve_of(pair.slave)) as admin:
            assert admin.configure_group("set", retryMaxTimes=3)["retryMaxTimes"] == 3
        with AdminClient(serve_of(pair.master)) as admin:
            assert "set" in [row["group"] for row in admin.groups()]


@pytest.fixture
def own_pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path, flush_consumer_offset_interval=INTERVAL_MS)
    ending = ended(*made.nodes)
    next(ending)
    yield made
    next(ending, None)


@pytest.fixture
def lagging_pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path, broker_role="ASYNC_MASTER", flush_consumer_offset_interval=INTERVAL_MS)
    ending = ended(*made.nodes)
    next(ending)
    yield made
    next(ending, None)


@pytest.fixture
def two_masters(tmp_path: Path) -> Iterator[list[TestNode]]:
    nodes = [TestNode("master", tmp_path / name, ha_listen_port=0) for name in "ab"]
    ending = ended(*nodes)
    next(ending)
    yield nodes
    next(ending, None)


def test_clients_go_on_at_the_promoted_slave(own_pair: Pair):
    """Nothing acknowledged is lost, and what was under way when the master was killed is sent to its successor."""
    pair = own_pair
    pair.start()
    with AdminClient(pair.master.endpoint) as admin:
        admin.create_topic("t", 1)
    with (
        Producer(puts_of(pair), send_timeout_ms=2_000, delivery_timeout_ms=FAILOVER_MS) as producer,
        Consumer(serves_of(pair), "t", timeout_ms=FAILOVER_MS, suspend_ms=500) as reader,
        GroupConsumer(serves_of(pair), "g", "t", start="first", timeout_ms=FAILOVER_MS, suspend_ms=500) as member,
        TransactionProducer(puts_of(pair), "tg") as transactions,
    ):
        transaction, half = transactions.begin(Message("t", b"half"))
        assert half.acknowledged
        before = producer.send_bodies("t", [b"before %d" % n for n in range(200)])
        assert all(result.acknowledged for result in before)
        first_epoch = int(producer.welcome["epoch"])
        pair.await_caught_up()
        assert len(read(reader, 200)) == 200
        assert len(read(member, 200)) == 200
        member.commit()
        await_followed(pair, "g", {0: 200})
        pair.master.kill_all(seed=3)
        futures: list[SendFuture] = [producer.send_async(Message("t", b"after %d" % n)) for n in range(20)]
        outcome = promote(pair.slave.store.root, accept_loss=True)
        assert outcome["role"] == "master"
        assert all(future.result(FAILOVER_MS / 1000).acknowledged for future in futures)
        assert int(producer.welcome["epoch"]) > first_epoch
        assert producer.neighbour("serve") == serve_of(pair.slave)
        assert transactions.commit(transaction) is PutStatus.PUT_OK  # where the half is now
        bodies = {b"half", *(b"after %d" % n for n in range(20))}
        assert set(read(reader, 21)) == bodies
        assert set(read(member, 21)) == bodies
        member.commit()
    with AdminClient(serve_of(pair.slave)) as admin:
        assert admin.group_offsets("g", "t")["t"][0] == admin.bounds("t")[0][1] == 221
    assert pair.slave.stop()


def test_an_ordered_member_passes_over_nothing_when_a_slave_that_lags_is_promoted(lagging_pair: Pair):
    """Its offsets came to the slave before the messages: other messages have the numbers it had read to."""
    pair = lagging_pair
    pair.start()
    with AdminClient(pair.master.endpoint) as admin:
        admin.create_topic("t", 1)
    acknowledged: list[bytes] = []
    enough = threading.Event()

    def load() -> None:
        with Producer(puts_of(pair), send_timeout_ms=500, delivery_timeout_ms=FAILOVER_MS) as producer:
            while not enough.is_set():
                body = b"new %d" % len(acknowledged)
                if producer.send(Message("t", body)).acknowledged:
                    acknowledged.append(body)

    with GroupConsumer(
        serves_of(pair), "g", "t", start="first", ordered=True, timeout_ms=FAILOVER_MS, suspend_ms=500
    ) as member:
        fill(pair, 100)
        assert len(read(member, 100)) == 100
        receiver = pair.slave.pids()["receive"]
        with stopped(receiver):
            with Producer(pair.master.endpoint) as producer:
                producer.send_bodies("t", [b"lost"] * 500)
            assert set(read(member, 500)) == {b"lost"}
            member.commit()
            await_followed(pair, "g", {0: 600})
            pair.master.kill_all(seed=3)
            os.kill(receiver, signal.SIGKILL)  # going on it would take what came to its socket meanwhile
        loader = threading.Thread(target=load)
        loader.start()
        try:
            assert promote(pair.slave.store.root, accept_loss=True)["role"] == "master"
            await_(lambda: len(acknowledged) >= 50, FAILOVER_MS / 1000, "the promoted node takes messages")
        finally:
            enough.set()
            loader.join()
        found: list[bytes] = []  # some twice: a put whose answer was late went again

        def all_there() -> bool:
            found.extend(message.body for message in member.poll(200))
            return set(found) == set(acknowledged)

        await_(all_there, FAILOVER_MS / 1000, "all that was acknowledged comes")
        assert list(dict.fromkeys(found)) == acknowledged
    assert "its offset 600 of queue 0 of t is beyond the queue's end" in pair.slave.store.node_log.read_text()
    with AdminClient(serve_of(pair.slave)) as admin:
        us = {"group": "fresh", "member": "m", "instance": "i"}
        admin.ask("group_join", **us, topics={"t": {"expression": "*", "type": "TAG"}})
        told = admin.ask("group_lock", **us, queues=[["t", 0]]).facts
        assert told == {"locked": []}, "the old master may have granted it in a group that nobody here knows"
    assert pair.slave.stop()


def read(consumer: Consumer | GroupConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []

    def all_there() -> bool:
        found.extend(message.body for message in consumer.poll(200))
        return len(found) >= count

    await_(all_there, FAILOVER_MS / 1000, f"{count} messages come")
    return found


def test_a_producer_goes_on_at_another_node_when_the_first_is_killed(two_masters: list[TestNode]):
    """Two masters of their own."""
    nodes = two_masters
    for node in nodes:
        node.start()
        with AdminClient(node.endpoint) as admin:
            admin.create_topic("t", 1)
    with Producer([node.endpoint for node in nodes], send_timeout_ms=2_000) as producer:
        assert producer.send(Message("t", b"1")).acknowledged
        nodes[0].kill_all(seed=1)
        assert producer.send(Message("t", b"2")).acknowledged
    assert nodes[1].at(Position.APPENDED) > 0
    assert nodes[1].stop()
