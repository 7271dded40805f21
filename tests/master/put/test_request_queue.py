"""Requests on their way from the socket to their turn, and who holds the socket meanwhile."""

import logging
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from towline.format.wire.frames import ASK, Group, Kind, decode_put_answer, encode_put
from towline.format.wire.refusals import Cause
from towline.format.wire.status import PutStatus
from towline.kernels.jit.rows import Sender
from towline.kernels.put import append
from towline.kernels.put.socket_rows import ROWS
from towline.limits import REQUEST_GROUPS_MAX
from towline.link.context import close_context, new_context
from towline.link.dealer import Link
from towline.link.endpoints import ipc_endpoint
from towline.link.native import bytes_from
from towline.link.server import Server
from towline.master.put import request_queue as bounds
from towline.master.put.admission import page_cache_busy
from towline.master.put.request_queue import RequestQueue
from towline.master.put.stall_responder import StallResponder
from towline.node.process.secret import SCHEDULE_ROLE
from towline.runtime.positions import Counter, Duty, Positions, State

DEADLINE_S = 60.0
FACTS = {"role": "producer", "cluster": "", "store": "", "name": "test"}


class Desk:
    """A request queue, the server before it and a peer, in one thread."""

    def __init__(self, directory):
        self.positions = Positions.create(directory / "positions", generation=1)
        self.line = self.positions.duty(Duty.PUT)
        self.line.enter(1, State.RUNNING)
        self.context = new_context()
        endpoint = ipc_endpoint(directory, "put")
        self.server = Server(self.context, [endpoint], own={"role": "put", "cluster": "", "store": "", "name": ""})
        node = SimpleNamespace(line=self.line, positions=self.positions, log=logging.getLogger("desk"))
        self.asked = []
        self.request_queue = RequestQueue(node, self.server, self.asked.append)
        self.link = Link(self.context, endpoint, FACTS)
        greeted = threading.Thread(target=self.link.greet, args=(5000,))
        greeted.start()
        while greeted.is_alive():
            self.request_queue.receive()
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

    def next(self):
        """The sender's request id of the oldest row, which is released."""
        number = self.table.next()
        if number is None:
            return None
        _, request_id = self.table.request_of(number)
        self.table.release(number)
        return request_id

    @property
    def table(self):
        return self.request_queue.socket_table

    def close(self):
        self.link.close()
        self.request_queue.close()
        self.server.close()
        close_context(self.context)


