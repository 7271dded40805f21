"""What the one who starts a slave is told of its master: followed, not there, or never to be followed like this."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.processes.nodes import free_port, processes_of
from tests.processes.waiting import await_
from towline.places import Store
from towline.start import home

from .test_node_commands import SMALL
from .typist import TOWLINE, Done

OTHER_SIZE = ("--set", "mapped_file_size_commit_log=2097152")


@pytest.fixture(scope="module")
def runtime():
    with pytest.MonkeyPatch.context() as patch:
        made = tempfile.mkdtemp(prefix="tl-", dir="/dev/shm")
        patch.setenv("XDG_RUNTIME_DIR", made)
        yield made
        shutil.rmtree(made)


@pytest.fixture
def towline():
    """In a process of its own, which a node outlives."""

    def command(*arguments):
        words = [*TOWLINE, *map(str, arguments)]
        done = subprocess.run(words, cwd=home(), capture_output=True, text=True, timeout=200, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    return command


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def master(runtime, port, towline, tmp_path):
    """A running master whose slaves find it at `port`."""
    store = tmp_path / "master"
    assert towline("master", "start", "--store", store, *SMALL, "--ha-port", port, "--json").status == 0
    yield store
    assert towline("master", "stop", "--store", store, "--json").status == 0


@pytest.fixture
def slave(runtime, port, towline, tmp_path):
    """`towline slave start` with these settings, at a master of this address; its node ends with the test."""
    store = tmp_path / "slave"

    def start(address, *settings):
        return towline("slave", "start", "--store", store, *SMALL, *settings, "--ha-master", address)

    yield start
    if processes_of(store):
        assert towline("slave", "stop", "--store", store, "--json").status == 0


def status_of(towline, store: Path):
    return towline("slave", "status", "--store", store, "--json").document


@pytest.mark.parametrize("scheme", ["", "tcp://"], ids=["HOST:PORT", "tcp://HOST:PORT"])
def test_its_masters_address_is_taken_as_people_write_it(towline, master, slave, port, tmp_path, scheme):
    done = slave(f"{scheme}127.0.0.1:{port}")
    assert done.status == 0, done
    store = tmp_path / "slave"
    await_(lambda: status_of(towline, store)["master"]["connected"], 60.0, "it follows its master")
    assert status_of(towline, store)["seeding"]["left"] == 0
    assert f"follows the master at 127.0.0.1:{port}" in towline("slave", "status", "--store", store).out


def test_one_with_other_segments_is_refused_by_name_and_does_not_go_on(towline, master, slave, port, tmp_path):
    done = slave(f"127.0.0.1:{port}", *OTHER_SIZE, "--json")
    assert (done.status, done.document["error"]) == (1, "LinkRefused")
    said = done.document["sentence"]
    assert "SEGMENT_SIZE" in said
    assert "your segments have 2097152 bytes and ours 1048576" in said
    assert "mapped_file_size_commit_log=1048576, on an empty store directory" in said
    assert not processes_of(tmp_path / "slave")
    assert said in Store(tmp_path / "slave").node_log.read_text()
    assert towline("slave", "status", "--store", tmp_path / "slave", "--json").document["error"] == "NodeNotRunning"


def test_one_whose_master_is_not_there_waits_for_it_and_claims_nothing(towline, slave, port, tmp_path):
    done = slave(f"127.0.0.1:{port}")
    assert done.status == 0
    assert f"follows nobody: no answer from tcp://127.0.0.1:{port}" in done.out, done.out
    status = status_of(towline, tmp_path / "slave")
    assert (status["master"]["connected"], status["master"]["refused"]) == (False, None)
    assert (status["seeding"]["left"], status["seeding"]["left_s"]) == (None, None)
    shown = towline("slave", "status", "--store", tmp_path / "slave").out
    assert "what its master has is not known while it follows nobody" in shown
    assert "that its master has confirmed" not in shown
