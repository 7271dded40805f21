"""A store that was imported is one like any other: its node serves, goes on behind it, and a slave follows."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.exchange.imports import as_kafka, directory, numbered, settings
from tests.kafka.samples import Row, rows_in, write_plain
from tests.processes.grouping import serve_of
from tests.processes.nodes import SETTINGS, Pair, TestNode, ending
from tests.processes.waiting import await_
from towline import Consumer, Message, Producer
from towline.cli.main import run
from towline.client.admin import AdminClient
from towline.kafka.exchange import import_publish
from towline.kafka.format.building import Form, end_transaction
from towline.kafka.format.control import ControlType
from towline.kafka.log.writer import PartitionWriter
from towline.log.errors import ImportUnfinished
from towline.node.process.context import runtime_of
from towline.runtime.positions import Position
from towline.runtime.queue_ends import QueueEnds

COUNT = 20_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Topics `topic` and `begins`, from offset 1,000 on, and `tx` with holes: its partition ends with one."""
    made = directory(tmp_path / "kafka")
    write_plain(made)
    with PartitionWriter(made, "begins", 0, start=1000) as writer:
        writer.append(numbered(COUNT, 1000))
    with PartitionWriter(made, "tx", 0) as writer:
        for first, kind in ((0, ControlType.ABORT), (40, ControlType.COMMIT), (80, ControlType.COMMIT)):
            form = Form(producer_id=7, producer_epoch=3, base_sequence=first, transactional=True)
            writer.append(numbered(39, first), form)
            writer.append_batches(end_transaction(kind, first + 39, 1, 7, 3, 11))
    return made


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    with ending(*made.nodes):
        yield made


def bring(source: Path, node: TestNode, tmp_path: Path, *more: str) -> int:
    config = settings(tmp_path)
    config.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in SETTINGS.items()))
    return run(["kafka", "import", str(source), "--store", str(node.store.root), "--config", str(config), *more])


def read(node: TestNode, topic: str, count: int) -> tuple[list[Row], int]:
    """So many messages, which are all there are, as records of Kafka; and how many numbers were missed."""
    found: list[Row] = []
    with Consumer(serve_of(node), topic, suspend_ms=200) as consumer:

        def all_read() -> bool:
            found.extend(as_kafka(message.record).row for message in consumer.poll(500))
            return len(found) >= count

        await_(all_read, 60, f"{count} messages are read")
        assert consumer.poll(300) == []
        return found, consumer.missed


def committed(source: Path) -> list[Row]:
    return [row for row in rows_in(source / "tx-0") if row[0] >= 40 and row[0] % 40 != 39]


def check_served(node: TestNode, source: Path) -> None:
    assert read(node, "topic", 300) == (rows_in(source / "topic-0"), 0)
    assert read(node, "begins", COUNT) == (rows_in(source / "begins-0"), 0)
    assert read(node, "tx", 78) == (committed(source), 0)


def test_master_and_slave_serve_it_and_puts_go_on_behind_it(source, pair, tmp_path, capsys):
    assert bring(source, pair.master, tmp_path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["messages"], found["verified"]) == (300 + COUNT + 78, True)
    pair.start()
    pair.await_caught_up()
    for node in pair.nodes:
        check_served(node, source)
        table = QueueEnds.open(runtime_of(node.store.root).queue_ends)
        ends = {end.topic: (end.min_offset, end.max_offset) for end in table}
        assert ends == {b"topic": (0, 300), b"begins": (1000, 1000 + COUNT), b"tx": (40, 120)}
        with AdminClient(serve_of(node)) as admin:
            (message,) = admin.by_key("begins", "k1005")
            assert (message.queue_offset, message.body[:9]) == (1005, b"body 1005")
    with Producer(pair.master.endpoint) as producer:
        results = {topic: producer.send(Message(topic, b"new")) for topic in ("topic", "begins", "tx")}
    assert all(result.acknowledged for result in results.values())
    offsets = {topic: result.queue_offset for topic, result in results.items()}
    assert offsets == {"topic": 300, "begins": 1000 + COUNT, "tx": 120}


def test_a_node_that_is_killed_and_one_whose_queues_were_lost_serve_the_same(source, tmp_path, capsys):
    """`verify` finds nothing wrong at the end."""
    node = TestNode("master", tmp_path / "store")
    with ending(node):
        assert bring(source, node, tmp_path) == 0
        node.start()
        check_served(node, source)
        node.kill_all(1)
        node.start()
        check_served(node, source)
        assert node.stop()
        assert run(["store", "repair", "--store", str(node.store.root), "--yes"]) == 0
        for path in sorted(node.store.consumequeue.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        node.start()
        check_served(node, source)
        await_(lambda: node.at(Position.INDEXED) == node.at(Position.APPENDED), 60.0, "everything is indexed")
        assert node.stop()
        capsys.readouterr()
        assert run(["store", "verify", "--store", str(node.store.root), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert {row["rule"] for row in found["findings"]} <= {"QUEUE_ENDS_IN_HOLE"}


def test_an_import_waits_for_the_node_to_stop_and_goes_behind_what_it_has(source, tmp_path, capsys):
    node = TestNode("master", tmp_path / "store")
    with ending(node):
        node.start()
        with Producer(node.endpoint) as producer:
            producer.send(Message("mine", b"first"))
        assert bring(source, node, tmp_path) == 1
        assert f"`towline master stop --store {node.store.root}`" in capsys.readouterr().err
        assert node.stop()
        assert bring(source, node, tmp_path) == 0
        node.start()
        check_served(node, source)
        with Consumer(serve_of(node), "mine", suspend_ms=200) as consumer:
            await_(lambda: [message.body for message in consumer.poll(500)] == [b"first"], 60.0, "it is read")
        node.stop()


def test_no_node_starts_while_segments_become_a_part_of_the_log(source, tmp_path, monkeypatch, capsys):
    """Its remedy, typed, finishes the import."""
    node = TestNode("master", tmp_path / "store")

    def broken_off(*arguments: object) -> None:
        raise OSError("killed")

    with ending(node):
        monkeypatch.setattr(import_publish, "_end_segment", broken_off)
        assert bring(source, node, tmp_path) == 1
        monkeypatch.undo()
        with pytest.raises(ImportUnfinished) as raised:
            node.start()
        assert f"`towline kafka import {source} --store {node.store.root}`" in raised.value.advice
        assert bring(source, node, tmp_path) == 0
        node.start()
        check_served(node, source)
        node.stop()