@pytest.fixture
def desk(tmp_path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


def take_all(desk: Desk, count: int) -> None:
    desk.until(lambda: desk.request_queue.receive() * 0 + len(desk.request_queue) == count)


def test_puts_wait_in_the_order_they_came_with_the_time_they_came(desk):
    before = time.monotonic_ns() // 1_000_000
    desk.put(3)
    take_all(desk, 3)
    after = time.monotonic_ns() // 1_000_000
    assert all(before <= desk.table.row(number).received_ms <= after for number in range(3))
    assert [desk.next() for _ in range(3)] == [0, 1, 2]
    assert len(desk.request_queue) == 0


@pytest.mark.parametrize(("limit", "value"), [("WAITING_MAX", 5), ("WAITING_BYTES_MAX", 1800)])
def test_what_may_wait_is_bounded_and_the_rest_stays_in_the_socket(desk, monkeypatch, limit, value):
    monkeypatch.setattr(bounds, limit, value)
    desk.put(8, size=100)
    take_all(desk, 5)
    assert desk.request_queue.full
    assert desk.request_queue.receive() == 0
    desk.next()
    assert not desk.request_queue.full
    take_all(desk, 5)


def test_requests_of_many_groups_and_few_records_are_counted_by_what_they_hold_in_memory(desk, monkeypatch):
    groups = [Group(b"t" * 255, number, 1, 1) for number in range(REQUEST_GROUPS_MAX)]
    head = encode_put(1, 0, 1 << 60, groups)
    monkeypatch.setattr(bounds, "WAITING_BYTES_MAX", 3 * len(head))
    for _ in range(6):
        desk.until(lambda: desk.link.send([head, b""]))
    desk.until(lambda: desk.request_queue.receive() * 0 + desk.request_queue.full)
    assert len(desk.request_queue) <= 3
    while len(desk.request_queue):
        desk.next()
    assert not desk.request_queue.full


def test_a_slow_question_lets_the_puts_go_first_that_came_with_it(desk, monkeypatch):
    for number in range(3):
        desk.until(lambda number=number: desk.link.send([ASK.pack(Kind.ASK, number), b"{}"]))
    desk.put(2)
    take_all(desk, 2)
    assert desk.asked == []
    monkeypatch.setattr(bounds, "QUESTIONS_NS_MAX", 0)  # every question is a slow one
    assert [desk.request_queue.answer() for _ in range(4)] == [1, 1, 1, 0]
    assert [(question.request_id, question.text) for question in desk.asked] == [(n, b"{}") for n in range(3)]


@pytest.mark.parametrize("text", [b"[]", b"{", b"\xff", b'{"op":"' + b"x" * bounds.QUESTION_SIZE_MAX + b'"}'])
def test_what_is_no_question_costs_its_sender_the_link(desk, text):
    assert desk.link.send([ASK.pack(Kind.ASK, 1), text])
    desk.until(lambda: desk.request_queue.receive() * 0 + desk.link.lost)
    assert desk.request_queue.answer() == 0


def test_questions_that_wait_are_bounded_as_puts_are(desk, monkeypatch):
    monkeypatch.setattr(bounds, "WAITING_MAX", 3)
    for number in range(5):
        desk.until(lambda number=number: desk.link.send([ASK.pack(Kind.ASK, number), b"{}"]))
    desk.until(lambda: desk.request_queue.receive() * 0 + desk.request_queue.full)
    assert desk.request_queue.receive() == 0
    desk.request_queue.answer()
    assert not desk.request_queue.full


def test_a_refusal_reaches_its_sender_and_is_counted_by_its_cause(desk):
    desk.put(1)
    take_all(desk, 1)
    desk.request_queue.refuse_next(page_cache_busy(1500, 1000))
    answer = desk.answer()
    assert (answer.status, answer.retry_after) == (PutStatus.OS_PAGE_CACHE_BUSY, 375)
    assert desk.positions.refused.count(Cause.PAGE_CACHE) == desk.line.counter(Counter.REFUSED) == 1


def test_what_is_no_request_costs_its_sender_the_link(desk):
    assert desk.link.send([bytes([Kind.PUT]) * 5, b"x"])
    desk.until(lambda: desk.request_queue.receive() * 0 + desk.link.lost)
    assert desk.positions.refused.count(Cause.MALFORMED) == 1


def responder_of(desk: Desk, busy_ms: int) -> StallResponder:
    responder = StallResponder(desk.line, busy_ms=busy_ms, waited_ms=40)
    responder.begin(desk.server, desk.request_queue)
    return responder


def test_a_long_turn_hands_the_socket_over_and_takes_it_back(desk):
    responder = responder_of(desk, busy_ms=60)
    responder.enter(time.monotonic_ns())
    desk.put(2)
    refused = [desk.answer(), desk.answer()]
    assert desk.line.state is State.KERNEL
    responder.exit()
    assert {answer.status for answer in refused} == {PutStatus.OS_PAGE_CACHE_BUSY}
    assert (desk.line.turn_began_ns, desk.line.state) == (0, State.RUNNING)
    desk.put(1)
    take_all(desk, 1)
    responder.close()


def test_short_turns_keep_the_socket(desk):
    responder = responder_of(desk, busy_ms=60)
    for _ in range(2000):
        responder.enter(time.monotonic_ns())
        responder.exit()
    responder.close()
    assert desk.line.state is State.RUNNING


def test_a_full_request_queue_is_refused_when_the_limit_is_reached_and_what_follows_too(desk, monkeypatch):
    monkeypatch.setattr(bounds, "WAITING_MAX", 3)
    responder = responder_of(desk, busy_ms=150)
    desk.put(10)
    responder.enter(time.monotonic_ns())
    assert {desk.answer().status for _ in range(10)} == {PutStatus.OS_PAGE_CACHE_BUSY}
    responder.exit()
    responder.close()


def test_a_stall_responder_that_is_closed_during_a_turn_lets_go(desk):
    responder = responder_of(desk, busy_ms=60)
    responder.enter(time.monotonic_ns())
    desk.until(lambda: desk.line.state is State.KERNEL)
    responder.close()
    responder.exit()
    assert desk.line.state is State.RUNNING


def test_what_a_stall_responder_fails_with_is_raised_where_the_turn_ends(desk, monkeypatch):
    def fail() -> int:
        raise ValueError("a fault of our own")

    responder = responder_of(desk, busy_ms=60)
    monkeypatch.setattr(desk.request_queue, "receive", fail)
    responder.enter(time.monotonic_ns())
    desk.until(lambda: not responder._thread.is_alive() or responder._error)
    with pytest.raises(ValueError, match="of our own"):
        responder.exit()
    responder.close()


def test_a_stall_responder_refuses_what_a_stuck_kernel_has_not_begun_and_no_more(desk):
    desk.put(5)
    take_all(desk, 5)
    first, count = desk.table.lend(5)
    assert (count, len(desk.request_queue)) == (5, 0)
    desk.table.marks.view(np.int64)[append.CURRENT] = first + 1  # the first is stored, the second one is stuck
    responder = responder_of(desk, busy_ms=60)
    responder.enter(time.monotonic_ns())
    refused = [desk.answer() for _ in range(3)]
    assert {answer.status for answer in refused} == {PutStatus.OS_PAGE_CACHE_BUSY}
    assert sorted(answer.request_id for answer in refused) == [2, 3, 4]
    assert desk.table.marks.view(np.int64)[append.STOP] == 1
    responder.exit()
    responder.close()
    desk.table.take_back(1, 0)  # the second was not stored after all
    assert desk.table.detach(1).peers
    assert len(desk.request_queue) == 1
    assert desk.table.lend(5) == (first + 1, 1)  # it alone is left, and cannot be recalled
    desk.table.recall()
    desk.table.take_back(0, 0)
    assert desk.next() == 1
    assert len(desk.request_queue) == 0
    desk.put(2)
    take_all(desk, 2)
    assert desk.table.lend(9)[1] == 2


def test_what_a_kernel_leaves_waits_again_in_its_order(desk):
    desk.put(4)
    take_all(desk, 4)
    held = desk.table.memory
    desk.table.lend(3)
    desk.table.take_back(1, held // 4)
    desk.table.detach(1)
    assert desk.table.memory == held - held // 4
    for wanted in (1, 2, 3):
        assert desk.next() == wanted
    assert len(desk.request_queue) == 0
    assert desk.table.memory == 0


def test_a_stranger_is_told_to_greet_and_stores_nothing(desk):
    desk.put(1)
    take_all(desk, 1)
    desk.server.evict(next(iter(desk.server.sessions)))
    desk.put(1)
    take_all(desk, 2)
    assert desk.next() == 0
    assert desk.next() is None
    assert len(desk.request_queue) == 0
    assert desk.until(lambda: desk.link.receive() is not None or desk.link.lost)


def test_a_process_of_the_node_is_told_from_clients(desk):
    next(iter(desk.server.sessions.values())).facts["role"] = SCHEDULE_ROLE
    desk.put(1)
    take_all(desk, 1)
    assert desk.table.row(0).sender == Sender.NODE
    assert desk.next() == 0


def test_the_table_of_what_waits_goes_round(desk):
    came = taken = 0
    while came < 3 * ROWS:  # some are always left, so it is not begun anew
        desk.put(500)
        came += 500
        take_all(desk, came - taken)
        while came - taken > 10:
            row = desk.table.row(taken)
            assert bytes_from(row.records, row.records_size) == bytes(100)
            assert desk.next() == taken % 500
            taken += 1
