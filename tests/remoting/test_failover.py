"""Nodes of a group with ports for RocketMQ's clients: each says where the master is, also after another became it."""

import json
from collections.abc import Iterator

import pytest

from tests.etcd_server import running
from tests.processes.electing import LEASE_MS, ElectingGroup
from tests.processes.nodes import ended, free_port
from tests.processes.waiting import await_
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import Form

from .raw import RawClient

NODES = (0, 1, 2)
NO_SERVICE = 14
FOUND_S = 30.0


class RemotingGroup(ElectingGroup):
    """Three nodes; `ports` are those of remoting, by node."""

    ports: list[int]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemotingGroup]:
    for etcd in running(tmp_path_factory.mktemp("etcd")):
        made = RemotingGroup(tmp_path_factory.mktemp("remoting"), 3, etcd, slave_timeout=1000)
        made.ports = [free_port() for _ in made.nodes]
        for node, port in zip(made.nodes, made.ports, strict=True):
            node.flags += ["--set", f"remoting_port={port}"]
        ending = ended(*made.nodes)
        next(ending)
        made.start()
        yield made
        next(ending, None)


@pytest.fixture(autouse=True)
def in_sync(group: RemotingGroup) -> None:
    for node in group.nodes:
        if node.launched is None:
            node.start()
    group.await_in_sync(*NODES)


def master_by(port: int, topic: str) -> str:
    """The master's address in the route of a topic; "" while nobody listens, or there is no route."""
    try:
        with RawClient(port) as client:
            answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    except OSError:
        return ""
    if answer.code:
        return ""
    (broker,) = json.loads(bytes(answer.body))["brokerDatas"]
    assert broker["brokerAddrs"].keys() == {"0"}
    return str(broker["brokerAddrs"]["0"])


def await_routes(group: RemotingGroup, topic: str, *numbers: int) -> None:
    """Until these nodes all say that the master of now is the master."""

    def agreed() -> bool:
        master = group.master()
        return master is not None and {master_by(group.ports[number], topic) for number in numbers} == {
            f"127.0.0.1:{group.ports[master]}"
        }

    await_(agreed, FOUND_S, "every node says where the master is")


def test_every_node_is_a_name_server_that_says_where_the_master_is(group: RemotingGroup) -> None:
    with RawClient(group.ports[group.await_master(*NODES)]) as client:
        assert client.put("routed", b"x").code == 0
    await_routes(group, "routed", *NODES)
    for port in group.ports:
        with RawClient(port, Form.ROCKETMQ) as client:
            answer = client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
            assert answer.code == 0
            assert f"127.0.0.1:{group.ports[group.await_master(*NODES)]}".encode() in bytes(answer.body)


def test_a_slave_refuses_what_is_the_masters_and_says_where_that_is(group: RemotingGroup) -> None:
    master = group.await_master(*NODES)
    await_routes(group, "TBW102", *NODES)
    for number in set(NODES) - {master}:
        with RawClient(group.ports[number]) as client:
            answer = client.put("routed", b"x")
            assert answer.code == NO_SERVICE
            assert f"node {number} is a slave" in answer.remark
            assert f"127.0.0.1:{group.ports[master]}" in answer.remark
            assert client.pull("g", "routed", 0, 0).code == NO_SERVICE
            assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "nobody-made-it"}).code == 17
            assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {}).code == 1


def test_the_routes_follow_a_failover(group: RemotingGroup) -> None:
    old = group.await_master(*NODES)
    with RawClient(group.ports[old]) as client:
        assert client.put("moved", b"before").code == 0
    await_routes(group, "moved", *NODES)
    group.nodes[old].kill_all(seed=18)
    others = sorted(set(NODES) - {old})
    new = group.await_master(*others)
    await_routes(group, "moved", *others)
    with RawClient(group.ports[new]) as client:
        assert await_(lambda: client.put("moved", b"after").code == 0, LEASE_MS / 100, "the new master takes messages")
        assert client.pull("g", "moved", 0, 0).code == 0
