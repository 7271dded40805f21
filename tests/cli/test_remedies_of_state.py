"""What a start, a key or a supervisor that stands still refuses: what the remedy says is done, and it helps."""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.processes.nodes import free_port, processes_of
from tests.processes.stopping import stopped
from tests.processes.waiting import await_
from tests.requirements import need
from towline.link.keys import ENVIRONMENT
from towline.pipeline.session import java_missing
from towline.places import Store
from towline.runtime.locks import store_holder

from .typist import TYPED, Typist, filled

pytestmark = pytest.mark.slow  # starts and stops of nodes: `make soak` types them

POOL = tuple(
    f"--set={each}"
    for each in (
        "commit_interval_commit_log=600000",
        "commit_commit_log_thorough_interval=600000",
        "transient_store_pool_enable=true",
        "flush_disk_type=ASYNC_FLUSH",
    )
)


def damage(file: Path) -> None:
    file.write_bytes(b"\0" * max(1, file.stat().st_size))


@contextmanager
def environment(**given: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@pytest.mark.parametrize(
    ("name", "error"),
    [
        pytest.param("epochFileCheckpoint", "EpochsLost", id="epochs"),
        pytest.param("ha/promise.json", "WordLost", id="word"),
    ],
)
def test_a_file_that_nothing_else_says_is_restored_from_a_copy(typist: Typist, name: str, error: str) -> None:
    start, peers = f"towline master start --store {typist.store}", f"--set=ha_peers=0=127.0.0.1:{free_port()}"
    typist.works(start, peers)
    typist.works(f"towline put orders hello --store {typist.store}")
    typist.stop()
    file = typist.store / name
    if not file.exists():
        pytest.fail(f"{name} is not there: {sorted(each.name for each in file.parent.iterdir())}")
    copy = typist.store.parent / "copy"
    shutil.copy(file, copy)
    for each in (file, file.with_name(f"{file.name}.bak")):
        if each.exists():
            damage(each)
    refused = typist(start, peers)
    assert (refused.status, refused.document["error"]) == (1, error)
    assert "restore the file from a copy" in refused.document["remedy"]
    shutil.copy(copy, file)
    typist.works(start, peers)
    typist.works(f"towline get orders --max 1 --store {typist.store}")


def test_a_store_of_another_cluster_is_left_to_that_one(typist: Typist, tmp_path: Path) -> None:
    start = f"towline master start --store {typist.store}"
    ours, other = (f"--set=broker_cluster_name={name}" for name in ("ours", "other"))
    typist.works(start, ours)
    typist.stop()
    refused = typist(start, other)
    assert refused.document["error"] == "IdentityMismatch"
    assert "give the store of that cluster, or an empty directory" in refused.document["remedy"]
    empty = Typist(tmp_path / "empty")
    empty.works(f"towline master start --store {empty.store}", other)
    empty.stop()
    typist.works(start, ours)


def kill_with_a_message_in_the_pool(typist: Typist) -> None:
    typist.works(f"towline master start --store {typist.store}", *POOL)
    typist.works(f"towline put orders hello --store {typist.store}")
    for pid, _ in processes_of(typist.store):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await_(lambda: not processes_of(typist.store), 30.0, "all its processes are gone")


def test_a_log_whose_end_is_in_a_pool_is_rebuilt_after_a_repair(typist: Typist) -> None:
    need({} if (problem := java_missing()) is None else {"java": problem})
    rebuild = f"towline pipeline rebuild --store {typist.store}"
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tl-") as memory, environment(XDG_RUNTIME_DIR=memory):
        kill_with_a_message_in_the_pool(typist)
        repair = typist.refused_once(rebuild, "repair")
        typist.works(repair)
        typist.works(rebuild)
        typist.works(f"towline master start --store {typist.store}", *POOL)
        typist.works(f"towline get orders --max 1 --store {typist.store}")
        typist.stop()


def test_what_a_killed_nodes_pool_holds_is_found_by_the_runtime_directory_of_before(typist: Typist) -> None:
    start = f"towline master start --store {typist.store}"
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tl-") as memory:
        with environment(XDG_RUNTIME_DIR=memory):
            kill_with_a_message_in_the_pool(typist)
        refused = typist(start, *POOL)
        assert refused.document["error"] == "PoolElsewhere"
        assert "start the node with the XDG_RUNTIME_DIR it had before" in refused.document["remedy"]
        assert memory in refused.document["sentence"]
        with environment(XDG_RUNTIME_DIR=memory):
            typist.works(start, *POOL)
            typist.works(f"towline get orders --max 1 --store {typist.store}")
            typist.stop()


def test_a_key_without_the_role_is_replaced_by_one_that_has_it(typist: Typist, tmp_path: Path) -> None:
    ring, port = tmp_path / "ring", free_port()
    sends = typist(f"towline keys new sender --dir {ring} --role producer").document["file"]
    typist.works(f"towline master start --store {typist.store}", f"--set=keys_dir={ring}", f"--set=listen_port={port}")
    make = f"towline topic create orders --endpoint tcp://127.0.0.1:{port}"
    with environment(**{ENVIRONMENT: sends}):
        shows, makes = typist.refused(make)
    assert [row["roles"] for row in typist(filled(shows, DIR=ring)).document["keys"]] == [["producer"]]
    administers = typist(filled(makes, NAME="admin", DIR=ring, ROLE="admin")).document["file"]
    with environment(**{ENVIRONMENT: administers}):
        typist.works(make)


def test_a_change_that_nobody_answers_is_looked_for_and_asked_for_again(typist: Typist) -> None:
    typist.works(f"towline master start --store {typist.store}")
    change = f"towline config set log_level=ERROR --store {typist.store}"
    with stopped(store_holder(Store(typist.store).lock)):
        refused = typist(change)
        assert refused.document["error"] == "ChangeUndone"
        status, holds = TYPED.findall(refused.document["remedy"])
        assert typist(status).document["role"] == "master"
        assert typist(holds).status == 0
    typist.works(change)
    [row] = [row for row in typist(f"{holds} --all").document["settings"] if row["key"] == "log_level"]
    assert row["value"] == "ERROR"


def test_topics_that_are_too_many_have_room_with_fewer_queues(typist: Typist) -> None:
    typist.works(f"towline master start --store {typist.store}", "--set=queues_max=40")
    refused = typist(f"towline topic create many --queues 41 --store {typist.store}")
    assert refused.document["error"] in ("TooManyQueues", "AskRefused"), refused.document
    assert "use fewer topics or fewer queues per topic" in json.dumps(refused.document)
    typist.works(f"towline topic create many --queues 4 --store {typist.store}")
