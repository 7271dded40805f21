"""RocketMQ's consumers read from a slave while the master says so, and when there is no master."""

import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.processes.groups import Group
from tests.processes.nodes import ended, free_port
from tests.processes.waiting import await_
from towline.client.consumer import Consumer
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.node.report.statistics import Side
from towline.places import Runtime
from towline.runtime.remoting_counts import Ending, RemotingCounts

from .java_clients import VERSIONS, command
from .raw import RawClient
from .test_extreme_values import requests

MASTER, SLAVE = 0, 1
SLAVES_ID: Final = 2  # the slave's broker id: that of its node and 1
QUEUES: Final = 2
WAIT_S: Final = 30.0
READ_S: Final = 90.0
RETRY, NO_SERVICE = 20, 14
KINDS: Final = ("push", "lite")


class ReadableGroup(Group):
    """A master and a slave, both of which let slaves be read; whatever is read, is far behind. `ports`: of remoting."""

    ports: list[int]

    def client(self, node: int) -> RawClient:
        return RawClient(self.ports[node])

    @property
    def names(self) -> str:
        return ";".join(f"127.0.0.1:{port}" for port in self.ports)

    def sent(self, node: int) -> int:
        """Messages that this node has sent to readers."""
        return Side.read(Runtime(self.nodes[node].runtime).get_stats).sums[0]

    def fill(self, topic: str, count: int) -> None:
        """Messages in two queues, on both nodes."""
        with self.client(MASTER) as client:
            made = {"topic": topic, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
            assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, made).code == 0
            for number in range(count):
                assert (
                    client.put(topic, b"%s-%d" % (topic.encode(), number), e=number % QUEUES, properties="").code == 0
                )
        self.await_topic(topic)
        self.await_level(MASTER, SLAVE)

    def addresses(self, node: int, topic: str) -> dict[str, str]:
        """Of the route of a topic, as this node tells it; none while it tells none."""
        with self.client(node) as client:
            answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        if answer.code:
            return {}
        (broker,) = json.loads(bytes(answer.body))["brokerDatas"]
        return dict(broker["brokerAddrs"])

    def await_addresses(self, node: int, topic: str, *ids: int) -> None:
        places = {0: MASTER, SLAVES_ID: SLAVE}
        wanted = {str(number): f"127.0.0.1:{self.ports[places[number]]}" for number in ids}
        await_(lambda: self.addresses(node, topic) == wanted, WAIT_S, f"node {node} names the brokers {ids}")


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadableGroup]:
    far = {"slave_read_enable": True, "access_message_in_memory_max_ratio": 0, "enable_property_filter": True}
    made = ReadableGroup(tmp_path_factory.mktemp("reading"), 2, in_sync_replicas=1, min_in_sync_replicas=1,
                         broker_role="ASYNC_MASTER", **far)  # fmt: skip
    made.ports = [free_port() for _ in made.nodes]
    for node, port in zip(made.nodes, made.ports, strict=True):
        node.flags += ["--set", f"listen_port={port}"]
    ending = ended(*made.nodes)
    next(ending)
    made.start()
    yield made
    next(ending, None)


@contextmanager
def without_master(group: ReadableGroup) -> Iterator[None]:
    """The master is killed, and is back afterwards."""
    group.nodes[MASTER].kill_all(seed=18)
    try:
        yield
    finally:
        group.nodes[MASTER].start()
        await_(lambda: group.linked(group.nodes[MASTER]) == 1, WAIT_S, "the slave is linked again")


class Reader:
    """The program ReadAll."""

    def __init__(self, names: str, topic: str, kind: str, count: int, version: str, config: pytest.Config,
                 directory: Path) -> None:  # fmt: skip
        self._log = directory / "said"
        words = [*command("ReadAll", version, str(directory), config), names, topic, kind, str(count)]
        with self._log.open("wb") as said:
            self._process = subprocess.Popen(words, stdout=said, stderr=subprocess.STDOUT)

    def await_read(self, count: int) -> None:
        def read() -> bool:
            found = re.findall(r"^read (\d+)$", self._log.read_text(), re.M)
            assert self._process.poll() is None, self._log.read_text()
            return bool(found) and int(found[-1]) >= count

        await_(read, READ_S, f"{count} messages are read")

    def end(self) -> tuple[int, int]:
        """How many were read, and how many of them more than once."""
        self._process.wait(2 * READ_S)
        said = self._log.read_text()
        found = re.search(r"^ended with (\d+), doubles (\d+)$", said, re.M)
        assert found is not None, said
        return int(found[1]), int(found[2])

    def kill(self) -> None:
        with self._process:
            self._process.kill()


@contextmanager
def reading(*words: object) -> Iterator[Reader]:
    made = Reader(*words)  # type: ignore[arg-type]  # those of a Reader
    try:
        yield made
    finally:
        made.kill()


