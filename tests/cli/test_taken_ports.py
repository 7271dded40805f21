"""A node that cannot listen where its settings say does not start, and says which port, who has it, what to set."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.processes.nodes import free_port, processes_of
from towline.start import home

from .test_node_commands import SMALL
from .typist import TOWLINE, Done

PORTS = {"listen_port": 0, "ha_listen_port": 0}
Start = Callable[..., Done]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """`towline master start`, or slave's, in a process of its own, which a node outlives."""
    runtime = tempfile.mkdtemp(prefix="tl-", dir="/dev/shm")
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    store = tmp_path / "store"

    def command(*words: object) -> Done:
        given = [*TOWLINE, *map(str, words), "--store", str(store), "--json"]
        done = subprocess.run(given, cwd=home(), capture_output=True, text=True, timeout=200, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    def started(role: str, **settings: object) -> Done:
        flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return command(role, "start", *SMALL[:-2], *flags)

    yield started
    if processes_of(store):
        role = json.loads((store / "run" / "node.json").read_text())["role"]
        assert command(role, "stop").status == 0
    shutil.rmtree(runtime)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which this process listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield listening.getsockname()[1]


def sentence(done: Done) -> str:
    assert (done.status, done.document["error"]) == (1, "CannotListen"), done
    return str(done.document["sentence"])


@pytest.mark.parametrize("setting", PORTS)
def test_a_master_names_the_port_that_is_taken_who_has_it_and_the_setting(
    start: Start, taken: int, setting: str
) -> None:
    said = sentence(start("master", **PORTS | {setting: taken}))
    said, _, who = said.partition(f" by process {os.getpid()} (")
    assert said == f"nobody can listen at tcp://127.0.0.1:{taken}, as {setting} says: Address already in use"
    assert who.endswith(")")


@pytest.mark.parametrize("setting", ["name_server_port", "fast_listen_port"])
def test_so_it_does_where_only_another_port_of_clients_is_taken(start: Start, taken: int, setting: str) -> None:
    said = sentence(start("master", **PORTS | {"listen_port": free_port(), setting: taken}))
    assert f"127.0.0.1:{taken}, as {setting} says: Address already in use by process {os.getpid()}" in said


@pytest.mark.parametrize("setting", ["listen_port", "ha_listen_port"])
def test_a_slave_does_too(start: Start, taken: int, setting: str) -> None:
    own = taken if setting == "ha_listen_port" else free_port()
    peers = f"0=127.0.0.1:{free_port()},1=127.0.0.1:{own}"
    given = PORTS | {setting: taken, "ha_peers": peers, "ha_master_address": f"127.0.0.1:{free_port()}"}
    assert f"127.0.0.1:{taken}, as {setting} says" in sentence(start("slave", **given))


def test_nothing_of_such_a_start_runs_on_and_the_next_one_is_as_good(start: Start, taken: int, tmp_path: Path) -> None:
    assert start("master", **PORTS | {"listen_port": taken}).status == 1
    assert not processes_of(tmp_path / "store")
    assert "Traceback" not in (tmp_path / "store" / "run" / "node.log").read_text()
    assert start("master", **PORTS).status == 0


def test_an_address_of_another_machine_is_a_matter_of_the_host(start: Start) -> None:
    elsewhere = {"listen_host": "192.0.2.1", "ha_listen_port": free_port(), "insecure": True}  # kept for examples
    said = sentence(start("master", **PORTS | elsewhere))
    assert said.endswith(
        f"//192.0.2.1:{elsewhere['ha_listen_port']}, as listen_host says: Cannot assign requested address"
    )
