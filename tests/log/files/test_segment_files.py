import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from towline.errors import DiskFull, SyncFailed
from towline.format.record import record
from towline.format.record.record import Record
from towline.limits import PAGE
from towline.log.files import segment_files
from towline.log.files.segment_files import (
    clear_staging,
    create_segment,
    ensure_segment,
    publish,
    reserve,
    segment_base,
    segment_name,
    sync_directory,
    zero_range,
)

SIZE = 64 * 1024
BLOCK = 512  # unit of st_blocks


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    path = tmp_path / "staging"
    path.mkdir()
    return path


@pytest.fixture
def commitlog(tmp_path: Path) -> Path:
    path = tmp_path / "commitlog"
    path.mkdir()
    return path


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def unsupported(*_: object) -> bool:
    return False


def reserved_bytes(path: Path) -> int:
    return path.stat().st_blocks * BLOCK


class TestNames:
    def test_a_name_is_the_offset_in_20_digits(self) -> None:
        assert segment_name(4260) == "00000000000000004260"
        assert segment_base(segment_name(2**62)) == 2**62

    @pytest.mark.parametrize("name", ["", "4260", "0" * 19, "0" * 21, "-0000000000000004260", "abort", "²" * 20])
    def test_anything_else_is_no_segment(self, name: str) -> None:
        assert segment_base(name) is None


class TestCreating:
    def test_a_new_segment_is_zero_at_full_size_with_its_blocks_reserved(self, staging: Path) -> None:
        path = create_segment(staging, SIZE, "new")
        assert path.read_bytes() == bytes(SIZE)
        assert reserved_bytes(path) >= SIZE

    def test_a_name_under_construction_is_not_taken_twice(self, staging: Path) -> None:
        create_segment(staging, SIZE, "new")
        with pytest.raises(FileExistsError):
            create_segment(staging, SIZE, "new")
        assert (staging / "new").stat().st_size == SIZE

    def test_a_full_disk_is_told_with_path_and_size_and_leaves_nothing(
        self, staging: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "posix_fallocate", full_disk)
        with pytest.raises(DiskFull, match=f"no room for {SIZE} bytes of {staging / 'new'}"):
            create_segment(staging, SIZE, "new")
        assert list(staging.iterdir()) == []

    def test_what_a_killed_process_left_under_construction_is_cleared(self, staging: Path) -> None:
        (staging / "left").write_bytes(b"half")
        assert clear_staging(staging) == 1
        assert clear_staging(staging) == 0


