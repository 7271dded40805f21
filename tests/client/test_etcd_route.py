"""Clients that find the leader of each group in a real etcd."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.etcd_server import EtcdServer, running
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import InvalidEndpoint, NoAnswer
from towline.ha.leader.leadership import Leadership, next_epoch
from towline.route.errors import EtcdSilent
from towline.route.etcd import Etcd
from towline.route.leaders import read_leaders

from .clusters import Cluster

WAIT_MS = 20_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    yield from running(tmp_path_factory.mktemp("etcd"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Its nodes take each other's place: `a` and `b` are nodes of one group as etcd has them."""
    yield from Cluster(tmp_path, {"t": 1}).running()


class Elections:
    """Who leads which group of the cluster `name`, as the nodes write it."""

    def __init__(self, server: EtcdServer, name: str) -> None:
        self._etcd, self.name = Etcd([server.url], timeout_s=5.0), name
        self._leases: dict[str, int] = {}
        self.endpoint = f"etcd:{server.url}/{name}"

    def lead(self, group: str, cluster: Cluster, node: str) -> None:
        self.end(group)
        leadership = Leadership(self._etcd, self.name, group)
        view = leadership.read()
        self._leases[group], _ = self._etcd.grant(60)
        where: dict[str, Any] = {"ha": [], "remoting": [f"tcp://127.0.0.1:{cluster[node].port}"]}
        assert leadership.claim(view, next_epoch(view, 0, 0), self._leases[group], where)

    def end(self, group: str) -> None:
        if group in self._leases:
            self._etcd.revoke(self._leases.pop(group))

    def close(self) -> None:
        self._etcd.close()


@pytest.fixture
def elections(server: EtcdServer, request: pytest.FixtureRequest) -> Iterator[Elections]:
    made = Elections(server, f"cluster/of {request.node.name}")
    yield made
    made.close()


def test_groups_and_their_leaders(server: EtcdServer, elections: Elections, cluster: Cluster):
    name = elections.name
    elections.lead("g/1", cluster, "a")
    elections.lead("g2", cluster, "b")
    elections.end("g2")
    leaders = read_leaders([f"{server.url}0", server.url], name)
    assert leaders["g/1"]["remoting"] == (f"tcp://127.0.0.1:{cluster['a'].port}",)
    assert leaders["g2"] == {}


def test_messages_go_to_whoever_leads(elections: Elections, cluster: Cluster):
    elections.lead("g", cluster, "a")
    with Producer(elections.endpoint) as producer:
        assert producer.send(Message("t", b"1")).acknowledged
        cluster["a"].stop()
        future = producer.send_async(Message("t", b"2"))
        elections.end("g")
        elections.lead("g", cluster, "b")
        assert future.result(WAIT_MS).acknowledged
        assert [record.body for record in cluster["b"].stored("t")] == [b"2"]
    with Consumer(elections.endpoint, "t", suspend_ms=200) as consumer:
        assert [message.body for message in consumer.poll(WAIT_MS)] == [b"2"]
    cluster["a"].start()


def test_several_groups_are_spread_over_and_read(elections: Elections, cluster: Cluster):
    elections.lead("one", cluster, "a")
    elections.lead("two", cluster, "b")
    with Producer(elections.endpoint) as producer:
        assert producer.send(Message("t", b"1", broker_name="one")).acknowledged
        assert producer.send(Message("t", b"2", broker_name="two")).acknowledged
    found = []
    with Consumer(elections.endpoint, "t", suspend_ms=200) as consumer:
        while len(found) < 2:
            found += [(message.broker_name, message.body) for message in consumer.poll(WAIT_MS)]
    assert set(found) == {("one", b"1"), ("two", b"2")}


def test_nobody_leads(elections: Elections, cluster: Cluster):
    elections.lead("g", cluster, "a")
    elections.end("g")
    with Producer(elections.endpoint, delivery_timeout_ms=1_500) as producer:
        with pytest.raises(NoAnswer, match="nobody leads it"):
            producer.send(Message("t", b"1"))
        elections.lead("g", cluster, "a")
        assert producer.send(Message("t", b"2")).acknowledged


@pytest.mark.parametrize(
    "text", ["etcd:http://127.0.0.1:1", "etcd:127.0.0.1:1/c", "etcd:http://127.0.0.1:1/", "etcd:/c"]
)
def test_what_names_no_etcd(text: str):
    with pytest.raises(InvalidEndpoint):
        Producer(text)


def test_etcd_does_not_answer_or_knows_nothing(server: EtcdServer):
    with pytest.raises(EtcdSilent, match=r"127\.0\.0\.1:1"):
        Producer("etcd:http://127.0.0.1:1/c")
    with pytest.raises(EtcdSilent, match="knows no cluster 'c'"):
        Producer(f"etcd:{server.url}/c")
