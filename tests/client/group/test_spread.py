"""A consumer group over several groups of nodes: queues of all are shared out, each node keeps its own offsets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.clusters import Cluster, read
from tests.processes.waiting import await_
from towline.client.errors import UnknownGroup
from towline.client.group.consumer import GroupConsumer
from towline.client.group.errors import NotAssigned
from towline.client.group.message import GroupMessage
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import NoAnswer, UnknownTopic

WAIT_S = 20.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    yield from Cluster(tmp_path, {"t": 1}).running()


def fill(cluster: Cluster, name: str, *bodies: bytes) -> None:
    with Producer(cluster[name].endpoint) as producer:
        producer.send_batch([Message("t", body) for body in bodies])


def consumer_of(cluster: Cluster, **more: object) -> GroupConsumer:
    return GroupConsumer(cluster.endpoint, "g", "t", **{"start": "first", "suspend_ms": 200} | more)


def test_all_are_read_and_each_node_keeps_its_offsets(cluster: Cluster):
    fill(cluster, "a", b"a0", b"a1")
    fill(cluster, "b", b"b0")
    with consumer_of(cluster) as consumer:
        found = read(consumer, 3)
        assert {(m.broker_name, m.body) for m in found} == {("a", b"a0"), ("a", b"a1"), ("b", b"b0")}
        consumer.commit()
        assert [cluster[name].group.offsets["t", 0] for name in "ab"] == [2, 1]
        assert consumer.broker_names == ["a", "b"]
        assert consumer.assignment("a")["t", 0] == 2
        with pytest.raises(UnknownGroup):
            consumer.assignment()


def test_what_was_given_last_is_finished_when_more_is_asked_for_wherever_it_comes_from(cluster: Cluster):
    fill(cluster, "a", b"a0")
    fill(cluster, "b", b"b0")
    with consumer_of(cluster, commit_interval_ms=50) as consumer:
        read(consumer, 2)
        assert consumer.poll(0) == []
        for name in "ab":
            cluster[name].wait_for(lambda name=name: cluster[name].group.offsets.get(("t", 0)) == 1, WAIT_S)


def test_one_message_may_be_committed(cluster: Cluster):
    fill(cluster, "a", b"a0", b"a1", b"a2")
    fill(cluster, "b", b"b0", b"b1")
    with consumer_of(cluster, auto_commit=False) as consumer:
        found = read(consumer, 5)
        consumer.commit(next(message for message in found if message.body == b"a1"))
        assert cluster["a"].group.offsets["t", 0] == 2
        assert cluster["b"].group.offsets["t", 0] == 0


def test_members_share_groups_that_have_one_queue_each(cluster: Cluster):
    with consumer_of(cluster, member="m1") as one, consumer_of(cluster, member="m2") as two:

        def shared() -> bool:
            assert one.poll(20) + two.poll(20) == []
            keys = [[("t", 0) in consumer.assignment(name) for name in "ab"] for consumer in (one, two)]
            return keys == [[True, False], [False, True]]

        await_(shared, WAIT_S, "each member has one of the two queues")
        assert one.members == two.members == ["m1", "m2"]
        for name in "ab":
            fill(cluster, name, b"x")
        assert ([m.broker_name for m in read(one, 1)], [m.broker_name for m in read(two, 1)]) == (["a"], ["b"])


def test_a_group_of_nodes_that_is_away_is_read_when_it_is_back(cluster: Cluster):
    fill(cluster, "a", b"a0")
    fill(cluster, "b", b"b0")
    cluster["a"].stop()
    with consumer_of(cluster, timeout_ms=300) as consumer:
        assert [message.body for message in read(consumer, 1)] == [b"b0"]
        assert consumer.poll(700) == []
        cluster["a"].start()
        assert [message.body for message in read(consumer, 1)] == [b"a0"]


def test_all_are_away_or_without_the_topic(cluster: Cluster):
    with GroupConsumer(cluster.endpoint, "g", "nowhere") as consumer, pytest.raises(UnknownTopic):
        read(consumer, 1)
    for node in cluster.nodes.values():
        node.stop()
    with consumer_of(cluster, timeout_ms=300) as consumer, pytest.raises(NoAnswer):
        read(consumer, 1)
    for node in cluster.nodes.values():
        node.start()


def test_places_are_those_of_a_group_of_nodes(cluster: Cluster):
    for name in "ab":
        fill(cluster, name, b"0", b"1")
    with consumer_of(cluster) as consumer:
        read(consumer, 4)
        consumer.seek("t", 0, 1, "b")
        assert [(m.broker_name, m.body) for m in read(consumer, 1)] == [("b", b"1")]
        consumer.pause(("t", 0))
        for name in "ab":
            fill(cluster, name, b"2")
        assert consumer.poll(300) == []
        consumer.resume()
        assert {(m.broker_name, m.body) for m in read(consumer, 2)} == {("a", b"2"), ("b", b"2")}
        with pytest.raises(NotAssigned):
            consumer.pause(("t", 7))


def test_a_message_that_is_sent_back_goes_to_its_own_group_of_nodes(cluster: Cluster):
    for node in cluster.nodes.values():
        node.topics["%RETRY%g"] = 1
    fill(cluster, "b", b"b0")
    with consumer_of(cluster) as consumer:
        (message,) = read(consumer, 1)
        assert message.retry_later()
    assert not cluster["a"].puts
    assert [put.groups[0][0] for put in cluster["b"].puts] == ["t", "SCHEDULE_TOPIC_XXXX"]


def test_listeners_get_all_of_them(cluster: Cluster):
    for name in "ab":
        fill(cluster, name, *(b"%d" % number for number in range(10)))
    seen: list[tuple[str, bytes]] = []
    consumer = consumer_of(cluster)

    def handle(message: GroupMessage) -> None:
        seen.append((message.broker_name, message.body))
        if len(seen) == 20:
            consumer.close()

    consumer.listen(handle, threads=3)
    assert sorted(seen) == sorted((name, b"%d" % number) for name in "ab" for number in range(10))
    assert [cluster[name].group.offsets["t", 0] for name in "ab"] == [10, 10]


def test_broadcasting_keeps_a_file_for_each(cluster: Cluster, tmp_path: Path):
    for name in "ab":
        fill(cluster, name, b"0")
    with consumer_of(cluster, model="broadcasting", offsets_file=tmp_path / "offsets") as consumer:
        read(consumer, 2)
    assert sorted(path.name for path in tmp_path.glob("offsets.?")) == ["offsets.a", "offsets.b"]
    fill(cluster, "b", b"1")
    with consumer_of(cluster, model="broadcasting", offsets_file=tmp_path / "offsets") as consumer:
        assert [(m.broker_name, m.body) for m in read(consumer, 1)] == [("b", b"1")]
