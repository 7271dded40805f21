"""When the disk will be full, from what the log grew by."""

import logging
import os

import pytest

from towline.log.commitlog.reserve_file import ReserveFile, disk_use
from towline.log.files.segment_files import segment_name
from towline.node.process.context import Node
from towline.node.report.status import RATE_SEGMENTS, space_of
from towline.places import Runtime, Store
from towline.runtime.positions import Duty, Position, Positions
from towline.runtime.settings import read_settings

SIZE = 1 << 20
NOW = 1_700_000_000_000
HOUR_S = 3600


class Still:
    def now_ms(self) -> int:
        return NOW

    monotonic_ms = now_ms


@pytest.fixture
def node(tmp_path):
    """A log of twenty full segments and half of one, an hour between two."""
    store, runtime = Store(tmp_path / "store"), Runtime(tmp_path / "run")
    for directory in (store.commitlog, runtime.root):
        directory.mkdir(parents=True)
    flags = {"mapped_file_size_commit_log": str(SIZE), "reserve_file_size": "4096"}
    positions = Positions.create(runtime.positions, 1)
    made = Node(
        store, runtime, read_settings(None, flags, {}), positions, Duty.PUT, 1, logging.getLogger("space"), Still()
    )
    for number in range(21):
        path = store.commitlog / segment_name(number * SIZE)
        path.touch()
        filled = NOW / 1000 - (20.5 - number - 1) * HOUR_S
        os.utime(path, (filled, filled))
    positions.writer(Position.APPENDED, Duty.PUT).advance(20 * SIZE + SIZE // 2)
    return made


def test_a_mebibyte_an_hour_fills_what_is_left_in_as_many_hours(node):
    use = disk_use(node.store.root)
    left = 90 * (use.used + use.available) // 100 - use.used
    found = space_of(node)
    assert found["full_in_s"] == pytest.approx(max(0, left) / SIZE * HOUR_S, rel=0.01)
    assert (found["used_percent"], found["warning_level_percent"]) == (use.percent, 90)


def test_a_log_without_a_full_segment_tells_nothing(node):
    positions = node.positions
    positions.writer(Position.LOG_MIN, Duty.ALLOCATE).advance(20 * SIZE)
    assert space_of(node)["full_in_s"] is None


def test_segments_that_are_gone_are_not_asked(node):
    for number in range(20 - RATE_SEGMENTS, 20):
        assert space_of(node)["full_in_s"] is not None
        (node.store.commitlog / segment_name(number * SIZE)).unlink()
    assert space_of(node)["full_in_s"] is None


def test_whether_the_reserve_is_there(node):
    assert not space_of(node)["reserve_held"]
    assert ReserveFile(node.store.root, 4096).make()
    assert space_of(node)["reserve_held"]
