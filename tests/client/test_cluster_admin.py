"""Questions to every group of nodes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from towline.client.cluster_admin import ClusterAdmin
from towline.client.errors import AskRefused, UnknownGroup
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import NoAnswer, UnknownTopic

from .clusters import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    yield from Cluster(tmp_path, {"t": 1}).running()


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(cluster.endpoint, timeout_ms=2_000) as made:
        yield made


def test_all_are_asked_and_told_apart(cluster: Cluster, admin: ClusterAdmin):
    with Producer(cluster["b"].endpoint) as producer:
        producer.send_batch([Message("t", b"0"), Message("t", b"1")])
    cluster["a"].topics["only a"] = 3
    assert admin.names == ["a", "b"]
    assert {name: [row["topic"] for row in rows] for name, rows in admin.topics().items()} == {
        "a": ["t", "only a"],
        "b": ["t"],
    }
    assert admin.bounds("t") == {"a": {0: (0, 0)}, "b": {0: (0, 2)}}
    assert admin.group_offsets("g", "t") == {"a": {"t": {0: -1}}, "b": {"t": {0: -1}}}
    with pytest.raises(UnknownTopic):
        admin.bounds("only a")


def test_a_topic_is_made_everywhere(cluster: Cluster, admin: ClusterAdmin):
    assert {name: facts["write_queues"] for name, facts in admin.create_topic("new", 4).items()} == {"a": 4, "b": 4}
    assert [cluster[name].topics["new"] for name in "ab"] == [4, 4]


def test_messages_are_found_wherever_they_are(cluster: Cluster, admin: ClusterAdmin):
    with Producer(cluster["b"].endpoint) as producer:
        result = producer.send(Message("t", b"0", keys=["k"]))
    cluster["b"].extra = [bytes(record) for record in cluster["b"].queues["t", 0]]
    assert {name: [m.body for m in found] for name, found in admin.by_key("t", "k").items()} == {"a": [], "b": [b"0"]}
    found = admin.by_unique_key("t", result.unique_key)
    assert {name: len(messages) for name, messages in found.items()} == {"a": 0, "b": 1}


def test_half_an_answer_is_none(cluster: Cluster, admin: ClusterAdmin):
    cluster["b"].stop()
    with pytest.raises(NoAnswer):
        admin.topics()
    assert [row["topic"] for row in admin.of("a").topics()] == ["t"]
    cluster["b"].start()
    with pytest.raises(UnknownGroup, match="a, b"):
        admin.of("c")


def test_a_refusal_is_the_groups_own(cluster: Cluster, admin: ClusterAdmin):
    cluster["b"].refusals["group_offsets"] = "UNKNOWN_GROUP"
    with pytest.raises(AskRefused, match="UNKNOWN_GROUP"):
        admin.group_offsets("g", "t")
