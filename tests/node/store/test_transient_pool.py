"""Buffers that stand in for segments: taken, committed, given back; and a log whose files hold only its beginning."""

import os
from pathlib import Path

import pytest

from tests.log.stores import SEGMENT, StoreMaker
from towline.errors import DiskFull
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan
from towline.node.store import transient_pool
from towline.node.store.tail import AppendedScan, buffer_reader
from towline.node.store.transient_pool import TransientPool, copy_committed

BODY = bytes(range(256)) * 8


@pytest.fixture
def pool(tmp_path: Path) -> TransientPool:
    made = TransientPool(tmp_path / "pool", SEGMENT)
    made.root.mkdir()
    made.create(2)
    return made


class TestTransientPool:
    def test_its_blocks_are_reserved(self, pool):
        assert all(path.stat().st_blocks * 512 == SEGMENT == path.stat().st_size for path in pool.files())

    def test_there_is_no_pool_without_room_for_all_of_it(self, tmp_path):
        size = os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize
        root = Path("/dev/shm") / f"towline-pool-{os.getpid()}"
        root.mkdir()
        try:
            with pytest.raises(DiskFull):
                TransientPool(root, size * 2).create(1)
        finally:
            for path in sorted(root.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            root.rmdir()

    def test_a_buffer_is_taken_for_a_segment_and_the_same_one_again(self, pool):
        assert pool.borrow(0)
        inode = pool.path_of(0).stat().st_ino
        assert pool.borrow(0)
        assert pool.path_of(0).stat().st_ino == inode
        assert pool.bases() == [0]

    def test_no_buffer_is_taken_when_none_is_free(self, pool):
        assert (pool.borrow(0), pool.borrow(SEGMENT), pool.borrow(2 * SEGMENT)) == (True, True, False)
        assert pool.bases() == [0, SEGMENT]

    def test_a_buffer_given_back_can_be_taken_only_when_it_was_set_free(self, pool):
        assert pool.borrow(0)
        assert pool.borrow(SEGMENT)
        used = pool.return_buffer(0)
        assert not pool.borrow(2 * SEGMENT)
        pool.set_free(used)
        assert pool.borrow(2 * SEGMENT)
        assert pool.bases() == [SEGMENT, 2 * SEGMENT]

    def test_a_mapping_outlives_the_names_of_its_buffer(self, pool):
        assert pool.borrow(0)
        mapped = pool.open(0, writable=True)
        mapped.array[5] = 77
        pool.set_free(pool.return_buffer(0))
        assert pool.borrow(SEGMENT)
        assert pool.borrow(2 * SEGMENT)
        assert sorted(pool.open(base, writable=False).array[5] for base in pool.bases()) == [0, 77]
        mapped.release()


@pytest.fixture
def half_committed(tmp_path: Path, pool: TransientPool):
    """A log of two segments whose files hold half of the first one's records; the buffers hold the rest."""
    maker = StoreMaker(tmp_path / "store")
    while maker.end < SEGMENT + SEGMENT // 2:
        maker.append(BODY)
    committed = maker.records[10].at
    for base in (0, SEGMENT):
        whole = maker.path(base).read_bytes()
        assert pool.borrow(base)
        pool.path_of(base).write_bytes(bytes(max(0, committed - base)) + whole[max(0, committed - base) :])
        maker.path(base).write_bytes(whole[: max(0, committed - base)].ljust(SEGMENT, b"\0"))
    return maker, committed


def scan_of(maker: StoreMaker, pool: TransientPool, committed) -> AppendedScan:
    directory = QueueDirectory()
    files = DispatchScan(CommitLogReader(maker.store.commitlog, SEGMENT), directory)
    return AppendedScan(files, DispatchScan(buffer_reader(pool), directory), SEGMENT, committed)


def read_all(scan: AppendedScan, end: int) -> list[int]:
    found, at = [], 0
    while at < end:
        batch = scan.read(at, end)
        assert batch.end > at, batch.rule.sentence
        found += batch.rows["phy"].tolist()
        at = batch.end
    return found


class TestAppendedScan:
    def test_reads_files_up_to_committed_and_buffers_from_there_on(self, half_committed, pool):
        maker, committed = half_committed
        found = read_all(scan_of(maker, pool, lambda: committed), maker.end)
        assert found == [record.at for record in maker.records]

    @pytest.mark.parametrize("zeroed", [True, False], ids=["zeroed while it is read", "gone when it is opened"])
    def test_a_buffer_that_is_committed_and_given_back_meanwhile_is_read_from_its_file(
        self, half_committed, pool, zeroed
    ):
        maker, committed = half_committed
        now = [committed]
        scan = scan_of(maker, pool, lambda: now[0])

        class Buffers:
            """Flush commits the first segment and allocate gives its buffer back just before it is read."""

            def read(self, start, end):
                if now[0] < SEGMENT:
                    commit(maker, pool, 0, committed, SEGMENT)
                    used = pool.return_buffer(0)
                    used.write_bytes(bytes(SEGMENT))
                    now[0] = SEGMENT
                    if zeroed:
                        pool.set_free(used)
                        assert pool.borrow(0)  # what the reader still has mapped: zeros
                return buffers.read(start, end)

        buffers, scan._buffers = scan._buffers, Buffers()
        assert read_all(scan, maker.end) == [record.at for record in maker.records]


def commit(maker: StoreMaker, pool: TransientPool, base: int, start: int, end: int) -> None:
    buffer = pool.open(base, writable=False)
    fd = os.open(maker.path(base), os.O_RDWR)
    copy_committed(buffer, fd, start - base, end - base)
    os.close(fd)
    buffer.release()


def test_a_commit_copies_its_range_and_nothing_else_however_little_a_write_takes(half_committed, pool, monkeypatch):
    maker, committed = half_committed
    whole = maker.path(0).read_bytes()[:committed] + pool.path_of(0).read_bytes()[committed:]
    monkeypatch.setattr(transient_pool, "COPY_STEP", 1000)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[: len(data) // 2 + 1], at))
    end = maker.records[12].at
    commit(maker, pool, 0, committed, end)
    assert maker.path(0).read_bytes() == whole[:end].ljust(SEGMENT, b"\0")
