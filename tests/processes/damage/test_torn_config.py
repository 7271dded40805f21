"""Files of config/ that were torn while the node was down: the generation before is used, and who looks is told."""

import re
import time
from pathlib import Path

import pytest

from tests.processes.nodes import TestNode, check_nothing_is_left, ended
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.errors import UnknownTopic
from towline.link.endpoints import ipc_endpoint
from towline.log.files.config_file import ConfigFile
from towline.node.report.status import read_status

DEADLINE_S = 60.0
TORN = ("delayOffset.json", "timerOffset.json", "topics.json")


def send_later(producer: Producer, number: int) -> None:
    """To come by a level and by a time."""
    producer.send(Message("later", b"level %d" % number, delay_level=1, queue_id=0))
    soon = time.time_ns() // 1_000_000 + 500
    producer.send(Message("later", b"time %d" % number, deliver_at=soon, queue_id=0))


def bodies(node: TestNode, topic: str, wanted: set[bytes]) -> list[bytes]:
    found: list[ReceivedMessage] = []
    with Consumer(ipc_endpoint(node.runtime, "serve"), topic, start="first", suspend_ms=50) as consumer:

        def complete() -> bool:
            found.extend(consumer.poll(100))
            return wanted <= {message.body for message in found}

        await_(complete, DEADLINE_S, f"{wanted} in {topic}")
    return [message.body for message in found]


def saved_twice(node: TestNode, name: str) -> bool:
    file = ConfigFile(node.store.config / name)
    return file.load() is not None and file.backup.exists()


def test_a_node_goes_on_with_the_generations_before_and_says_so(tmp_path: Path) -> None:
    node = TestNode("master", tmp_path, message_delay_level="1s", ha_listen_port=0)
    cleaning = ended(node)
    next(cleaning)
    try:
        node.start()
        assert read_status(node.store.root)["config_backups"] == []
        with AdminClient(node.endpoint) as admin, Producer(node.endpoint) as producer:
            admin.create_topic("kept", 1)
            admin.create_topic("gone", 1)
            assert producer.send(Message("gone", b"before", queue_id=0)).queue_offset == 0
            for number in range(2):  # each round is saved: then there are two generations
                send_later(producer, number)
                bodies(node, "later", {b"level %d" % number, b"time %d" % number})
            for name in TORN:
                await_(lambda name=name: saved_twice(node, name), DEADLINE_S, f"{name} has two generations")
            admin.delete_topic("gone")
            admin.create_topic("late", 1)
            assert producer.send(Message("late", b"acknowledged", queue_id=0)).acknowledged
        node.kill_all(1)
        for name in TORN:
            path = node.store.config / name
            path.write_bytes(path.read_bytes()[:40])
        said = len(node.store.node_log.read_text())
        node.start()
        assert read_status(node.store.root)["config_backups"] == list(TORN)
        log = node.store.node_log.read_text()[said:]
        for name in TORN:
            assert f"config/{name} cannot be read: its generation before is used, config/{name}.bak" in log
        assert re.search(r"taken over: .*\blate\b", log), log
        serve = ipc_endpoint(node.runtime, "serve")
        with AdminClient(node.endpoint) as admin, AdminClient(serve) as reads, Producer(node.endpoint) as producer:
            assert {"kept", "late"} <= {topic["topic"] for topic in admin.topics()}
            assert "gone" not in {topic["topic"] for topic in admin.topics()}
            with pytest.raises(UnknownTopic):
                reads.bounds("gone")
            assert bodies(node, "late", {b"acknowledged"}) == [b"acknowledged"]
            admin.create_topic("gone", 1)
            assert producer.send(Message("gone", b"again", queue_id=0)).queue_offset == 1
            send_later(producer, 2)
            found = bodies(
                node, "later", {kind + b" %d" % number for kind in (b"level", b"time") for number in range(3)}
            )
            assert len(found) - len(set(found)) <= 4, "only what came after the generation before may come again"
        assert node.stop()
        check_nothing_is_left(node)
    finally:
        next(cleaning, None)
