"""Doorbells: a ring wakes a sleeper, a lost one costs nothing but time, and the fence keeps rings from getting lost."""

import multiprocessing
import select

import pytest

from towline.fence import fence
from towline.runtime.doorbell import Doorbell, Ringer
from towline.runtime.positions import Duty, Position, Positions


@pytest.fixture
def node(tmp_path):
    positions = Positions.create(tmp_path / "positions", generation=1)
    return positions, tmp_path / "flush.bell"


def readable(bell, timeout_s=0):
    """By poll: a long run may have more descriptors open than select can take."""
    poll = select.poll()
    poll.register(bell.fileno(), select.POLLIN)
    return bool(poll.poll(1000 * timeout_s))


def test_an_armed_bell_is_rung(node):
    positions, path = node
    bell, ringer = Doorbell(path, positions.duty(Duty.FLUSH)), Ringer(positions, {Duty.FLUSH: path})
    bell.arm()
    ringer.ring()
    assert readable(bell)
    bell.drain()
    assert not readable(bell)


def test_a_working_neighbour_is_not_disturbed(node):
    positions, path = node
    bell, ringer = Doorbell(path, positions.duty(Duty.FLUSH)), Ringer(positions, {Duty.FLUSH: path})
    ringer.ring()
    assert not readable(bell)


def test_a_bell_that_nobody_answers_fills_up_and_rings_on_without_an_error(node):
    positions, path = node
    bell, ringer = Doorbell(path, positions.duty(Duty.FLUSH)), Ringer(positions, {Duty.FLUSH: path})
    bell.arm()
    for _ in range(70_000):
        ringer.ring()
    assert readable(bell)


def test_a_bell_does_not_spin_after_its_last_ringer_has_gone(node):
    positions, path = node
    bell, ringer = Doorbell(path, positions.duty(Duty.FLUSH)), Ringer(positions, {Duty.FLUSH: path})
    ringer.close()
    assert not readable(bell)


ROUNDS = 20_000


def _answer(path):
    """The sleeper of the test below: mirrors APPENDED into FLUSHED, asleep whenever there is nothing to do."""
    positions = Positions.open(path / "positions")
    appended, flushed = Position.APPENDED, positions.writer(Position.FLUSHED, Duty.FLUSH)
    line = positions.duty(Duty.FLUSH)
    bell, ringer = Doorbell(path / "flush.bell", line), Ringer(positions, {Duty.PUT: path / "put.bell"})
    while flushed.get() < ROUNDS:
        if positions.get(appended) > flushed.get():
            flushed.advance(positions.get(appended))
            ringer.ring()
            continue
        bell.arm()
        if positions.get(appended) == flushed.get() and not readable(bell, 30):
            raise AssertionError("a ring got lost")
        bell.disarm()
        bell.drain()


def test_two_processes_that_ring_each_other_never_miss_a_ring(tmp_path):
    positions = Positions.create(tmp_path / "positions", generation=1)
    appended = positions.writer(Position.APPENDED, Duty.PUT)
    bell = Doorbell(tmp_path / "put.bell", positions.duty(Duty.PUT))
    ringer = Ringer(positions, {Duty.FLUSH: tmp_path / "flush.bell"})
    process = multiprocessing.get_context("spawn").Process(target=_answer, args=(tmp_path,))
    process.start()
    for number in range(1, ROUNDS + 1):
        appended.advance(number)
        ringer.ring()
        while positions.get(Position.FLUSHED) < number:
            bell.arm()
            if positions.get(Position.FLUSHED) < number:
                assert readable(bell, 60), f"round {number}: a ring got lost"
            bell.disarm()
            bell.drain()
    process.join(30)
    assert process.exitcode == 0


def test_the_fence_can_be_called_from_anywhere():
    fence()