class TestPublishing:
    def test_a_published_file_keeps_its_inode_and_leaves_staging(self, staging: Path, commitlog: Path) -> None:
        staged = create_segment(staging, SIZE, "new")
        inode = staged.stat().st_ino
        target = commitlog / segment_name(0)
        assert publish(staged, target)
        assert (target.stat().st_ino, target.stat().st_nlink) == (inode, 1)
        assert list(staging.iterdir()) == []

    def test_its_name_is_durable_on_return(
        self, staging: Path, commitlog: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[tuple[Path, list[str]]] = []

        def note(path: Path) -> None:
            synced.append((path, sorted(each.name for each in path.iterdir())))
            sync_directory(path)

        monkeypatch.setattr(segment_files, "sync_directory", note)
        publish(create_segment(staging, SIZE, "new"), commitlog / segment_name(0))
        assert (commitlog, [segment_name(0)]) in synced

    def test_the_loser_drops_its_own_and_leaves_the_other_in_place(self, staging: Path, commitlog: Path) -> None:
        target = commitlog / segment_name(0)
        publish(create_segment(staging, SIZE, "first"), target)
        inode = target.stat().st_ino
        assert not publish(create_segment(staging, SIZE, "second"), target)
        assert target.stat().st_ino == inode
        assert list(staging.iterdir()) == []

    def test_of_two_makers_of_the_same_segment_exactly_one_wins(self, staging: Path, commitlog: Path) -> None:
        bases = [number * SIZE for number in range(8)]
        barrier = Barrier(2, timeout=30)

        def make_all() -> list[bool]:
            made = []
            for base in bases:
                barrier.wait()
                made.append(ensure_segment(commitlog, staging, base, SIZE))
            return made

        with ThreadPoolExecutor(2) as pool:
            first, second = (future.result(60) for future in [pool.submit(make_all) for _ in range(2)])
        assert [a != b for a, b in zip(first, second, strict=True)] == [True] * len(bases)
        assert sorted(path.name for path in commitlog.iterdir()) == [segment_name(base) for base in bases]
        assert list(staging.iterdir()) == []

    def test_a_segment_that_exists_is_not_made_again(self, staging: Path, commitlog: Path) -> None:
        assert ensure_segment(commitlog, staging, SIZE, SIZE)
        (commitlog / segment_name(SIZE)).write_bytes(b"x" * SIZE)
        assert not ensure_segment(commitlog, staging, SIZE, SIZE)
        assert (commitlog / segment_name(SIZE)).read_bytes() == b"x" * SIZE

    def test_a_failed_sync_of_the_directory_is_an_error(self, commitlog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(_: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(SyncFailed, match=str(commitlog)):
            sync_directory(commitlog)


class TestReserving:
    def test_holes_are_filled_and_written_bytes_kept(self, tmp_path: Path, fd: int) -> None:
        os.pwrite(fd, b"kept", 100)
        os.ftruncate(fd, SIZE)
        reserve(fd, 100, SIZE)
        assert reserved_bytes(tmp_path / "file") >= SIZE - PAGE
        assert (tmp_path / "file").read_bytes() == bytes(100) + b"kept" + bytes(SIZE - 104)

    def test_an_empty_range_asks_for_nothing(self, tmp_path: Path, fd: int) -> None:
        reserve(fd, 10, 10)
        assert (tmp_path / "file").stat().st_size == 0

    def test_a_full_disk_is_told_with_the_path(self, tmp_path: Path, fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "posix_fallocate", full_disk)
        with pytest.raises(DiskFull, match=str(tmp_path / "file")):
            reserve(fd, 0, SIZE)


@pytest.mark.parametrize("by_hand", [False, True], ids=["by the file system", "by written zeros"])
class TestZeroing:
    @pytest.mark.parametrize(
        ("start", "end"),
        [(0, SIZE), (0, 0), (1, 2), (100, PAGE), (PAGE, 2 * PAGE), (PAGE - 1, 3 * PAGE + 1), (SIZE - 1, SIZE)],
    )
    def test_exactly_the_range_is_zeroed_and_stays_reserved(
        self, tmp_path: Path, fd: int, monkeypatch: pytest.MonkeyPatch, by_hand: bool, start: int, end: int
    ) -> None:
        if by_hand:
            monkeypatch.setattr(segment_files, "_zero_pages", unsupported)
        os.pwrite(fd, b"x" * SIZE, 0)
        before = reserved_bytes(tmp_path / "file")
        zero_range(fd, start, end)
        assert (tmp_path / "file").read_bytes() == b"x" * start + bytes(end - start) + b"x" * (SIZE - end)
        assert reserved_bytes(tmp_path / "file") >= before

    def test_stale_records_of_equal_size_do_not_come_back(
        self, tmp_path: Path, fd: int, monkeypatch: pytest.MonkeyPatch, by_hand: bool
    ) -> None:
        if by_hand:
            monkeypatch.setattr(segment_files, "_zero_pages", unsupported)
        size = len(equal_sized(b"old0", 0))
        count = SIZE // size
        os.ftruncate(fd, SIZE)
        os.pwrite(fd, b"".join(equal_sized(b"old%d" % (n % 10), n * size) for n in range(count)), 0)
        zero_range(fd, size, SIZE)
        os.pwrite(fd, equal_sized(b"new1", size), size)
        data = (tmp_path / "file").read_bytes()
        assert [record.decode(data, at).body for at in (0, size)] == [b"old0", b"new1"]
        assert data[2 * size :] == bytes(SIZE - 2 * size)


def equal_sized(body: bytes, at: int) -> bytes:
    return record.encode(Record(topic=b"TopicA", body=body, physical_offset=at, store_timestamp=1))
