"""`towline store verify` and `repair` beside real nodes: one that runs, one whose log was damaged after its stop."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.processes.nodes import SEGMENT, TestNode, ending
from tests.processes.waiting import await_
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import CorruptLog
from towline.format.files.consume_queue import ENTRY
from towline.node.process.context import runtime_of
from towline.runtime.positions import Position
from towline.start import home

COUNT = 3000
TOPIC = "verified"
COMMAND = "from towline.start import main; main()"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestNode]:
    """A master without slaves that appends property CRCs, not started."""
    made = TestNode("master", tmp_path / "store", ha_listen_port=0, enabled_append_prop_crc=True)
    with ending(made):
        yield made


def fill(node: TestNode, first: int = 0) -> None:
    with Producer(node.endpoint) as producer:
        bodies = (b"%06d" % number * 100 for number in range(first, first + COUNT))
        results = producer.send_batch(Message(TOPIC, body) for body in bodies)
    assert all(result.acknowledged for result in results)
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), 60.0, "everything is dispatched")


def read(node: TestNode, count: int, topic: str = TOPIC) -> set[int]:
    """The numbers of so many messages of a topic, which are all there are."""
    endpoint = f"ipc://{runtime_of(node.store.root).socket('serve')}"
    found: list[int] = []
    with Consumer(endpoint, topic, suspend_ms=200) as consumer:

        def all_read() -> bool:
            found.extend(int(message.body[:6]) for message in consumer.poll(200))
            return len(found) >= count

        await_(all_read, 60, f"{count} messages are read")
        assert consumer.poll(300) == []
    assert len(set(found)) == len(found)
    return set(found)


def towline(*words: object) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-c", COMMAND, *map(str, words), "--json"]
    done = subprocess.run(command, cwd=home(), capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


def newest(node: TestNode) -> int:
    """Log offset of the newest record."""
    entries = [np.fromfile(path, dtype=ENTRY) for path in node.store.consumequeue.rglob("0*") if path.is_file()]
    return max(int(each["physical_offset"].max()) for each in entries)


def test_a_running_node_is_verified_up_to_what_it_dispatched(node: TestNode) -> None:
    node.start()
    fill(node)
    status, found = towline("store", "verify", "--store", node.store.root)
    assert (status, found["findings"]) == (0, [])
    assert found["up_to"] == found["log"]["end"] == node.at(Position.DISPATCHED)
    assert found["log"]["records"] == COUNT
    assert towline("store", "repair", "--store", node.store.root)[1]["error"] == "StoreTaken"
    assert node.stop()


def test_a_damaged_record_is_refused_stepped_over_and_the_node_goes_on(node: TestNode) -> None:
    node.start()
    fill(node)
    assert node.stop()
    assert towline("store", "verify", "--store", node.store.root)[0] == 0
    at = newest(node)
    with (node.store.commitlog / f"{at - at % SEGMENT:020d}").open("r+b") as file:
        file.seek(at % SEGMENT + 200)
        file.write(b"\xff")
    with pytest.raises(CorruptLog, match="towline store repair"):
        node.start()
    assert towline("store", "repair", "--store", node.store.root, "--yes")[0] == 2
    status, done = towline("store", "repair", "--store", node.store.root, "--yes", "--skip", at)
    assert status == 0, done
    assert {step["action"] for step in done["done"]} == {"skip", "rebuild"}
    node.start()
    lost = set(range(COUNT)) - read(node, COUNT - 1)
    assert len(lost) == 1
    fill(node, COUNT)
    assert read(node, 2 * COUNT - 1) == set(range(2 * COUNT)) - lost
    assert node.stop()
    status, found = towline("store", "verify", "--store", node.store.root)
    assert (status, [row["rule"] for row in found["findings"]]) == (0, ["SKIPPED"])


def test_queues_and_index_that_were_deleted_come_back_with_the_next_start(node: TestNode) -> None:
    node.start()
    fill(node)
    assert node.stop()
    for directory in (node.store.consumequeue, node.store.index):
        for path in sorted(directory.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    assert towline("store", "verify", "--store", node.store.root)[0] == 1
    node.start()
    await_(lambda: node.at(Position.INDEXED) == node.at(Position.APPENDED), 60.0, "queues and index are derived")
    assert read(node, COUNT) == set(range(COUNT))
    assert node.stop()
    assert towline("store", "verify", "--store", node.store.root)[0] == 0
    assert not node.store.abort.exists()


def test_abort_stays_while_not_everything_is_in_its_queue(node: TestNode) -> None:
    """A real broker that finds a clean store loses what is not dispatched (spec 8.3)."""
    node.start("--without", "reput")
    with Producer(node.endpoint) as producer:
        assert producer.send(Message(TOPIC, b"000000")).acknowledged
    assert not node.stop()
    assert node.store.abort.exists()
    node.start()
    assert read(node, 1) == {0}
    assert node.stop()
    assert not node.store.abort.exists()
