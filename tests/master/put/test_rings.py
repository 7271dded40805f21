"""Rings that put takes requests from: whose turn it is, who is let go, and when the next request is waited for."""

import os
import signal
import subprocess
import sys

import pytest

from master.put.put_request import PutRequest
from master.put.rings import Rings, RingTerms, SpinWait, shortened
from towline.format.wire.frames import Group, decode_put_answer, encode_put, encode_put_answer, encode_put_refusal
from towline.format.wire.put_ring import REFUSAL_ROOM, Cut, Word
from towline.link.put_ring import ClientRing, NodeRing, Offer, RingRefused

SIZE = 64 * 1024
TERMS = RingTerms(SIZE, 2, 5, "put.bell")


@pytest.fixture
def bell(tmp_path):
    os.mkfifo(tmp_path / "put.bell")
    return tmp_path / "put.bell"


@pytest.fixture
def told():
    return []


@pytest.fixture
def rings(told):
    made = Rings(TERMS, told.append)
    yield made
    made.close()


@pytest.fixture
def clients(rings, bell):
    made = [ClientRing(Offer(SIZE, 5, bell)) for _ in range(2)]
    for client in made:
        rings.open(client.facts)
    yield made
    for client in made:
        client.close()


def send(client: ClientRing, number: int) -> None:
    head = encode_put(number, 0, 1 << 60, [Group(b"t", 0, 1, 50)])
    assert client.send(head, bytes(50))


def taken(rings: Rings) -> PutRequest:
    request = rings.next()
    assert request is not None
    return request


def test_requests_are_taken_from_rings_in_turns(rings, clients):
    for number in range(3):
        send(clients[0], number)
        send(clients[1], 10 + number)
    assert [taken(rings).request_id for _ in range(6)] == [0, 10, 1, 11, 2, 12]
    assert not rings.waits
    assert rings.next() is None


def test_an_answer_goes_to_the_ring_that_the_request_came_from(rings, clients):
    send(clients[1], 7)
    request = taken(rings)
    rings.answer(request.peer, encode_put_answer(7, 0, [(1, 2)]), 1)
    assert clients[0].receive() is None
    assert decode_put_answer(clients[1].receive()).places == [(1, 2)]


def test_nothing_is_taken_from_whoever_does_not_read_its_answers(rings, clients):
    count = 0
    while True:
        send(clients[0], count)
        if not rings.waits:
            break
        request = taken(rings)
        rings.answer(request.peer, encode_put_refusal(count, 6, 1, 0, 0, "x" * 400), 1)
        count += 1
    assert count > 400
    send(clients[1], 1)
    assert taken(rings).request_id == 1
    while clients[0].receive() is not None:
        continue
    assert taken(rings).request_id == count


def test_no_more_rings_than_are_allowed(rings, clients, bell, monkeypatch):
    monkeypatch.setattr(NodeRing, "is_left", lambda _: False)  # a process does not meet its own lock
    third = ClientRing(Offer(SIZE, 5, bell))
    try:
        with pytest.raises(RingRefused, match="shared_memory_puts_max"):
            rings.open(third.facts)
    finally:
        third.close()


def test_a_ring_is_taken_once(told, bell):
    rings, client = Rings(TERMS, told.append), ClientRing(Offer(SIZE, 5, bell))
    try:
        rings.open(client.facts)
        with pytest.raises(RingRefused, match="already"):
            rings.open(client.facts)
        send(client, 1)
        assert taken(rings).request_id == 1
    finally:
        rings.close()
        client.close()


def test_a_switched_off_node_offers_and_takes_none(told, bell):
    rings, client = Rings(RingTerms(SIZE, 0, 5, ""), told.append), ClientRing(Offer(SIZE, 5, bell))
    try:
        assert RingTerms(SIZE, 0, 5, "").offer() == {}
        with pytest.raises(RingRefused, match="off"):
            rings.open(client.facts)
    finally:
        client.close()


def test_garbage_cuts_one_ring_off_by_name_and_the_other_goes_on(rings, clients, told):
    clients[0].memory.words[Word.REQUESTS_TAIL] = 1 << 40
    send(clients[1], 3)
    found = [rings.next(), rings.next()]
    assert [request.request_id for request in found if request is not None] == [3]
    assert len(rings) == 1
    assert "position" in told[0]
    assert clients[0].memory.words[Word.CUT] == Cut.POSITION


PROGRAM = """
import sys
from pathlib import Path
from towline.link.put_ring import ClientRing, Offer
ring = ClientRing(Offer(int(sys.argv[1]), 5, Path(sys.argv[2])))
print(*(ring.facts[name] for name in ("pid", "ring", "bell", "token")), flush=True)
sys.stdin.read()
"""


def test_the_ring_of_a_client_that_died_is_let_go_and_one_that_lives_is_not(rings, bell):
    command = [sys.executable, "-c", PROGRAM, str(SIZE), str(bell)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        said = process.stdout.readline().split()
        rings.open(dict(zip(("pid", "ring", "bell", "token"), map(int, said), strict=True)))
        rings.reap(now=True)
        assert len(rings) == 1
        process.send_signal(signal.SIGKILL)
        process.wait()
        rings.reap(now=True)
        assert len(rings) == 0


def test_put_goes_to_sleep_only_where_nothing_waits(rings, clients):
    assert rings.arm()
    assert clients[0].memory.words[Word.PUT_SLEEPS] == 1
    rings.disarm()
    assert clients[0].memory.words[Word.PUT_SLEEPS] == 0
    send(clients[0], 1)
    assert not rings.arm()
    rings.fast_append = True  # a kernel takes it: it is work all the same
    assert not rings.waits
    assert not rings.arm()


def test_a_refusal_fits_the_room_that_is_kept_for_it():
    answer = encode_put_refusal(1, 6, 1, 0, 0, "é" * 2000)
    assert len(shortened(answer)) + 16 <= REFUSAL_ROOM
    assert decode_put_answer(shortened(answer)).sentence.startswith("éé")


def test_waiting_for_the_next_request_is_given_up_where_none_comes_and_tried_now_and_then():
    spin = SpinWait()
    spins = [spin.spins() for _ in range(64)]
    assert 1 <= sum(map(bool, spins)) <= 8
    for _ in range(10):
        spin.found(True)
    assert all(spin.spins() for _ in range(10))
    for _ in range(40):
        spin.found(False)
    assert sum(bool(spin.spins()) for _ in range(64)) <= 8
