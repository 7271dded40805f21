"""Filter bitmaps through a running node: whatever reput has or has not evaluated, readers get what they asked for."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.processes.arming import Arming
from tests.processes.damage.test_verify_repair import towline
from tests.processes.nodes import TestNode, ended
from tests.processes.stopping import stopped
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.filter.bloom import Bloom
from towline.filter.subscriptions import PENDING
from towline.format.files.consume_queue import ENTRY
from towline.format.files.consume_queue_ext import SIZE as UNIT_SIZE
from towline.format.files.consume_queue_ext import decode, offset_of
from towline.limits import KIB, MIB
from towline.log.files.config_file import ConfigFile
from towline.log.queues.consume_queue_ext import is_address, opened
from towline.runtime.positions import Position

DEADLINE_S: Final = 60.0
COUNT: Final = 2000
MILLION: Final = 1_000_000
QUEUES: Final = 3
BITMAP_SIZE: Final = Bloom().size
TOPIC: Final = "priced"
COLOURS: Final = ("red", "blue", "green")
FIRST: Final = ("price > 500 AND colour = 'red'", lambda number: number % 1000 > 500 and number % 3 == 0)
SECOND: Final = (
    "price BETWEEN 10 AND 20 OR colour IS NULL",
    lambda number: 10 <= number % 1000 <= 20 or number % 7 == 0,
)


def made(root: Path, unit_file_size: int) -> Iterator[TestNode]:
    node = TestNode(
        "master",
        root,
        ha_listen_port=0,
        enable_property_filter=True,
        enable_consume_queue_ext=True,
        enable_calc_filter_bit_map=True,
        mapped_file_size_consume_queue_ext=unit_file_size,
        flush_consumer_offset_interval=200,
    )
    cleaning = ended(node)
    next(cleaning)
    yield node
    next(cleaning, None)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestNode]:
    yield from made(tmp_path / "store", 16 * KIB)


@pytest.fixture
def large_node(tmp_path: Path) -> Iterator[TestNode]:
    """Its failpoints can be armed while it is started under `arming`."""
    yield from made(tmp_path / "store", MIB)


def serve_of(node: TestNode) -> str:
    return f"ipc://{node.runtime / 'serve.sock'}"


def message(number: int) -> Message:
    properties = {"price": str(number % 1000)}
    if number % 7:
        properties["colour"] = COLOURS[number % 3]
    tag = COLOURS[number % 3]
    return Message(TOPIC, b"%d" % number, tags=tag, properties=properties, queue_id=number % QUEUES)


def put(node: TestNode, first: int, count: int = COUNT) -> None:
    with Producer(node.endpoint) as producer:
        assert all(r.acknowledged for r in producer.send_batch(message(n) for n in range(first, first + count)))


def dispatched(node: TestNode) -> None:
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), 300.0, "everything is dispatched")


def subscribe(node: TestNode, expression: str) -> None:
    topics = {TOPIC: {"expression": expression, "type": "SQL92"}}
    with AdminClient(serve_of(node), timeout_ms=20_000) as client:
        client.ask("group_join", group="g", member="m", instance="i", topics=topics, **{"from": "first"})


def saved(node: TestNode, expression: str) -> int:
    """The birth of the expression in the file that reput reads; 0 while another one stands there."""
    content = ConfigFile(node.store.config / "consumerFilter.json").load() or {}
    groups = content.get("filterDataByTopic", {}).get(TOPIC, {}).get("groupFilterData", {})
    found = groups.get("g", {})
    return int(found["bornTime"]) if found.get("expression") == expression else 0


def told(node: TestNode, expression: str) -> None:
    """Subscribes, and waits until reput could know it."""
    subscribe(node, expression)
    await_(lambda: saved(node, expression), DEADLINE_S, f"{expression} is saved")


def born(node: TestNode, expression: str) -> int:
    """Until reput has confirmed the expression: when."""

    def time() -> int:
        subscribe(node, expression)  # the heartbeat of a member
        return saved(node, expression)

    return await_(lambda: time() not in (0, PENDING) and time(), DEADLINE_S, f"{expression} is confirmed")


def killed(node: TestNode, expression: str) -> None:
    """reput and serve are, and started anew; the member comes back."""
    before = node.pids()
    for victim in ("reput", "serve"):
        os.kill(before[victim], signal.SIGKILL)
    for victim in ("reput", "serve"):
        node.await_restarted(victim, before)
    subscribe(node, expression)


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


def check_tags(node: TestNode, tags: str, count: int) -> None:
    """Their hashes stand in the units, and not in the entries."""
    wanted = sum(COLOURS[number % 3] in tags for number in range(count))
    found: list[str | None] = []
    with Consumer(serve_of(node), TOPIC, tags=tags, suspend_ms=200) as consumer:

        def all_read() -> bool:
            found.extend(each.tags for each in consumer.poll(200))
            return len(found) >= wanted

        await_(all_read, DEADLINE_S, f"{wanted} messages of {tags}")
    assert len(found) == wanted
    assert set(found) == set(tags.split(" || "))


def million(node: TestNode, first: int) -> None:
    for start in range(first, first + MILLION, MILLION // 50):
        put(node, start, MILLION // 50)


def verified(node: TestNode) -> None:
    status, found = towline("store", "verify", "--store", node.store.root)
    assert (status, found["findings"]) == (0, []), str(found)[:1500]


def addresses(node: TestNode, queue: int) -> NDArray[np.int64]:
    """Where the units of a queue's entries stand."""
    paths = sorted((node.store.consumequeue / TOPIC / str(queue)).iterdir())
    codes = np.concatenate([np.fromfile(path, dtype=ENTRY) for path in paths])["tags_code"].astype(np.int64)
    return codes[is_address(codes)]


