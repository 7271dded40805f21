"""One holder of a store, one process per duty."""

import multiprocessing
import os
import subprocess
import sys

import pytest

from tests.requirements import need
from towline.errors import DutyTaken, StoreTaken
from towline.runtime.locks import DutyLock, StoreLock, holder_of, store_holder, store_is_held


def _hold(kind, path, ready, leave):
    holder = StoreLock(path) if kind == "store" else DutyLock(path, "put")
    ready.set()
    leave.wait(30)
    del holder


@pytest.fixture
def other_process():
    context = multiprocessing.get_context("spawn")
    processes = []

    def start(kind, path):
        ready, leave = context.Event(), context.Event()
        process = context.Process(target=_hold, args=(kind, path, ready, leave))
        process.start()
        processes.append((process, leave))
        assert ready.wait(30)
        return process

    yield start
    for process, leave in processes:
        if process.is_alive():  # an event whose waiter was killed waits for it for ever
            leave.set()
        process.join(30)


def test_a_store_that_another_process_holds_is_refused_with_its_pid(tmp_path, other_process):
    process = other_process("store", tmp_path / "lock")
    with pytest.raises(StoreTaken, match=str(process.pid)):
        StoreLock(tmp_path / "lock")


def test_a_store_is_free_again_when_its_holder_was_killed(tmp_path, other_process):
    process = other_process("store", tmp_path / "lock")
    process.kill()
    process.join()
    StoreLock(tmp_path / "lock").release()
    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_asking_who_holds_a_store_does_not_take_it(tmp_path, other_process):
    path = tmp_path / "lock"
    assert (store_is_held(path), store_holder(path)) == (False, 0)
    process = other_process("store", path)
    assert (store_is_held(path), store_holder(path)) == (True, process.pid)
    process.kill()
    process.join()
    assert (store_is_held(path), store_holder(path)) == (False, 0)


def test_a_holder_whose_pid_means_nothing_here_holds_all_the_same(tmp_path, other_process):
    """As seen from a container, which has a process namespace of its own."""
    other_process("store", tmp_path / "lock")
    code = "import pathlib, sys; from towline.runtime import locks; path = pathlib.Path(sys.argv[1])"
    code += "; print(locks.store_is_held(path), locks.store_holder(path))"
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    try:
        subprocess.run([*apart, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        need({"namespaces": "this machine gives no process namespace"})
    asked = [*apart, sys.executable, "-c", code, str(tmp_path / "lock")]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    assert done.stdout == "True 0\n"


def test_a_duty_that_another_process_does_is_refused_with_its_pid(tmp_path, other_process):
    process = other_process("duty", tmp_path / "put.lock")
    assert holder_of(tmp_path / "put.lock") == process.pid
    with pytest.raises(DutyTaken, match=str(process.pid)):
        DutyLock(tmp_path / "put.lock", "put")


def test_asking_who_holds_a_duty_does_not_take_it(tmp_path):
    lock = DutyLock(tmp_path / "put.lock", "put")
    assert holder_of(tmp_path / "put.lock") == os.getpid()
    del lock
    assert holder_of(tmp_path / "missing.lock") == 0
