"""When a stored request is answered, and with what."""

import pytest

from master.acks import Progress, Promise, Stored, Waiting, verdict
from towline.format.status import PutStatus

BOTH = Promise(flushed=True, replicated=True, flush_timeout_ms=5000, slave_timeout_ms=3000)
FLUSHED_ONLY = Promise(flushed=True, replicated=False, flush_timeout_ms=5000, slave_timeout_ms=3000)
NEITHER = Promise(flushed=False, replicated=False, flush_timeout_ms=5000, slave_timeout_ms=3000)
REQUEST = Stored(end=100, stored_ms=1000, peer=b"p", request_id=1, places=[(0, 0)])


@pytest.mark.parametrize(
    ("promise", "flushed", "replicated", "slaveless", "waited", "expected"),
    [
        pytest.param(NEITHER, 0, 0, 0, 0, PutStatus.PUT_OK, id="asynchronous: at once"),
        pytest.param(FLUSHED_ONLY, 99, 0, 0, 4999, None, id="one byte short of the disk: waits"),
        pytest.param(FLUSHED_ONLY, 100, 0, 0, 0, PutStatus.PUT_OK, id="on the disk: acknowledged"),
        pytest.param(FLUSHED_ONLY, 99, 0, 0, 5000, PutStatus.FLUSH_DISK_TIMEOUT, id="the flush took too long"),
        pytest.param(BOTH, 100, 99, 0, 2999, None, id="the slave lacks a byte: waits"),
        pytest.param(BOTH, 100, 100, 0, 0, PutStatus.PUT_OK, id="on both disks: acknowledged"),
        pytest.param(BOTH, 100, 99, 0, 3000, PutStatus.FLUSH_SLAVE_TIMEOUT, id="the slave took too long"),
        pytest.param(BOTH, 100, 0, 1, 2999, None, id="the slave left a moment ago: it may come back"),
        pytest.param(BOTH, 100, 0, 3000, 0, PutStatus.SLAVE_NOT_AVAILABLE, id="no slave for long: at once"),
        pytest.param(BOTH, 99, 0, 3000, 0, None, id="no slave, and the flush may still come"),
        pytest.param(BOTH, 99, 99, 0, 5000, PutStatus.FLUSH_SLAVE_TIMEOUT, id="both late: the slave's status wins"),
    ],
)
def test_the_answer_follows_from_positions_and_time(promise, flushed, replicated, slaveless, waited, expected):
    assert verdict(promise, REQUEST, Progress(flushed, replicated, slaveless), REQUEST.stored_ms + waited) == expected


def test_requests_are_released_in_the_order_of_the_log_and_the_first_that_waits_holds_the_rest():
    waiting = Waiting(FLUSHED_ONLY)
    for end in (10, 20, 30):
        waiting.add(Stored(end, 0, b"p", end, []))
    released = [stored.request_id for stored, _ in waiting.release(Progress(20, 0, 0), 0)]
    assert released == [10, 20]
    assert len(waiting) == 1


def test_the_next_deadline_is_that_of_the_oldest_request():
    waiting = Waiting(BOTH)
    assert waiting.due_ms(0) > 100_000
    waiting.add(Stored(10, 1000, b"p", 1, []))
    waiting.add(Stored(20, 2000, b"p", 2, []))
    assert waiting.due_ms(3000) == 1000


def test_between_the_two_time_outs_of_a_request_nobody_is_woken():
    waiting = Waiting(BOTH)
    waiting.add(Stored(10, 1000, b"p", 1, []))
    assert waiting.due_ms(4500) == 1500
    assert waiting.due_ms(7000) == 1
