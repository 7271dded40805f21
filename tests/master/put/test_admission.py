"""The checks of a put in their order (spec 5.1): which statuses there are, who answers them, why others never arise."""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tests.kernels.put.test_append import QUEUES, Desk, record
from towline.errors import DiskFull, StoreNotWritable, SyncFailed
from towline.format.wire.refusals import Cause, read_sentence
from towline.format.wire.status import PutStatus
from towline.kernels.jit.rows import RequestStatus
from towline.kernels.put import append as kernel
from towline.log.errors import PoolEmpty, SegmentNotMade
from towline.master.put.admission import Gate, expired, no_room, page_cache_busy, waited_too_long
from towline.node.store.put_checks import CHECKS, NEVER, Limits, StoreState
from towline.runtime.positions import Duty, Flag, Position, Positions

LIMITS = Limits(waiting_max=10, flush_backlog_max=1000, replicated=True, in_sync_min=2, gap_max=100)
END = 5000
SLAVE = 7


@pytest.fixture
def positions(tmp_path):
    """Of a master whose one slave is in sync; the gate is open."""
    made = Positions.create(tmp_path / "positions", generation=1)
    for position in (Position.APPENDED, Position.FLUSHED, Position.REPLICATED):
        made.writer(position, Duty.RECOVER).advance(END)
    made.slaves()[3].set(connected=True, appended=END - 100, flushed=0, node=SLAVE)
    made.writer(Position.IN_SYNC, Duty.RECOVER).replace(1 | 1 << SLAVE)
    return made


def test_every_status_is_answered_by_a_check_or_never_arises_for_a_reason():
    answered = {status for check in CHECKS for status in check.statuses}
    assert not answered & NEVER.keys()
    assert answered | NEVER.keys() == set(PutStatus)
    assert all(len(why.split()) > 4 for why in NEVER.values())


def test_the_steps_of_rocketmqs_store_are_all_there():
    assert {check.step for check in CHECKS} - {0} == set(range(1, 14))


def test_what_the_gate_looks_at_is_in_rocketmqs_order():
    steps = [check.step for check in CHECKS if check.step and not isinstance(check.by, str)]
    assert all(first <= second for first, second in pairwise(steps))


def test_an_open_gate_refuses_nobody(positions):
    assert Gate(positions, LIMITS).check(9, stopping=False) is None


def test_other_limits_count_from_the_next_check_on_though_nothing_else_has_changed(positions):
    limits = Limits(waiting_max=10, flush_backlog_max=1000)
    gate = Gate(positions, limits)
    assert gate.check(9, stopping=False) is None
    gate.limits = replace(limits, permission=4)
    refused = gate.check(9, stopping=False)
    assert (refused.status, refused.cause) == (PutStatus.NO_PERMISSION, Cause.PERMISSION)
    gate.limits = replace(limits, waiting_max=9)
    assert gate.check(9, stopping=False).cause is Cause.WAITING_REQUESTS
    gate.limits = limits
    assert gate.check(9, stopping=False) is None


def late_flush(positions: Positions) -> None:
    positions.writer(Position.APPENDED, Duty.PUT).advance(END + 1001)
    positions.slaves()[3].set(connected=True, appended=END + 1001, flushed=0)


def sync_failed(positions: Positions) -> None:
    positions.writer(Position.SYNC_FAILED, Duty.FLUSH).advance(1)


def dispatch_stopped(positions: Positions) -> None:
    positions.writer(Position.DISPATCH_STOPPED, Duty.REPUT).advance(4261)


def slave_gone(positions: Positions) -> None:
    positions.slaves()[3].set(connected=False, appended=END, flushed=END)


def slave_behind(positions: Positions) -> None:
    positions.slaves()[3].set(connected=True, appended=END - 101, flushed=0)


def slave_out(positions: Positions) -> None:
    positions.writer(Position.IN_SYNC, Duty.SEND).replace(1 | 1 << SLAVE + 1)


