"""Warm-up: every page in memory, no byte changed, whatever the writer does meanwhile."""

import errno
import os
import resource
from pathlib import Path

import pytest

from towline.errors import SyncFailed
from towline.limits import PAGE
from towline.log.files import memory, page_cache
from towline.log.files.mapped_file import MappedFile
from towline.log.files.page_cache import WarmUp, warm
from towline.log.files.segment_files import create_segment

SIZE = 32 * PAGE


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(page_cache, "STEP", 3 * PAGE)
    return create_segment(tmp_path, SIZE, "segment")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    monkeypatch.setattr(MappedFile, "sync", lambda _, start, end: ranges.append((start // PAGE, end // PAGE)))
    return ranges


def resident(path: Path) -> list[int]:
    """Pages that are in memory."""
    mapped = MappedFile.open(path, SIZE, writable=False)
    return [page for page in range(SIZE // PAGE) if mapped.resident(page * PAGE, page * PAGE + 1)]


def all_steps(warming: WarmUp, writer_at: int = 0) -> list[int]:
    ends = []
    while warming.step(writer_at):
        ends.append(warming.at // PAGE)
    warming.release()
    return ends


def test_it_brings_every_page_into_memory_in_bounded_steps(path):
    assert resident(path) == []
    assert all_steps(WarmUp(path, SIZE)) == [3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 32]
    assert resident(path) == list(range(SIZE // PAGE))


def test_it_takes_large_pages_only_where_it_is_told_to(path, monkeypatch):
    asked = []
    monkeypatch.setattr(MappedFile, "prefer_large_pages", lambda mapped: asked.append(mapped.path))
    all_steps(WarmUp(path, SIZE))
    assert asked == []
    assert all_steps(WarmUp(path, SIZE, large=True))[-1] == SIZE // PAGE
    assert asked == [path]


def test_large_pages_change_no_byte(path):
    content = os.urandom(SIZE)
    path.write_bytes(content)
    all_steps(WarmUp(path, SIZE, large=True))
    assert path.read_bytes() == content


def test_it_changes_no_byte(path):
    content = os.urandom(SIZE)
    path.write_bytes(content)
    warm(path, SIZE)
    assert path.read_bytes() == content


def test_what_was_populated_is_written_out_after_so_many_bytes_and_at_the_end(path, synced):
    all_steps(WarmUp(path, SIZE, sync_bytes=7 * PAGE))
    assert synced == [(0, 9), (9, 18), (18, 27), (27, 32)]


def test_without_a_number_of_bytes_nothing_is_written_out(path, synced):
    all_steps(WarmUp(path, SIZE))
    assert synced == []


def test_what_its_writer_has_passed_is_left_alone_and_nothing_is_synced_under_its_hands(path, synced):
    warming = WarmUp(path, SIZE, sync_bytes=3 * PAGE)
    assert warming.step()
    assert synced == [(0, 3)]
    assert all_steps(warming, writer_at=20 * PAGE) == [23, 26, 29, 32]
    assert synced == [(0, 3)]


def test_a_segment_that_is_written_to_its_end_needs_nothing(path):
    warming = WarmUp(path, SIZE)
    assert not warming.step(SIZE)
    assert warming.at == SIZE


def test_a_segment_can_be_warmed_from_its_middle_on(path, synced):
    assert all_steps(WarmUp(path, SIZE, begin=28 * PAGE, sync_bytes=PAGE)) == [31, 32]
    assert synced == [(28, 31), (31, 32)]


def test_a_failed_sync_is_an_error_that_names_the_file(path, monkeypatch):
    def broken(*_: object) -> None:
        raise SyncFailed(str(path), 0, PAGE, errno.EIO, "Input/output error")

    monkeypatch.setattr(MappedFile, "sync", broken)
    with pytest.raises(SyncFailed, match=str(path)):
        warm(path, SIZE)


def test_locked_pages_stay_locked_until_the_release(path):
    warming = WarmUp(path, SIZE, lock=True)
    before = locked_kib()
    while warming.step():
        pass
    assert warming.lock_error is None
    assert locked_kib() - before == SIZE // 1024
    warming.release()
    assert locked_kib() == before


def test_beyond_the_limit_of_locked_memory_it_goes_on_without_locking(path, monkeypatch):
    asked: list[int] = []

    def refuse(pages: memory.Pages) -> None:
        asked.append(pages.size)
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(memory, "lock", refuse)
    warming = WarmUp(path, SIZE, lock=True)
    all_steps(warming)
    assert warming.lock_error is not None
    assert warming.lock_error.errno == errno.ENOMEM
    assert asked == [3 * PAGE]
    assert resident(path) == list(range(SIZE // PAGE))


def test_the_limit_of_locked_memory_is_the_systems(path):
    """In a process that may lock 4 pages and has no right to more."""
    child = os.fork()
    if child == 0:
        found = 1
        try:
            warming = WarmUp(path, SIZE, lock=True)
            if os.getuid() == 0:
                os.setresuid(65534, 65534, 65534)
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (4 * PAGE, 4 * PAGE))
            memory.raise_lock_limit()
            while warming.step():
                pass
            refused = warming.lock_error is not None and warming.lock_error.errno in (errno.ENOMEM, errno.EPERM)
            found = 0 if refused and warming.at == SIZE and locked_kib() == 3 * PAGE // 1024 else 2
        finally:
            os._exit(found)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def locked_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmLck")).split()[1])
