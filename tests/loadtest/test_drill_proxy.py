"""The proxy that stands between nodes where there is no network namespace: it passes, holds, loses answers, delays."""

import socket
import time

import pytest

from tests.processes.waiting import await_
from towline.loadtest.drill.network import LOOPBACK, Proxied, address, free_port

PLACE = 7
WAIT_S = 20.0


@pytest.fixture
def listener():
    with socket.create_server((LOOPBACK, free_port())) as made:
        made.settimeout(WAIT_S)
        yield made


@pytest.fixture
def network(listener):
    made = Proxied()
    made.open({PLACE: [listener.getsockname()[1]]}, [1, 2])
    yield made
    made.close()


@pytest.fixture
def pair(network, listener):
    """(the asking side, the answering side) of a connection from 1."""
    near = socket.create_connection((address(1, PLACE), listener.getsockname()[1]), timeout=WAIT_S)
    far, _ = listener.accept()
    far.settimeout(WAIT_S)
    with near, far:
        yield near, far


def is_silent(side: socket.socket) -> bool:
    side.settimeout(0.3)
    try:
        side.recv(1)
    except TimeoutError:
        return True
    finally:
        side.settimeout(WAIT_S)
    return False


def test_bytes_pass_in_both_directions_and_an_end_is_passed_on(pair):
    near, far = pair
    near.sendall(b"asked" * 1_000)
    assert far.recv(5_000, socket.MSG_WAITALL) == b"asked" * 1_000
    far.sendall(b"answer")
    assert near.recv(6) == b"answer"
    far.close()
    await_(lambda: near.recv(1) == b"", WAIT_S, "the other side learns of the end")


def test_a_cut_holds_what_is_under_way_and_a_heal_lets_it_go(network, pair):
    near, far = pair
    network.cut([(1, PLACE)])
    near.sendall(b"x")
    far.sendall(b"y")
    assert is_silent(far)
    assert is_silent(near)
    network.heal()
    assert (far.recv(1), near.recv(1)) == (b"x", b"y")


def test_a_half_open_way_loses_answers_alone(network, pair):
    near, far = pair
    network.cut([(1, PLACE)], half=True)
    near.sendall(b"x")
    assert far.recv(1) == b"x"
    far.sendall(b"y")
    assert is_silent(near)


def test_other_ways_to_the_same_place_are_untouched(network, listener):
    network.cut([(1, PLACE)])
    with socket.create_connection((address(2, PLACE), listener.getsockname()[1]), timeout=WAIT_S) as near:
        far, _ = listener.accept()
        with far:
            near.sendall(b"x")
            assert far.recv(1) == b"x"


def test_a_slow_way_takes_its_time(listener):
    network = Proxied(delay_s=0.25)
    network.open({PLACE: [listener.getsockname()[1]]}, [1])
    try:
        with socket.create_connection((address(1, PLACE), listener.getsockname()[1]), timeout=WAIT_S) as near:
            far, _ = listener.accept()
            with far:
                network.cut([(1, PLACE)])
                began = time.monotonic()
                near.sendall(b"x")
                assert far.recv(1) == b"x"
                assert time.monotonic() - began >= 0.25
    finally:
        network.close()
