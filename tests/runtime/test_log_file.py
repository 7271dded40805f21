"""A log that is moved aside when it is full, while others write to it."""

import logging
import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

from towline.runtime.log_file import LogFile, move_aside

LINES = 2_000
FOLLOWING = """
import os, sys
from pathlib import Path
from towline.runtime.log_file import LogFile, follow, move_aside
path = Path(sys.argv[1])
log = LogFile(path)
os.write(2, b"before")
assert move_aside(path, 1, 2)
log.reopenIfNeeded() if sys.argv[2] == "log" else follow(path)
os.write(1, b"after")
"""


def files(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


def test_it_is_moved_when_it_is_full_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    for text in ("a", "b", "c", "d"):
        path.write_text(text * 100)
        assert not move_aside(path, 101, 2)
        assert move_aside(path, 100, 2)
    assert files(path) == ["node.log.1", "node.log.2"]
    assert [Path(f"{path}.{number}").read_text()[0] for number in (1, 2)] == ["d", "c"]


def test_none_is_full_without_a_limit_and_none_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "node.log").write_text("a")
    assert not move_aside(tmp_path / "node.log", 0, 2)
    assert not move_aside(tmp_path / "other.log", 1, 2)
    assert files(tmp_path / "node.log") == ["node.log"]


def test_fewer_are_kept_once_fewer_are_wanted_and_other_files_stay(tmp_path: Path) -> None:
    for name in ("node.log", "node.log.1", "node.log.2", "node.log.3", "node.log.txt", "put.log.7"):
        (tmp_path / name).write_text(name)
    assert move_aside(tmp_path / "node.log", 1, 1)
    assert files(tmp_path / "node.log") == ["node.log.1", "node.log.txt", "put.log.7"]
    assert (tmp_path / "node.log.1").read_text() == "node.log"


def write(path: Path, name: str) -> None:
    log = LogFile(path)
    for number in range(LINES):
        log.emit(logging.makeLogRecord({"msg": f"{name} {number}"}))


def test_no_line_is_lost_or_torn_while_several_processes_write(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    writers = [multiprocessing.get_context("fork").Process(target=write, args=(path, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    moved = 0
    while any(writer.is_alive() for writer in writers):
        moved += move_aside(path, 2_000, 10 * LINES)
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert moved
    found = [line for each in tmp_path.iterdir() for line in each.read_text().splitlines()]
    assert sorted(found) == sorted(f"{name} {number}" for name in "ab" for number in range(LINES))


@pytest.mark.parametrize("by", ["log", "follow"])
def test_what_goes_past_the_log_follows_it(tmp_path: Path, by: str) -> None:
    path = tmp_path / "node.log"
    with path.open("ab") as log:
        subprocess.run([sys.executable, "-c", FOLLOWING, str(path), by], stdout=log, stderr=log, check=True)
    assert (path.read_text(), Path(f"{path}.1").read_text()) == ("after", "before")


def test_output_that_goes_elsewhere_stays_there(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    path.write_text("before")
    done = subprocess.run([sys.executable, "-c", FOLLOWING, str(path), "log"], capture_output=True, check=True)
    assert (done.stdout, done.stderr, path.read_text()) == (b"after", b"before", "")
