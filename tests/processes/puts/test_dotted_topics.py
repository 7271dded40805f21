"""A topic whose name has dots, where the settings allow it: from the first put through a restart to its deletion."""

from pathlib import Path

import pytest

from tests.processes.nodes import TestNode, check_nothing_is_left, ending, free_port
from tests.spark.reads import read
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused
from towline.client.group.consumer import GroupConsumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import TowlineError

TOPIC = "orders.eu.v1"


def test_a_dotted_topic_lives_as_any_other(tmp_path: Path) -> None:
    node = TestNode("master", tmp_path / "node", listen_port=free_port(), ha_listen_port=0, dots_in_topic_names=True)
    with ending(node):
        node.start()
        [address] = node.facts["endpoints"]["remoting"]
        with Producer(address) as producer:
            assert producer.send(Message(TOPIC, b"one", keys=["k"])).acknowledged
        assert node.stop()
        node.start()
        with Consumer(address, TOPIC, start="first") as consumer:
            assert [message.body for message in consumer.poll(20_000)] == [b"one"]
        with GroupConsumer(address, "readers", TOPIC, start="first") as member:
            assert [message.body for message in member.poll(20_000)] == [b"one"]
        with AdminClient(address) as admin:
            assert [message.body for message in admin.by_key(TOPIC, "k")] == [b"one"]
            admin.delete_topic(TOPIC)
            assert TOPIC not in [row["topic"] for row in admin.topics()]
        assert node.stop()
        check_nothing_is_left(node)


def test_spark_reads_it(tmp_path: Path) -> None:
    node = TestNode("master", tmp_path / "node", listen_port=free_port(), ha_listen_port=0, dots_in_topic_names=True)
    with ending(node):
        node.start()
        with Producer(node.facts["endpoints"]["remoting"][0]) as producer:
            producer.send(Message(TOPIC, b"one"))
        assert node.stop()
    assert [(row["topic"], row["body"]) for row in read(node.store.root, subscribe=TOPIC)] == [(TOPIC, b"one")]


def test_it_is_allowed_and_forbidden_while_the_node_runs(tmp_path: Path) -> None:
    node = TestNode("master", tmp_path / "node", listen_port=free_port(), ha_listen_port=0)
    with ending(node):
        node.start()
        [address] = node.facts["endpoints"]["remoting"]
        with AdminClient(address) as admin:
            with pytest.raises(AskRefused, match="dots_in_topic_names"):
                admin.create_topic(TOPIC, 1)
            with Producer(address, delivery_timeout_ms=5_000) as producer, pytest.raises(TowlineError, match="dots"):
                producer.send(Message(TOPIC, b""))
            admin.configure_node(dots_in_topic_names=True)
            admin.create_topic(TOPIC, 1)
            admin.configure_node(dots_in_topic_names=False)
            with pytest.raises(AskRefused, match="dots_in_topic_names"):
                admin.create_topic("another.one", 1)
            with Producer(address) as producer:
                assert producer.send(Message(TOPIC, b"")).acknowledged, "what is there stays"