def bitmaps(node: TestNode) -> int:
    """Units that hold a bitmap."""
    files = opened(node.store.consumequeue_ext, 8)
    assert files is not None
    held = 0
    for queue in range(QUEUES):
        units = files.read(TOPIC, queue, addresses(node, queue), BITMAP_SIZE)
        assert units.found.all()
        held += int(units.mapped.sum())
    files.close()
    return held


@contextlib.contextmanager
def wrong_bitmaps(node: TestNode, queue: int) -> Iterator[None]:
    """Within the block every bitmap of the queue says that its record matches nothing."""
    size = 16 * KIB
    paths = sorted((node.store.consumequeue_ext / TOPIC / str(queue)).iterdir())
    right = [path.read_bytes() for path in paths]
    files = {int(path.name): bytearray(data) for path, data in zip(paths, right, strict=True)}
    for address in addresses(node, queue).tolist():
        at = offset_of(address)
        data, begin = files[at - at % size], at % size
        unit = decode(bytes(data), begin)
        if unit is not None and unit.bitmap:
            data[begin + UNIT_SIZE : begin + UNIT_SIZE + BITMAP_SIZE] = bytes(BITMAP_SIZE)
    try:
        for path, data in zip(paths, files.values(), strict=True):
            _put_down(path, bytes(data))
        yield
    finally:
        for path, old in zip(paths, right, strict=True):
            _put_down(path, old)


def _put_down(path: Path, data: bytes) -> None:
    """In place: the node has the file open."""
    with path.open("r+b") as file:
        file.write(data)


def test_messages_equal_a_brute_force_evaluation_whatever_reput_had_seen(node: TestNode) -> None:
    node.start()
    with AdminClient(node.endpoint) as client:
        client.create_topic(TOPIC, QUEUES)
    put(node, 0)
    dispatched(node)
    with stopped(node.pids()["reput"]):
        put(node, COUNT)
        told(node, FIRST[0])  # while reput is behind
    dispatched(node)
    check_read(node, *FIRST, 2 * COUNT)
    birth = born(node, FIRST[0])
    put(node, 2 * COUNT)
    dispatched(node)
    check_read(node, *FIRST, 3 * COUNT)
    assert bitmaps(node) >= COUNT
    with wrong_bitmaps(node, 0):  # all that match are of this queue
        check_read(node, *FIRST, 2 * COUNT)  # what was stored after the birth is decided by them, and nothing else
    check_read(node, *FIRST, 3 * COUNT)

    killed(node, FIRST[0])
    assert born(node, FIRST[0]) == birth, "it speaks for what was evaluated before the kill"
    put(node, 3 * COUNT)
    dispatched(node)
    check_read(node, *FIRST, 4 * COUNT)

    subscribe(node, SECOND[0])  # changed: what was evaluated for the first says nothing of it
    check_read(node, *SECOND, 4 * COUNT)
    born(node, SECOND[0])
    put(node, 4 * COUNT)
    dispatched(node)
    check_read(node, *SECOND, 5 * COUNT)
    check_tags(node, "red || green", 5 * COUNT)
    assert node.stop()
    verified(node)


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
def test_subscriptions_while_reput_is_a_million_records_behind(large_node: TestNode, arming: Arming) -> None:
    """The first is born in the middle of them; the second million is stored behind a birth, and the expression changes
    before reput has seen any of it. Both times both processes are killed.
    """
    node = large_node
    with pytest.MonkeyPatch.context() as patch:
        arming.announce(patch)
        node.start()
    with AdminClient(node.endpoint) as client:
        client.create_topic(TOPIC, QUEUES)
    put(node, 0)
    dispatched(node)
    with stopped(node.pids()["reput"]):
        million(node, COUNT)
        told(node, FIRST[0])
        arming.arm("reput.before_queues=stall:1000000@4")
    arming.await_fired(DEADLINE_S)
    birth = born(node, FIRST[0])
    assert node.at(Position.APPENDED) - node.at(Position.DISPATCHED) > MILLION * 100 // 2, "bytes of the backlog"
    killed(node, FIRST[0])
    assert born(node, FIRST[0]) == birth
    check_read(node, *FIRST, COUNT + MILLION, deadline_s=300.0)

    dispatched(node)
    with stopped(node.pids()["reput"]):
        million(node, COUNT + MILLION)
        told(node, SECOND[0])
        killed(node, SECOND[0])
    count = COUNT + 2 * MILLION
    check_read(node, *SECOND, count, deadline_s=300.0)
    born(node, SECOND[0])
    put(node, count)
    dispatched(node)
    for expression, passes in (SECOND, FIRST):
        check_read(node, expression, passes, count + COUNT, deadline_s=300.0)
    born(node, FIRST[0])
    check_read(node, *FIRST, count + COUNT, deadline_s=300.0)
    assert bitmaps(node) >= MILLION
    assert node.stop()
    verified(node)