def promised(positions: Positions) -> None:
    positions.writer(Position.EPOCH, Duty.RECOVER).replace(256)
    positions.writer(Position.PROMISED, Duty.SEND).replace(513)


def raised(duty: Duty, flag: Flag) -> Callable[[Positions], None]:
    return lambda positions: positions.duty(duty).raise_flag(flag)


CLOSED = [
    pytest.param(raised(Duty.ALLOCATE, Flag.DISK_FULL), PutStatus.SERVICE_NOT_AVAILABLE, Cause.DISK_FULL,
                 {"flags": 16}, id="the disk is full"),
    pytest.param(raised(Duty.REPUT, Flag.LOGIC_DISK_FULL), PutStatus.SERVICE_NOT_AVAILABLE, Cause.LOGIC_DISK_FULL,
                 {"flags": 64}, id="no room for queues"),
    pytest.param(raised(Duty.REPUT, Flag.LOGIC_QUEUE_ERROR), PutStatus.SERVICE_NOT_AVAILABLE, Cause.QUEUE_ERROR,
                 {"flags": 4}, id="a queue cannot be written"),
    pytest.param(raised(Duty.REPUT, Flag.RUNTIME_FULL), PutStatus.SERVICE_NOT_AVAILABLE, Cause.RUNTIME_FULL,
                 {"flags": 256}, id="no room in the runtime directory"),
    pytest.param(raised(Duty.REPUT, Flag.INDEX_ERROR), PutStatus.SERVICE_NOT_AVAILABLE, Cause.INDEX_ERROR,
                 {"flags": 8}, id="the index cannot be written"),
    pytest.param(sync_failed, PutStatus.SERVICE_NOT_AVAILABLE, Cause.SYNC_FAILED, {}, id="a sync failed"),
    pytest.param(dispatch_stopped, PutStatus.SERVICE_NOT_AVAILABLE, Cause.DISPATCH_STOPPED, {"offset": 4260},
                 id="dispatching stopped"),
    pytest.param(slave_gone, PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, Cause.REPLICAS, {"in_sync": 1, "limit": 2},
                 id="the slave is away"),
    pytest.param(slave_behind, PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, Cause.REPLICAS, {"in_sync": 1, "limit": 2},
                 id="the slave is a byte too far behind"),
    pytest.param(slave_out, PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, Cause.REPLICAS, {"in_sync": 1, "limit": 2},
                 id="the slave is connected, and not in the recorded set"),
    pytest.param(promised, PutStatus.NOT_MASTER, Cause.FENCED, {"epoch": 256, "promised": 513},
                 id="a peer was promised a later epoch"),
    pytest.param(late_flush, PutStatus.SYSTEM_BUSY, Cause.FLUSH_BACKLOG, {"backlog_bytes": 1001, "limit_bytes": 1000},
                 id="the disk does not keep up"),
]  # fmt: skip


@pytest.mark.parametrize(("happens", "status", "cause", "numbers"), CLOSED)
def test_a_closed_gate_names_cause_and_numbers(positions, happens, status, cause, numbers):
    happens(positions)
    refused = Gate(positions, LIMITS).check(0, stopping=False)
    said, found, words = read_sentence(refused.sentence)
    assert (refused.status, refused.cause, said) == (status, cause, cause)
    retry_after = {"retry_after_ms": refused.retry_after_ms} if refused.retry_after_ms else {}
    assert found == numbers | retry_after
    assert words or status is PutStatus.SYSTEM_BUSY
    assert not refused.status.stored


def test_with_a_lease_puts_are_taken_until_it_ends(positions):
    gate = Gate(positions, Limits(waiting_max=10, flush_backlog_max=1000, leased=True))
    lease, now_ns = positions.writer(Position.LEASE_UNTIL, Duty.LEASE), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    lease.replace(now_ns + 3600 * 10**9)
    assert gate.check(0, stopping=False) is None
    lease.replace(now_ns - 5_000_000)
    refused = gate.check(0, stopping=False)
    assert (refused.status, refused.cause) == (PutStatus.NOT_MASTER, Cause.LEASE)
    assert read_sentence(refused.sentence)[1]["over_ms"] >= 5


