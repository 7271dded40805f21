"""Who stands still, and whether a service manager gets a sign of life meanwhile."""

import logging
import time
from pathlib import Path

import pytest

from towline.node.process.service_manager import ServiceManager
from towline.node.supervise.watching import NS_PER_S, Worker, listen_ms, look_at
from towline.runtime.positions import Duty, Positions, State

LOG = logging.getLogger("supervise")


class Ear(ServiceManager):
    """Counts signs of life."""

    def __init__(self, watchdog_s: float) -> None:
        super().__init__({})
        self.watchdog_s, self.signs = watchdog_s, 0

    def alive(self) -> None:
        self.signs += 1


@pytest.fixture
def positions(tmp_path: Path) -> Positions:
    made = Positions.create(tmp_path / "positions", 7)
    for duty in (Duty.PUT, Duty.FLUSH):
        made.duty(duty).enter(7, State.RUNNING)
    return made


def still_for(positions: Positions, duty: Duty, seconds: float) -> None:
    line = positions.duty(duty)
    line.words[line.beat_at // 8] = time.monotonic_ns() - int(seconds * NS_PER_S)


@pytest.mark.parametrize(("seconds", "pid"), [(31, 12), (31, 0), (3600, 12)], ids=["still", "gone", "for long"])
def test_no_sign_of_life_comes_while_a_process_stands_still_for_half_the_time(positions, seconds, pid) -> None:
    manager, workers = Ear(60), [Worker(Duty.PUT, 11), Worker(Duty.FLUSH, pid)]
    assert look_at(workers, positions, manager, LOG) == ""
    still_for(positions, Duty.FLUSH, 29)
    assert look_at(workers, positions, manager, LOG) == ""
    assert manager.signs == 2
    still_for(positions, Duty.FLUSH, seconds)
    assert look_at(workers, positions, manager, LOG) == "flush stands still in RUNNING"
    assert manager.signs == 2
    positions.duty(Duty.FLUSH).beat()
    assert look_at(workers, positions, manager, LOG) == ""
    assert manager.signs == 3


def test_it_is_logged_once_whoever_watches(positions, caplog) -> None:
    workers = [Worker(Duty.PUT, 11), Worker(Duty.FLUSH, 12)]
    still_for(positions, Duty.PUT, 6)
    for _ in range(3):
        assert look_at(workers, positions, ServiceManager({}), LOG) == ""
    assert [record.getMessage() for record in caplog.records] == ["put has stood still for 5 s in RUNNING"]


def test_a_supervisor_looks_as_often_as_signs_are_due() -> None:
    found = [listen_ms(Ear(seconds)) for seconds in (0, 60, 1, 0.001)]
    assert found == [500, 500, 250, 1]
