"""Where the log's writer gets its next segment from, and what it is told when there is none."""

import errno
import logging
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from towline.clock import SystemClock
from towline.errors import DiskFull, SyncFailed
from towline.limits import MIB
from towline.log.errors import SegmentNotMade
from towline.log.files.segment_files import ensure_segment, segment_name
from towline.node.process.context import Node
from towline.node.store import tail
from towline.node.store.tail import AGAIN_MS, SEGMENT_WAIT_MS, NextSegment
from towline.places import Runtime, Store
from towline.runtime.positions import Counter, Duty, Flag, Position, Positions, State
from towline.runtime.settings import read_settings
from towline.runtime.store_stats import SLOW_SEGMENT_MS

SIZE = MIB
GENERATION = 7


class Time:
    """A clock that moves by `step` ms whenever it is read."""

    def __init__(self, step: int = 0) -> None:
        self.ms, self.step = 1_000_000, step

    def now_ms(self) -> int:
        return self.monotonic_ms()

    def monotonic_ms(self) -> int:
        self.ms += self.step
        return self.ms


class AllocateMeanwhile(Time):
    """A clock at which allocate makes the first segment once the writer has looked for it and waits."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._node, self._reads = node, 0

    def monotonic_ms(self) -> int:
        self._reads += counted(self._node) == (1, 0)
        if self._reads == 2:  # the first one is for the deadline
            allocate_makes(self._node, 0)
        return super().monotonic_ms()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    store, runtime = Store(tmp_path / "store"), Runtime(tmp_path / "run")
    for directory in (store.commitlog, store.staging, runtime.root):
        directory.mkdir(parents=True)
    settings = read_settings(None, {"mapped_file_size_commit_log": str(SIZE)}, {})
    positions = Positions.create(runtime.positions, GENERATION)
    log = logging.getLogger("put")
    return Node(store, runtime, settings, positions, Duty.PUT, GENERATION, log, SystemClock())


def allocate_is_at(node: Node, end: int, *, pid: int = 0, flag: Flag | None = None) -> None:
    line = node.positions.duty(Duty.ALLOCATE)
    line.enter(GENERATION, State.RUNNING)
    if pid:
        line._words[line._at + line.PID] = pid
    if flag is not None:
        line.raise_flag(flag)
    node.positions.writer(Position.MAKING, Duty.ALLOCATE).advance(end)


def allocate_makes(node: Node, base: int) -> None:
    ensure_segment(node.store.commitlog, node.store.staging, base, SIZE)
    node.positions.writer(Position.ALLOCATED, Duty.ALLOCATE).advance(base + SIZE)


def counted(node: Node) -> tuple[int, int]:
    """(segments it waited for, segments it made itself)."""
    return node.line.counter(Counter.LATE), node.line.counter(Counter.FALLBACKS)


def fails_with(error: Exception) -> Callable[..., bool]:
    def failing(*_: object) -> bool:
        raise error

    return failing


def gone() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_segment_that_allocate_has_made_is_taken_as_it_is(node):
    allocate_makes(node, 0)
    segments = NextSegment(node)
    segments.ensure(0)
    assert segments.open(0).size == SIZE
    assert counted(node) == (0, 0)


def test_while_allocate_is_at_it_the_writer_waits(node):
    allocate_is_at(node, SIZE)
    NextSegment(replace(node, clock=AllocateMeanwhile(node))).ensure(0)
    assert (node.store.commitlog / segment_name(0)).exists()
    assert counted(node) == (1, 0)


def test_a_segment_that_allocate_has_not_begun_is_made_at_once(node):
    allocate_is_at(node, SIZE)
    segments = NextSegment(replace(node, clock=Time(step=SEGMENT_WAIT_MS)))  # any wait would be over, and counted
    segments.ensure(SIZE)
    assert (node.store.commitlog / segment_name(SIZE)).exists()
    assert counted(node) == (0, 1)


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(lambda node: allocate_is_at(node, SIZE, flag=Flag.SEGMENT_ERROR), id="fails"),
        pytest.param(lambda node: allocate_is_at(node, SIZE, flag=Flag.DISK_FULL), id="has no room"),
        pytest.param(lambda node: allocate_is_at(node, SIZE, pid=gone()), id="was killed"),
    ],
)
def test_nobody_waits_for_an_allocate_that(node, prepare):
    prepare(node)
    time = Time()  # it stands still: a wait would never end
    NextSegment(replace(node, clock=time)).ensure(0)
    assert counted(node) == (1, 1)


def test_after_five_seconds_the_writer_makes_it_itself(node):
    allocate_is_at(node, SIZE)
    time = Time(step=10)
    NextSegment(replace(node, clock=time)).ensure(0)
    assert counted(node) == (1, 1)
    assert SEGMENT_WAIT_MS <= time.ms - 1_000_000 <= SEGMENT_WAIT_MS + 10 * time.step


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EIO, "Input/output error"), SyncFailed("staging", 0, 0, errno.EIO, "Input/output error")],
    ids=["create", "sync"],
)
def test_one_that_cannot_be_made_is_refused_with_the_cause_and_for_a_while_without_trying(node, monkeypatch, error):
    time = Time()
    segments = NextSegment(replace(node, clock=time))
    monkeypatch.setattr(tail, "ensure_segment", fails_with(error))
    with pytest.raises(SegmentNotMade, match=r"no segment 0: .*Input/output error"):
        segments.ensure(0)
    monkeypatch.setattr(tail, "ensure_segment", fails_with(AssertionError("it was tried again")))
    time.ms += AGAIN_MS - 1
    with pytest.raises(SegmentNotMade, match="Input/output error"):
        segments.ensure(0)
    monkeypatch.setattr(tail, "ensure_segment", ensure_segment)
    time.ms += 1
    segments.ensure(0)
    assert counted(node) == (0, 1)


def test_what_allocate_makes_after_a_failure_is_taken_at_once(node, monkeypatch):
    segments = NextSegment(replace(node, clock=Time()))
    monkeypatch.setattr(tail, "ensure_segment", fails_with(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(SegmentNotMade):
        segments.ensure(0)
    allocate_makes(node, 0)
    segments.ensure(0)
    assert segments.open(0).size == SIZE


def test_a_full_disk_stays_one(node, monkeypatch):
    monkeypatch.setattr(tail, "ensure_segment", fails_with(DiskFull("staging", SIZE)))
    segments = NextSegment(node)
    for _ in range(2):
        with pytest.raises(DiskFull):
            segments.ensure(0)


def test_a_segment_is_foreseen_once_allocate_has_made_it_and_then_taken_as_it_is(node):
    segments = NextSegment(node)
    ensure_segment(node.store.commitlog, node.store.staging, 0, SIZE)
    assert segments.foresee(0) is None, "its name may not be durable"
    allocate_makes(node, 0)
    foreseen = segments.foresee(0)
    assert foreseen is not None
    assert segments.foresee(0) is foreseen
    segments.ensure(0)
    assert segments.open(0) is foreseen
    assert segments.open(0) is not foreseen


def test_what_was_foreseen_and_closed_is_mapped_anew(node):
    allocate_makes(node, 0)
    segments = NextSegment(node)
    foreseen = segments.foresee(0)
    assert foreseen is not None
    foreseen.release()
    assert segments.open(0).is_open


def test_one_that_cannot_be_mapped_is_refused_with_the_cause(node):
    allocate_makes(node, 0)
    (node.store.commitlog / segment_name(0)).unlink()
    segments = NextSegment(node)
    segments.ensure(0)
    with pytest.raises(SegmentNotMade, match="No such file"):
        segments.open(0)


def test_a_segment_that_took_the_writer_long_to_make_is_told(node, monkeypatch, caplog):
    time = Time()

    def slowly(took_ms: int) -> Callable[..., bool]:
        def making(*arguments: object) -> bool:
            time.ms += took_ms
            return ensure_segment(*arguments)

        return making

    segments = NextSegment(replace(node, clock=time))
    for base, took_ms in ((0, SLOW_SEGMENT_MS), (SIZE, SLOW_SEGMENT_MS + 1)):
        monkeypatch.setattr(tail, "ensure_segment", slowly(took_ms))
        segments.ensure(base)
    assert counted(node) == (0, 2)
    assert [message.split(", ")[0] for message in caplog.messages] == [
        f"making segment {segment_name(SIZE)} took {SLOW_SEGMENT_MS + 1} ms"
    ]