def test_a_master_that_never_had_the_lease_takes_nothing(positions):
    gate = Gate(positions, Limits(waiting_max=10, flush_backlog_max=1000, leased=True))
    assert gate.check(0, stopping=False).cause is Cause.LEASE


def test_the_first_step_that_is_broken_answers(positions):
    gate, causes = Gate(positions, LIMITS), []
    for happens in (late_flush, slave_gone, sync_failed, raised(Duty.ALLOCATE, Flag.DISK_FULL)):
        happens(positions)
        causes.append(gate.check(0, stopping=False).cause)
    causes.append(gate.check(0, stopping=True).cause)
    assert causes == [Cause.FLUSH_BACKLOG, Cause.REPLICAS, Cause.SYNC_FAILED, Cause.DISK_FULL, Cause.STOPPING]


def test_a_flag_that_is_lowered_opens_the_gate_again(positions):
    gate = Gate(positions, LIMITS)
    positions.duty(Duty.ALLOCATE).raise_flag(Flag.DISK_FULL)
    assert gate.check(0, stopping=False).cause is Cause.DISK_FULL
    positions.duty(Duty.ALLOCATE).lower_flag(Flag.DISK_FULL)
    assert gate.check(0, stopping=False) is None


def changing_behind_the_checks(
    gate: Gate, happens: Callable[[Positions], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the next look judges is read, then this happens, then the look ends."""
    judged = gate._store_state

    def state(waiting: int, stopping: bool) -> StoreState:
        found = judged(waiting, stopping)
        happens(gate._positions)
        return found

    monkeypatch.setattr(gate, "_store_state", state)


NEITHER_LEASED_NOR_REPLICATED = Limits(waiting_max=10, flush_backlog_max=1000)
IN_BETWEEN = pytest.mark.parametrize(
    ("happens", "cause"),
    [
        (sync_failed, Cause.SYNC_FAILED),
        (dispatch_stopped, Cause.DISPATCH_STOPPED),
        (promised, Cause.FENCED),
        (raised(Duty.ALLOCATE, Flag.DISK_FULL), Cause.DISK_FULL),
    ],
    ids=lambda each: each.label if isinstance(each, Cause) else "",
)


@IN_BETWEEN
def test_what_changes_behind_the_checks_is_seen_by_the_next_check(positions, happens, cause, monkeypatch):
    gate = Gate(positions, NEITHER_LEASED_NOR_REPLICATED)
    with monkeypatch.context() as patched:
        changing_behind_the_checks(gate, happens, patched)
        assert gate.check(0, stopping=False) is None
    assert gate.check(0, stopping=False).cause is cause


@pytest.mark.parametrize("happens", [sync_failed, dispatch_stopped, promised])
def test_what_changes_between_a_look_and_a_kernels_call_is_seen_by_the_kernel(positions, happens):
    gate = Gate(positions, NEITHER_LEASED_NOR_REPLICATED)
    assert gate.check(0, stopping=False) is None
    desk = Desk()
    desk.positions, desk.watched = np.frombuffer(positions.words, np.int64), gate.watched
    desk.state.appended_at, desk.state.stamped_at = 8 * Position.APPENDED.word, 8 * Position.STORE_TIMESTAMP.word
    desk.offer((QUEUES[0], [record(1)]))
    desk.offer((QUEUES[0], [record(2)]))
    assert desk.serve(0, 1) == kernel.DONE
    happens(positions)
    assert desk.serve(1, 1) == kernel.ROW
    assert desk.status(1) is RequestStatus.SHUT


def test_too_many_requests_wait_for_the_disk_or_for_the_slaves(positions):
    assert Gate(positions, LIMITS).check(10, stopping=False).cause is Cause.WAITING_REQUESTS
    for position, duty in ((Position.APPENDED, Duty.PUT), (Position.FLUSHED, Duty.FLUSH)):
        positions.writer(position, duty).advance(END + 30)
    positions.slaves()[3].set(connected=True, appended=END + 30, flushed=0)
    refused = Gate(positions, LIMITS).check(10, stopping=False)
    assert (refused.status, refused.cause) == (PutStatus.SYSTEM_BUSY, Cause.REPLICA_WAIT)
    assert read_sentence(refused.sentence)[1] == {"waiting": 10, "limit": 10, "behind_bytes": 30, "retry_after_ms": 20}
    alone = Limits(waiting_max=10, flush_backlog_max=1000)
    assert Gate(positions, alone).check(10, stopping=False).cause is Cause.WAITING_REQUESTS


def test_a_broker_without_the_permission_to_write_takes_nothing(positions):
    refused = Gate(positions, Limits(waiting_max=1, flush_backlog_max=1, permission=4)).check(0, stopping=False)
    assert (refused.status, refused.cause) == (PutStatus.NO_PERMISSION, Cause.PERMISSION)


@pytest.mark.parametrize(
    ("turn_ms", "busy"), [(1000, False), (1001, True), (9_999_999, True), (10_000_000, False)], ids=str
)
def test_the_page_cache_is_busy_within_rocketmqs_bounds(turn_ms, busy):
    refused = page_cache_busy(turn_ms, 1000)
    assert (refused is not None) is busy
    if refused is not None:
        assert (refused.status, refused.cause) == (PutStatus.OS_PAGE_CACHE_BUSY, Cause.PAGE_CACHE)
        assert 100 <= refused.retry_after_ms <= 1000


@pytest.mark.parametrize(
    ("error", "status", "cause"),
    [
        (DiskFull("/store", 1), PutStatus.DISK_FULL, Cause.DISK_FULL),
        (PoolEmpty(5000, 5, 1 << 30), PutStatus.CREATE_MAPPED_FILE_FAILED, Cause.TRANSIENT_POOL),
        (PoolEmpty(0, 5, 1 << 30), PutStatus.SYSTEM_BUSY, Cause.TRANSIENT_POOL),
        (SyncFailed("/store/1", 0, 8, 5, "EIO"), PutStatus.CREATE_MAPPED_FILE_FAILED, Cause.ALLOCATE_WAIT),
        (SegmentNotMade(1 << 30, "EIO"), PutStatus.CREATE_MAPPED_FILE_FAILED, Cause.ALLOCATE_WAIT),
        (OSError(24, "too many open files"), PutStatus.CREATE_MAPPED_FILE_FAILED, Cause.ALLOCATE_WAIT),
        (StoreNotWritable("/store/1", "EIO"), PutStatus.SERVICE_NOT_AVAILABLE, Cause.READ_ONLY),
    ],
    ids=["disk full", "no buffer in time", "no buffer", "a sync", "no segment", "too many files", "a page"],
)
def test_a_segment_that_does_not_come_is_refused_and_may_come_later(error, status, cause):
    refused = no_room(error)
    assert (refused.status, refused.cause, read_sentence(refused.sentence)[0]) == (status, cause, cause)
    assert refused.retry_after_ms > 0


def test_a_wait_is_refused_with_its_length_and_a_deadline_with_its_lateness():
    busy, late = waited_too_long(212, 200), expired(3)
    assert busy.sentence == "cause=send_queue waited=212ms limit=200ms retry_after=40ms"
    assert (busy.status, late.status) == (PutStatus.SYSTEM_BUSY, PutStatus.EXPIRED)
    assert read_sentence(late.sentence)[:2] == (Cause.EXPIRED, {"late_ms": 3})
