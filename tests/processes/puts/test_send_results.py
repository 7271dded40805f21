"""What a producer is told of a message, and what the message says of its producer: ids, and where it was born."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.nodes import Pair, TestNode, ending, free_port
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.errors import LinkRefused
from towline.link.endpoints import ipc_endpoint

TOPIC = "orders"
COUNT = 5


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("results"), broker_role="ASYNC_MASTER", listen_port=port, broker_ip1="10.1.2.3")
    with ending(*made.nodes):
        made.start()
        yield made


def read(node: TestNode, topic: str, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    with Consumer(ipc_endpoint(node.runtime, "serve"), topic, start="first") as consumer:
        while len(found) < count:
            found.extend(consumer.poll(10_000))
    return sorted(found, key=lambda message: message.physical_offset)


def ports_of_connections_to(port: int) -> set[int]:
    """Of this process's ends."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as connection:
            peer = connection.getpeername()
            if isinstance(peer, tuple) and peer[1] == port:
                found.add(connection.getsockname()[1])
    return found


def test_a_result_has_both_ids_that_rocketmq_gives_a_message(pair: Pair, port: int) -> None:
    with Producer(f"tcp://127.0.0.1:{port}") as producer:
        futures = [producer.send_async(Message("ids", b"%d" % number, queue_id=0)) for number in range(COUNT)]
        results = [future.result() for future in futures]
        bulk = producer.send_bodies("ids", [b"a", b"b"])[0]
    messages = read(pair.master, "ids", COUNT + 2)
    told = [(each.message_id, each.offset_message_id) for each in (*results, bulk)]
    assert told == [(message.unique_key, message.message_id) for message in messages[: COUNT + 1]]
    assert bulk.offset_message_id.startswith(f"0A010203{port:08X}")
    with AdminClient(ipc_endpoint(pair.master.runtime, "serve")) as admin:
        found = admin.by_id(results[3].offset_message_id)
    assert found is not None
    assert found.body == b"3"


def test_a_message_says_the_port_that_its_producer_has_and_0_where_that_has_none(pair: Pair, port: int) -> None:
    with Producer(f"tcp://127.0.0.1:{port}") as producer:
        assert producer.send(Message("born", b"tcp", queue_id=0)).acknowledged
        ours = ports_of_connections_to(port)
    with Producer(pair.master.endpoint) as producer:
        for _ in range(COUNT):  # the first go over the socket, the others through a ring
            assert producer.send(Message("born", b"local", queue_id=0)).acknowledged
    born = [message.record.born_host.port for message in read(pair.master, "born", COUNT + 1)]
    assert born[0] in ours
    assert born[1:] == [0] * COUNT


def test_a_producer_that_was_told_a_slave_hears_who_the_master_is(pair: Pair, port: int) -> None:
    with Producer(pair.slave.endpoint) as producer, pytest.raises(LinkRefused, match="NOT_MASTER") as refused:
        producer.send(Message(TOPIC, b"to nobody"))
    assert f"tcp://127.0.0.1:{port}" in str(refused.value)


def test_a_producer_that_was_told_both_finds_the_master(pair: Pair) -> None:
    with Producer([pair.slave.endpoint, pair.master.endpoint]) as producer:
        assert producer.send(Message(TOPIC, b"to the master")).acknowledged
