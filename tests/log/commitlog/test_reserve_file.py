"""The reserve: all its blocks or the share of a start, made whole again, given up at once."""

import os
from pathlib import Path

import pytest

from towline.errors import DiskFull, SyncFailed
from towline.log.commitlog import reserve_file
from towline.log.commitlog.cleaning import DiskUse
from towline.log.commitlog.reserve_file import START_SHARE, ReserveFile, disk_use

SIZE = 1 << 16
SHARE = SIZE // START_SHARE


@pytest.fixture
def reserve(tmp_path: Path) -> ReserveFile:
    return ReserveFile(tmp_path, SIZE)


def test_it_holds_blocks_and_gives_them_back(reserve):
    assert not reserve.held
    assert reserve.make()
    assert reserve.held
    assert 512 * reserve.path.stat().st_blocks >= SIZE
    inode = reserve.path.stat().st_ino
    assert reserve.make()
    assert reserve.path.stat().st_ino == inode, "what is whole stays"
    assert reserve.give_up()
    found = reserve.path.stat()
    assert (found.st_size, 512 * found.st_blocks) == (SHARE, SHARE)
    assert not reserve.held
    assert not reserve.give_up()
    assert reserve.make()
    assert reserve.held


@pytest.mark.parametrize("size", [0, SIZE // 2, SIZE, 2 * SIZE], ids=["empty", "short", "sparse", "of another size"])
def test_what_is_not_whole_is_made_anew(reserve, size):
    reserve.path.touch()
    os.truncate(reserve.path, size)
    assert not reserve.held
    assert reserve.make()
    assert reserve.held
    assert reserve.path.stat().st_size == SIZE


def test_none_is_kept_where_none_is_wanted(tmp_path):
    ReserveFile(tmp_path, SIZE).make()
    none = ReserveFile(tmp_path, 0)
    assert not none.held
    assert not none.make()
    assert not none.path.exists()


@pytest.mark.parametrize(
    "error", [DiskFull("reserve", SIZE), SyncFailed("reserve", 0, 0, 5, "EIO"), OSError(30, "EROFS")]
)
def test_a_disk_that_gives_none_is_no_error(reserve, monkeypatch, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(reserve_file, "reserve", fails)
    assert not reserve.make()


def test_a_disk_without_room_for_all_of_it_keeps_the_share_of_a_start(reserve, monkeypatch):
    reserve_blocks = reserve_file.reserve

    def up_to_the_share(fd, start, end):
        if end > SHARE:
            raise DiskFull("reserve", end)
        reserve_blocks(fd, start, end)

    monkeypatch.setattr(reserve_file, "reserve", up_to_the_share)
    assert not reserve.make()
    assert not reserve.held
    assert 512 * reserve.path.stat().st_blocks == SHARE
    monkeypatch.setattr(reserve_file, "disk_use", lambda _: DiskUse(1, SIZE - 1))
    assert reserve.give_up_when_full()
    assert not reserve.path.exists()


@pytest.mark.parametrize(("available", "given_up"), [(SIZE - 1, True), (SIZE, False)])
def test_a_start_gives_it_up_where_less_than_its_size_is_left(reserve, monkeypatch, available, given_up):
    reserve.make()
    monkeypatch.setattr(reserve_file, "disk_use", lambda _: DiskUse(1, available))
    assert reserve.give_up_when_full() is given_up
    assert reserve.path.exists() is not given_up


def test_the_use_of_a_file_system_is_what_df_says(tmp_path):
    found, said = disk_use(tmp_path), os.statvfs(tmp_path)
    assert found.available <= said.f_bfree * said.f_frsize
    assert 0 < found.percent <= 100
