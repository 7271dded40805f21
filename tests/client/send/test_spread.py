"""A producer of several groups of nodes: turns, keys, groups without a master or without the topic."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.clusters import NAMES, Cluster
from tests.client.standin import Refuse
from tests.processes.waiting import await_
from towline.client.errors import ClientClosed, PutRefused, UnknownGroup
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.send.statistics import Reservoir, Statistics
from towline.client.send.unplaced import THREADS_MAX, TURN_S
from towline.client.transaction import TransactionProducer
from towline.errors import NoAnswer, UnknownTopic
from towline.format.java_hash import string_hash
from towline.format.wire.status import PutStatus
from towline.route.errors import UnreadableCluster

WAIT_MS = 20_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    yield from Cluster(tmp_path, {"t": 4}).running()


def bodies(cluster: Cluster, name: str) -> set[bytes]:
    return {record.body for record in cluster[name].stored("t")}


def await_linked(producer: Producer) -> None:
    await_(lambda: producer.linked_groups == list(NAMES), WAIT_MS / 1000, "both groups are linked")


class TestTurns:
    def test_batches_go_to_all_groups(self, cluster: Cluster):
        with Producer(cluster.endpoint) as producer:
            await_linked(producer)
            results = [producer.send(Message("t", b"%d" % number)) for number in range(8)]
        assert [result.broker_name for result in results] == ["a", "b"] * 4
        assert bodies(cluster, "a") == {b"0", b"2", b"4", b"6"}
        assert bodies(cluster, "b") == {b"1", b"3", b"5", b"7"}

    def test_every_queue_of_every_group_gets_some(self, cluster: Cluster):
        with Producer(cluster.endpoint) as producer:
            await_linked(producer)
            results = [producer.send(Message("t", b"x")) for _ in range(16)]
        places = {(result.broker_name, result.queue_id) for result in results}
        assert places == {(name, queue) for name in "ab" for queue in range(4)}

    def test_a_closed_producer_says_so_at_once(self, cluster: Cluster):
        with Producer(cluster.endpoint) as producer:
            await_linked(producer)
            producer.send(Message("t", b"x"))
        with pytest.raises(ClientClosed):
            producer.send(Message("t", b"x"))

    def test_many_bodies_too(self, cluster: Cluster):
        with Producer(cluster.endpoint, batch_bytes_max=4_096) as producer:
            await_linked(producer)
            results = producer.send_bodies("t", [b"x" * 500] * 64)
            assert producer.statistics.acknowledged == 64
        assert {result.broker_name for result in results} == {"a", "b"}
        assert sum(len(cluster[name].stored("t")) for name in "ab") == 64

    def test_messages_of_one_linger_share_a_batch(self, cluster: Cluster):
        with Producer(cluster.endpoint, linger_ms=200) as producer:
            await_linked(producer)
            futures = [producer.send_async(Message("t", b"%d" % number)) for number in range(10)]
            assert len({future.result(WAIT_MS).broker_name for future in futures}) == 1


class TestKeys:
    def test_equal_keys_go_to_one_queue_of_one_group(self, cluster: Cluster):
        with Producer(cluster.endpoint) as producer:
            for key in ("x", "yy", "zzz", "order-17"):
                results = [producer.send(Message("t", b"", sharding_key=key)) for _ in range(3)]
                code = abs(string_hash(key))
                assert {(r.broker_name, r.queue_id) for r in results} == {("ab"[code % 2], code // 2 % 4)}

    def test_keys_reach_every_queue(self, cluster: Cluster):
        with Producer(cluster.endpoint) as producer:
            futures = [producer.send_async(Message("t", b"", sharding_key=f"key {n}")) for n in range(200)]
            places = {(future.result().broker_name, future.result().queue_id) for future in futures}
        assert places == {(name, queue) for name in "ab" for queue in range(4)}

    def test_a_key_waits_for_its_group(self, cluster: Cluster):
        key = next(f"key {n}" for n in range(99) if abs(string_hash(f"key {n}")) % 2)
        with Producer(cluster.endpoint) as producer:
            await_linked(producer)
            producer.send(Message("t", b"1", sharding_key=key))
            cluster["b"].stop()
            future = producer.send_async(Message("t", b"2", sharding_key=key))
            assert producer.send(Message("t", b"3")).broker_name == "a"
            assert not future.done()
            cluster["b"].start()
            assert future.result(WAIT_MS).broker_name == "b"

    def test_a_key_whose_group_was_never_there_holds_up_no_other(self, cluster: Cluster):
        keys = {"ab"[abs(string_hash(key)) % 2]: key for key in ("x", "yy", "zzz", "order-17")}
        cluster["b"].stop()
        with Producer(cluster.endpoint) as producer:
            waiting = [producer.send_async(Message("t", b"%d" % n, key=keys["b"])) for n in range(20)]
            assert producer.send_async(Message("t", b"", key=keys["a"])).result(WAIT_MS / 1000).broker_name == "a"
            assert producer.send_async(Message("t", b"")).result(WAIT_MS / 1000).broker_name == "a"
            assert not any(future.done() for future in waiting)
            cluster["b"].start()
            offsets = [future.result(WAIT_MS / 1000).queue_offset for future in waiting]
        assert offsets == list(range(20))

    def test_topics_of_keys_whose_group_is_away_hold_up_no_topic_of_another(self, cluster: Cluster):
        keys = {"ab"[abs(string_hash(key)) % 2]: key for key in ("x", "yy", "zzz", "order-17")}
        cluster["b"].stop()
        with Producer(cluster.endpoint) as producer:
            waiting = [producer.send_async(Message(f"t{n}", b"", key=keys["b"])) for n in range(2 * THREADS_MAX)]
            late = producer.send_async(Message("t", b"", key=keys["a"]))
            assert late.result(4 * TURN_S).broker_name == "a"
            assert not any(future.done() for future in waiting)
            cluster["b"].start()
            for future in waiting:
                with pytest.raises(UnknownTopic):
                    future.result(WAIT_MS / 1000)

    def test_a_group_may_be_named(self, cluster: Cluster):
        with Producer(cluster.endpoint) as producer:
            result = producer.send(Message("t", b"", broker_name="b", queue_id=2))
            assert (result.broker_name, result.queue_id) == ("b", 2)
            with pytest.raises(UnknownGroup, match="'c', but a, b"):
                producer.send(Message("t", b"", broker_name="c"))
        with Producer(cluster["a"].endpoint) as producer, pytest.raises(UnknownGroup):
            producer.send(Message("t", b"", broker_name="a"))


class TestTrouble:
    def test_a_group_without_a_master_is_passed_over(self, cluster: Cluster):
        cluster["a"].stop()
        with Producer(cluster.endpoint) as producer:
            assert {producer.send(Message("t", b"")).broker_name for _ in range(4)} == {"b"}
            cluster["a"].start()
            await_linked(producer)
            assert {producer.send(Message("t", b"")).broker_name for _ in range(4)} == {"a", "b"}

    def test_unless_it_is_told_to_wait(self, cluster: Cluster):
        cluster["a"].stop()
        with (
            Producer(cluster.endpoint, pass_over=False, delivery_timeout_ms=500) as producer,
            pytest.raises(NoAnswer),
        ):
            producer.send(Message("t", b""))
        cluster["a"].start()

    def test_a_group_without_the_topic_is_passed_over(self, cluster: Cluster):
        del cluster["a"].topics["t"]
        with Producer(cluster.endpoint) as producer:
            await_linked(producer)
            assert {producer.send(Message("t", b"")).broker_name for _ in range(4)} == {"b"}
            with pytest.raises(UnknownTopic):
                producer.send(Message("nowhere", b""))

    def test_no_group_is_there(self, cluster: Cluster):
        for node in cluster.nodes.values():
            node.stop()
        with Producer(cluster.endpoint, delivery_timeout_ms=300) as producer, pytest.raises(NoAnswer, match="no group"):
            producer.send(Message("t", b""))
        for node in cluster.nodes.values():
            node.start()

    def test_a_refusal_of_one_group_is_that_messages_own(self, cluster: Cluster):
        cluster["a"].judge = lambda put: Refuse(PutStatus.MESSAGE_ILLEGAL)
        with Producer(cluster.endpoint) as producer:
            await_linked(producer)
            with pytest.raises(PutRefused):
                producer.send(Message("t", b"", broker_name="a"))
            assert producer.send(Message("t", b"", broker_name="b")).acknowledged

    def test_a_cluster_file_that_is_not_there(self, tmp_path: Path):
        with pytest.raises(UnreadableCluster):
            Producer(f"cluster:{tmp_path}/none.toml")

    def test_transactions_are_for_one_group(self, cluster: Cluster):
        with pytest.raises(ValueError, match="one group"):
            TransactionProducer(cluster.endpoint, "g")

    def test_a_node_that_takes_anothers_place_is_found(self, cluster: Cluster):
        """The file is read again when a link is made anew."""
        with Producer(cluster.endpoint) as producer:
            assert producer.send(Message("t", b"", broker_name="a")).acknowledged
            cluster["a"].stop()
            elsewhere = cluster.path.parent / "elsewhere"
            elsewhere.mkdir()
            other = Cluster(elsewhere, {"t": 4})
            running = other.running()
            next(running)
            cluster.path.write_text(other.path.read_text())
            assert producer.send(Message("t", b"new", broker_name="a")).acknowledged
            assert {record.body for record in other["a"].stored("t")} == {b"new"}
            next(running, None)
        cluster["a"].start()


def test_statistics_of_several_are_added():
    parts = [Statistics(acknowledged=3, requests=2), Statistics(acknowledged=4, links_lost=1)]
    for number, part in enumerate(parts):
        for _ in range(10):
            part.latency.add((number + 1) * 1_000_000)
    whole = Statistics.sum(parts)
    assert (whole.acknowledged, whole.requests, whole.links_lost) == (7, 2, 1)
    assert whole.latency.count == 20
    assert (whole.latency.percentile_ms(25), whole.latency.percentile_ms(75)) == (1.0, 2.0)
    assert Reservoir.of([]).percentile_ms(50) == 0