def test_routes_name_the_slave_by_an_id_that_stays_its_own(group: ReadableGroup) -> None:
    group.fill("named", 1)
    for node in (MASTER, SLAVE):
        group.await_addresses(node, "named", 0, SLAVES_ID)
        with group.client(node) as client:
            answer = client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
            (found,) = json.loads(bytes(answer.body))["brokerAddrTable"].values()
            assert found["brokerAddrs"].keys() == {"0", str(SLAVES_ID)}


def test_who_is_far_behind_is_sent_to_the_slave_until_it_has_read_the_queue_there(group: ReadableGroup) -> None:
    group.fill("behind", 40)
    group.await_addresses(MASTER, "behind", 0, SLAVES_ID)
    with group.client(MASTER) as client:
        answer = client.pull("g", "behind", 0, 0, maxMsgNums=4)
        assert answer.code == 0
        assert answer.fields["suggestWhichBrokerId"] == str(SLAVES_ID)
    with group.client(SLAVE) as client:
        first = client.pull("g", "behind", 0, 4, maxMsgNums=4)
        assert (first.code, first.fields["suggestWhichBrokerId"]) == (0, str(SLAVES_ID))
        assert first.fields["nextBeginOffset"] == "8"
        rest = client.pull("g", "behind", 0, 16, maxMsgNums=4)
        assert (rest.code, rest.fields["nextBeginOffset"]) == (0, "20")
        assert rest.fields["suggestWhichBrokerId"] == "0"


def test_a_slave_moves_nobodys_offset_but_sends_to_the_master(group: ReadableGroup) -> None:
    group.fill("beyond", 2)
    group.await_addresses(SLAVE, "beyond", 0, SLAVES_ID)
    with group.client(SLAVE) as client:
        answer = client.pull("g", "beyond", 0, 900)
        assert answer.code == RETRY
        assert answer.fields["nextBeginOffset"] == "900"
        assert answer.fields["suggestWhichBrokerId"] == "0"


def test_a_slave_answers_what_consumers_ask_and_passes_commits_on(group: ReadableGroup) -> None:
    group.fill("asked", 6)
    queue = {"topic": "asked", "queueId": 0}
    of_group = {**queue, "consumerGroup": "askers"}
    with group.client(SLAVE) as client, group.client(MASTER) as master:
        assert client.ask(RequestCode.GET_MAX_OFFSET, queue).fields["offset"] == "3"
        assert client.ask(RequestCode.GET_MIN_OFFSET, queue).fields["offset"] == "0"
        assert client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**queue, "timestamp": 1}).fields["offset"] == "0"
        assert int(client.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, queue).fields["timestamp"]) > 0
        assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, of_group).fields["offset"] == "0"
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**of_group, "commitOffset": 2}).code == 0
        assert master.ask(RequestCode.QUERY_CONSUMER_OFFSET, of_group).fields["offset"] == "2"

        def followed() -> bool:
            return client.ask(RequestCode.QUERY_CONSUMER_OFFSET, of_group).fields["offset"] == "2"

        await_(followed, WAIT_S, "the slave follows the offset")


def test_a_slave_knows_the_subscription_and_the_members_that_told_it(group: ReadableGroup) -> None:
    group.fill("told", 2)
    with group.client(SLAVE) as client:
        unknown = client.pull("tellers", "told", 0, 0, sysFlag=0, subscription="")
        assert unknown.code == 24
        assert client.join("one@1", "tellers", {"told": "*"}).code == 0
        with group.client(SLAVE) as other:
            assert other.join("two@1", "tellers", {"told": "*"}).code == 0
            assert client.members("tellers") == ["one@1", "two@1"]
        await_(lambda: client.members("tellers") == ["one@1"], WAIT_S, "the other one is gone")
        assert client.pull("tellers", "told", 0, 0, sysFlag=0, subscription="").code == 0
        left = {"clientID": "one@1", "consumerGroup": "tellers"}
        assert client.ask(RequestCode.UNREGISTER_CLIENT, left).code == 0
        assert client.members("tellers") == []


def test_a_master_tells_how_far_its_slave_is(group: ReadableGroup) -> None:
    group.fill("counted", 4)

    def slaves() -> list[dict[str, object]]:
        with group.client(MASTER) as client:
            found = json.loads(bytes(client.ask(RequestCode.GET_BROKER_HA_STATUS).body))
        assert found["inSyncSlaveNums"] == sum(each["inSync"] for each in found["haConnectionInfo"])
        assert found["master"]
        return [{**each, "end": found["masterCommitLogMaxOffset"]} for each in found["haConnectionInfo"]]

    await_(lambda: [each["diff"] for each in slaves()] == [0], WAIT_S, "the slave holds everything")
    (slave,) = slaves()
    assert slave["slaveAckOffset"] == slave["transferFromWhere"] == slave["end"]
    assert any(f"{SLAVE}={slave['addr']}" in flag for flag in group.nodes[MASTER].flags), "its address is told"


