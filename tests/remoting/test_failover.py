"""Nodes of a group with ports for RocketMQ's clients: each says where the master is, also after another became it."""

import json
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.etcd_server import running
from tests.processes.electing import LEASE_MS, ElectingGroup
from tests.processes.nodes import ended, free_port
from tests.processes.waiting import await_
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import Form

from .java_clients import VERSIONS, command
from .raw import RawClient
from .test_extreme_values import requests

NODES = (0, 1, 2)
NO_SERVICE = 14
FOUND_S = 30.0
GOES_ON_S = 90.0


class RemotingGroup(ElectingGroup):
    """Three nodes; `ports` are those of remoting, by node."""

    ports: list[int]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemotingGroup]:
    for etcd in running(tmp_path_factory.mktemp("etcd")):
        made = RemotingGroup(tmp_path_factory.mktemp("remoting"), 3, etcd, slave_timeout=1000)
        made.ports = [free_port() for _ in made.nodes]
        for node, port in zip(made.nodes, made.ports, strict=True):
            node.flags += ["--set", f"listen_port={port}"]
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


def test_no_value_in_a_request_ends_a_slaves_process(group: RemotingGroup) -> None:
    slave = max(set(NODES) - {group.await_master(*NODES)})
    before = group.nodes[slave].pids()["remoting"]
    wanted = list(requests())
    random.Random(18).shuffle(wanted)
    for begin in range(0, 2_000, 200):
        with RawClient(group.ports[slave]) as client:
            for code, given, body in wanted[begin : begin + 200]:
                client.send(code, given, body)
            for _ in range(200):
                assert client.read().is_answer
    assert group.nodes[slave].pids()["remoting"] == before


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


class JavaClients:
    """The program Failover: a producer that sends on until `end`, and a consumer of the same topic."""

    def __init__(self, words: list[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as said:
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=said, stderr=subprocess.STDOUT)

    @property
    def acknowledged(self) -> int:
        """Messages, as it was told last."""
        assert self._process.poll() is None, self._log.read_text()
        return max((int(each) for each in re.findall(r"^acknowledged (\d+)$", self._log.read_text(), re.M)), default=0)

    def await_more(self, count: int) -> None:
        wanted = self.acknowledged + count
        await_(lambda: self.acknowledged >= wanted, GOES_ON_S, f"{count} more messages are acknowledged")

    def end(self) -> tuple[int, int, int]:
        """How many were acknowledged, lost, and consumed more than once."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"end\n")
        self._process.stdin.close()
        self._process.wait(GOES_ON_S + 120)
        said = self._log.read_text()
        found = re.search(r"doubles (\d+)\nacknowledged (\d+), lost (\d+)$", said, re.M)
        assert found is not None, said
        return int(found[2]), int(found[3]), int(found[1])

    def kill(self) -> None:
        with self._process:
            self._process.kill()


def fail_over(group: RemotingGroup, clients: JavaClients, seed: int) -> None:
    """The master is killed, another follows, and the killed one comes back as a slave."""
    group.await_in_sync(*NODES)
    clients.await_more(200)
    old = group.await_master(*NODES)
    group.nodes[old].kill_all(seed=seed)
    group.await_master(*sorted(set(NODES) - {old}))
    clients.await_more(200)
    group.nodes[old].start()


def java_clients_survive(
    group: RemotingGroup, failovers: int, tmp_path: Path, config: pytest.Config, version: str
) -> None:
    names = ";".join(f"127.0.0.1:{port}" for port in group.ports)
    topic = f"java-{version.replace('.', '-')}"
    clients = JavaClients([*command("Failover", version, str(tmp_path), config), names, topic], tmp_path / "said")
    try:
        for seed in range(failovers):
            fail_over(group, clients, seed)
        acknowledged, lost, doubles = clients.end()
    finally:
        clients.kill()
    print(f"{acknowledged} acknowledged through {failovers} failovers, {lost} lost, {doubles} more than once")
    assert lost == 0
    assert acknowledged >= 400 * failovers


def test_a_java_producer_and_consumer_go_on_through_a_failover(
    group: RemotingGroup, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    java_clients_survive(group, 1, tmp_path, request.config, VERSIONS[-1])


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_producer_and_consumer_go_on_through_ten_failovers(
    group: RemotingGroup, tmp_path: Path, request: pytest.FixtureRequest, version: str
) -> None:
    java_clients_survive(group, 10, tmp_path, request.config, version)
