"""One holder of a store, one process per duty."""

import multiprocessing
import os

import pytest

from towline.errors import DutyTaken, StoreTaken
from towline.runtime.locks import DutyLock, StoreLock, holder_of


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
