"""A running master under load: the next segment is in memory before it is written to, what everybody has leaves it."""

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from tests.processes.nodes import TestNode, ending
from tests.processes.waiting import await_
from towline.client.consumer import Consumer
from towline.limits import MIB, PAGE
from towline.link.context import close_context, new_context
from towline.loadtest.bench.client import PutClient
from towline.loadtest.bench.shapes import TOPIC, Shape, load_of
from towline.log.files.mapped_file import MappedFile
from towline.log.files.segment_files import segment_name
from towline.runtime.positions import Counter, Duty, Position

SIZE = 16 * MIB
READ = 100


@pytest.fixture(scope="module")
def node(tmp_path_factory) -> Iterator[TestNode]:
    made = TestNode(
        "master",
        tmp_path_factory.mktemp("cached"),
        mapped_file_size_commit_log=SIZE,
        flush_disk_type="ASYNC_FLUSH",
        flush_interval_commit_log=50,
        cached_after_filled_ms=1,
    )
    with ending(made):
        made.start()
        yield made
        assert made.stop()


@pytest.fixture(scope="module")
def client(node) -> Iterator[PutClient]:
    context = new_context()
    made = PutClient(context, node.endpoint)
    made.make_topic()
    yield made
    made.close()
    close_context(context)


def resident(node: TestNode, base: int) -> float:
    mapped = MappedFile.open(node.store.commitlog / segment_name(base), SIZE, writable=False)
    share = mapped.resident(0, SIZE) * PAGE / SIZE
    mapped.release()
    return share


def test_next_is_in_memory_before_its_first_byte_and_what_was_left_behind_is_not(node, client):
    load = load_of(Shape(64, 1024))
    for base in (0, SIZE, 2 * SIZE):
        warm = base + 2 * SIZE
        await_(lambda warm=warm: node.at(Position.WARM) >= warm, 60, "next is warm")
        assert base <= node.at(Position.APPENDED) < base + SIZE
        # A cold one has nothing; of a warm one the kernel may have taken something back.
        assert resident(node, base + SIZE) > 0.5, f"{base + SIZE} has no byte yet"
        while node.at(Position.APPENDED) < base + SIZE:
            client.send(load, 8)
    with contextlib.closing(Consumer(f"ipc://{node.runtime}/serve.sock", TOPIC)) as consumer:
        got = 0
        while got < READ:  # from the first segment, which serve has mapped now
            got += len(consumer.poll(1000))
        for base in (0, SIZE, 2 * SIZE):
            await_(lambda base=base: resident(node, base) <= 0.01, 60, f"{base} was dropped")
        assert resident(node, 3 * SIZE) > 0.5, "the writer is in it; what is not written yet the kernel may take back"
        while got < 2 * READ:
            got += len(consumer.poll(1000))


def test_while_allocate_stands_still_the_writer_makes_its_segments_itself(node, client):
    load = load_of(Shape(64, 1024))
    base = node.at(Position.WANTED)
    await_(lambda: node.at(Position.WARM) >= base + 3 * SIZE, 60, "three segments ahead")
    made = node.positions.duty(Duty.PUT).counter(Counter.FALLBACKS)
    pid = node.pids()["allocate"]
    os.kill(pid, signal.SIGSTOP)
    try:
        while node.at(Position.WANTED) < base + 5 * SIZE:
            client.send(load, 8)  # who waited for allocate would wait for ever
    finally:
        os.kill(pid, signal.SIGCONT)
    assert node.positions.duty(Duty.PUT).counter(Counter.FALLBACKS) - made >= 2
    await_(lambda: node.at(Position.ALLOCATED) >= base + 8 * SIZE, 60, "allocate goes on")