def test_a_slave_that_is_read_still_refuses_what_is_the_masters_and_counts_it(group: ReadableGroup) -> None:
    counts = RemotingCounts(group.nodes[SLAVE].positions)
    before = counts.refusals()[ResponseCode.SERVICE_NOT_AVAILABLE][0]
    with group.client(SLAVE) as client:
        client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})  # for which it looks for the master
        answer = client.put("refused", b"x")
        assert answer.code == NO_SERVICE
        assert "node 1 is a slave" in answer.remark
        assert f"127.0.0.1:{group.ports[MASTER]}" in answer.remark
        assert counts.refusals()[ResponseCode.SERVICE_NOT_AVAILABLE][0] == before + 1
        ended = counts.endings()[Ending.MALFORMED][0]
        client.write(bytes(4))
        assert client.is_closed()
    assert counts.endings()[Ending.MALFORMED][0] == ended + 1
    log = group.nodes[SLAVE].store.node_log
    await_(lambda: "a frame of 0 bytes" in log.read_text(), WAIT_S, "the reason in the log")


def test_no_value_in_a_request_ends_the_process_of_a_slave_that_is_read(group: ReadableGroup) -> None:
    before = group.nodes[SLAVE].pids()
    wanted = list(requests())
    random.Random(19).shuffle(wanted)
    for begin in range(0, 3_000, 100):
        with group.client(SLAVE) as client:
            for code, given, body in wanted[begin : begin + 100]:
                given.pop("suspendTimeoutMillis", None)
                client.send(code, given, body)
            for _ in range(100):
                assert client.read().is_answer
    assert group.nodes[SLAVE].pids() == before


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("push", VERSIONS[0]),
        ("lite", VERSIONS[-1]),
        pytest.param("push", VERSIONS[-1], marks=pytest.mark.slow),
        pytest.param("lite", VERSIONS[0], marks=pytest.mark.slow),
    ],
)
def test_a_java_consumer_that_is_far_behind_reads_from_the_slave(
    group: ReadableGroup, kind: str, version: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    topic, count = f"far-{kind}-{version.replace('.', '-')}", 400
    group.fill(topic, count)
    group.await_addresses(MASTER, topic, 0, SLAVES_ID)
    before = group.sent(SLAVE)
    with reading(group.names, topic, kind, count, version, request.config, tmp_path) as reader:
        assert reader.end() == (count, 0)
    assert group.sent(SLAVE) - before > count * 0.8


def test_our_own_consumer_that_is_far_behind_reads_from_the_slave_and_comes_back(group: ReadableGroup) -> None:
    group.fill("far-ours", 400)
    group.await_addresses(MASTER, "far-ours", 0, SLAVES_ID)
    before, found = group.sent(SLAVE), Counter[bytes]()
    endpoint = f"rocketmq://127.0.0.1:{group.ports[MASTER]}"
    with Consumer(endpoint, "far-ours", start="first", max_count=4) as consumer:

        def read() -> bool:
            found.update(each.body for each in consumer.poll(500))
            return len(found) >= 400

        await_(read, READ_S, "all messages")
        assert group.sent(SLAVE) - before > 400 * 0.8
        with group.client(MASTER) as client:
            assert client.put("far-ours", b"new").code == 0
        await_(lambda: [each.body for each in consumer.poll(500)] == [b"new"], READ_S, "what comes afterwards")
    assert set(found.values()) == {1}


@pytest.mark.parametrize("version", [pytest.param(VERSIONS[0], marks=pytest.mark.slow), VERSIONS[-1]])
def test_a_java_consumer_reads_on_from_the_slave_when_the_master_dies(
    group: ReadableGroup, version: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    topic, count = f"orphaned-{version.replace('.', '-')}", 1_000
    group.fill(topic, count)
    with reading(group.names, topic, "push", count, version, request.config, tmp_path) as reader:
        reader.await_read(100)
        with without_master(group):
            assert reader.end() == (count, 0)


@pytest.mark.parametrize("kind", ["push", pytest.param("lite", marks=pytest.mark.slow)])
def test_a_java_consumer_that_begins_without_a_master_reads_everything(
    group: ReadableGroup, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    topic, count = f"alone-{kind}", 200
    group.fill(topic, count)
    with without_master(group):
        group.await_addresses(SLAVE, topic, SLAVES_ID)
        names = f"127.0.0.1:{group.ports[SLAVE]}"  # a client that tries the other one first does not start at all
        with reading(names, topic, kind, count, VERSIONS[-1], request.config, tmp_path) as reader:
            assert reader.end() == (count, 0)
