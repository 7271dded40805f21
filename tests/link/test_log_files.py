"""A client that reads the log's files by itself: what it reads, and when it leaves that to the node."""

import contextlib
import os
import socket
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


def tells_what_is_cached(path: Path) -> bool:
    """Whether this system does (Linux 6.5), and the file system has pages that it can drop."""
    found = LogFiles(path.parent).region(stretch(path, 0, 1))
    if found is not None:
        found.close()
    return found is not None


def test_a_region_is_sent_as_the_socket_takes_it_also_of_a_file_that_was_let_go(tmp_path: Path, files: LogFiles):
    path = tmp_path / f"{BASE:020d}"
    path.write_bytes(CONTENT * 1_000)
    if not tells_what_is_cached(path):
        pytest.skip("the system does not tell what is in memory")
    before = descriptors()
    region = files.region(stretch(path, 5, 3_000_000))
    assert region is not None
    files.close()
    path.unlink()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        came = bytearray()
        while len(region):
            with contextlib.suppress(BlockingIOError):
                while len(region):
                    region.send(ours)
            came += theirs.recv(1 << 20)
        while len(came) < 3_000_000:
            came += theirs.recv(1 << 20)
    assert came == (CONTENT * 1_000)[5 : 5 + 3_000_000]
    region.close()
    assert descriptors() == before


def test_what_is_not_in_memory_has_no_region(tmp_path: Path, files: LogFiles):
    path = tmp_path / f"{BASE:020d}"
    path.write_bytes(CONTENT * 256)
    if not tells_what_is_cached(path):
        pytest.skip("the system does not tell what is in memory")
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 64 * 4_096, 4_096, os.POSIX_FADV_DONTNEED)
    if files.read(stretch(path, 64 * 4_096, 1), waits=False) is not None:
        pytest.skip("the file system keeps all in memory")
    assert files.region(stretch(path, 0, 64 * 4_096)) is not None
    assert files.region(stretch(path, 0, 64 * 4_096 + 1)) is None
    assert files.region(stretch(path, 65 * 4_096, 4_096)) is not None
    files.close()


def test_a_region_of_a_file_that_was_cut_fails_and_sends_nothing_else(tmp_path: Path, files: LogFiles):
    path = made(tmp_path)
    if not tells_what_is_cached(path):
        pytest.skip("the system does not tell what is in memory")
    region = files.region(stretch(path, 100, 100))
    assert region is not None
    os.truncate(path, 50)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(OSError, match="ends within"):
        region.send(ours)
    with pytest.raises(OSError, match="ends within"):
        region.read()
    region.close()
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
