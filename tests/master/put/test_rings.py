"""Rings that put takes requests from: whose turn it is, who is let go, and when the next request is waited for."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.kernels.put.desk import BASE, NEVER, NOW, Log
from towline.format.record import sequence
from towline.format.record.record import MessageEncoder
from towline.format.record.sequence import Place
from towline.format.record.sequence_columns import numbered
from towline.format.wire.frames import Group, decode_put_answer, encode_put, encode_put_refusal
from towline.format.wire.put_ring import HEAD_SIZE, REFUSAL_ROOM, WORD, Cut, Word, request_word
from towline.format.wire.status import PutStatus
from towline.kernels.jit.rows import RequestStatus
from towline.kernels.put import put_ring as kernel
from towline.link.put_ring import ClientRing, NodeRing, Offer, RingRefused
from towline.master.put.rings import SPINS, Rings, RingTerms, shortened
from towline.node.store.put_checks import Refusal
from towline.runtime.spin_wait import SpinWait

SIZE = 64 * 1024
ENCODER = MessageEncoder(b"orders")
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


def put(client: ClientRing, number: int) -> None:
    """A request that can be stored."""
    record = ENCODER.encode(0, b"x", b"", born_timestamp=NOW)
    assert client.send(encode_put(number, 0, NEVER, [Group(b"orders", 0, 1, len(record))]), record)


def placed(place: Place) -> bytes:
    """A record of an idempotent producer."""
    record = MessageEncoder(b"orders", sequenced=True).encode(0, b"x", b"", born_timestamp=NOW)
    return numbered(record, np.array([len(record)]), place)


def send(client: ClientRing, number: int) -> None:
    head = encode_put(number, 0, 1 << 60, [Group(b"t", 0, 1, 50)])
    assert client.send(head, bytes(50))


class Serving(Log):
    """What put does with one ring."""

    def __init__(self, rings):
        super().__init__()
        self.rings, self.table = rings, rings.table
        self.allow(b"orders", 0, 5)

    def serve(self, ring: NodeRing, *, keeps: bool = False) -> int:
        """How many requests were stored; what cannot be costs the client its ring."""
        self.begin()
        self.table.begin(ring, 0, keeps=keeps)
        self.left = self.table.serve(self.arguments)
        self.table.end(ring, self.state.requests)
        self.rings.judge(ring)
        return self.state.requests


@pytest.fixture
def serving(rings):
    return Serving(rings)


def test_an_answer_goes_to_the_ring_that_the_request_came_from(rings, clients, serving):
    put(clients[1], 7)
    assert [serving.serve(ring) for ring in rings] == [0, 1]
    assert clients[0].receive() is None
    answer = decode_put_answer(clients[1].receive())
    assert (answer.request_id, answer.places) == (7, [(5, BASE)])


def test_a_kept_answer_is_written_when_it_is_due_with_the_status_of_then(rings, clients, serving):
    ring = next(iter(rings))
    for number in range(3):
        put(clients[0], number)
    assert serving.serve(ring, keeps=True) == 3
    assert clients[0].receive() is None
    kept, reserved = rings.table.kept(3), ring.reserved
    assert kept.rows["log_end"].tolist()[-1] == BASE + serving.state.at
    put(clients[0], 3)
    assert serving.serve(ring) == 1  # a later call does not touch what is kept
    assert decode_put_answer(clients[0].receive()).request_id == 3
    rings.answer_kept(ring, kept, 0, 2, PutStatus.PUT_OK)
    rings.answer_kept(ring, kept, 2, 1, PutStatus.FLUSH_DISK_TIMEOUT)
    found = [decode_put_answer(clients[0].receive()) for _ in range(3)]
    assert [(answer.request_id, answer.status) for answer in found] == [
        (0, 0),
        (1, 0),
        (2, PutStatus.FLUSH_DISK_TIMEOUT),
    ]
    assert 0 == ring.reserved < reserved


def test_what_is_refused_is_taken_off_the_ring_and_the_next_is_looked_at(rings, clients, serving):
    ring = next(iter(rings))
    send(clients[0], 1)  # of a topic that nobody allowed
    put(clients[0], 2)
    assert serving.serve(ring) == 0
    assert serving.left
    rings.refuse(ring, 0, Refusal(PutStatus.TOPIC_NOT_EXIST, "the topic 't' does not exist; create it first"))
    assert serving.serve(ring) == 1
    refused, stored = (decode_put_answer(clients[0].receive()) for _ in range(2))
    assert (refused.request_id, refused.status) == (1, PutStatus.TOPIC_NOT_EXIST)
    assert (stored.request_id, stored.status) == (2, PutStatus.PUT_OK)


@pytest.mark.parametrize("keeps", [False, True], ids=["at once", "kept"])
def test_what_was_judged_is_stored_though_the_client_writes_over_it_meanwhile(rings, clients, serving, keeps):
    """And answered; what stands behind it in the ring is stored too."""
    ring, table, client = next(iter(rings)), rings.table, clients[0]
    judged, other = (placed(Place(producer, 1_782_579_200_000_004_103, 7)) for producer in (4711, 4712))
    head = encode_put(1, 0, NEVER, [Group(b"orders", 0, 1, len(judged))])
    assert client.send(head, judged)
    put(client, 2)
    serving.begin()
    table.begin(ring, 0, keeps=keeps)
    assert table.serve(serving.arguments)
    assert table.row(0).status == RequestStatus.SEQUENCED
    at = HEAD_SIZE + WORD + len(head)
    assert client.memory.view[at : at + len(judged)] == judged
    client.memory.view[at : at + len(judged)] = other
    table.row(0).status = RequestStatus.WAITING
    serving.state.judged = 1
    assert not table.serve(serving.arguments)
    assert table.why == kernel.EMPTY
    assert (serving.state.requests, serving.state.judged) == (2, 0)
    assert serving.bytes[len(judged) - sequence.SIZE : len(judged)].tobytes() == judged[-sequence.SIZE :]
    table.end(ring, 2)
    if keeps:
        assert client.receive() is None
        rings.answer_kept(ring, table.kept(2), 0, 2, PutStatus.PUT_OK)
    answers = [decode_put_answer(client.receive()) for _ in range(2)]
    assert [(each.request_id, each.status, each.places) for each in answers] == [
        (1, PutStatus.PUT_OK, [(5, BASE)]),
        (2, PutStatus.PUT_OK, [(6, BASE + len(judged))]),
    ]
    assert (ring.reserved, client.receive(), ring.requests.waits) == (0, None, False)


def test_what_waits_during_a_stall_is_refused_but_in_the_ring_that_a_kernel_has(rings, clients):
    for client in clients:
        put(client, 1)
        put(client, 2)
    rings.lent = list(rings)[1]
    assert rings.refuse_waiting(Refusal(PutStatus.OS_PAGE_CACHE_BUSY, "an append waits for the disk")) == 2
    found = [decode_put_answer(clients[0].receive()) for _ in range(2)]
    assert [(answer.request_id, answer.status) for answer in found] == [
        (n, PutStatus.OS_PAGE_CACHE_BUSY) for n in (1, 2)
    ]
    assert clients[1].receive() is None


def test_nothing_is_taken_from_whoever_does_not_read_its_answers(rings, clients, serving):
    first, second = rings
    count = 0
    while True:
        put(clients[0], count)
        if not serving.serve(first):
            break
        count += 1
        serving.bytes[:] = 0
        serving.state.at = 0
    assert count > 400
    assert rings.table.why == kernel.FULL
    assert len(rings) == 2  # it is slow, and that is all
    put(clients[1], 1)
    assert serving.serve(second) == 1
    while clients[0].receive() is not None:
        continue
    assert serving.serve(first) == 1
    assert decode_put_answer(clients[0].receive()).request_id == count


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
        put(client, 1)
        assert Serving(rings).serve(next(iter(rings))) == 1
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


def test_garbage_cuts_one_ring_off_by_name_and_the_other_goes_on(rings, clients, serving, told):
    clients[0].memory.words[Word.REQUESTS_TAIL] = 1 << 40
    put(clients[1], 3)
    assert [serving.serve(ring) for ring in list(rings)] == [0, 1]
    assert len(rings) == 1
    assert "position" in told[0]
    assert clients[0].memory.words[Word.CUT] == Cut.POSITION


def test_an_entry_that_is_no_put_costs_its_client_the_ring(rings, clients, serving, told):
    head = b"\0" * 80
    assert clients[0].requests.offer(request_word(len(head), len(head) + 50), (head, bytes(50)))
    assert serving.serve(next(iter(rings))) == 0
    assert clients[0].memory.words[Word.CUT] == Cut.FORM
    assert len(rings) == 1
    assert "no put" in told[0]


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


def test_a_refusal_fits_the_room_that_is_kept_for_it():
    answer = encode_put_refusal(1, 6, 1, 0, 0, "é" * 2000)
    assert len(shortened(answer)) + 16 <= REFUSAL_ROOM
    assert decode_put_answer(shortened(answer)).sentence.startswith("éé")


def test_waiting_for_the_next_request_is_given_up_where_none_comes_and_tried_now_and_then():
    spin = SpinWait(SPINS)
    spins = [spin.spins() for _ in range(64)]
    assert 1 <= sum(map(bool, spins)) <= 8
    for _ in range(10):
        spin.found(True)
    assert all(spin.spins() for _ in range(10))
    for _ in range(40):
        spin.found(False)
    assert sum(bool(spin.spins()) for _ in range(64)) <= 8
