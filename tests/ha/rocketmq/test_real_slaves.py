"""Real brokers of RocketMQ follow a node, and one of them takes its place, as docs/migration.md says."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peers import rocketmq
from peers.server import HOST
from tests.cli.typist import Typist
from tests.processes.groups import Group
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
from towline.format.remoting.codes import RequestCode
from towline.limits import MIB
from towline.node.report.status import read_status
from towline.runtime.positions import Position

from .brokers import NEWEST, VERSIONS, Broker
from .raw_slave import assert_same_log, clients_port, end_of, followed, port_of, put

pytestmark = pytest.mark.timeout(900)

PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
TOPIC, LATER, GROUP = "orders", "later", "billing"
COUNT = 100_000
WAIT_S = 120.0  # a broker of 5 asks for metadata once a minute
CLIENTS = {"4.9.7": "4.9.8", NEWEST: NEWEST}  # by the version of the broker
DUE_S = 40  # of what is delivered by the next master
LEVELS = f"1s {DUE_S}s"


def message(number: int) -> Message:
    return Message(TOPIC, b"%08d" % number + bytes(200), tags="a", keys=[f"k{number}"], queue_id=number % 4)


def send(node: TestNode, numbers: Iterable[int]) -> None:
    with Producer(node.endpoint) as producer:
        assert all(result.acknowledged for result in producer.send_batch(map(message, numbers)))


def is_acknowledged(future: SendFuture) -> bool:
    try:
        return future.result().acknowledged
    except TowlineError:
        return False


def slave_of(node: TestNode) -> dict[str, Any] | None:
    """The one slave of RocketMQ, as status shows it."""
    return next(iter(read_status(node.store.root)["rocketmq_slaves"]), None)


def await_reported(node: TestNode, end: int) -> None:
    def has() -> bool:
        slave = slave_of(node)
        return slave is not None and slave["reported"] >= end

    await_(has, WAIT_S, f"the broker has all before {end}")


def typed(node: TestNode, words: str, status: int = 0) -> Any:
    """What the command of docs/migration.md with these words answers for the store of the node."""
    command = next(line for line in PAGE.splitlines() if line.startswith(f"towline {words} "))
    done = Typist(node.store.root)(command.replace("--store s1", f"--store {node.store.root}"))
    assert done.status == status, done
    return done.document


def names_of(node: TestNode) -> str:
    return f"{HOST}:{clients_port(node)}"


class Move:
    """A node and a broker that follows it, and at the end takes its place."""

    def __init__(self, root: Path, version: str) -> None:
        self.node = followed(root / "node", rocketmq_ha_from_oldest=True, message_delay_level=LEVELS)
        self.broker = Broker(root, version, f"messageDelayLevel={LEVELS}\n")
        self.root, self.version = root, version
        self.torn = 0

    def make_metadata(self) -> None:
        with AdminClient(self.node.endpoint) as admin:
            for topic, queues in ((TOPIC, 4), (LATER, 1)):
                admin.create_topic(topic, queues)
        send(self.node, range(100))
        self.node.forget()
        await_(lambda: self.node.at(Position.DISPATCHED) == self.node.at(Position.APPENDED), WAIT_S, "all is in queues")
        with AdminClient(f"ipc://{self.node.runtime / 'serve.sock'}") as admin:
            admin.configure_group(GROUP, retryMaxTimes=3)
            assert admin.set_offset(GROUP, TOPIC, 2, 7) == 7

    def kill_both_in_the_middle(self) -> None:
        """Messages come all the time: the broker is killed and started again, then the node."""
        half = COUNT // 2
        with Producer(self.node.endpoint) as producer:
            sent = [producer.send_async(message(number)) for number in range(100, half // 2)]
            self.broker.kill()
            self.torn = end_of(self.broker.store)
            killed_at = self.node.at(Position.APPENDED)
            sent += [producer.send_async(message(number)) for number in range(half // 2, half)]
            producer.flush(60_000)
        assert all(future.result().acknowledged for future in sent)
        assert killed_at < self.node.at(Position.APPENDED), "nothing came while it was away"
        self.broker.follow(names_of(self.node))
        await_reported(self.node, self.node.at(Position.APPENDED))
        with Producer(self.node.endpoint, delivery_timeout_ms=60_000) as producer:
            others = {number: producer.send_async(message(number)) for number in range(half, COUNT)}
            self.node.kill_all(seed=11)
            self.node.start()
            producer.flush(60_000)
        send(self.node, [number for number, future in others.items() if not is_acknowledged(future)])

    def await_level(self) -> int:
        """Until the broker has the whole log; its end."""
        end = self.node.at(Position.APPENDED)
        await_reported(self.node, end)
        return end

    def await_metadata(self) -> None:
        def is_there() -> bool:
            offsets = self.broker.config("consumerOffset.json").get("offsetTable", {})
            groups = self.broker.config("subscriptionGroup.json").get("subscriptionGroupTable", {})
            topics = self.broker.config("topics.json").get("topicConfigTable", {})
            told = offsets.get(f"{TOPIC}@{GROUP}", {}).get("2") == 7 and groups.get(GROUP, {}).get("retryMaxTimes") == 3
            return told and {TOPIC, LATER} <= topics.keys()

        await_(is_there, WAIT_S, "topics, groups and offsets are in the broker's files")

    def send_for_later(self) -> int:
        """What the node does not deliver any more; how many."""
        with Producer(self.node.endpoint) as producer:
            assert producer.send(Message(LATER, b"by level", delay_level=2)).acknowledged
            if self.version != NEWEST:
                return 1
            due = time.time_ns() // 1_000_000 + DUE_S * 1_000
            assert producer.send(Message(LATER, b"by time", deliver_at=due)).acknowledged
        return 2


@pytest.fixture(params=VERSIONS)
def move(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Move]:
    made = Move(tmp_path, request.param)
    with ending(made.node):
        made.node.start()
        try:
            yield made
        finally:
            made.broker.end()


@pytest.mark.slow
def test_a_broker_follows_through_kills_and_takes_the_place_of_its_master(
    move: Move, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    node, broker = move.node, move.broker
    move.make_metadata()
    broker.follow(names_of(node))
    await_reported(node, 1)
    move.kill_both_in_the_middle()
    move.await_level()
    move.await_metadata()
    later = move.send_for_later()
    assert not typed(node, "config set")["waiting"]
    with Producer(node.endpoint, delivery_timeout_ms=1_000) as producer:
        assert not is_acknowledged(producer.send_async(message(COUNT)))
    end = move.await_level()
    (slave,) = typed(node, "master status", status=1)["rocketmq_slaves"]  # who takes nothing is not ready
    assert slave["behind"] == 0
    assert node.stop()
    assert_same_log(broker.store, node.store.root, 0, end, move.torn)
    broker.stop()

    (tmp_path / "names" / "conf").mkdir(parents=True)
    (tmp_path / "names" / "conf" / "logback_namesrv.xml").write_text("<configuration/>\n")
    names = rocketmq.name_server(tmp_path / "names", "" if move.version == NEWEST else move.version)
    try:
        address = f"{HOST}:{names.address}"
        broker.lead(address)
        await_registered(address)
        client = CLIENTS[move.version]
        (read,) = run_tool("ReadTopic", pytestconfig, address, TOPIC, str(COUNT), version=client)
        assert read.startswith(f"read {COUNT}, ")
        delivered = run_tool("ReadTopic", pytestconfig, address, LATER, str(later), version=client)
        assert delivered == [f"read {later}, doubles 0"]
        with RawClient(broker.port) as raw:
            asked = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 2}
            assert raw.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked).fields["offset"] == "7"
        with Producer(f"rocketmq://{address}") as producer:
            assert producer.send(message(COUNT)).acknowledged
    finally:
        names.end()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", NEWEST])
def test_after_a_failover_a_broker_finds_the_next_master(tmp_path: Path, version: str) -> None:
    group = Group(tmp_path, 2)
    for node in group.nodes:
        found = followed(tmp_path / "unused")
        node.flags += ["--set", f"listen_port={clients_port(found)}", "--set", f"rocketmq_ha_port={port_of(found)}"]
    broker = Broker(tmp_path, version)
    with ending(*group.nodes):
        group.start()
        put(group.nodes[0], 1_000)
        group.await_topic("handed")
        try:
            broker.follow(";".join(map(names_of, group.nodes)), number=3)
            await_reported(group.nodes[0], group.nodes[0].at(Position.APPENDED))
            group.nodes[0].kill_all(seed=5)
            group.promote(1)
            group.nodes[0].start()
            group.await_in_sync(1, 2)
            end = put(group.nodes[1], 1_000, first=1_000)
            await_reported(group.nodes[1], end)
            assert_same_log(broker.store, group.nodes[1].store.root, 0, end)
        finally:
            broker.end()


@pytest.mark.slow
def test_a_million_messages_reach_a_broker_byte_by_byte(tmp_path: Path) -> None:
    segment, count = 64 * MIB, 1_000_000
    node = followed(tmp_path / "node", rocketmq_ha_from_oldest=True, mapped_file_size_commit_log=segment)
    broker = Broker(tmp_path, NEWEST, segment=segment)
    with ending(node):
        node.start()
        with Producer(node.endpoint) as producer:
            for first in range(0, count, SEGMENT // 1_000):
                numbers = range(first, min(count, first + SEGMENT // 1_000))
                results = producer.send_batch(Message(TOPIC, b"%08d" % number + bytes(1_000)) for number in numbers)
                assert all(result.acknowledged for result in results)
        end = node.at(Position.APPENDED)
        try:
            broker.follow(names_of(node))
            await_reported(node, 1)
            began = time.monotonic()
            await_reported(node, end)
            print(f"{end / 1e6 / (time.monotonic() - began):.0f} MB/s, the broker's own work included")
            assert node.stop()
            for start in range(0, end, segment):
                upto = min(end, start + segment)
                assert_same_log(broker.store, node.store.root, start, upto)
        finally:
            broker.end()
