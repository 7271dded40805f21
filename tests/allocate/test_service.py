"""Segments ahead of the writer, one step per turn, and none that nobody will use left behind."""

import errno
import logging
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from towline.allocate.cleaning import STEP_MS
from towline.allocate.segments import AHEAD, BURST_MS, PAUSE_MS, UNLOCK_AFTER_MS
from towline.allocate.service import AllocateAgent
from towline.clock import SystemClock
from towline.errors import DiskFull, SyncFailed
from towline.limits import LOOK_MS, PAGE
from towline.log.files import memory, segment_files
from towline.log.files.mapped_file import MappedFile
from towline.log.files.page_cache import STEP, WarmUp
from towline.log.files.segment_files import segment_name
from towline.node.process.context import Node
from towline.places import Runtime, Store
from towline.runtime.doorbell import Doorbell
from towline.runtime.positions import Counter, Duty, Flag, Position, Positions, State
from towline.runtime.settings import read_settings

SIZE = 3 * STEP
GENERATION = 7


class MovedClock(SystemClock):
    """Moved by hand."""

    now = 1_000

    def monotonic_ms(self) -> int:
        return self.now


@pytest.fixture
def node(tmp_path: Path) -> Node:
    store, runtime = Store(tmp_path / "store"), Runtime(tmp_path / "run")
    for directory in (store.commitlog, store.staging, runtime.root):
        directory.mkdir(parents=True)
    settings = read_settings(None, {"mapped_file_size_commit_log": str(SIZE)}, {})
    positions = Positions.create(runtime.positions, GENERATION)
    log = logging.getLogger("allocate")
    return Node(store, runtime, settings, positions, Duty.ALLOCATE, GENERATION, log, SystemClock())


@pytest.fixture
def agent(node: Node) -> AllocateAgent:
    return started(node)


def with_settings(node: Node, **values: object) -> Node:
    given = {"mapped_file_size_commit_log": SIZE} | values
    return replace(node, settings=read_settings(None, {key: str(value).lower() for key, value in given.items()}, {}))


def started(node: Node) -> AllocateAgent:
    made = AllocateAgent(node)
    made.on_start(Doorbell(node.runtime.bell("allocate"), node.line))
    return made


def segments(node: Node) -> list[int]:
    return sorted(int(path.name) for path in node.store.commitlog.iterdir())


def staged(node: Node) -> list[Path]:
    return list(node.store.staging.iterdir())


def move(node: Node, position: Position, value: int, duty: Duty = Duty.PUT) -> None:
    node.positions.writer(position, duty).advance(value)


def resident(node: Node, base: int) -> float:
    """Share of a segment's pages that are in memory."""
    return share_in_memory(node.store.commitlog / segment_name(base))


def share_in_memory(path: Path) -> float:
    mapped = MappedFile.open(path, SIZE, writable=False)
    return mapped.resident(0, SIZE) * PAGE / SIZE


