"""Requests on their way from the socket to their turn, and who holds the socket meanwhile."""

import logging
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from master.put import request_queue as bounds
from master.put.admission import page_cache_busy
from master.put.request_queue import Intake
from master.put.stall_responder import Front
from towline.format.wire.frames import ASK, Group, Kind, decode_put_answer, encode_put
from towline.format.wire.refusals import Cause
from towline.format.wire.status import PutStatus
from towline.kernels.put import put_rows as kernel
from towline.limits import REQUEST_GROUPS_MAX
from towline.link.context import close_context, new_context
from towline.link.dealer import Link
from towline.link.endpoints import ipc_endpoint
from towline.link.server import Server
from towline.node.process.secret import SCHEDULE_ROLE
from towline.runtime.positions import Counter, Duty, Positions, State

DEADLINE_S = 60.0
FACTS = {"role": "producer", "cluster": "", "store": "", "name": "test"}


class Desk:
    """An intake, the server before it and a peer, in one thread."""

    def __init__(self, directory):
        self.positions = Positions.create(directory / "positions", generation=1)
        self.line = self.positions.duty(Duty.PUT)
        self.line.enter(1, State.RUNNING)
        self.context = new_context()
        endpoint = ipc_endpoint(directory, "put")
        self.server = Server(self.context, [endpoint], own={"role": "put", "cluster": "", "store": "", "name": ""})
        node = SimpleNamespace(line=self.line, positions=self.positions, log=logging.getLogger("desk"))
        self.asked = []
        self.intake = Intake(node, self.server, self.asked.append)
        self.link = Link(self.context, endpoint, FACTS)
        greeted = threading.Thread(target=self.link.greet, args=(5000,))
        greeted.start()
        while greeted.is_alive():
            self.intake.take()
        greeted.join()

    def put(self, count: int, size: int = 100) -> None:
        for number in range(count):
            head = encode_put(number, 0, 1 << 60, [Group(b"t", 0, 1, size)])
            self.until(lambda head=head: self.link.send([head, bytes(size)]))

    def until(self, found):
        deadline = time.monotonic() + DEADLINE_S
        while not (value := found()):
            assert time.monotonic() < deadline
        return value

    def answer(self):
        return decode_put_answer(self.until(self.link.receive)[0])

    def close(self):
        self.link.close()
        self.intake.close()
        self.server.close()
        close_context(self.context)


