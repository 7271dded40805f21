import errno
import os
import pickle
import select
import sys
from pathlib import Path
from threading import Event, Thread

import pytest

from towline.errors import SegmentSizeMismatch, StoreNotWritable, SyncFailed
from towline.limits import MIB, PAGE
from towline.log.files import memory
from towline.log.files.mapped_file import ADVICE_RANDOM, MappedFile, PendingUnmaps
from towline.log.files.segment_files import create_segment

SIZE = 64 * 1024
LARGE = 64 * MIB


def broken_disk(*_: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


def old_kernel(*_: object) -> None:
    raise OSError(errno.EINVAL, "Invalid argument")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(SIZE))
    return path


class TestOpening:
    def test_another_length_is_refused_naming_the_file_and_both_sizes(self, path: Path) -> None:
        with pytest.raises(SegmentSizeMismatch, match=rf"{path} is {SIZE} bytes long, the configured size is 4096"):
            MappedFile.open(path, 4096, writable=False)

    def test_a_missing_file_is_not_created(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            MappedFile.open(tmp_path / "missing", SIZE, writable=True)
        assert list(tmp_path.iterdir()) == []

    def test_a_reader_cannot_write(self, path: Path) -> None:
        mapped = MappedFile.open(path, SIZE, writable=False)
        assert not mapped.array.flags.writeable
        assert mapped.view.readonly

    def test_array_and_view_are_the_same_bytes_as_the_file(self, path: Path) -> None:
        mapped = MappedFile.open(path, SIZE, writable=True)
        mapped.array[7] = 9
        assert mapped.view[7] == 9
        assert path.read_bytes()[7] == 9

    def test_two_mappings_of_one_file_see_each_other(self, path: Path) -> None:
        writer, reader = (MappedFile.open(path, SIZE, writable=writable) for writable in (True, False))
        writer.view[10:15] = b"hello"
        assert bytes(reader.view[10:15]) == b"hello"


class TestSync:
    @pytest.mark.parametrize(("start", "end"), [(0, 0), (1, 2), (PAGE - 1, PAGE + 1), (0, SIZE), (SIZE, SIZE)])
    def test_any_range_within_the_file_is_rounded_to_pages(self, path: Path, start: int, end: int) -> None:
        MappedFile.open(path, SIZE, writable=True).sync(start, end)

    def test_a_failed_sync_names_file_range_and_errno(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory, "sync", broken_disk)
        mapped = MappedFile.open(path, SIZE, writable=True)
        with pytest.raises(SyncFailed, match=rf"{path} bytes 4096 to 8192 failed: errno {errno.EIO}") as failed:
            mapped.sync(5000, 5001)
        assert pickle.loads(pickle.dumps(failed.value)).args == failed.value.args

    def test_a_read_only_mapping_refuses_instead_of_doing_nothing(self, path: Path) -> None:
        with pytest.raises(AssertionError, match="read-only"):
            MappedFile.open(path, SIZE, writable=False).sync(0, 1)


class TestPopulate:
    def test_it_changes_no_byte(self, path: Path) -> None:
        path.write_bytes(b"x" * SIZE)
        mapped = MappedFile.open(path, SIZE, writable=True)
        mapped.populate(100, SIZE - 100)
        assert path.read_bytes() == b"x" * SIZE

    def test_an_old_kernel_is_no_error(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory, "madvise", old_kernel)
        mapped = MappedFile.open(path, SIZE, writable=True)
        assert not mapped.populate(0, SIZE)

    def test_a_page_that_cannot_be_had_is_an_error(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken_disk(*_: object) -> None:
            raise OSError(errno.EFAULT, "Bad address")

        monkeypatch.setattr(memory, "madvise", broken_disk)
        with pytest.raises(StoreNotWritable, match=str(path)):
            MappedFile.open(path, SIZE, writable=True).populate(0, SIZE)

    def test_an_empty_range_is_populated_already(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory, "madvise", old_kernel)
        assert MappedFile.open(path, SIZE, writable=True).populate(PAGE, PAGE)

    def test_other_threads_run_while_it_lasts(self, tmp_path: Path) -> None:
        """What a thread gets done during a large populate: nothing at all if the call kept the interpreter."""
        large = create_segment(tmp_path, LARGE, "large")
        mapped = MappedFile.open(large, LARGE, writable=True)
        turns, done = [0], Event()

        def count() -> None:
            while not done.is_set():
                turns[0] += 1
                select.select([], [], [], 0)  # gives way

        counting = Thread(target=count)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(60)  # nobody is asked to give way: only a call that lets go lets the other run
        try:
            counting.start()
            before = turns[0]
            mapped.populate(0, LARGE)
            during = turns[0] - before
        finally:
            sys.setswitchinterval(interval)
            done.set()
            counting.join()
        assert during > 0

    def test_advice_is_taken_for_a_part_or_the_whole(self, path: Path) -> None:
        mapped = MappedFile.open(path, SIZE, writable=False)
        mapped.advise(ADVICE_RANDOM)
        mapped.advise(ADVICE_RANDOM, 10, PAGE)


class TestResidence:
    def test_pages_that_were_dropped_are_counted_again_when_they_are_touched(self, tmp_path: Path) -> None:
        path = create_segment(tmp_path, 16 * PAGE, "segment")
        with path.open("r+b") as file:
            file.write(b"x" * 16 * PAGE)
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        mapped = MappedFile.open(path, 16 * PAGE, writable=True)
        mapped.advise(ADVICE_RANDOM)
        assert mapped.resident(0, mapped.size) == 0
        assert mapped.view[3 * PAGE] == ord("x")
        assert mapped.resident(0, mapped.size) == mapped.resident(3 * PAGE, 3 * PAGE + 1) == 1
        mapped.populate(0, mapped.size)
        assert mapped.resident(0, mapped.size) == 16
        assert mapped.resident(PAGE, PAGE) == 0

    def test_forgotten_pages_are_unmapped_and_keep_what_was_written(self, tmp_path: Path) -> None:
        path = create_segment(tmp_path, LARGE, "segment")
        mapped = MappedFile.open(path, LARGE, writable=True)
        mapped.populate(0, LARGE)
        mapped.view[PAGE + 7 : PAGE + 12] = b"hello"
        held = mapped_kib(path)
        mapped.drop_pages(1, LARGE - 1)  # its first and its last page are not wholly in it
        assert held == LARGE // 1024
        assert mapped_kib(path) <= 2 * PAGE // 1024
        assert bytes(mapped.view[PAGE + 7 : PAGE + 12]) == b"hello"
        mapped.drop_pages(10, PAGE + 10)

    def test_locked_pages_are_in_memory_and_counted_as_locked(self, path: Path) -> None:
        mapped = MappedFile.open(path, SIZE, writable=True)
        before = locked_kib()
        mapped.lock(0, SIZE)
        assert locked_kib() - before == SIZE // 1024
        assert mapped.resident(0, SIZE) == SIZE // PAGE
        mapped.drop_pages(0, SIZE)
        assert mapped_kib(path) == SIZE // 1024
        mapped.unlock(0, SIZE)
        assert locked_kib() == before


def mapped_kib(path: Path) -> int:
    """Resident KiB of the mappings of `path` in this process."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0] and ":" not in line.split(" ")[0]:
            inside = line.endswith(str(path))
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found


def locked_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmLck")).split()[1])


class TestRelease:
    def test_a_file_nobody_holds_is_unmapped_at_once(self, path: Path) -> None:
        mapped = MappedFile.open(path, SIZE, writable=True)
        assert mapped.release()
        assert not mapped.is_open

    def test_bytes_that_somebody_holds_stay_readable_until_let_go(self, path: Path) -> None:
        mapped = MappedFile.open(path, SIZE, writable=True)
        mapped.view[:5] = b"hello"
        frame = mapped.view[:5]
        assert not mapped.release()
        assert bytes(frame) == b"hello"
        frame.release()
        assert mapped.release()

    def test_an_array_made_of_the_view_counts_too(self, path: Path) -> None:
        mapped = MappedFile.open(path, SIZE, writable=True)
        part = mapped.array[3:9]
        assert not mapped.release()
        del part
        assert mapped.release()

    def test_a_released_file_has_no_bytes(self, path: Path) -> None:
        mapped = MappedFile.open(path, SIZE, writable=True)
        mapped.release()
        with pytest.raises(AssertionError, match="released"):
            _ = mapped.array

    def test_referenced_mappings_are_unmapped_later(self, path: Path) -> None:
        unmaps = PendingUnmaps()
        held, free = (MappedFile.open(path, SIZE, writable=False) for _ in range(2))
        frame = held.view[:10]
        unmaps.add(held)
        unmaps.add(free)
        assert len(unmaps) == unmaps.sweep() == 1
        del frame
        assert unmaps.sweep() == 0
