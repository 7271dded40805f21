"""The ten symptoms of docs/failures.md: each is produced at a real node, and what the guide says is typed word by word.

A row is found by what one sees, and its commands by their words: whoever changes the one or the other changes a test.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests.cli.conftest import typing
from tests.cli.typist import Done, Typist
from tests.processes.disks import small_memory, take
from tests.processes.nodes import free_port, processes_of
from tests.processes.stopping import stopped
from tests.processes.waiting import Watch, await_
from tests.repo.trees import ROOT
from towline.places import Store

PAGE: Final = ROOT / "docs" / "failures.md"
CODE: Final = re.compile(r"`([^`]+)`")
SEGMENT: Final = 1_048_576  # as the typist's settings have it
MET: Final[dict[str, Callable[..., None]]] = {}  # what one sees -> the test that produces it


def rows() -> dict[str, list[str]]:
    """What one sees -> all that the row has in backticks behind it, in order."""
    table = PAGE.read_text(encoding="utf-8").partition("<!-- ten -->")[2].partition("<!-- end of ten -->")[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.strip().splitlines()[2:]]
    return {CODE.fullmatch(seen)[1]: CODE.findall(typed) for seen, _, typed in cells}  # type: ignore[index]


class Row:
    """One row of the guide, at a node whose store is where the row has DIR."""

    def __init__(self, seen: str, typist: Typist) -> None:
        self.seen, self.typist, self._commands = seen, typist, rows()[seen]

    def is_in(self, done: Done | str, **words: object) -> None:
        """What was printed has the sentence of the row."""
        text = done if isinstance(done, str) else done.out + done.err
        assert self._filled(self.seen, words) in text, text

    def typed(self, *beginning: str, **words: object) -> str:
        """The one command of the row that begins with these words."""
        [found] = [line for line in self._commands if shlex.split(line)[: len(beginning)] == list(beginning)]
        return self._filled(found, words)

    def works(self, *beginning: str, more: tuple[str, ...] = (), **words: object) -> Done:
        """The command does what it is for."""
        done = self.typist(self.typed(*beginning, **words), *more)
        assert done.status == 0, done
        return done

    def _filled(self, text: str, words: dict[str, object]) -> str:
        for name, value in {"DIR": self.typist.store, **words}.items():
            text = re.sub(rf"\b{name}\b", str(value), text)
        return text


def symptom(seen: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Marks the test of a row, which gets the row."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        MET[seen] = test
        return pytest.mark.parametrize("row", [seen], indirect=True, ids=["row"])(test)

    return mark


@pytest.fixture
def typist(tmp_path: Path) -> Iterator[Typist]:
    with typing(tmp_path) as made:
        yield made


@pytest.fixture
def row(request: pytest.FixtureRequest, typist: Typist) -> Row:
    return Row(request.param, typist)


@pytest.fixture
def put(typist: Typist) -> str:
    """The command that stores a message."""
    return f"towline put orders hello --store {typist.store}"


MASTER: Final = ("towline", "master", "start")
STATUS: Final = ("towline", "master", "status")


@symptom("no node is running on DIR")
@pytest.mark.slow
def test_a_node_that_does_not_run_is_started(row: Row, put: str) -> None:
    row.is_in(row.typist(put))
    row.works(*MASTER)
    row.typist.works(put)
    row.typist.stop()
    row.is_in(row.typist(put))
    row.works("towline", "slave", "start", more=("--set=ha_master_address=127.0.0.1:1",))


@symptom("the store DIR is in use by process PID")
@pytest.mark.slow
def test_a_store_in_use_is_left_by_the_node_that_is_stopped(row: Row, put: str) -> None:
    row.works(*MASTER)
    pid = row.typist(f"towline master status --store {row.typist.store}").document["pid"]
    row.is_in(row.typist(row.typed(*MASTER)), PID=pid)
    row.works("towline", "master", "stop")
    row.works(*MASTER)
    row.typist.works(put)


@symptom("nobody can listen at tcp://127.0.0.1:PORT")
@pytest.mark.slow
def test_a_port_that_is_taken_is_another_one(row: Row, put: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        row.is_in(row.typist(f"towline master start --store {row.typist.store} --port {port}"), PORT=port)
        row.works(*MASTER, OTHER=free_port())
    row.typist.works(put)


@symptom("the topic 'TOPIC' does not exist here")
def test_a_topic_that_nobody_has_made_is_made(row: Row) -> None:
    row.typist.works(f"towline master start --store {row.typist.store}")
    describe = f"towline topic describe payments --store {row.typist.store}"
    row.is_in(row.typist(describe), TOPIC="payments")
    row.works("towline", "topic", "create", TOPIC="payments")
    row.typist.works(describe)


@pytest.mark.parametrize("keep", ["", " --keep"], ids=["until it ends", "kept"])
@symptom("broker_permission=4: this node is read-only")
def test_a_node_that_was_made_read_only_takes_puts_again(row: Row, put: str, keep: str) -> None:
    start = f"towline master start --store {row.typist.store}"
    row.typist.works(start)
    row.typist.works(f"towline config set broker_permission=4 --store {row.typist.store}{keep}")
    row.is_in(row.typist(put))
    [found] = row.works("towline", "config", "get").document["settings"]
    assert found["kept"] == bool(keep)
    row.works("towline", "config", "unset" if keep else "set")
    row.typist.works(put)
    row.typist.stop()
    row.typist.works(start)
    row.typist.works(put)


@symptom("cause=disk_full")
@pytest.mark.slow
def test_a_full_disk_refuses_puts_until_there_is_room(row: Row) -> None:
    with small_memory(32 << 20) as disk:
        row.typist.store = disk / "store"
        put = f"towline put orders {'x' * 60_000} --store {row.typist.store}"
        row.typist.works(f"towline master start --store {row.typist.store}", "--set=reserve_file_size=1048576")
        try:
            row.typist.works(put)
            take(disk / "other")

            def refused() -> Done | None:
                done = row.typist(put)
                return done if done.status else None

            row.is_in(await_(refused, 60.0, "puts are refused"))
            shown = subprocess.run(shlex.split(row.typed("df")), capture_output=True, text=True, check=True).stdout
            assert int(re.search(r"(\d+)%", shown)[1]) > 90  # type: ignore[index]
            assert row.typist(row.typed(*STATUS)).status == 1
            (disk / "other").unlink()
            await_(lambda: row.typist(row.typed(*STATUS)).status == 0, 60.0, "it is ready")
            row.typist.works(put)
        finally:
            row.typist.stop()


@symptom("has done no turn for")
def test_a_process_that_stands_still_goes_on(row: Row, put: str) -> None:
    row.typist.works(f"towline master start --store {row.typist.store}")
    row.typist.works(put)
    status = row.typed(*STATUS)
    [pid] = [each["pid"] for each in row.typist(status).document["processes"] if each["duty"] == "reput"]
    with stopped(pid):
        told = await_(lambda: row.typist(status).document["standing_still"], 60.0, "status says so")
        row.is_in(row.typist.shown(status))
        goes_on = row.typed("kill", "-CONT", PID=pid)
        assert f"`{goes_on}`" in told[0]["sentence"]
        subprocess.run(shlex.split(goes_on), check=True)
        await_(lambda: row.typist(status).status == 0, 60.0, "it goes on")
    row.typist.works(f"towline get orders --max 1 --store {row.typist.store}")


@pytest.fixture
def group(typist: Typist, tmp_path: Path) -> Iterator[tuple[Typist, tuple[str, ...]]]:
    """The slave of a master at `typist`, and with what it is started: both run, and the slave is in sync."""
    ports, slave = (free_port(), free_port()), Typist(tmp_path / "slave")
    peers = f"--set=ha_peers=0=127.0.0.1:{ports[0]},1=127.0.0.1:{ports[1]}"
    ours = (peers, f"--set=ha_listen_port={ports[0]}", "--set=broker_role=SYNC_MASTER")
    theirs = (peers, f"--set=ha_listen_port={ports[1]}", "--set=broker_id=1")
    try:
        slave.works(f"towline slave start --store {slave.store}", *theirs)
        typist.works(f"towline master start --store {typist.store}", *ours)
        put = f"towline put orders hello --store {typist.store}"
        await_(lambda: typist(put).document.get("status") == "PUT_OK", 60.0, "the slave is in sync")
        yield slave, theirs
    finally:
        typist.stop()
        slave.stop()


@symptom("SLAVE_NOT_AVAILABLE")
def test_a_slave_that_does_not_run_is_started(row: Row, put: str, group: tuple[Typist, tuple[str, ...]]) -> None:
    slave, settings = group
    slave.stop()
    await_(lambda: row.seen in row.typist(put).out, 30.0, "what is stored is not promised")
    assert [each["node"] for each in row.typist(row.typed(*STATUS)).document["slaves"]] == [1]
    start = row.typed("towline", "slave", "start", SLAVE=slave.store)
    slave.works(start, *settings)
    await_(lambda: row.typist(put).document["status"] == "PUT_OK", 30.0, "it is in sync again")


@symptom("follows nobody")
def test_a_slave_whose_master_is_lost_becomes_the_master(
    row: Row, typist: Typist, group: tuple[Typist, tuple[str, ...]]
) -> None:
    slave, _ = group
    for pid, _ in processes_of(typist.store):
        os.kill(pid, signal.SIGKILL)
    Watch(pid for pid, _ in processes_of(typist.store)).await_gone(60.0)
    shutil.rmtree(typist.store)
    lost = Row(row.seen, slave)
    status = f"towline slave status --store {slave.store}"
    await_(lambda: row.seen in slave.shown(status), 60.0, "it follows nobody")
    refused = slave(lost.typed("towline", "promote", "--store"))
    assert (refused.document["error"], "--accept-loss" in refused.document["remedy"]) == ("PromotionRefused", True)
    lost.works("towline", "promote", "--accept-loss")
    slave.works(f"towline get orders --max 1 --store {slave.store}")
    slave.works(f"towline put orders hello --store {slave.store}")
    assert slave(status).document["role"] == "master"


@symptom("below the durable offset of the log")
def test_what_a_disk_has_changed_is_stepped_over(row: Row, tmp_path: Path) -> None:
    lines, where = tmp_path / "lines.txt", f"--store {row.typist.store}"
    lines.write_bytes(b"".join(b64encode(os.urandom(40_000)) + b"\n" for _ in range(30)))  # a client compresses text
    row.works(*MASTER)
    row.typist.works(f"towline put orders --lines {lines} {where}")
    row.typist.stop()
    segment = Store(row.typist.store).commitlog / f"{SEGMENT:020}"
    with segment.open("r+b") as file:
        file.seek(100_000)
        old = file.read(1)
        file.seek(100_000)
        file.write(bytes([old[0] ^ 1]))
    Store(row.typist.store).known.unlink()  # or the start believes that nobody wrote since the stop
    refused = row.typist(row.typed(*MASTER))
    row.is_in(refused)
    assert row.typist(row.typed("towline", "store", "verify")).status == 2
    [offset] = re.findall(r"--skip (\d+)", refused.document["remedy"])
    row.works("towline", "store", "repair", OFFSET=offset)
    row.works(*MASTER)
    row.typist.works(f"towline get orders --max 3 {where}")


def test_the_guide_has_ten_symptoms_each_of_which_is_produced() -> None:
    assert len(MET) == 10
    assert rows().keys() == MET.keys()
    assert all(any(" " in line for line in typed) for typed in rows().values()), "each has a command"
