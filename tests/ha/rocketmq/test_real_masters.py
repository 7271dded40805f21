"""A node follows a real broker of RocketMQ as its slave, and takes its place, as docs/migration.md says."""

import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peers import rocketmq
from peers.server import HOST, Process
from tests.cli.typist import Typist
from tests.processes.nodes import SEGMENT, TestNode, ending
from tests.processes.waiting import await_
from tests.remoting.mqadmin import run_tool
from tests.remoting.other_clients import await_registered
from tests.remoting.raw import RawClient
from tests.repo.trees import ROOT
from towline.client.admin import AdminClient
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.send.futures import SendFuture
from towline.errors import TowlineError
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.limits import MIB
from towline.log.files.config_file import ConfigFile
from towline.node.roles.role_commands import read_json_file
from towline.runtime.positions import Position

from .brokers import NEWEST, VERSIONS, Broker
from .raw_slave import assert_same_log, client_port, clients_port

pytestmark = pytest.mark.timeout(900)

PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
TOPIC, LATER, IDLE, GROUP = "orders", "later", "idle", "billing"
COUNT = 30_000
WAIT_S = 120.0
CLIENTS = {"4.9.7": "4.9.8", NEWEST: NEWEST}  # by the version of the broker
DUE_S = 40  # of what is delivered by the node that was promoted
LEVELS = f"1s {DUE_S}s"


def message(number: int) -> Message:
    return Message(TOPIC, b"%08d" % number + bytes(200), tags="a", keys=[f"k{number}"], queue_id=number % 4)


class Names:
    """A name server of RocketMQ's."""

    def __init__(self, root: Path, version: str) -> None:
        (root / "conf").mkdir(parents=True)
        (root / "conf" / "logback_namesrv.xml").write_text("<configuration/>\n")
        self._process: Process = rocketmq.name_server(root, "" if version == NEWEST else version)
        self.address = f"{HOST}:{self._process.address}"

    def end(self) -> None:
        self._process.end()


class Following:
    """A broker that is a master, and a node that follows it."""

    def __init__(self, root: Path, version: str, segment: int = SEGMENT) -> None:
        self.version, self.names = version, Names(root / "names", version)
        self.broker = Broker(root, version, f"messageDelayLevel={LEVELS}\n", segment)
        self.node = TestNode(
            "slave",
            root / "node",
            rocketmq_master_address=f"{HOST}:{self.broker.ha_port}",
            rocketmq_master_broker=f"{HOST}:{self.broker.port}",
            message_delay_level=LEVELS,
            listen_port=client_port(),
            flush_disk_type="ASYNC_FLUSH",
            flush_interval_commit_log=20,
            flush_commit_log_least_pages=0,
            mapped_file_size_commit_log=segment,
        )

    @property
    def endpoint(self) -> str:
        return f"rocketmq://{self.names.address}"

    def lead(self) -> None:
        self.broker.lead(self.names.address)
        await_registered(self.names.address)

    def config(self, name: str) -> dict[str, Any]:
        """A file of the node's `config`, empty while it is not there."""
        return ConfigFile(self.node.store.config / f"{name}.json").load() or {}

    def end_of_log(self) -> int:
        """The broker's."""
        with RawClient(self.broker.port) as raw:
            return runtime_of(raw, "commitLogMaxOffset")

    def send(self, numbers: Iterable[int]) -> None:
        with Producer(self.endpoint, delivery_timeout_ms=120_000) as producer:
            assert all(result.acknowledged for result in producer.send_batch(map(message, numbers)))

    def await_level(self) -> int:
        """Until the node has the broker's log, in files and queues; its end."""

        def level() -> bool:
            end = self.end_of_log()
            places = (Position.APPENDED, Position.FLUSHED, Position.DISPATCHED)
            return end > 0 and all(self.node.now(place) == end for place in places)

        await_(level, WAIT_S, "the node has all of the broker's log")
        return self.end_of_log()

    def end(self) -> None:
        self.broker.end()
        self.names.end()


def runtime_of(raw: RawClient, name: str) -> int:
    """A number of a broker's own report; -1 while it gives none."""
    body = bytes(raw.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).decode()
    return int(body.partition(f'"{name}":"')[2].partition('"')[0] or -1)


@pytest.fixture(params=[pytest.param(each, marks=() if each == NEWEST else pytest.mark.slow) for each in VERSIONS])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Following]:
    made = Following(tmp_path, request.param)
    with ending(made.node):
        try:
            made.lead()
            yield made
        finally:
            made.end()


def make_topics(pair: Following) -> None:
    with AdminClient(pair.endpoint) as admin:
        for topic, queues in ((TOPIC, 4), (LATER, 1)):
            admin.create_topic(topic, queues)
    pair.send(range(100))


def make_group(pair: Following) -> None:
    """After the kills: a broker writes offsets every 5 s."""
    with AdminClient(pair.endpoint) as admin:
        admin.configure_group(GROUP, retryMaxTimes=3)
        assert admin.set_offset(GROUP, TOPIC, 2, 7) == 7


