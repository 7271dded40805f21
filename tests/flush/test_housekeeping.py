"""What flush may call durable beside the log: never what only an earlier flush process, or nobody, has synced."""

import errno
import os
from pathlib import Path

import pytest

from towline.errors import SyncFailed
from towline.flush import housekeeping
from towline.flush.housekeeping import BEHIND_MAX, TOGETHER, Housekeeper
from towline.format.files.index_file import file_size
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.state.durable_file import DurableFile
from towline.runtime.positions import Duty, Position

from .bench import Bench

pytestmark = pytest.mark.usefixtures("closed")


def path_of(fd):
    return Path(f"/proc/self/fd/{fd}").readlink()


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def synced(monkeypatch):
    """Every (topic, from, to) that was synced."""
    calls = []
    real = ConsumeQueueFiles.sync

    def sync(files, topic, queue_id, start, end):
        calls.append((topic, start, end))
        real(files, topic, queue_id, start, end)

    monkeypatch.setattr(ConsumeQueueFiles, "sync", sync)
    return calls


def test_entries_that_were_written_before_flush_started_are_synced_before_they_are_called_durable(bench, synced):
    bench.dispatch(b"before", 10, end=1000)  # nobody has synced these: reput was quicker, or the flush before is dead
    housekeeper = Housekeeper(bench.node)
    bench.dispatch(b"after", 5, end=2000)
    housekeeper.finish()
    assert bench.durable().queues_durable == 2000
    assert sorted(synced) == [("after", 0, 5), ("before", 0, 10)]


def test_a_restarted_flush_leaves_alone_what_is_durable_already(bench, synced):
    bench.dispatch(b"old", 10, end=1000)
    Housekeeper(bench.node).finish()
    synced.clear()
    bench.dispatch(b"new", 5, end=2000)
    Housekeeper(bench.node).finish()
    assert synced == [("new", 0, 5)]


def test_many_queues_are_synced_by_one_sync_of_the_file_system(bench, synced, monkeypatch):
    calls = []
    monkeypatch.setattr(ConsumeQueueFiles, "sync_all", lambda files: calls.append(files.root))
    housekeeper = Housekeeper(bench.node)
    for number in range(TOGETHER + 1):
        bench.dispatch(b"topic-%d" % number, 1, end=1000 + number)
    housekeeper.finish()
    assert (len(calls), synced) == (1, [])
    assert bench.durable().queues_durable == 1000 + TOGETHER
    bench.dispatch(b"topic-0", 1, end=5000)
    housekeeper.finish()
    assert (len(calls), synced) == (1, [("topic-0", 1, 2)])


def test_while_records_are_appended_many_queues_are_synced_one_by_one_and_the_watermark_moves(
    bench, synced, monkeypatch
):
    """A sync of the file system would make the pages ahead of the writer fault again (H6)."""
    count = 9
    monkeypatch.setattr(housekeeping, "TOGETHER", count - 1)
    monkeypatch.setattr(housekeeping, "SLICE_S", 0.0)
    monkeypatch.setattr(ConsumeQueueFiles, "sync_all", lambda _: pytest.fail("it writes the log's pages as well"))
    housekeeper = Housekeeper(bench.node)
    for number in range(count):
        bench.dispatch(b"topic-%d" % number, 1, end=1000 + number)
    for number in range(count):
        assert bench.durable().queues_durable == 0
        housekeeper._round(thorough=number == 0)
        assert len(synced) == number + 1, "one slice"
        bench.dispatch(b"topic-%d" % number, 1, end=5000 + number)
    assert bench.durable().queues_durable == 1000 + count - 1
    housekeeper._round(thorough=True)
    monkeypatch.setattr(ConsumeQueueFiles, "sync_all", lambda _: None)
    housekeeper.finish()
    assert bench.durable().queues_durable == 5000 + count - 1


