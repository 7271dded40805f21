"""Up to where deliveries are through: noted by a thread, behind the log's sync, and never too far behind them."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from towline.clock import SystemClock
from towline.errors import StoreNotWritable
from towline.log.files.config_file import ConfigFile
from towline.master.schedule.delay_offsets import SLOW_MS, DelayOffsets, DeliveryState
from towline.master.schedule.timers import TimerState
from towline.node.process.context import Node
from towline.places import Runtime, Store
from towline.runtime.positions import Duty, Position, Positions
from towline.runtime.settings import read_settings

INTERVAL = 500
DEADLINE_S = 20.0
NOTHING = TimerState(0, -1, 0, 0, 0)


class Disk:
    """Stands still, refuses, or neither."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = threading.Event()
        self.runs.set()
        self.begun = threading.Event()
        self.refuses = False
        save = ConfigFile.save

        def slow(file: ConfigFile, content: dict[str, Any]) -> None:
            self.begun.set()
            assert self.runs.wait(DEADLINE_S)
            if self.refuses:
                raise StoreNotWritable(str(file.path), "no")
            save(file, content)

        monkeypatch.setattr(ConfigFile, "save", slow)


class Deliveries:
    """What a schedule process has delivered, and its files."""

    def __init__(self, root: Path) -> None:
        store, runtime = Store(root / "store"), Runtime(root / "run")
        for directory in (store.config, runtime.root):
            directory.mkdir(parents=True)
        self.path = store.config / "delayOffset.json"
        positions = Positions.create(runtime.positions, 1)
        self.flushed = positions.writer(Position.FLUSHED, Duty.FLUSH)
        flags = {"flush_delay_offset_interval": str(INTERVAL)}
        node = Node(
            store,
            runtime,
            read_settings(None, flags, {}),
            positions,
            Duty.SCHEDULE,
            1,
            logging.getLogger("delays"),
            SystemClock(),
        )
        self._wrote = threading.Event()
        self.offsets = DelayOffsets(node, self._state, self._wrote.set)
        self.delivered = self.noted = 0
        self.now = 10_000

    def _state(self) -> DeliveryState:
        self.noted = self.delivered
        return DeliveryState({1: self.delivered}, NOTHING, self.delivered)

    def cycle(self, *, after: int = 0, delivered: int = 0) -> None:
        self.now += after
        self.delivered += delivered
        self.offsets.cycle(self.now, changed=self.delivered != self.noted)

    def written(self) -> None:
        """Turns until the thread is through with what was said last."""
        while self.offsets.busy:
            assert self._wrote.wait(DEADLINE_S)
            self._wrote.clear()
            self.cycle()

    @property
    def must_wait(self) -> bool:
        return self.offsets.must_wait(self.now)

    @property
    def on_disk(self) -> int | None:
        found = ConfigFile(self.path).load()
        return None if found is None else int(found["offsetTable"]["1"])


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def deliveries(tmp_path: Path, disk: Disk) -> Iterator[Deliveries]:
    made = Deliveries(tmp_path)
    yield made
    disk.runs.set()
    made.offsets.close()


def test_nothing_is_noted_before_the_log_is_on_the_disk_so_far(deliveries: Deliveries, disk: Disk) -> None:
    deliveries.cycle(delivered=100)
    assert deliveries.offsets.awaits_flush
    deliveries.flushed.advance(99)
    deliveries.cycle(after=INTERVAL)
    assert deliveries.offsets.awaits_flush
    assert not disk.begun.is_set()
    deliveries.flushed.advance(100)
    deliveries.cycle()
    deliveries.written()
    assert deliveries.on_disk == 100


def test_the_files_are_written_once_an_interval(deliveries: Deliveries) -> None:
    deliveries.flushed.advance(1000)
    deliveries.cycle(delivered=1)
    deliveries.written()
    deliveries.cycle(after=INTERVAL - 1, delivered=1)
    assert not deliveries.offsets.busy
    assert deliveries.on_disk == 1
    deliveries.cycle(after=1, delivered=1)
    deliveries.written()
    assert deliveries.on_disk == 3


def test_deliveries_go_on_beside_a_slow_disk_for_a_while_and_then_wait(deliveries: Deliveries, disk: Disk) -> None:
    deliveries.flushed.advance(1000)
    disk.runs.clear()
    deliveries.cycle(delivered=1)
    assert disk.begun.wait(DEADLINE_S)
    deliveries.cycle(after=INTERVAL + SLOW_MS - 1, delivered=1)
    assert not deliveries.must_wait
    deliveries.cycle(after=1)
    assert deliveries.must_wait
    disk.runs.set()
    deliveries.written()
    assert not deliveries.must_wait  # what came second is not so old yet
    assert deliveries.on_disk == 1
    deliveries.cycle(after=INTERVAL)
    deliveries.written()
    assert deliveries.on_disk == 2


def test_a_flush_that_stands_still_holds_deliveries_too(deliveries: Deliveries) -> None:
    deliveries.cycle(delivered=100)
    deliveries.cycle(after=INTERVAL + SLOW_MS - 1)
    assert not deliveries.must_wait
    deliveries.cycle(after=1)
    assert deliveries.must_wait


def test_where_nothing_can_be_written_deliveries_go_on_and_it_is_tried_again(
    deliveries: Deliveries, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    deliveries.flushed.advance(1000)
    disk.refuses = True
    for _ in range(3):
        deliveries.cycle(after=INTERVAL + SLOW_MS, delivered=1)
        deliveries.written()
        assert not deliveries.must_wait
    assert deliveries.on_disk is None
    assert len(caplog.records) == 1, "the same trouble is told once"
    disk.refuses = False
    deliveries.cycle(after=INTERVAL)
    deliveries.written()
    assert deliveries.on_disk == 3
