"""What flush opens, remembers and writes into the checkpoint, seen from outside of it."""

import errno
import os
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from towline.flush.service import FlushAgent
from towline.flush.syncing import SyncThread, policy_of
from towline.format.files.checkpoint import Checkpoint
from towline.log.files.mapped_file import MappedFile
from towline.node.store.pool_state import PoolState
from towline.node.store.transient_pool import TransientPool
from towline.runtime.doorbell import Doorbell
from towline.runtime.positions import Duty, Position, State
from towline.runtime.settings import read_settings

from .bench import SEGMENT, Bench

PUT, REPUT = Duty.PUT, Duty.REPUT
POOL = {"transient_store_pool_enable": True, "transient_store_pool_size": 3, "flush_disk_type": "ASYNC_FLUSH"}

pytestmark = pytest.mark.usefixtures("closed")


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def pooled(monkeypatch):
    """Its thread does not run: `cycle` does what it would do."""
    monkeypatch.setattr(SyncThread, "start", lambda syncing: None)
    with tempfile.TemporaryDirectory(prefix="towline-flush-", dir="/dev/shm") as memory:
        made = Bench(Path(memory), **POOL)
        assert made.pool_state is PoolState.ON
        yield made


def is_mapped(path: Path) -> bool:
    return any(line.endswith(f" {path}") for line in Path("/proc/self/maps").read_text().splitlines())


def write(bench: Bench, start: int, end: int, timestamp: int) -> None:
    """As put does: bytes, APPENDED, the time."""
    pool = TransientPool(bench.runtime.pool, SEGMENT)
    for base in range(start - start % SEGMENT, end, SEGMENT):
        path = bench.store.commitlog / f"{base:020d}"
        if not path.exists():
            bench.make_segment(base)
        if bench.pool_state is PoolState.ON:
            assert pool.borrow(base)
            path = pool.path_of(base)
        content = np.memmap(path, dtype=np.uint8, mode="r+")
        content[max(start - base, 0) : min(end - base, SEGMENT)] = 7
    bench.move(Position.APPENDED, end)
    bench.move(Position.STORE_TIMESTAMP, timestamp)


def cycle(agent: FlushAgent) -> None:
    agent.do_work()
    agent._pooled.syncing.cycle()


def positions(bench: Bench) -> tuple[int, int, int]:
    return tuple(bench.positions.get(part) for part in (Position.APPENDED, Position.COMMITTED, Position.FLUSHED))


def test_a_segment_is_open_from_when_it_appears_until_it_is_synced(bench):
    """An error of write-back is told to who has the file open when it happens (H5)."""
    agent = bench.flush()
    path = bench.make_segment(0)
    bench.move(Position.ALLOCATED, SEGMENT, Duty.ALLOCATE)
    assert agent.do_work() == 0
    assert is_mapped(path), "a mapping keeps its file open; it is what msync reports to"
    write(bench, 0, SEGMENT, 5)
    bench.clock.ms += 10_000
    assert agent.do_work() == 1
    assert positions(bench) == (SEGMENT, SEGMENT, SEGMENT)
    bench.make_segment(SEGMENT)
    bench.move(Position.ALLOCATED, 2 * SEGMENT, Duty.ALLOCATE)
    agent.do_work()
    assert not is_mapped(path)
    agent.on_close()


def test_what_offsets_wait_for_is_synced_at_once(bench):
    """Schedule writes no offset of a delivery that a power cut could take back."""
    agent = bench.flush()
    bench.make_segment(0)
    bench.move(Position.ALLOCATED, SEGMENT, Duty.ALLOCATE)
    write(bench, 0, 100, 5)
    assert agent.do_work() == 0, "it is not due"
    bench.move(Position.SYNC_WANTED, 100, Duty.SCHEDULE)
    assert agent.do_work() == 1
    assert positions(bench) == (100, 100, 100)
    write(bench, 100, 200, 6)
    assert agent.do_work() == 0
    agent.on_close()


def test_put_is_woken_by_every_sync_and_reput_once_a_millisecond(tmp_path, monkeypatch):
    now_ns = [10_000_000]
    monkeypatch.setattr("towline.flush.syncing.time", SimpleNamespace(monotonic_ns=lambda: now_ns[0]))
    bench = Bench(tmp_path, flush_disk_type="SYNC_FLUSH")
    agent = bench.flush()
    bench.make_segment(0)
    bench.move(Position.ALLOCATED, SEGMENT, Duty.ALLOCATE)
    bells = {duty: Doorbell(bench.runtime.bell(duty.label), bench.positions.duty(duty)) for duty in (PUT, REPUT)}
    for bell in bells.values():
        bell.arm()
    end = 0

    def woken(*, syncs: int) -> list[Duty]:
        nonlocal end
        for _ in range(syncs):
            write(bench, end, end + 100, 5)
            end += 100
        assert agent.do_work() == min(syncs, 1)
        found = [duty for duty, bell in bells.items() if bell.wait(0)]
        for bell in bells.values():
            bell.drain()
        return found

    assert woken(syncs=1) == [PUT, REPUT]
    now_ns[0] += 300_000
    assert woken(syncs=1) == [PUT]
    assert agent.sleep_ms() == 1, "what is owed to reput ends the sleep"
    now_ns[0] += 300_000
    assert woken(syncs=0) == []
    now_ns[0] += 500_000
    assert woken(syncs=0) == [REPUT]
    assert agent.sleep_ms() > 1
    for bell in bells.values():
        bell.close()
    agent.on_close()


