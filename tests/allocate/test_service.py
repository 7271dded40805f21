"""Segments ahead of the writer, one step per turn, and none that nobody will use left behind."""

import logging
import os
import subprocess
from pathlib import Path

import pytest

from allocate.service import AHEAD, AllocateAgent
from towline.limits import MIB
from towline.log.segment_files import WARM_STEP, segment_name
from towline.node.context import Node
from towline.places import Runtime, Store
from towline.runtime.clock import SystemClock
from towline.runtime.doorbell import Doorbell
from towline.runtime.positions import Duty, Position, Positions, State
from towline.runtime.settings import read_settings

SIZE = 3 * WARM_STEP
GENERATION = 7


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
    made = AllocateAgent(node)
    made.on_start(Doorbell(node.runtime.bell("allocate"), node.line))
    return made


def segments(node: Node) -> list[int]:
    return sorted(int(path.name) for path in node.store.commitlog.iterdir())


def staged(node: Node) -> list[Path]:
    return list(node.store.staging.iterdir())


def move(node: Node, position: Position, value: int, duty: Duty = Duty.PUT) -> None:
    node.positions.writer(position, duty).advance(value)


def test_next_and_next_next_are_made_whole_and_in_order(agent, node):
    seen = []
    while agent.do_work():
        seen.append((len(segments(node)), len(staged(node))))
    assert segments(node) == [number * SIZE for number in range(AHEAD + 1)]
    assert seen == sorted(seen, key=lambda pair: pair[0])
    assert all(under <= 1 for _, under in seen)
    assert len(seen) > (AHEAD + 1) * 2, "a segment takes several turns, so that a stop is heard in between"
    assert node.positions.get(Position.ALLOCATED) == (AHEAD + 1) * SIZE
    assert all((node.store.commitlog / segment_name(base)).stat().st_size == SIZE for base in segments(node))
    assert not staged(node)
    assert SIZE > MIB


def test_the_window_moves_with_the_writer(agent, node):
    move(node, Position.WANTED, 5 * SIZE)
    while agent.do_work():
        pass
    assert segments(node) == [5 * SIZE, 6 * SIZE, 7 * SIZE]


def test_a_segment_that_the_writer_made_meanwhile_stays_the_writers(agent, node):
    assert agent.do_work() == 1
    target = node.store.commitlog / segment_name(0)
    target.write_bytes(b"w" * SIZE)
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
