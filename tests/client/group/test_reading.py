"""A consumer of several groups of nodes: all are read, whichever are there."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor as ThreadPool
from pathlib import Path

import pytest

from tests.client.clusters import Cluster, read
from tests.processes.waiting import await_
from towline.client.consumer import Consumer
from towline.client.errors import UnknownGroup
from towline.client.group.consumer import GroupConsumer
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.request import reply
from towline.errors import NoAnswer, UnknownTopic

WAIT_MS = 20_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    yield from Cluster(tmp_path, {"t": 2}).running()


def fill(cluster: Cluster, name: str, *bodies: bytes, queue_id: int = 0) -> None:
    with Producer(cluster[name].endpoint) as producer:
        producer.send_batch([Message("t", body, queue_id=queue_id) for body in bodies])


def test_all_groups_are_read_and_each_message_says_which(cluster: Cluster):
    fill(cluster, "a", b"a0", b"a1")
    fill(cluster, "b", b"b0", queue_id=1)
    with Consumer(cluster.endpoint, "t", suspend_ms=200) as consumer:
        assert {(m.broker_name, m.queue_id, m.body) for m in read(consumer, 3)} == {
            ("a", 0, b"a0"),
            ("a", 0, b"a1"),
            ("b", 1, b"b0"),
        }
        fill(cluster, "b", b"b1")
        (message,) = read(consumer, 1)
        assert (message.broker_name, message.body) == ("b", b"b1")
        assert consumer.at_end
        assert consumer.groups == ["a", "b"]
        assert (consumer.position("a"), consumer.position("b")) == ({0: 2, 1: 0}, {0: 1, 1: 1})


def test_no_group_keeps_the_others_waiting(cluster: Cluster):
    """Both have more than one answer holds; both come."""
    for name in "ab":
        fill(cluster, name, *(b"%d" % number for number in range(2_000)))
    with Consumer(cluster.endpoint, "t", max_count=2, suspend_ms=200) as consumer:
        names: list[str] = []
        while len(set(names)) < 2:
            names += [consumer.poll(WAIT_MS)[0].broker_name]
        assert len(names) < 400  # of a thousand: a node's thread may stand still for a while
        names = [consumer.poll(WAIT_MS)[0].broker_name for _ in range(400)]
    assert set(names[:200]) == set(names[200:]) == {"a", "b"}


def test_a_group_that_is_away_is_read_when_it_is_back(cluster: Cluster):
    fill(cluster, "a", b"a0")
    fill(cluster, "b", b"b0")
    cluster["a"].stop()
    with Consumer(cluster.endpoint, "t", suspend_ms=200, timeout_ms=300) as consumer:
        assert [message.body for message in read(consumer, 1)] == [b"b0"]
        assert not consumer.at_end  # nobody knows what the other one has
        cluster["a"].start()
        assert [message.body for message in read(consumer, 1)] == [b"a0"]


def test_all_groups_are_away(cluster: Cluster):
    for node in cluster.nodes.values():
        node.stop()
    with Consumer(cluster.endpoint, "t", timeout_ms=300) as consumer, pytest.raises(NoAnswer):
        read(consumer, 1)
    for node in cluster.nodes.values():
        node.start()


def test_a_group_without_the_topic_has_nothing_to_come(cluster: Cluster):
    fill(cluster, "b", b"b0")
    del cluster["a"].topics["t"]
    with Consumer(cluster.endpoint, "t", suspend_ms=200) as consumer:
        assert [message.body for message in read(consumer, 1)] == [b"b0"]
        await_(lambda: consumer.poll(50) == [] and consumer.at_end, WAIT_MS / 1000, "both groups have answered")
        cluster["a"].topics["t"] = 2
        fill(cluster, "a", b"a0")
        assert [message.body for message in read(consumer, 1)] == [b"a0"]
    with Consumer(cluster.endpoint, "nowhere") as consumer, pytest.raises(UnknownTopic):
        read(consumer, 1)


def test_places_are_those_of_a_group(cluster: Cluster):
    for name in "ab":
        fill(cluster, name, b"0", b"1", b"2")
    with Consumer(cluster.endpoint, "t", suspend_ms=200) as consumer:
        consumer.seek(0, 2, "a")
        consumer.seek(0, 1, "b")
        assert {(m.broker_name, m.body) for m in read(consumer, 3)} == {("a", b"2"), ("b", b"1"), ("b", b"2")}
        with pytest.raises(UnknownGroup, match="a, b"):
            consumer.position()
        consumer.pause()
        fill(cluster, "a", b"3")
        assert consumer.poll(100) == []
        consumer.resume()
        assert [message.body for message in read(consumer, 1)] == [b"3"]


def test_a_cluster_of_one_group_needs_no_names(tmp_path: Path):
    for cluster in Cluster(tmp_path, {"t": 2}, names=("only",)).running():
        with Producer(cluster.endpoint) as producer, Consumer(cluster.endpoint, "t", suspend_ms=200) as consumer:
            assert producer.send(Message("t", b"x", queue_id=1)).broker_name == "only"
            assert read(consumer, 1)[0].broker_name == "only"
            assert consumer.position() == {0: 0, 1: 1}
        with GroupConsumer(cluster.endpoint, "g", "t", start="first", suspend_ms=200) as member:
            assert member.poll(WAIT_MS)[0].broker_name == "only"
            assert member.assignment()["t", 1] == 1


def test_a_request_and_its_reply_may_go_through_different_groups(cluster: Cluster):
    with (
        Producer(cluster.endpoint) as asker,
        Producer(cluster["b"].endpoint) as answerer,
        Consumer(cluster.endpoint, "t", suspend_ms=200) as consumer,
    ):

        def answer(message: ReceivedMessage) -> None:
            for node in cluster.nodes.values():
                node.topics.setdefault("c1_REPLY_TOPIC", 1)
            answerer.send(reply(message, b"pong"))

        requests = ThreadPool(1)
        asked = requests.submit(asker.request, Message("t", b"ping"), WAIT_MS)
        answer(read(consumer, 1)[0])
        assert asked.result(WAIT_MS / 1000).body == b"pong"
        requests.shutdown()
