"""Filter bitmaps through a running node: whatever reput has or has not evaluated, readers get what they asked for."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.filter.subscriptions import PENDING
from towline.format.consume_queue import ENTRY
from towline.log.config_file import ConfigFile
from towline.log.consume_queue_ext import is_address, opened
from towline.runtime.positions import Position

from .nodes import TestNode, ended
from .stopping import stopped
from .test_verify_repair import towline
from .waiting import await_

DEADLINE_S: Final = 60.0
COUNT: Final = 2000
MILLION: Final = 1_000_000
QUEUES: Final = 3
TOPIC: Final = "priced"
FIRST: Final = ("price > 500 AND colour = 'red'", lambda number: number % 1000 > 500 and number % 3 == 0)
SECOND: Final = (
    "price BETWEEN 10 AND 20 OR colour IS NULL",
    lambda number: 10 <= number % 1000 <= 20 or number % 7 == 0,
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestNode]:
    made = TestNode(
        "master",
        tmp_path / "store",
        listen_port=0,
        ha_listen_port=0,
        enable_property_filter=True,
        enable_consume_queue_ext=True,
        enable_calc_filter_bit_map=True,
        mapped_file_size_consume_queue_ext=16_384,
        flush_consumer_offset_interval=200,
    )
    cleaning = ended(made)
    next(cleaning)
    yield made
    next(cleaning, None)


def serve_of(node: TestNode) -> str:
    return f"ipc://{node.runtime / 'serve.sock'}"


def message(number: int) -> Message:
    properties = {"price": str(number % 1000)}
    if number % 7:
        properties["colour"] = ("red", "blue", "green")[number % 3]
    return Message(TOPIC, b"%d" % number, properties=properties, queue_id=number % QUEUES)


def put(node: TestNode, first: int, count: int = COUNT) -> None:
    with Producer(node.endpoint) as producer:
        assert all(r.acknowledged for r in producer.send_batch(message(n) for n in range(first, first + count)))


def dispatched(node: TestNode) -> None:
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), DEADLINE_S, "everything is dispatched")


def subscribe(node: TestNode, expression: str) -> None:
    topics = {TOPIC: {"expression": expression, "type": "SQL92"}}
    with AdminClient(serve_of(node), timeout_ms=20_000) as client:
        client.ask("group_join", group="g", member="m", instance="i", topics=topics, **{"from": "first"})


def born(node: TestNode, expression: str) -> int:
    """Until reput has confirmed the expression: when."""
    file = ConfigFile(node.store.config / "consumerFilter.json")

    def time() -> int:
        subscribe(node, expression)  # the heartbeat of a member
        content = file.load() or {}
        groups = content.get("filterDataByTopic", {}).get(TOPIC, {}).get("groupFilterData", {})
        found = groups.get("g", {})
        return int(found["bornTime"]) if found.get("expression") == expression else 0

    return await_(lambda: time() not in (0, PENDING) and time(), DEADLINE_S, f"{expression} is confirmed")


def check_read(node: TestNode, expression: str, passes, count: int, deadline_s: float = DEADLINE_S) -> None:
    """A pull gives exactly the numbers of [0, count) that pass, each once."""
    wanted = [number for number in range(count) if passes(number)]
    wanted = [number for number in wanted if number % 7 or "colour =" not in expression]
    found: list[int] = []
    with Consumer(serve_of(node), TOPIC, sql=expression, group="g", suspend_ms=200) as consumer:

        def all_read() -> bool:
            found.extend(int(each.body) for each in consumer.poll(200))
            return len(found) >= len(wanted)

        await_(all_read, deadline_s, f"{len(wanted)} messages")
        assert consumer.poll(300) == []
    assert sorted(found) == wanted


def bitmaps(node: TestNode) -> int:
    """Units that hold a bitmap."""
    files = opened(node.store.consumequeue_ext, 8)
    assert files is not None
    held = 0
    for queue in range(QUEUES):
        paths = sorted((node.store.consumequeue / TOPIC / str(queue)).iterdir())
        codes = np.concatenate([np.fromfile(path, dtype=ENTRY) for path in paths])["tags_code"].astype(np.int64)
        units = files.read(TOPIC, queue, codes[is_address(codes)], 14)
        assert units.found.all()
        held += int(units.mapped.sum())
    files.close()
    return held


def test_messages_equal_a_brute_force_evaluation_whatever_reput_had_seen(node: TestNode) -> None:
    node.start()
    with AdminClient(node.endpoint) as client:
        client.create_topic(TOPIC, QUEUES)
    put(node, 0)
    dispatched(node)
    with stopped(node.pids()["reput"]):
        put(node, COUNT)
        subscribe(node, FIRST[0])  # while reput is behind
    dispatched(node)
    check_read(node, *FIRST, 2 * COUNT)
    born(node, FIRST[0])
    put(node, 2 * COUNT)
    dispatched(node)
    check_read(node, *FIRST, 3 * COUNT)
    assert bitmaps(node) >= COUNT

    before = node.pids()
    for victim in ("reput", "serve"):
        os.kill(before[victim], signal.SIGKILL)
    for victim in ("reput", "serve"):
        node.await_restarted(victim, before)
    subscribe(node, FIRST[0])
    put(node, 3 * COUNT)
    dispatched(node)
    check_read(node, *FIRST, 4 * COUNT)

    subscribe(node, SECOND[0])  # changed: what was evaluated for the first says nothing of it
    check_read(node, *SECOND, 4 * COUNT)
    born(node, SECOND[0])
    put(node, 4 * COUNT)
    dispatched(node)
    check_read(node, *SECOND, 5 * COUNT)
    assert node.stop()
    status, found = towline("store", "verify", "--store", node.store.root)
    assert (status, found["findings"]) == (0, []), str(found)[:1500]


def test_units_survive_a_kill_of_the_whole_node(node: TestNode) -> None:
    node.start()
    with AdminClient(node.endpoint) as client:
        client.create_topic(TOPIC, QUEUES)
    for turn in range(3):
        put(node, turn * COUNT, COUNT)
        node.kill_all(turn)
        node.start()
        dispatched(node)
        bitmaps(node)
        check_read(node, *FIRST, (turn + 1) * COUNT)
    assert node.stop()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_subscription_while_reput_is_a_million_records_behind(node: TestNode) -> None:
    """Both processes are killed before it has begun to catch up, and the expression changes afterwards."""
    node.start()
    with AdminClient(node.endpoint) as client:
        client.create_topic(TOPIC, QUEUES)
    put(node, 0)
    dispatched(node)
    reput = node.pids()["reput"]
    os.kill(reput, signal.SIGSTOP)
    behind = node.at(Position.DISPATCHED)
    for first in range(COUNT, COUNT + MILLION, MILLION // 50):
        put(node, first, MILLION // 50)
    subscribe(node, FIRST[0])
    assert node.at(Position.DISPATCHED) == behind
    before = node.pids()
    for victim in ("reput", "serve"):
        os.kill(before[victim], signal.SIGKILL)
    for victim in ("reput", "serve"):
        node.await_restarted(victim, before)
    count = COUNT + MILLION
    check_read(node, *FIRST, count, deadline_s=300.0)
    subscribe(node, SECOND[0])
    check_read(node, *SECOND, count, deadline_s=300.0)
    born(node, SECOND[0])
    put(node, count)
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), 300.0, "everything is dispatched")
    for expression, passes in (SECOND, FIRST):
        check_read(node, expression, passes, count + COUNT, deadline_s=300.0)
    assert bitmaps(node) >= COUNT
    assert node.stop()
    status, found = towline("store", "verify", "--store", node.store.root)
    assert (status, found["findings"]) == (0, []), str(found)[:1500]
