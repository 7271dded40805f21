"""Offsets that speak of more than the log holds, as after a promotion: they go back to the queues' ends, counted."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.processes.arming import Arming
from tests.processes.nodes import TestNode, check_nothing_is_left, ended
from tests.processes.waiting import await_
from towline.client.consumer import Consumer
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.transaction import State, TransactionProducer
from towline.link.endpoints import ipc_endpoint
from towline.log.files.config_file import ConfigFile

DEADLINE_S = 60.0
BEYOND = 1000
WINDOW_MS = 1000 + 500  # what is promised, and what a loaded machine may be late
HALVES, OPS = "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS"


def send_all(node: TestNode) -> None:
    """One message of each kind that comes later."""
    with Producer(node.endpoint) as producer, TransactionProducer(node.endpoint, "g") as sender:
        producer.send(Message("later", b"level", delay_level=1))
        producer.send(Message("later", b"time", deliver_at=time.time_ns() // 1_000_000 + 500))
        sender.send(Message("later", b"half"), lambda _: State.COMMIT)


def read(node: TestNode, count: int) -> list[bytes]:
    found: list[ReceivedMessage] = []
    with Consumer(ipc_endpoint(node.runtime, "serve"), "later", start="first", suspend_ms=50) as consumer:

        def complete() -> bool:
            found.extend(consumer.poll(100))
            return len(found) >= count and consumer.at_end

        await_(complete, DEADLINE_S, f"{count} messages")
    return sorted(message.body for message in found)


def add(node: TestNode, name: str, **more: dict[str, object]) -> None:
    """Members of an offsets file, as another log's would be."""
    file = ConfigFile(node.store.config / name)
    content = file.load()
    assert content is not None
    for member, value in more.items():
        content[member] = {**content[member], **value} if isinstance(value, dict) else value
    file.save(content)


def killed(node: TestNode) -> int:
    """Schedule, which is started again; when, in epoch ms."""
    pids = node.pids()
    at = time.time_ns() // 1_000_000
    os.kill(pids["schedule"], signal.SIGKILL)
    node.await_restarted("schedule", pids)
    return at


def stored_first(node: TestNode, topic: str, keys: set[str]) -> tuple[dict[str, int], set[str]]:
    """When each was delivered first, and which of them came again."""
    times: dict[str, list[int]] = {}
    with Consumer(ipc_endpoint(node.runtime, "serve"), topic, start="first", suspend_ms=50) as consumer:

        def complete() -> bool:
            for message in consumer.poll(100):
                times.setdefault(message.unique_key or "", []).append(message.store_timestamp)
            return keys <= times.keys() and consumer.at_end

        await_(complete, DEADLINE_S, f"{len(keys)} messages")
    return {key: min(found) for key, found in times.items()}, {key for key, found in times.items() if len(found) > 1}


def test_a_kill_doubles_what_was_delivered_within_a_second_also_where_the_disk_is_slow(tmp_path: Path) -> None:
    node = TestNode("master", tmp_path, ha_listen_port=0, flush_disk_type="ASYNC_FLUSH")
    arming = Arming(tmp_path)
    cleaning = ended(node)
    next(cleaning)
    try:
        with pytest.MonkeyPatch.context() as patch:
            arming.announce(patch)
            node.start()
        for topic, stalls in (("steady", False), ("slow", True)):
            with Producer(node.endpoint, linger_ms=1.0) as producer:
                start = time.time_ns() // 1_000_000 + 1000
                futures = [producer.send_async(Message(topic, b"", deliver_at=start + 2 * n)) for n in range(3000)]
                assert all(future.result().acknowledged for future in futures)
            begun = start + 1500
            await_(lambda begun=begun: time.time_ns() // 1_000_000 > begun, DEADLINE_S, "deliveries go on")
            if stalls:
                arming.arm("flush.before_sync=stall:5000")
                arming.await_fired()
                until = time.monotonic() + 2.5
                await_(lambda until=until: time.monotonic() > until, DEADLINE_S, "and then wait for the disk")
            at = killed(node)
            first, twice = stored_first(node, topic, {future.unique_key for future in futures})
            window = [first[key] for key in twice]
            print(f"\n{topic}: {len(twice)} doubles")
            assert max(window, default=0) - min(window, default=0) <= WINDOW_MS
            if not stalls:
                assert at - min(window, default=at) <= WINDOW_MS
    finally:
        next(cleaning, None)


def test_what_waits_in_a_level_that_the_settings_have_no_more_is_delivered_in_its_time(tmp_path: Path) -> None:
    node = TestNode("master", tmp_path, message_delay_level="1s 5s", ha_listen_port=0)
    fewer = TestNode("master", tmp_path, message_delay_level="1s", ha_listen_port=0)
    cleaning = ended(node, fewer)
    next(cleaning)
    try:
        node.start()
        due = time.time_ns() // 1_000_000 + 5000
        with Producer(node.endpoint) as producer:
            sent = producer.send(Message("later", b"level 2", delay_level=2))
        assert node.stop()
        fewer.start()
        with Producer(fewer.endpoint) as producer:
            assert producer.send(Message("later", b"highest", delay_level=2)).queue_id == 0
        assert read(fewer, 2) == [b"highest", b"level 2"]
        with Consumer(ipc_endpoint(fewer.runtime, "serve"), "later", start="first", suspend_ms=50) as consumer:
            found = await_(lambda: [each for each in consumer.poll(100) if each.body == b"level 2"], DEADLINE_S, "it")
        assert found[0].unique_key == sent.unique_key
        assert found[0].store_timestamp >= due, "its time is what it was when it was put"
    finally:
        next(cleaning, None)


def test_what_counts_as_delivered_and_is_not_in_the_log_is_forgotten(tmp_path: Path) -> None:
    node = TestNode("master", tmp_path, message_delay_level="1s", ha_listen_port=0)
    cleaning = ended(node)
    next(cleaning)
    try:
        node.start()
        send_all(node)
        assert read(node, 3) == [b"half", b"level", b"time"]
        assert node.stop()
        add(node, "delayOffset.json", offsetTable={"1": 1 + BEYOND})
        add(node, "timerOffset.json", upTo=1 + BEYOND, **{"from": 1 + BEYOND})
        add(node, "consumerOffset.json", offsetTable={HALVES: {"0": 1 + BEYOND}, OPS: {"0": 2 + BEYOND}})
        node.start()
        counted = json.loads(node.store.recovery.read_bytes())["clamped"]
        assert counted == {"consumerOffset.json": 2, "delayOffset.json": 1, "timerOffset.json": 2}
        send_all(node)
        assert read(node, 6) == [b"half", b"half", b"level", b"level", b"time", b"time"]
        table = ConfigFile(node.store.config / "delayOffset.json")
        await_(lambda: (table.load() or {})["offsetTable"] == {"1": 2}, DEADLINE_S, "the offset is the queue's")
        assert node.stop()
        check_nothing_is_left(node)
        saved = ConfigFile(node.store.config / "consumerOffset.json").load()
        assert saved is not None
        assert saved["offsetTable"][HALVES]["0"] == 2
    finally:
        next(cleaning, None)