@pytest.fixture
def desk(tmp_path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


def take_all(desk: Desk, count: int) -> None:
    desk.until(lambda: desk.intake.take() * 0 + len(desk.intake) == count)


def test_puts_wait_in_the_order_they_came_with_the_time_they_came(desk):
    before = time.monotonic_ns() // 1_000_000
    desk.put(3)
    take_all(desk, 3)
    after = time.monotonic_ns() // 1_000_000
    arrived = [desk.intake.next() for _ in range(3)]
    assert [each.request_id for each in arrived] == [0, 1, 2]
    assert all(before <= each.arrived_ms <= after for each in arrived)
    assert len(desk.intake) == 0


@pytest.mark.parametrize(("limit", "value"), [("WAITING_MAX", 5), ("WAITING_BYTES_MAX", 1800)])
def test_what_may_wait_is_bounded_and_the_rest_stays_in_the_socket(desk, monkeypatch, limit, value):
    monkeypatch.setattr(bounds, limit, value)
    desk.put(8, size=100)
    take_all(desk, 5)
    assert desk.intake.full
    assert desk.intake.take() == 0
    desk.intake.next()
    assert not desk.intake.full
    take_all(desk, 5)


def test_requests_of_many_groups_and_few_records_are_counted_by_what_they_hold_in_memory(desk, monkeypatch):
    groups = [Group(b"t" * 255, number, 1, 1) for number in range(REQUEST_GROUPS_MAX)]
    head = encode_put(1, 0, 1 << 60, groups)
    monkeypatch.setattr(bounds, "WAITING_BYTES_MAX", 3 * len(head))
    for _ in range(6):
        desk.until(lambda: desk.link.send([head, b""]))
    desk.until(lambda: desk.intake.take() * 0 + desk.intake.full)
    assert len(desk.intake) <= 3
    while len(desk.intake):
        desk.intake.next()
    assert not desk.intake.full


def test_a_slow_question_lets_the_puts_go_first_that_came_with_it(desk, monkeypatch):
    for number in range(3):
        desk.until(lambda number=number: desk.link.send([ASK.pack(Kind.ASK, number), b"{}"]))
    desk.put(2)
    take_all(desk, 2)
    assert desk.asked == []
    monkeypatch.setattr(bounds, "ASKED_NS", 0)  # every question is a slow one
    assert [desk.intake.answer() for _ in range(4)] == [1, 1, 1, 0]
    assert [(question.request_id, question.text) for question in desk.asked] == [(n, b"{}") for n in range(3)]


@pytest.mark.parametrize("text", [b"[]", b"{", b"\xff", b'{"op":"' + b"x" * bounds.QUESTION_SIZE_MAX + b'"}'])
def test_what_is_no_question_costs_its_sender_the_link(desk, text):
    assert desk.link.send([ASK.pack(Kind.ASK, 1), text])
    desk.until(lambda: desk.intake.take() * 0 + desk.link.lost)
    assert desk.intake.answer() == 0


def test_questions_that_wait_are_bounded_as_puts_are(desk, monkeypatch):
    monkeypatch.setattr(bounds, "WAITING_MAX", 3)
    for number in range(5):
        desk.until(lambda number=number: desk.link.send([ASK.pack(Kind.ASK, number), b"{}"]))
    desk.until(lambda: desk.intake.take() * 0 + desk.intake.full)
    assert desk.intake.take() == 0
    desk.intake.answer()
    assert not desk.intake.full


def test_a_refusal_reaches_its_sender_and_is_counted_by_its_cause(desk):
    desk.put(1)
    take_all(desk, 1)
    desk.intake.refuse(desk.intake.next(), page_cache_busy(1500, 1000))
    answer = desk.answer()
    assert (answer.status, answer.retry_after) == (PutStatus.OS_PAGE_CACHE_BUSY, 375)
    assert desk.positions.refused.count(Cause.PAGE_CACHE) == desk.line.counter(Counter.REFUSED) == 1


def test_what_is_no_request_costs_its_sender_the_link(desk):
    assert desk.link.send([bytes([Kind.PUT]) * 5, b"x"])
    desk.until(lambda: desk.intake.take() * 0 + desk.link.lost)
    assert desk.positions.refused.count(Cause.MALFORMED) == 1


def front_of(desk: Desk, busy_ms: int) -> Front:
    front = Front(desk.line, busy_ms=busy_ms, waited_ms=40)
    front.begin(desk.server, desk.intake)
    return front


def test_a_long_turn_hands_the_socket_over_and_takes_it_back(desk):
    front = front_of(desk, busy_ms=60)
    front.enter(time.monotonic_ns())
    desk.put(2)
    refused = [desk.answer(), desk.answer()]
    assert desk.line.state is State.KERNEL
    front.leave()
    assert {answer.status for answer in refused} == {PutStatus.OS_PAGE_CACHE_BUSY}
    assert (desk.line.turn_began_ns, desk.line.state) == (0, State.RUNNING)
    desk.put(1)
    take_all(desk, 1)
    front.close()


def test_short_turns_keep_the_socket(desk):
    front = front_of(desk, busy_ms=60)
    for _ in range(2000):
        front.enter(time.monotonic_ns())
        front.leave()
    front.close()
    assert desk.line.state is State.RUNNING


def test_a_full_intake_is_refused_when_the_limit_is_reached_and_what_follows_too(desk, monkeypatch):
    monkeypatch.setattr(bounds, "WAITING_MAX", 3)
    front = front_of(desk, busy_ms=150)
    desk.put(10)
    front.enter(time.monotonic_ns())
    assert {desk.answer().status for _ in range(10)} == {PutStatus.OS_PAGE_CACHE_BUSY}
    front.leave()
    front.close()


def test_a_front_that_is_closed_during_a_turn_lets_go(desk):
    front = front_of(desk, busy_ms=60)
    front.enter(time.monotonic_ns())
    desk.until(lambda: desk.line.state is State.KERNEL)
    front.close()
    front.leave()
    assert desk.line.state is State.RUNNING


def test_what_a_front_fails_with_is_raised_where_the_turn_ends(desk, monkeypatch):
    def fail() -> int:
        raise ValueError("a fault of our own")

    front = front_of(desk, busy_ms=60)
    monkeypatch.setattr(desk.intake, "take", fail)
    front.enter(time.monotonic_ns())
    desk.until(lambda: not front._thread.is_alive() or front._error)
    with pytest.raises(ValueError, match="of our own"):
        front.leave()
    front.close()


def test_a_front_refuses_what_a_stuck_kernel_has_not_begun_and_no_more(desk):
    desk.put(5)
    take_all(desk, 5)
    arrivals = desk.intake.arrivals
    first, count = desk.intake.lend(5)
    assert (count, len(desk.intake)) == (5, 0)
    arrivals.marks.view(np.int64)[kernel.CURRENT] = first + 1  # the first is stored, the second one is stuck
    front = front_of(desk, busy_ms=60)
    front.enter(time.monotonic_ns())
    refused = [desk.answer() for _ in range(3)]
    assert {answer.status for answer in refused} == {PutStatus.OS_PAGE_CACHE_BUSY}
    assert sorted(answer.request_id for answer in refused) == [2, 3, 4]
    assert arrivals.marks.view(np.int64)[kernel.STOP] == 1
    front.leave()
    front.close()
    arrivals.returned(1, 0)  # the second was not plain after all
    assert arrivals.release(1)[0][0]
    assert len(desk.intake) == 1
    left = desk.intake.next()
    assert left.request_id == 1
    desk.intake.done(left)
    assert len(desk.intake) == 0
    desk.put(2)
    take_all(desk, 2)
    assert desk.intake.lend(9)[1] == 2


def test_what_a_kernel_leaves_waits_again_in_its_order(desk):
    desk.put(4)
    take_all(desk, 4)
    held = desk.intake.arrivals.memory
    desk.intake.lend(3)
    desk.intake.arrivals.returned(1, held // 4)
    desk.intake.arrivals.release(1)
    assert desk.intake.arrivals.memory == held - held // 4
    for wanted in (1, 2, 3):
        arrived = desk.intake.next()
        assert arrived.request_id == wanted
        desk.intake.done(arrived)
    assert desk.intake.next() is None
    assert desk.intake.arrivals.memory == 0


def test_a_stranger_is_told_to_greet_and_stores_nothing(desk):
    desk.put(1)
    take_all(desk, 1)
    desk.server.evict(next(iter(desk.server.sessions)))
    desk.put(1)
    take_all(desk, 2)
    arrived = desk.intake.next()
    assert arrived.request_id == 0
    desk.intake.done(arrived)
    assert desk.intake.next() is None
    assert len(desk.intake) == 0
    assert desk.until(lambda: desk.link.receive() is not None or desk.link.lost)


def test_a_piece_of_the_node_is_trusted(desk):
    next(iter(desk.server.sessions.values())).facts["role"] = SCHEDULE_ROLE
    desk.put(1)
    take_all(desk, 1)
    arrived = desk.intake.next()
    assert arrived.trusted
    desk.intake.done(arrived)


def test_the_table_of_what_waits_goes_round(desk):
    came = taken = 0
    while came < 3 * kernel.ROWS:  # some are always left, so it is not begun anew
        desk.put(500)
        came += 500
        take_all(desk, came - taken)
        while came - taken > 10:
            arrived = desk.intake.next()
            assert (arrived.request_id, bytes(arrived.records)) == (taken % 500, bytes(100))
            desk.intake.done(arrived)
            taken += 1
