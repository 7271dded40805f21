"""Several sleeps in a row without the interpreter: what ends them, and what they leave behind."""

import os
import signal
import threading
import time

import pytest
import zmq

from towline.limits import REST_MAX_MS, SLEEP_MAX_MS
from towline.link.native import address_of
from towline.link.poller import Poller
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Duty, Position, Positions

SLEEPS = 4
WHOLE_MS = SLEEPS * SLEEP_MAX_MS
NS_PER_MS = 1_000_000


@pytest.fixture
def positions(tmp_path):
    return Positions.create(tmp_path / "positions", 1)


@pytest.fixture
def line(positions):
    return positions.duty(Duty.SERVE)


@pytest.fixture
def rest(line):
    rest = IdleSleep(line, address_of("zmq_poll"))
    assert rest.fits(WHOLE_MS + SLEEP_MAX_MS // 2)
    return rest


@pytest.fixture
def bell(tmp_path, line):
    bell = Doorbell(tmp_path / "bell", line)
    yield bell
    bell.close()


def timed(function, *arguments):
    """What it returned, and the milliseconds that it took."""
    began = time.monotonic_ns()
    return function(*arguments), (time.monotonic_ns() - began) / NS_PER_MS


def in_a_moment(function, *arguments) -> threading.Thread:
    """While the other sleeps: half of one sleep from now."""
    timer = threading.Timer(SLEEP_MAX_MS / 2000, function, arguments)
    timer.start()
    return timer


def test_nothing_comes_and_every_sleep_is_slept_to_its_end(rest, bell):
    slept, took = timed(rest, (bell.fileno(),))
    assert slept == WHOLE_MS
    assert took >= WHOLE_MS


def test_as_many_sleeps_as_fit_before_something_is_due_follow_each_other_and_no_more_than_a_rest_has(rest, bell):
    assert not rest.fits(2 * SLEEP_MAX_MS - 1)
    assert rest.fits(2 * SLEEP_MAX_MS)
    assert rest((bell.fileno(),)) == 2 * SLEEP_MAX_MS
    assert rest.fits(1 << 40)
    assert rest((bell.fileno(),)) == REST_MAX_MS


def test_each_sleep_leaves_a_beat(rest, bell, line):
    before = time.monotonic_ns()
    rest((bell.fileno(),))
    assert before + (WHOLE_MS - 1) * NS_PER_MS <= line.beat_ns <= time.monotonic_ns()


def test_a_bell_that_rings_already_ends_it_at_once(rest, bell):
    os.write(bell.fileno(), b"\0")
    assert rest((bell.fileno(),)) == 0
    assert bell.wait(0)


def test_a_bell_that_rings_meanwhile_ends_it(rest, bell):
    timer = in_a_moment(os.write, bell.fileno(), b"\0")
    slept, took = timed(bell.wait, WHOLE_MS, rest)
    assert slept is True
    assert took < WHOLE_MS
    timer.join()


def test_a_position_that_moved_after_the_look_ends_it_after_the_sleep(rest, bell, positions):
    rest.read_positions()
    positions.writer(Position.FLUSHED, Duty.FLUSH).advance(7)
    assert rest((bell.fileno(),)) == SLEEP_MAX_MS
    rest.read_positions()
    assert rest((bell.fileno(),)) == WHOLE_MS


def test_a_signal_ends_it(rest, bell):
    came = []
    before = signal.signal(signal.SIGUSR1, lambda *_: came.append(1))
    try:
        timer = in_a_moment(signal.pthread_kill, threading.get_ident(), signal.SIGUSR1)
        slept, _ = timed(rest, (bell.fileno(),))
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert came == [1]
    assert slept < WHOLE_MS


def test_a_message_ends_it_and_is_seen_by_the_poller(rest, bell):
    with zmq.Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
        pull.bind("inproc://rest")
        push.connect("inproc://rest")

        class Source:
            sockets = (pull,)

            def tend(self):
                return

        source = Source()
        poller = Poller(source, bell.fileno())
        timer = in_a_moment(push.send, b"news")
        assert poller.poll(SLEEP_MAX_MS, rest)
        assert poller.ready(source)
        assert not poller.ready(bell.fileno())
        timer.join()
        assert pull.recv() == b"news"
        assert not poller.poll(SLEEP_MAX_MS, rest)
