"""A client that reads the log's files by itself: what it reads, and when it leaves that to the node."""

import contextlib
from pathlib import Path

import pytest

from towline.clock import boot_id
from towline.errors import MalformedFrame
from towline.format.wire.frames import STRETCH
from towline.limits import FRAME_SIZE_MAX
from towline.link.log_files import OPEN_MAX, LogFiles

BASE = 1 << 20
CONTENT = bytes(range(256)) * 16
ENDPOINT = "ipc:///run/node/serve.sock"
LOOPBACK = "tcp://127.0.0.1:10911"


def made(directory: Path, base: int = BASE) -> Path:
    path = directory / f"{base:020d}"
    path.write_bytes(CONTENT)
    return path


def stretch(path: Path, at: int, size: int, base: int = BASE) -> bytes:
    found = path.stat()
    return STRETCH.pack(found.st_dev, found.st_ino, base, base + at, size)


@pytest.fixture
def files(tmp_path: Path) -> LogFiles:
    found = LogFiles.of(ENDPOINT, {"commitlog": str(tmp_path)})
    assert found is not None
    return found


def descriptors() -> int:
    """Those of segments: others come and go with what is collected meanwhile."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was that of the walk
            found += each.readlink().name.removesuffix(" (deleted)").isdecimal()
    return found


def test_the_bytes_of_a_stretch(tmp_path: Path, files: LogFiles):
    path = made(tmp_path)
    for at, size in ((0, len(CONTENT)), (1, 10), (len(CONTENT) - 3, 3)):
        found = files.read(stretch(path, at, size))
        assert found is not None
        assert bytes(found) == CONTENT[at : at + size]


def test_a_deleted_file_is_read_on_until_it_is_let_go(tmp_path: Path, files: LogFiles):
    path = made(tmp_path)
    place = stretch(path, 5, 7)
    before = descriptors()
    assert files.read(place) is not None
    path.unlink()
    found = files.read(place)
    assert found is not None
    assert bytes(found) == CONTENT[5:12]
    files.close()
    assert descriptors() == before
    assert files.read(place) is None


def test_another_file_of_that_name_is_not_read(tmp_path: Path, files: LogFiles):
    path = made(tmp_path)
    place = stretch(path, 0, 10)
    path.rename(tmp_path / "kept")
    made(tmp_path)
    assert files.read(place) is None


def test_a_file_that_changed_its_place_is_opened_anew(tmp_path: Path, files: LogFiles):
    path = made(tmp_path)
    assert files.read(stretch(path, 0, 10)) is not None
    path.rename(tmp_path / "kept")
    assert files.read(stretch(made(tmp_path), 0, 10)) is not None
    files.close()


def test_a_file_that_is_not_there_or_too_short(tmp_path: Path, files: LogFiles):
    path = made(tmp_path)
    assert files.read(stretch(path, 1, len(CONTENT))) is None
    assert files.read(stretch(path, 0, 10, base=2 * BASE)) is None
    files.close()


def test_only_a_few_files_are_held(tmp_path: Path, files: LogFiles):
    before = descriptors()
    for number in range(3 * OPEN_MAX):
        base = number * BASE
        assert files.read(stretch(made(tmp_path, base), 0, 1, base)) is not None
    assert descriptors() == before + OPEN_MAX
    files.close()


@pytest.mark.parametrize(
    ("base", "start", "size"),
    [(BASE, BASE - 1, 10), (-1, 0, 10), (BASE, BASE, 0), (BASE, BASE, -1), (BASE, BASE, FRAME_SIZE_MAX + 1)],
)
def test_a_place_that_cannot_be(files: LogFiles, base: int, start: int, size: int):
    with pytest.raises(MalformedFrame):
        files.read(STRETCH.pack(1, 1, base, start, size))


@pytest.mark.parametrize(
    ("endpoint", "welcome"),
    [
        (LOOPBACK, {"commitlog": "/"}),
        (LOOPBACK, {"commitlog": "/", "boot": "of another machine, at the end of a tunnel"}),
        ("tcp://node0:10911", {"commitlog": "/", "boot": boot_id()}),
        (LOOPBACK, {"boot": boot_id()}),
        (ENDPOINT, {}),
        (ENDPOINT, {"commitlog": 7}),
    ],
)
def test_no_files_of_a_node_elsewhere(endpoint: str, welcome: dict[str, object]):
    assert LogFiles.of(endpoint, welcome) is None


@pytest.mark.parametrize("endpoint", [LOOPBACK, "tcp://[::1]:10911", "tcp://localhost:10911"])
def test_a_node_behind_a_local_port_shows_by_its_boot_that_its_files_are_here(endpoint: str, tmp_path: Path):
    files = LogFiles.of(endpoint, {"commitlog": str(tmp_path), "boot": boot_id()})
    assert files is not None
    found = files.read(stretch(made(tmp_path), 1, 10))
    assert found is not None
    assert bytes(found) == CONTENT[1:11]
    files.close()
