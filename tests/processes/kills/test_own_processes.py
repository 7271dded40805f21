"""What a client cannot do to the processes of a node that deliver for it, over bytes that no client library sends."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes.nodes import TestNode, ending
from tests.processes.waiting import await_, read_saved
from tests.processes.wire import Request, WireClient
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import LinkRefused
from towline.format.record.record import MessageEncoder
from towline.format.wire.frames import ASK, Kind, json_part, read_json
from towline.format.wire.status import PutStatus
from towline.link.context import close_context, new_context
from towline.link.dealer import Link
from towline.link.endpoints import ipc_endpoint
from towline.link.handshake import encode_greeting

DEADLINE_S = 60.0
HALVES = b"RMQ_SYS_TRANS_HALF_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    root: Path = tmp_path_factory.mktemp("own-processes")
    made = TestNode("master", root, message_delay_level="1s", ha_listen_port=0)
    with ending(made):
        made.start()
        yield made


def greeting(facts: dict[str, Any]) -> list[Any]:
    return [encode_greeting({})[0], json.dumps(facts).encode()]


def seen(node: TestNode, topic: str, body: bytes) -> bool:
    with Consumer(ipc_endpoint(node.runtime, "serve"), topic, start="first") as consumer:
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until:
            if any(message.body == body for message in consumer.poll(200)):
                return True
    return False


@pytest.mark.parametrize("duty", ["put", "serve"])
@pytest.mark.parametrize("secret", ["\ud800", "", "0" * 64, 1, None])
def test_a_secret_that_is_none_is_refused_and_ends_no_process(
    node: TestNode, duty: str, secret: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = node.pids()
    monkeypatch.setattr("towline.link.dealer.encode_greeting", greeting)
    context = new_context()
    link = Link(context, ipc_endpoint(node.runtime, duty), {"role": "schedule", "secret": secret})
    try:
        with pytest.raises(LinkRefused, match="for processes of this node"):
            link.greet(5000)
    finally:
        link.close()
        close_context(context)
    assert node.pids() == pids


@pytest.mark.parametrize("op", ["group_commit", "group_reset", "group_delete", "group_join", "group_configure"])
def test_the_offsets_of_transactions_are_nobodys_to_change(node: TestNode, op: str) -> None:
    context = new_context()
    link = Link(context, ipc_endpoint(node.runtime, "serve"), {"role": "consumer"})
    answers: list[dict[str, Any]] = []
    try:
        link.greet(5000)
        facts = {"op": op, "group": GROUP, "member": "m", "offsets": {HALVES.decode(): {"0": 1 << 40}}}
        assert link.send([ASK.pack(Kind.ASK, 1), json_part(facts)])

        def answered() -> bool:
            parts = link.receive()
            answers.extend([] if parts is None else [read_json(parts[1])])
            return bool(answers)

        await_(answered, DEADLINE_S, "serve answers")
    finally:
        link.close()
        close_context(context)
    assert answers[0]["error"] == "NODES_OWN"


@pytest.mark.parametrize("name", ["TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"])
def test_a_half_with_a_number_of_thousands_of_digits_stops_nothing(node: TestNode, name: str) -> None:
    topic = f"behind-{name}"
    with Producer(node.endpoint) as producer:
        producer.send(Message(topic, b"first"))
        pids = node.pids()
        properties = (
            f"REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02TRAN_MSG\x01true\x02PGROUP\x01g\x02{name}\x01{'9' * 5000}\x02"
        )
        record = MessageEncoder(HALVES).encode(0, b"half", properties.encode(), born_timestamp=1)
        client = WireClient(node.endpoint)
        assert client.put(Request(HALVES, 0, [record])).status == PutStatus.PUT_OK
        client.close()
        producer.send(Message(topic, b"delayed", delay_level=1))
    assert seen(node, topic, b"delayed")
    assert node.pids() == pids


def test_a_topic_whose_name_is_no_text_is_unknown(node: TestNode) -> None:
    pids = node.pids()
    context = new_context()
    link = Link(context, node.endpoint, {"role": "producer"})
    answers: list[dict[str, Any]] = []
    try:
        link.greet(5000)
        assert link.send([ASK.pack(Kind.ASK, 1), json.dumps({"op": "delete_topic", "topic": "\ud800"}).encode()])

        def answered() -> bool:
            parts = link.receive()
            answers.extend([] if parts is None else [read_json(parts[1])])
            return bool(answers) or link.lost

        await_(answered, DEADLINE_S, "put answers")
    finally:
        link.close()
        close_context(context)
    assert answers[0]["error"] == "UnknownTopic"
    assert node.pids() == pids


def stands_in_the_way(path: Path) -> bool:
    """A directory there instead of the file; the node may write the file again between two steps."""
    path.unlink(missing_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir()
        return True
    return False


def test_offsets_of_deliveries_that_cannot_be_written_stop_no_delivery(node: TestNode) -> None:
    offsets = node.store.config / "delayOffset.json"
    backup = offsets.with_name(f"{offsets.name}.bak")
    with Producer(node.endpoint) as producer:
        producer.send(Message("unnoted", b"first", delay_level=1))
        assert seen(node, "unnoted", b"first")
        await_(offsets.exists, DEADLINE_S, "the offsets are written")
        pids, before = node.pids(), offsets.read_bytes()
        await_(lambda: stands_in_the_way(backup), DEADLINE_S, "no backup can be written")
        producer.send(Message("unnoted", b"second", delay_level=1))
        assert seen(node, "unnoted", b"second")
        log = node.store.root / "run" / "node.log"
        await_(lambda: "cannot be noted" in log.read_text(), DEADLINE_S, "the log says so")
    backup.rmdir()
    await_(lambda: read_saved(offsets) not in (before, b""), DEADLINE_S, "they are written by themselves")
    assert node.pids() == pids