def test_with_a_pool_too(pooled):
    agent = pooled.flush()
    path = pooled.make_segment(0)
    pooled.move(Position.ALLOCATED, SEGMENT, Duty.ALLOCATE)
    cycle(agent)
    assert is_mapped(path)
    agent.on_close()


def test_a_slow_disk_holds_up_no_commit(pooled, monkeypatch):
    monkeypatch.undo()  # the thread runs
    began, over = threading.Event(), threading.Event()

    def sync(*_):
        began.set()
        assert over.wait(20)

    monkeypatch.setattr(MappedFile, "sync", sync)
    agent = pooled.flush()
    pooled.clock.ms += 10_000
    write(pooled, 0, 20_000, 5)
    assert agent.do_work() == 20_000
    assert began.wait(20)
    write(pooled, 20_000, SEGMENT + 20_000, 6)
    assert agent.do_work() == SEGMENT
    assert positions(pooled) == (SEGMENT + 20_000, SEGMENT + 20_000, 0)
    over.set()
    assert agent.drain()
    assert positions(pooled) == (SEGMENT + 20_000,) * 3
    agent.on_close()


def test_what_ends_the_thread_that_syncs_ends_the_process(pooled, monkeypatch):
    monkeypatch.undo()

    def sync(*_):
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(MappedFile, "sync", sync)
    agent = pooled.flush()
    pooled.clock.ms += 10_000
    write(pooled, 0, 20_000, 5)
    agent.do_work()
    agent._pooled.syncing._thread.join(20)
    with pytest.raises(ZeroDivisionError):
        agent.do_work()
    agent._housekeeper.stop()


def test_what_is_appended_is_committed_then_synced_each_by_its_own_rule(pooled):
    agent = pooled.flush()
    pooled.clock.ms += 10_000
    write(pooled, 0, 5000, 5)
    cycle(agent)
    assert positions(pooled) == (5000, 5000, 5000), "both thorough intervals were over"
    write(pooled, 5000, 9000, 6)
    cycle(agent)
    assert positions(pooled) == (9000, 5000, 5000), "too few pages, and too early"
    pooled.clock.ms += 200
    cycle(agent)
    assert positions(pooled) == (9000, 9000, 5000), "commit_commit_log_thorough_interval"
    pooled.clock.ms += 10_000
    cycle(agent)
    assert positions(pooled) == (9000, 9000, 9000)
    assert (np.fromfile(pooled.store.commitlog / f"{0:020d}", dtype=np.uint8)[:9000] == 7).all()
    agent.on_close()


def test_a_writer_that_has_gone_leaves_nothing_uncommitted(pooled):
    agent = pooled.flush()
    cycle(agent)
    write(pooled, 0, SEGMENT + 100, 5)
    cycle(agent)
    write(pooled, SEGMENT + 100, SEGMENT + 200, 5)
    cycle(agent)
    assert positions(pooled)[:2] == (SEGMENT + 200, SEGMENT + 100)
    pooled.positions.duty(Duty.PUT).state = State.STOPPED
    cycle(agent)
    assert positions(pooled)[:2] == (SEGMENT + 200, SEGMENT + 200)
    agent.on_close()