def test_errors_of_write_back_are_told_from_the_beginning_on(bench):
    """To a descriptor that was open when the error happened, whoever else was told of it meanwhile (H5)."""
    before = open_directories()
    Housekeeper(bench.node)
    assert bench.store.consumequeue.resolve() in open_directories() - before


def open_directories():
    return {entry.resolve() for entry in Path("/proc/self/fd").iterdir() if entry.is_dir()}


def test_a_failed_sync_of_the_file_system_is_never_called_durable(bench, monkeypatch):
    def fails(files):
        raise SyncFailed(str(files.root), 0, 0, errno.EIO, "Input/output error")

    housekeeper = Housekeeper(bench.node)
    for number in range(TOGETHER + 1):
        bench.dispatch(b"topic-%d" % number, 1, end=1000 + number)
    with monkeypatch.context() as patched:
        patched.setattr(ConsumeQueueFiles, "sync_all", fails)
        housekeeper.finish()
    housekeeper.finish()
    assert bench.durable().queues_durable == 0


def test_a_queue_with_few_messages_does_not_hold_the_watermark_back_for_long(bench, synced):
    housekeeper = Housekeeper(bench.node)
    bench.dispatch(b"rare", 1, end=1000)
    housekeeper._flush_derived(thorough=False)
    assert synced == []
    bench.dispatch(b"rare", 1, end=BEHIND_MAX)
    housekeeper._flush_derived(thorough=False)
    assert synced == [("rare", 0, 2)]
    housekeeper.finish()
    assert bench.durable().queues_durable == BEHIND_MAX


def test_a_queue_that_could_not_be_synced_once_is_never_called_durable(bench, monkeypatch):
    """The kernel reports the error once; the next sync of the same pages succeeds and means nothing (H5)."""
    bench.dispatch(b"orders", 10, end=1000)
    housekeeper = Housekeeper(bench.node)
    real, failures = os.fdatasync, [errno.EIO]

    def fdatasync(fd):
        if failures and "consumequeue" in path_of(fd).parts:
            raise OSError(failures.pop(), "Input/output error")
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    housekeeper.finish()
    assert not failures
    bench.dispatch(b"orders", 10, end=2000)
    housekeeper.finish()
    assert bench.durable().queues_durable == 0


def test_an_index_file_that_became_the_last_again_is_synced_again(bench, monkeypatch):
    """A restarted reput cuts the files back: one that was full takes entries again."""
    settings = bench.settings
    size = file_size(settings.max_hash_slot_num, settings.max_index_num)
    names = []
    real = os.fdatasync

    def fdatasync(fd):
        names.append(path_of(fd).name)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    first, second = bench.store.index / "20260101000000000", bench.store.index / "20260101000000001"
    housekeeper = Housekeeper(bench.node)
    for end, files in ((1000, {first, second}), (2000, {first}), (3000, {first, second})):
        for path in (first, second):
            path.unlink(missing_ok=True)
        for path in files:
            path.touch()
            os.truncate(path, size)
        names.clear()
        bench.dispatch(b"orders", 1, end=end)
        housekeeper.finish()
    assert first.name in names


def test_a_failed_sync_reaches_the_state_file_even_when_the_first_write_of_it_fails_too(bench, monkeypatch):
    """The disk that lost the log's pages often refuses the state file as well; the flag must not end with flush."""
    bench.make_segment(0)
    bench.positions.writer(Position.APPENDED, Duty.PUT).advance(100)

    def fail(*_):
        raise SyncFailed("a file", 0, 0, errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr("towline.log.files.mapped_file.MappedFile.sync", fail)
        broken.setattr(DurableFile, "save", fail)
        agent = bench.flush()
        with pytest.raises(SyncFailed):
            agent._syncer.sync(0, 100, timestamp=1)
        agent.on_close()
    assert bench.positions.get(Position.SYNC_FAILED)
    Housekeeper(bench.node).finish()  # the flush process that follows
    assert bench.durable().sync_failed