def test_the_writers_segment_next_and_next_next_are_made_whole_and_in_order(agent, node):
    seen = []
    while node.positions.get(Position.ALLOCATED) < (AHEAD + 1) * SIZE:
        assert agent.do_work() == 1
        seen.append((len(segments(node)), len(staged(node))))
    assert seen == [(0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]
    assert segments(node) == [number * SIZE for number in range(AHEAD + 1)]
    assert all((node.store.commitlog / segment_name(base)).stat().st_size == SIZE for base in segments(node))


def test_all_of_them_exist_before_the_first_is_warmed_and_then_they_are_warmed_in_order(agent, node):
    bases = [number * SIZE for number in range(AHEAD + 1)]
    written = node.runtime.root / "written"  # an older file, just written: what the kernel drops of it, it may drop
    written.write_bytes(bytes(SIZE))
    warm = []
    while agent.do_work():
        if node.positions.get(Position.WARM) == 0:
            assert node.positions.get(Position.MAKING) == len(bases) * SIZE or len(segments(node)) < len(bases)
        warm.append(node.positions.get(Position.WARM))
    assert sorted(set(warm)) == [0, SIZE, 2 * SIZE, 3 * SIZE]
    assert warm == sorted(warm)
    assert max(warm.count(value) for value in set(warm)) >= SIZE // STEP, "warming is done in steps"
    kept = share_in_memory(written)
    assert min(resident(node, base) for base in bases) >= min(kept, 0.99)


def test_a_segment_to_be_made_comes_before_one_that_is_being_warmed(agent, node):
    while node.positions.get(Position.WARM) == 0:
        assert agent.do_work() == 1
    move(node, Position.WANTED, SIZE)
    assert agent.do_work() == agent.do_work() == 1
    assert segments(node)[-1] == 3 * SIZE
    assert node.positions.get(Position.WARM) == SIZE


def test_what_is_warm_ahead_serves_a_burst_and_is_made_up_for_behind_it(node):
    clock = MovedClock()
    agent = started(replace(node, clock=clock))
    while agent.do_work():
        pass
    move(node, Position.APPENDED, SIZE)
    move(node, Position.WANTED, SIZE)
    while node.positions.get(Position.ALLOCATED) < 4 * SIZE:
        agent.do_work()
    for number in range(1, SIZE // PAGE // 4):
        move(node, Position.APPENDED, SIZE + number * PAGE)
        clock.now += BURST_MS
        agent.do_work()
    assert node.positions.get(Position.WARM) == 3 * SIZE, "the writer appends, and has a segment and a half"
    move(node, Position.APPENDED, 2 * SIZE - STEP)
    clock.now += BURST_MS
    assert agent.do_work() == 1, "it has less than that now"
    move(node, Position.APPENDED, 2 * SIZE)
    while agent.do_work():
        clock.now += BURST_MS
    assert node.positions.get(Position.WARM) == 4 * SIZE


def test_the_writers_own_segment_is_warmed_from_where_it_is(agent, node, monkeypatch):
    begun = []
    init = WarmUp.__init__

    def spy(warming, path, size, *, begin, **more):
        begun.append((int(path.name), begin))
        init(warming, path, size, begin=begin, **more)

    monkeypatch.setattr(WarmUp, "__init__", spy)
    move(node, Position.APPENDED, STEP + 5000)
    while agent.do_work():
        pass
    assert begun == [(0, STEP + PAGE), (SIZE, 0), (2 * SIZE, 0)]


def test_warming_ends_where_the_writer_has_passed_the_segment(agent, node):
    while node.positions.get(Position.ALLOCATED) < 3 * SIZE:
        agent.do_work()
    agent.do_work()  # the first step of the first warm-up
    move(node, Position.WANTED, 2 * SIZE)
    while agent.do_work():
        pass
    assert node.positions.get(Position.WARM) == 5 * SIZE
    assert resident(node, SIZE) < 0.5


def test_without_warming_segments_stay_as_they_were_made(node, tmp_path):
    agent = started(with_settings(node, warm_mapped_file_enable=False))
    while agent.do_work():
        pass
    assert segments(node) == [0, SIZE, 2 * SIZE]
    assert node.positions.get(Position.WARM) == 0


def test_the_window_moves_with_the_writer(agent, node):
    move(node, Position.WANTED, 5 * SIZE)
    while agent.do_work():
        pass
    assert segments(node) == [5 * SIZE, 6 * SIZE, 7 * SIZE]


def test_a_segment_that_the_writer_made_meanwhile_stays_the_writers(agent, node):
    assert agent.do_work() == 1
    target = node.store.commitlog / segment_name(0)
    target.write_bytes(b"w" * SIZE)
    assert agent.do_work() == 1
    while agent.do_work():
        pass
    assert target.read_bytes() == b"w" * SIZE
    assert not staged(node)


def test_a_stop_drops_what_is_under_construction_and_what_nobody_used(agent, node):
    while len(segments(node)) < 2 or not staged(node):
        assert agent.do_work() == 1
    move(node, Position.APPENDED, 100)
    node.positions.duty(Duty.PUT).state = State.STOPPED
    assert agent.drain()
    assert segments(node) == [0]
    assert not staged(node)


def test_segments_stay_while_a_writer_may_have_mapped_them(agent, node):
    while agent.do_work():
        pass
    node.positions.duty(Duty.PUT).state = State.RUNNING
    assert agent.drain()
    assert len(segments(node)) == AHEAD + 1


def test_a_log_that_begins_further_on_leaves_no_segment_before_it(agent, node):
    assert agent.do_work() == 1  # the segment at 0 is under construction
    for position in (Position.LOG_MIN, Position.WANTED, Position.APPENDED):
        move(node, position, 9 * SIZE, Duty.RECEIVE)
    while agent.do_work():
        pass
    agent.do_work()
    assert segments(node) == [9 * SIZE, 10 * SIZE, 11 * SIZE]


def test_what_a_killed_process_left_under_construction_goes_and_nothing_else(node):
    gone = subprocess.Popen(["true"])
    gone.wait()
    left, ours = (node.store.staging / f"{segment_name(0)}-{pid}-abcd" for pid in (gone.pid, os.getpid()))
    left.touch()
    ours.touch()
    AllocateAgent(node).on_start(Doorbell(node.runtime.bell("allocate"), node.line))
    assert staged(node) == [ours]


class Time:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class TestFailures:
    @pytest.fixture
    def time(self) -> Time:
        return Time()

    @pytest.fixture
    def broken(self, monkeypatch) -> list[Exception]:
        """What making a segment raises; nothing when it is empty."""
        errors: list[Exception] = []
        create = segment_files.create_segment

        def failing(*args):
            if errors:
                raise errors[0]
            return create(*args)

        monkeypatch.setattr(segment_files, "create_segment", failing)
        return errors

    @pytest.mark.parametrize(
        "error",
        [OSError(errno.EIO, "Input/output error"), SyncFailed("staging", 0, 0, errno.EIO, "Input/output error")],
        ids=["create", "sync"],
    )
    def test_an_error_is_told_to_the_writer_at_once_and_tried_again_until_it_is_over(
        self, node, time, broken, error, caplog
    ):
        node = replace(node, clock=time)
        agent = started(node)
        broken.append(error)
        for _ in range(5):
            assert agent.do_work() == 0
            assert node.positions.flags & Flag.SEGMENT_ERROR
            assert agent.do_work() == 0, "it rests"
            time.ms += PAUSE_MS
        assert caplog.text.count("segment 0 cannot be made") == 1
        assert segments(node) == staged(node) == []
        broken.clear()
        while agent.do_work():
            pass
        assert segments(node) == [0, SIZE, 2 * SIZE]
        assert not node.positions.flags & Flag.SEGMENT_ERROR

    def test_a_full_disk_is_told_as_one(self, node, time, broken):
        node = replace(node, clock=time)
        agent = started(node)
        broken.append(DiskFull("staging", SIZE))
        assert agent.do_work() == 0
        assert node.positions.flags & Flag.DISK_FULL
        assert node.positions.flags & Flag.SEGMENT_ERROR
        broken.clear()
        time.ms += 1000
        while agent.do_work():
            pass
        assert not node.positions.flags & (Flag.DISK_FULL | Flag.SEGMENT_ERROR)

    def test_a_segment_that_cannot_be_warmed_is_left_to_the_writer_as_it_is(self, agent, node, monkeypatch, caplog):
        def broken(*_: object) -> None:
            raise SyncFailed("segment", 0, 0, errno.EIO, "Input/output error")

        monkeypatch.setattr(MappedFile, "sync", broken)
        while agent.do_work() or node.positions.get(Position.WARM) < 3 * SIZE:
            pass
        assert caplog.text.count("stays as warm as it is") == 3
        assert not node.positions.flags & Flag.SEGMENT_ERROR


class TestLocking:
    def test_a_segment_is_locked_until_six_seconds_after_the_writer_left_it(self, node):
        time = Time()
        before = locked()
        agent = started(replace(with_settings(node, lock_mapped_files=True), clock=time))
        while agent.do_work():
            pass
        assert locked() - before == 3 * SIZE
        move(node, Position.WANTED, SIZE)
        while agent.do_work():
            pass
        assert locked() - before == 4 * SIZE
        time.ms += UNLOCK_AFTER_MS - 1
        agent.do_work()
        assert locked() - before == 4 * SIZE
        time.ms += 1
        agent.do_work()
        assert locked() - before == 3 * SIZE
        assert agent.drain()
        assert locked() == before

    def test_beyond_the_limit_it_says_so_once_and_goes_on(self, node, monkeypatch, caplog):
        def refuse(_: object) -> None:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")

        monkeypatch.setattr(memory, "lock", refuse)
        agent = started(with_settings(node, lock_mapped_files=True))
        while agent.do_work():
            pass
        assert caplog.text.count("segments are not locked in memory any more: Cannot allocate memory") == 1
        assert node.positions.get(Position.WARM) == 3 * SIZE


def locked() -> int:
    """Bytes that this process has locked."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmLck")).split()[1])


@pytest.mark.parametrize(("step_ms", "slow"), [(0, 0), (20, AHEAD + 1)])
def test_segments_that_take_long_are_counted_and_told(node, caplog, step_ms, slow):
    class SteppingClock(SystemClock):
        """Each look at it is `step_ms` after the one before."""

        ms = 1_000

        def monotonic_ms(self) -> int:
            self.ms += step_ms
            return self.ms

    agent = started(replace(node, clock=SteppingClock()))
    with caplog.at_level(logging.INFO):
        while node.positions.get(Position.ALLOCATED) < (AHEAD + 1) * SIZE:
            agent.do_work()
    message = [record for record in caplog.records if record.message.startswith("making segment")]
    assert node.line.counter(Counter.LATE) == len(message) == slow
    assert [record.levelno == logging.WARNING for record in message] == [True, False, False][:slow]


def test_it_looks_often_while_something_is_to_be_done_and_seldom_otherwise(agent, node):
    assert agent.do_work() == 1
    assert agent.sleep_ms() == STEP_MS
    while agent.do_work():
        pass
    assert agent.sleep_ms() == LOOK_MS
