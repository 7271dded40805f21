"""Nodes of a group with ports for RocketMQ's clients: each says where the master is, also after another became it."""

import json
import random
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.etcd_server import running
from tests.processes.electing import LEASE_MS, ElectingGroup
from tests.processes.nodes import ended, free_port
from tests.processes.waiting import await_
from towline.format.files.groups import read_offsets
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import Form
from towline.log.files.config_file import ConfigFile
from towline.places import Store

from .group_history import History
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
        settings = {"slave_timeout": 1000, "flush_consumer_offset_interval": 1000}
        made = RemotingGroup(tmp_path_factory.mktemp("remoting"), 3, etcd, **settings)
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
    with RawClient(group.ports[slave]) as client:  # one of the requests was that its routes let nobody send any more
        assert client.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "towline"}).code == 0


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
    """The program Failover: a producer that sends on until `end`, and a group of two consumers, of which the second may
    leave and come back."""

    def __init__(self, group: RemotingGroup, topic: str, version: str, directory: Path, config: pytest.Config) -> None:
        self.history = History()
        self._group, self._topic = group, topic
        names = ";".join(f"127.0.0.1:{port}" for port in group.ports)
        words = [*command("Failover", version, str(directory), config), names, topic]
        self._log = directory / "said"
        with self._log.open("wb") as said:
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=said, stderr=subprocess.STDOUT)
        self._heard = 0  # bytes of the log
        self._calm_with: int | None = None  # this master

    def listen(self) -> History:
        """What happened so far. A busy machine may have masters change by themselves."""
        with self._log.open("rb") as said:
            said.seek(self._heard)
            lines, _, _ = said.read().rpartition(b"\n")
        self._heard += len(lines) + bool(lines)
        if self.history.is_calm and self._group.master() != self._calm_with:
            self.history.change("a failover that nobody asked for")
        for line in lines.decode().splitlines():
            self.history.hear(line)
        assert self._process.poll() is None, f"the Java clients have ended: {self._log}"
        assert not self.history.breaches
        return self.history

    def await_more(self, count: int) -> None:
        wanted = len(self.listen().acknowledged) + count
        await_(lambda: len(self.listen().acknowledged) >= wanted, GOES_ON_S, f"{count} more messages are acknowledged")

    def await_calm(self) -> None:
        """Until what was acknowledged before is consumed, the members have divided the queues, and what they have
        consumed by then is committed on every node. Then 200 messages more, of all of which none may come twice.

        Java's 4.9.8 may take 30 s for it: that long it waits for the answer to a pull that a killed master has."""
        before = set(self.listen().acknowledged)
        await_(lambda: not before & self.listen().lost(), GOES_ON_S, "what was acknowledged is consumed")
        await_(lambda: self.listen().is_divided(), GOES_ON_S, "each queue is read by one member")
        wanted = self.history.ends()

        def reached() -> dict[int, int]:
            of_nodes = [offsets_on_disk(node.store, self._topic) for node in self._group.nodes]
            found = {queue: min(offsets.get(queue, 0) for offsets in of_nodes) for queue in wanted}
            return found if all(found[queue] >= wanted[queue] for queue in wanted) else {}

        committed = await_(reached, GOES_ON_S, "what was consumed is committed on every node")
        await_(lambda: self.listen().is_divided(), GOES_ON_S, "each queue is read by one member")
        self._calm_with = self._group.await_master(*NODES)
        self.history.calm(committed)
        self.await_more(200)

    def leave(self) -> None:
        self.history.change("a member leaves")
        self._order("leave")
        await_(lambda: self.listen().members == {"first"}, GOES_ON_S, "the second member has left")

    def come_back(self) -> None:
        self._order("return")
        await_(lambda: self.listen().members == {"first", "second"}, GOES_ON_S, "the second member is back")

    def end(self) -> None:
        """Of the sending; until all that was acknowledged is consumed."""
        self._order("end")
        await_(lambda: not self.listen().lost(), GOES_ON_S, "all that was acknowledged is consumed")

    def close(self) -> None:
        with self._process:
            self._process.kill()

    def _order(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()


def offsets_on_disk(store: Store, topic: str) -> Mapping[int, int]:
    """By queue: of the group of the Java clients, as this node would begin with them."""
    file = ConfigFile(store.config / "consumerOffset.json")
    table = read_offsets(file.load() or {}, str(file.path))
    return table.offsets.get((topic, "failover-consumers"), {})


def fail_over(group: RemotingGroup, clients: JavaClients, number: int) -> None:
    """The master is killed, another follows, and the killed one comes back as a slave. At every other time a member of
    the consumers has left before, and comes back while there is no master."""
    group.await_in_sync(*NODES)
    clients.await_calm()
    one_returns = number % 2 == 0
    if one_returns:
        clients.leave()
        clients.await_calm()
    old = group.await_master(*NODES)
    clients.history.change(f"failover {number + 1}{', a member returns' if one_returns else ''}")
    group.nodes[old].kill_all(seed=number)
    if one_returns:
        clients.come_back()
    group.await_master(*sorted(set(NODES) - {old}))
    clients.await_more(200)
    group.nodes[old].start()


def java_clients_survive(
    group: RemotingGroup, failovers: int, tmp_path: Path, config: pytest.Config, version: str
) -> None:
    clients = JavaClients(group, f"java-{version.replace('.', '-')}-{failovers}", version, tmp_path, config)
    try:
        for number in range(failovers):
            fail_over(group, clients, number)
        clients.await_calm()
        clients.end()
    finally:
        clients.close()
    history = clients.history
    stored = history.stored_again()
    print(f"{len(history.acknowledged)} acknowledged through {failovers} failovers, {len(history.lost())} lost")
    print(f"consumed by {dict(history.consumed_by)}; {sum(stored.values())} stored more than once")
    print("came again: " + "; ".join(f"{change.what}: {change.again}" for change in history.changes))
    assert not history.lost()
    assert not history.breaches
    assert len(history.acknowledged) >= 400 * failovers
    assert min(history.consumed_by[member] for member in ("first", "second")) >= 100 * failovers


@pytest.mark.alone
def test_a_java_producer_and_a_group_of_consumers_go_on_through_a_failover(
    group: RemotingGroup, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    java_clients_survive(group, 1, tmp_path, request.config, VERSIONS[-1])


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_producer_and_a_group_of_consumers_go_on_through_ten_failovers(
    group: RemotingGroup, tmp_path: Path, request: pytest.FixtureRequest, version: str
) -> None:
    java_clients_survive(group, 10, tmp_path, request.config, version)
