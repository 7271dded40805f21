"""Full segments leave the page cache when everybody has them."""

import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from towline.allocate import caching
from towline.allocate.caching import CHECK_EVERY_MS, EVICT_EVERY_MS, RETRY_MS, PageCacheEvictor
from towline.limits import MIB, PAGE
from towline.log.files.mapped_file import MappedFile
from towline.log.files.segment_files import create_segment, segment_name
from towline.node.process.context import Node
from towline.places import Runtime, Store
from towline.runtime.positions import Duty, Position, Positions
from towline.runtime.settings import read_settings

SIZE = 8 * MIB
GENERATION = 7
AGE_MS = 60_000
MARKS = {
    Position.APPENDED: Duty.PUT,
    Position.FLUSHED: Duty.FLUSH,
    Position.DISPATCHED: Duty.REPUT,
    Position.INDEXED: Duty.REPUT,
}


class Time:
    """Both clocks stand still until they are moved."""

    def __init__(self) -> None:
        self.ms = 2_000_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Three full segments and a fourth that is begun; everything is flushed and dispatched, and a minute old."""
    store, runtime = Store(tmp_path / "store"), Runtime(tmp_path / "run")
    for directory in (store.commitlog, store.staging, runtime.root):
        directory.mkdir(parents=True)
    given = {"mapped_file_size_commit_log": str(SIZE), "cached_after_filled_ms": str(AGE_MS)}
    positions = Positions.create(runtime.positions, GENERATION)
    time = Time()
    node = Node(
        store, runtime, read_settings(None, given, {}), positions, Duty.ALLOCATE, GENERATION, logging.getLogger(), time
    )
    for number in range(4):
        path = create_segment(store.commitlog, SIZE, segment_name(number * SIZE))
        with path.open("r+b") as file:
            file.write(b"x" * SIZE)
            file.flush()
            os.fsync(file.fileno())
        filled(path, time.ms - AGE_MS)
    for position, duty in MARKS.items():
        positions.writer(position, duty).advance(3 * SIZE + 5)
    return node


def filled(path: Path, at_ms: int) -> None:
    os.utime(path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


def resident(node: Node) -> list[float]:
    found = []
    for number in range(4):
        path = node.store.commitlog / segment_name(number * SIZE)
        if path.exists():
            found.append(MappedFile.open(path, SIZE, writable=False).resident(0, SIZE) * PAGE / SIZE)
    return found


def work(cache: PageCacheEvictor, node: Node) -> int:
    turns = 0
    while cache.cycle(node.clock.monotonic_ms()):
        turns += 1
    return turns


def test_what_everybody_has_is_dropped_and_what_is_written_to_stays(node):
    assert resident(node) == [1, 1, 1, 1]
    assert work(PageCacheEvictor(node), node) == 3
    assert max(resident(node)[:3]) <= 0.01
    assert resident(node)[3] == 1


def test_a_segment_is_dropped_in_steps(node, monkeypatch):
    monkeypatch.setattr(caching, "STEP", 2 * MIB)
    assert work(PageCacheEvictor(node), node) == 3 * 4
    assert max(resident(node)[:3]) <= 0.01


@pytest.mark.parametrize("behind", [position for position in MARKS if position is not Position.APPENDED])
def test_what_is_not_flushed_dispatched_and_indexed_stays(node, behind):
    node.positions.words[behind.word] = 2 * SIZE - 1
    work(PageCacheEvictor(node), node)
    assert [round(share) for share in resident(node)] == [0, 1, 1, 1]


def test_what_a_connected_slave_has_not_got_stays(node):
    slaves = node.positions.slaves()
    slaves[3].set(connected=True, appended=2 * SIZE, flushed=0)
    slaves[5].set(connected=False, appended=0, flushed=0)
    work(PageCacheEvictor(node), node)
    assert [round(share) for share in resident(node)] == [0, 0, 1, 1]


def test_what_was_filled_lately_stays(node):
    filled(node.store.commitlog / segment_name(SIZE), node.clock.now_ms() - AGE_MS + 1)
    work(PageCacheEvictor(node), node)
    assert [round(share) for share in resident(node)] == [0, 1, 0, 1]


def test_with_0_everything_stays(node):
    given = {"mapped_file_size_commit_log": str(SIZE), "cached_after_filled_ms": "0"}
    assert work(PageCacheEvictor(replace(node, settings=read_settings(None, given, {}))), node) == 0
    assert resident(node) == [1, 1, 1, 1]


def test_what_a_late_reader_brought_back_is_dropped_again_after_a_while(node):
    cache = PageCacheEvictor(node)
    work(cache, node)
    (node.store.commitlog / segment_name(0)).read_bytes()
    node.clock.ms += CHECK_EVERY_MS
    assert work(cache, node) == 0
    node.clock.ms += EVICT_EVERY_MS
    assert work(cache, node) == 3
    assert max(resident(node)[:3]) <= 0.01


def test_what_a_reader_maps_is_tried_again_soon(node):
    cache = PageCacheEvictor(node)
    mapped = MappedFile.open(node.store.commitlog / segment_name(SIZE), SIZE, writable=False)
    assert mapped.array.all()
    work(cache, node)
    assert [round(share) for share in resident(node)] == [0, 1, 0, 1]
    mapped.release()
    node.clock.ms += RETRY_MS
    assert work(cache, node) == 1
    assert max(resident(node)[:3]) <= 0.01


def test_a_segment_that_is_cleaned_meanwhile_is_passed_over(node, monkeypatch):
    monkeypatch.setattr(caching, "STEP", 4 * MIB)
    cache = PageCacheEvictor(node)
    assert cache.cycle(node.clock.monotonic_ms()) == 1
    (node.store.commitlog / segment_name(0)).unlink()
    work(cache, node)
    assert [round(share) for share in resident(node)] == [0, 0, 1]