def test_a_commit_that_fails_ends_acknowledgements_and_promises_nothing(pooled, monkeypatch):
    agent = pooled.flush()
    write(pooled, 0, 50_000, 5)

    def copy(*_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr("towline.flush.committing.copy_committed", copy)
        cycle(agent)
    assert pooled.positions.get(Position.SYNC_FAILED) == 1
    assert positions(pooled) == (50_000, 0, 0)
    assert pooled.durable().sync_failed
    cycle(agent)
    assert positions(pooled) == (50_000, 0, 0)
    agent.on_close()


def test_the_checkpoint_names_no_time_of_a_record_that_is_in_the_pool_alone(pooled):
    agent = pooled.flush()
    pooled.clock.ms += 10_000
    write(pooled, 0, 20_000, 50)
    cycle(agent)
    write(pooled, 20_000, 20_100, 60)  # too little for a commit
    pooled.clock.ms += 150
    write(pooled, 20_100, 20_200, 70)
    assert not agent.do_work()
    agent._pooled.syncing.cycle(all_of_it=True)
    agent._housekeeper.finish()
    assert pooled.checkpoint() == Checkpoint(physic_msg_timestamp=50, confirm_phy_offset=20_000)
    agent.on_close()


def test_a_failed_sync_of_a_queue_is_remembered_when_flush_alone_starts_again(bench, monkeypatch):
    """The kernel reported it once; whoever syncs the same pages next would be told that all is well (H5)."""
    bench.dispatch(b"orders", 10, end=1000, timestamp=40)
    killed = bench.flush()
    real, failures = os.fdatasync, [errno.EIO]

    def fdatasync(fd):
        if failures and "consumequeue" in Path(f"/proc/self/fd/{fd}").readlink().parts:
            raise OSError(failures.pop(), "Input/output error")
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    killed._housekeeper._round(thorough=True)
    assert not failures
    killed._housekeeper.stop()  # its thread; of a killed process nothing runs
    assert bench.positions.get(Position.DERIVED_SYNC_FAILED) == 1
    again = bench.flush()
    bench.dispatch(b"orders", 10, end=2000, timestamp=50)
    again._housekeeper.finish()
    assert bench.durable().queues_durable == 0
    assert bench.checkpoint().logics_msg_timestamp == 0
    assert not bench.durable().sync_failed, "the log is well"
    again.on_close()


def test_a_masters_checkpoint_names_its_confirmed_end_and_no_other_master(bench):
    agent = bench.flush()
    write(bench, 0, 9000, 50)
    bench.dispatch(b"orders", 3, end=9000, timestamp=50)
    agent._housekeeper._round(thorough=True)
    assert bench.checkpoint().confirm_phy_offset == 0, "nothing is on the disk yet"
    bench.clock.ms += 10_000
    agent.do_work()
    agent._housekeeper._round(thorough=True)
    expected = Checkpoint(
        physic_msg_timestamp=50, logics_msg_timestamp=50, confirm_phy_offset=9000, logics_physical_offset=8999
    )
    assert bench.checkpoint() == expected
    golden = "00000000000000320000000000000032000000000000000000000000000000000000000000002328"
    assert bench.store.checkpoint.read_bytes()[:40].hex() == golden
    agent.on_close()


def test_a_slaves_checkpoint_names_what_its_master_confirmed_as_far_as_it_is_on_its_own_disk(tmp_path):
    bench = Bench(tmp_path, broker_role="SLAVE", ha_master_address="127.0.0.1:1", flush_disk_type="ASYNC_FLUSH")
    agent = bench.flush()
    bench.make_segment(0)
    bench.move(Position.APPENDED, 9000, Duty.RECEIVE)
    bench.move(Position.CONFIRMED, 8000, Duty.RECEIVE)
    bench.dispatch(b"orders", 3, end=8000, timestamp=50)
    agent._housekeeper._round(thorough=True)
    assert (bench.checkpoint().master_flushed_offset, bench.checkpoint().confirm_phy_offset) == (0, 0)
    bench.clock.ms += 10_000
    agent.do_work()
    agent._housekeeper._round(thorough=True)
    expected = Checkpoint(
        physic_msg_timestamp=50,
        logics_msg_timestamp=50,
        master_flushed_offset=8000,
        confirm_phy_offset=8000,
        logics_physical_offset=7999,
    )
    assert bench.checkpoint() == expected
    agent.on_close()


def test_the_state_files_are_written_each_second_however_seldom_queues_are_flushed(tmp_path):
    bench = Bench(tmp_path, flush_interval_consume_queue=3_600_000)
    agent = bench.flush()
    agent._housekeeper._round(thorough=False)  # the first is due
    write(bench, 0, 9000, 50)
    bench.dispatch(b"orders", 3, end=9000, timestamp=50)
    bench.clock.ms += 10_000
    agent.do_work()
    agent._housekeeper._round(thorough=False)
    assert (bench.durable().flushed, bench.durable().queues_durable) == (9000, 0)
    assert bench.checkpoint().physic_msg_timestamp == 50
    assert agent._housekeeper._interval_s == 1.0
    agent.on_close()


@pytest.mark.parametrize(
    ("settings", "pooled", "timed"),
    [
        ({}, False, True),
        ({"flush_commit_log_timed": False}, False, True),
        ({"flush_commit_log_timed": False, "wake_flush_when_put_message": True}, False, False),
        ({"wake_flush_when_put_message": True}, False, True),
        ({"flush_commit_log_timed": False}, True, False),
    ],
    ids=["default", "nobody wakes it", "puts wake it", "woken, but timed", "commits wake it"],
)
def test_the_pause_between_two_flushes_ends_early_only_if_it_is_not_timed_and_somebody_wakes_flush(
    settings, pooled, timed
):
    given = read_settings(None, {key: str(value) for key, value in settings.items()}, {})
    assert policy_of(given, 0, pooled=pooled).timed is timed
