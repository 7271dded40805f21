"""When a stored request is answered, and with what."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towline.format.wire.status import PutStatus
from towline.master.put.acks import AckPolicy, PendingAcks, PendingBatch, Progress, ack_status

BOTH = AckPolicy(flushed=True, replicated=True, flush_timeout_ms=5000, slave_timeout_ms=3000)
FLUSHED_ONLY = AckPolicy(flushed=True, replicated=False, flush_timeout_ms=5000, slave_timeout_ms=3000)
NEITHER = AckPolicy(flushed=False, replicated=False, flush_timeout_ms=5000, slave_timeout_ms=3000)
END, STORED_MS = 100, 1000


class Told:
    """Answers that remember who was told what."""

    def __init__(self) -> None:
        self.found: list[tuple[int, int, PutStatus]] = []

    def send(self, first: int, count: int, status: PutStatus) -> None:
        self.found.append((first, count, status))


def stored(*ends: int, at_ms: int = 0) -> PendingBatch:
    return PendingBatch(ends, at_ms, Told(), [at_ms] * len(ends))


def told(waiting: PendingAcks, progress: Progress, now_ms: int = 0) -> list[tuple[tuple[int, ...], PutStatus]]:
    """The ends of those that are released together, and their status."""
    return [
        (tuple(each.ends[first : first + count]), status)
        for each, first, count, status in waiting.release(progress, now_ms)
    ]


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
    progress = Progress(flushed, replicated, slaveless)
    assert ack_status(promise, END, STORED_MS, progress, STORED_MS + waited) == expected


@pytest.mark.parametrize("promise", [NEITHER, FLUSHED_ONLY, BOTH], ids=["nothing", "the disk", "disk and slaves"])
@pytest.mark.parametrize(
    ("leads", "fenced", "waited", "expected"),
    [
        pytest.param(True, False, 0, PutStatus.PUT_OK, id="leads: acknowledged"),
        pytest.param(False, False, 2999, None, id="the lease ran out: it may be renewed"),
        pytest.param(False, False, 3000, PutStatus.FLUSH_SLAVE_TIMEOUT, id="it was not renewed in time"),
        pytest.param(True, True, 0, PutStatus.FLUSH_SLAVE_TIMEOUT, id="fenced: at once, and never acknowledged"),
        pytest.param(False, True, 0, PutStatus.FLUSH_SLAVE_TIMEOUT, id="both"),
    ],
)
def test_whoever_does_not_lead_acknowledges_nothing_wherever_it_lies(promise, leads, fenced, waited, expected):
    progress = Progress(flushed=100, replicated=100, slaveless_ms=0, leads=leads, fenced=fenced)
    assert ack_status(promise, END, STORED_MS, progress, STORED_MS + waited) == expected


def test_requests_are_released_in_the_order_of_the_log_and_the_first_that_waits_holds_the_rest():
    waiting = PendingAcks(FLUSHED_ONLY)
    for end in (10, 20, 30):
        waiting.add(stored(end))
    assert told(waiting, Progress(20, 0, 0)) == [((10,), PutStatus.PUT_OK), ((20,), PutStatus.PUT_OK)]
    assert len(waiting) == 1


def test_of_those_that_were_stored_together_as_many_are_released_as_are_safe():
    waiting = PendingAcks(FLUSHED_ONLY)
    waiting.add(stored(10, 20, 30))
    waiting.add(stored(40, 50))
    assert told(waiting, Progress(9, 0, 0)) == []
    assert told(waiting, Progress(25, 0, 0)) == [((10, 20), PutStatus.PUT_OK)]
    assert len(waiting) == 3
    assert told(waiting, Progress(29, 0, 0)) == []
    assert told(waiting, Progress(40, 0, 0)) == [((30,), PutStatus.PUT_OK), ((40,), PutStatus.PUT_OK)]
    assert told(waiting, Progress(49, 0, 0), 5000) == [((50,), PutStatus.FLUSH_DISK_TIMEOUT)]
    assert len(waiting) == 0


@settings(max_examples=200)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=12, unique=True).map(sorted),
    st.lists(st.integers(1, 4), min_size=12, max_size=12),
    st.sampled_from([NEITHER, FLUSHED_ONLY, BOTH]),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 9000)), min_size=1, max_size=4),
)
def test_whether_requests_were_stored_together_changes_no_answer(ends, sizes, promise, steps):
    together, alone = PendingAcks(promise), PendingAcks(promise)
    at = 0
    for size in sizes:
        if at < len(ends):
            together.add(stored(*ends[at : at + size]))
        at += size
    for end in ends:
        alone.add(stored(end))
    for flushed, replicated, now in steps:
        progress = Progress(flushed, replicated, 0)
        found = [(end, status) for some, status in told(together, progress, now) for end in some]
        assert found == [(end, status) for (end,), status in told(alone, progress, now)]
        assert len(together) == len(alone)


def test_the_next_deadline_is_that_of_the_oldest_request():
    waiting = PendingAcks(BOTH)
    assert waiting.due_ms(0) > 100_000
    waiting.add(stored(10, at_ms=1000))
    waiting.add(stored(20, at_ms=2000))
    assert waiting.due_ms(3000) == 1000


def test_between_the_two_time_outs_of_a_request_nobody_is_woken():
    waiting = PendingAcks(BOTH)
    waiting.add(stored(10, at_ms=1000))
    assert waiting.due_ms(4500) == 1500
    assert waiting.due_ms(7000) == 1