def kill_both_in_the_middle(pair: Following) -> None:
    """Messages come all the time: the node is killed and started again, then the broker."""
    half = COUNT // 2
    with Producer(pair.endpoint, delivery_timeout_ms=120_000) as producer:
        sent = [producer.send_async(message(number)) for number in range(100, half // 2)]
        await_(lambda: pair.node.at(Position.APPENDED) > SEGMENT // 4, WAIT_S, "the node receives")
        pair.node.kill_all(seed=3)
        sent += [producer.send_async(message(number)) for number in range(half // 2, half)]
        pair.node.start()
        producer.flush(120_000)
    assert all(future.result().acknowledged for future in sent)
    pair.await_level()
    with Producer(pair.endpoint, delivery_timeout_ms=120_000) as producer:
        sent = [producer.send_async(message(number)) for number in range(half, COUNT)]
        before = pair.node.at(Position.APPENDED)
        await_(lambda: pair.node.at(Position.APPENDED) > before, WAIT_S, "the node receives")
        pair.broker.kill()
        pair.lead()
        producer.flush(120_000)
    lost = [number for number, future in zip(range(half, COUNT), sent, strict=True) if not is_acknowledged(future)]
    pair.send(lost)


def is_acknowledged(future: SendFuture) -> bool:
    try:
        return future.result().acknowledged
    except TowlineError:
        return False


def test_the_node_of_the_page_is_started_with_the_settings_of_this_one() -> None:
    (command,) = (line for line in PAGE.splitlines() if line.startswith("towline slave start "))
    named = set(re.findall(r"--set (\w+)=", command))
    assert named == {"rocketmq_master_address", "rocketmq_master_broker", "listen_port"}


def test_a_node_follows_a_broker_through_kills_and_takes_its_place(
    pair: Following, pytestconfig: pytest.Config
) -> None:
    node = pair.node
    make_topics(pair)
    node.start()
    kill_both_in_the_middle(pair)
    pair.await_level()
    make_group(pair)
    await_metadata(pair)
    later = send_for_later(pair)
    take_no_more(pair)
    end = pair.await_level()
    await_delays(node)
    status = typed(node, "slave status")
    assert (status["seeding"]["left"], status["ready"]) == (0, True)
    assert "stop that first" in typed(node, "promote", status=1)["sentence"]
    pair.broker.stop()
    await_(lambda: not is_linked(node), WAIT_S, "the node finds nobody to follow")
    assert typed(node, "promote")["role"] == "master"
    node.forget()
    assert_same_log(pair.broker.store, node.store.root, 0, end)

    address = f"{HOST}:{clients_port(node)}"
    client = CLIENTS[pair.version]
    (read,) = run_tool("ReadTopic", pytestconfig, address, TOPIC, str(COUNT), version=client)
    assert read.startswith(f"read {COUNT}, ")
    delivered = run_tool("ReadTopic", pytestconfig, address, LATER, str(later), version=client)
    assert delivered == [f"read {later}, doubles 0"]
    with RawClient(clients_port(node)) as raw:
        asked = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 2}
        assert raw.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked).fields["offset"] == "7"
    with Producer(f"rocketmq://{address}") as producer:
        assert producer.send(message(COUNT)).acknowledged


def await_metadata(pair: Following) -> None:
    def is_there() -> bool:
        config = {name: pair.config(name) for name in ("consumerOffset", "subscriptionGroup", "topics")}
        offsets = config["consumerOffset"].get("offsetTable", {}).get(f"{TOPIC}@{GROUP}", {})
        group = config["subscriptionGroup"].get("subscriptionGroupTable", {}).get(GROUP, {})
        topics = config["topics"].get("topicConfigTable", {})
        return offsets.get("2") == 7 and group.get("retryMaxTimes") == 3 and {TOPIC, LATER} <= topics.keys()

    await_(is_there, WAIT_S, "topics, groups and offsets are in the node's files")


def send_for_later(pair: Following) -> int:
    """What the broker does not deliver any more; how many."""
    with Producer(pair.endpoint) as producer:
        assert producer.send(Message(LATER, b"by level", delay_level=2)).acknowledged
        if pair.version != NEWEST:
            return 1
        due = time.time_ns() // 1_000_000 + DUE_S * 1_000
        assert producer.send(Message(LATER, b"by time", deliver_at=due)).acknowledged
    return 2


def take_no_more(pair: Following) -> None:
    """As mqadmin's updateBrokerConfig has it."""
    with RawClient(pair.broker.port) as raw:
        assert raw.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n").code == ResponseCode.SUCCESS
    with Producer(pair.endpoint, delivery_timeout_ms=1_000) as producer:
        assert not is_acknowledged(producer.send_async(message(COUNT)))


def typed(node: TestNode, words: str, status: int = 0) -> Any:
    """What the command of docs/migration.md with these words answers for the store of the node."""
    command = next(line for line in PAGE.splitlines() if line.startswith(f"towline {words} "))
    done = Typist(node.store.root)(command.replace("--store s2", f"--store {node.store.root}"))
    assert done.status == status, done
    return done.document


def is_linked(node: TestNode) -> bool:
    link = read_json_file(node.store.link)
    return link is None or bool(link["connected"])


def await_delays(node: TestNode) -> None:
    path = node.store.config / "delayOffset.json"
    await_(path.exists, WAIT_S, "the node knows what was delivered")


@pytest.mark.slow
def test_a_million_messages_of_a_broker_arrive_byte_by_byte(tmp_path: Path) -> None:
    segment, count, step = 64 * MIB, 1_000_000, 50_000
    pair = Following(tmp_path, NEWEST, segment)
    with ending(pair.node):
        try:
            pair.lead()
            pair.node.start()
            with Producer(pair.endpoint, delivery_timeout_ms=120_000) as producer:
                for first in range(0, count, step):
                    numbers = range(first, first + step)
                    results = producer.send_batch(Message(TOPIC, b"%08d" % number + bytes(1_000)) for number in numbers)
                    assert all(result.acknowledged for result in results)
            end = pair.await_level()
            for start in range(0, end, segment):
                upto = min(end, start + segment)
                assert_same_log(pair.broker.store, pair.node.store.root, start, upto)
        finally:
            pair.end()
