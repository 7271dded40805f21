"""Whether a node has a transient pool, and whose bytes are committed from one that was left behind."""

import errno
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from towline.clock import SystemClock
from towline.errors import StoreNotWritable
from towline.format.files.checkpoint import CHECK_AT, Checkpoint, encode
from towline.format.files.durable import Durable
from towline.limits import MIB, PAGE
from towline.log.errors import PoolElsewhere
from towline.log.files.store_files import AbortFile
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.durable_file import DurableFile
from towline.log.state.identity import IdentityFile
from towline.node.process.context import Node
from towline.node.store import transient_pool
from towline.node.store.pool_state import (
    OWNER_NAME,
    PoolState,
    clear_runtime,
    drop_pool,
    encode_owner,
    keep_positions,
    read_owner,
)
from towline.node.store.transient_pool import MachineMemory, TransientPool, choose_pool, describe_pool, open_pool
from towline.node.store.transient_pool import salvage as salvage_pool
from towline.places import Runtime, Store
from towline.runtime.positions import Duty, Position, Positions
from towline.runtime.settings import read_settings
from towline.start import home

SIZE = 64 << 10
COUNT = 4
FLUSHED, BEGIN, COMMITTED, APPENDED = 700, 1000, 5000, 2 * SIZE + 300  # a start does not sync all that it finds
PLENTY = MachineMemory(shared=1 << 40, available=1 << 40, lockable=1 << 40)


def settings_of(**changed):
    given = {
        "transient_store_pool_enable": True,
        "transient_store_pool_size": COUNT,
        "mapped_file_size_commit_log": SIZE,
        "flush_disk_type": "ASYNC_FLUSH",
    } | changed
    return read_settings(None, {key: str(value) for key, value in given.items()}, {})


# --- the decision


@pytest.mark.parametrize(
    ("changed", "memory", "state"),
    [
        ({}, PLENTY, PoolState.ON),
        ({"transient_store_pool_enable": False}, PLENTY, PoolState.OFF),
        ({"broker_role": "SLAVE", "ha_master_address": "a:1"}, PLENTY, PoolState.SLAVE),
        ({}, replace(PLENTY, shared=None), PoolState.NO_SHARED_MEMORY),
        ({}, replace(PLENTY, shared=COUNT * SIZE), PoolState.ON),
        ({}, replace(PLENTY, shared=COUNT * SIZE - 1), PoolState.TOO_LITTLE_MEMORY),
        ({}, replace(PLENTY, available=COUNT * SIZE - 1), PoolState.TOO_LITTLE_MEMORY),
        ({}, replace(PLENTY, lockable=COUNT * SIZE), PoolState.ON),
        ({}, replace(PLENTY, lockable=COUNT * SIZE - 1), PoolState.NOT_LOCKABLE),
    ],
    ids=str,
)
def test_a_node_has_a_pool_if_it_is_asked_for_and_there_is_room_for_all_of_it(changed, memory, state):
    assert choose_pool(settings_of(**changed), memory) is state


def test_every_reason_has_a_sentence_with_its_numbers():
    said = {state: describe_pool(state, settings_of()) for state in PoolState}
    assert (said.pop(PoolState.ON), said.pop(PoolState.OFF)) == ("on", "off")
    assert all(sentence.startswith("off (") for sentence in said.values())
    assert len(set(said.values())) == len(said)
    assert f"raise RLIMIT_MEMLOCK to {COUNT * SIZE}" in said[PoolState.NOT_LOCKABLE]


UNPRIVILEGED = """
import ctypes, os, resource, sys
PR_CAPBSET_DROP, CAP_IPC_LOCK = 24, 14
ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
os.execv(sys.executable, [sys.executable, "-m", "towline.master", *sys.argv[1:]])
"""


def test_a_node_that_may_not_lock_so_much_memory_says_so_and_starts_without_a_pool(tmp_path):
    """A process of root may lock all, unless the capability was taken from it; any other is held by its limit."""
    flags = {
        "transient_store_pool_enable": "true",
        "mapped_file_size_commit_log": MIB,
        "listen_port": 0,
        "ha_listen_port": 0,
        "max_hash_slot_num": 1000,
        "max_index_num": 4000,
    }
    words = [word for key, value in flags.items() for word in ("--set", f"{key}={value}")]
    readable, ready = os.pipe()
    command = [sys.executable, "-c", UNPRIVILEGED, "--store", str(tmp_path / "store"), "--ready-fd", str(ready), *words]
    with subprocess.Popen(command, cwd=home(), pass_fds=[ready], stderr=subprocess.PIPE, text=True) as process:
        os.close(ready)
        said = os.read(readable, 65_536)
        os.close(readable)
        process.terminate()
        _, log = process.communicate(timeout=30)
    assert b'"pid"' in said or b'"endpoints"' in said, said
    assert f"transient pool: off (5 buffers of {MIB} bytes cannot be locked in memory: raise RLIMIT_MEMLOCK" in log


# --- what a killed node left


class Killed:
    """A store and the runtime directory that a killed node left: [COMMITTED, APPENDED) stands in its pool alone."""

    def __init__(self, root: Path) -> None:
        self.store, self.runtime = Store(root / "store"), Runtime(root / "run")
        for directory in (self.store.commitlog, self.store.staging, self.store.run, self.runtime.root):
            directory.mkdir(parents=True)
        IdentityFile(self.store.root).create("DefaultCluster")
        DurableFile(self.store.root).save(Durable(flushed=FLUSHED))
        self.log = np.random.default_rng(1).integers(1, 256, APPENDED, dtype=np.uint8).tobytes()
        self.segment(0).write_bytes(self.log[:BEGIN].ljust(SIZE, b"\0"))
        self.positions = Positions.create(self.runtime.positions, 7)
        log = logging.getLogger("recover")
        self.node = Node(self.store, self.runtime, settings_of(), self.positions, Duty.RECOVER, 7, log, SystemClock())
        assert open_pool(self.node, BEGIN) is PoolState.ON
        self.pool = TransientPool(self.runtime.pool, SIZE)
        for base in range(0, APPENDED, SIZE):
            self.segment(base).write_bytes(self.log[base : min(base + SIZE, COMMITTED)].ljust(SIZE, b"\0"))
            assert self.pool.borrow(base)
            with self.pool.path_of(base).open("r+b") as buffer:
                buffer.seek(max(BEGIN - base, 0))
                buffer.write(self.log[max(base, BEGIN) : base + SIZE])
        self.positions.writer(Position.COMMITTED, Duty.FLUSH).advance(COMMITTED)
        self.positions.writer(Position.APPENDED, Duty.PUT).advance(APPENDED)
        AbortFile(self.store.root).create(1)
        CheckpointFile(self.store.root).save(Checkpoint(physic_msg_timestamp=1))
        keep_positions(self.runtime)
        Positions.create(self.runtime.positions, 8).close()  # as the next start does before it recovers

    def segment(self, base: int) -> Path:
        return self.store.commitlog / f"{base:020d}"

    def salvage(self) -> str:
        said = salvage_pool(self.store, self.runtime)
        assert len(said) == 1
        return said[0]

    def written(self) -> bytes:
        paths = [self.segment(base) for base in range(0, APPENDED, SIZE)]
        return b"".join(path.read_bytes() for path in paths if path.exists())[:APPENDED]


@pytest.fixture
def killed():
    with tempfile.TemporaryDirectory(prefix="towline-transient-", dir="/dev/shm") as memory:
        yield Killed(Path(memory))


def test_what_was_in_the_pool_alone_gets_into_the_files_and_twice_is_as_good_as_once(killed):
    for _ in range(2):
        assert killed.salvage() == (
            f"{APPENDED - COMMITTED} bytes [{COMMITTED}, {APPENDED}) were in the transient pool alone and are "
            "committed now"
        )
        assert killed.written() == killed.log
        assert not any(killed.segment(2 * SIZE).read_bytes()[APPENDED - 2 * SIZE :]), "nothing behind the end"
    drop_pool(killed.store, killed.runtime)
    assert not killed.runtime.pool.exists()
    assert not killed.store.pool_owner.exists()
    assert salvage_pool(killed.store, killed.runtime) == []


def another_identity(killed: Killed) -> None:
    IdentityFile(killed.store.root).path.unlink()
    IdentityFile(killed.store.root).create("DefaultCluster")


def no_word_in_the_store(killed: Killed) -> None:
    killed.store.pool_owner.unlink()


def owned(**changed):
    def change(killed: Killed) -> None:
        owner = read_owner(killed.store.pool_owner)
        assert owner is not None
        for path in (killed.store.pool_owner, killed.runtime.pool / OWNER_NAME):
            path.write_bytes(encode_owner(replace(owner, **changed)))

    return change


def put_back_from_a_copy(killed: Killed) -> None:
    copy = killed.store.root / "copy"
    copy.mkdir()
    for base in range(0, APPENDED, SIZE):
        (copy / killed.segment(base).name).write_bytes(killed.segment(base).read_bytes())
        killed.segment(base).unlink()
    killed.store.commitlog.rmdir()
    copy.rename(killed.store.commitlog)


def older_files_in_the_same_directory(killed: Killed) -> None:
    killed.segment(0).write_bytes(killed.log[: COMMITTED - 100].ljust(SIZE, b"\0"))


def another_program_stopped_in_order(killed: Killed) -> None:
    AbortFile(killed.store.root).remove()


def another_programs_checkpoint(killed: Killed) -> None:
    """It writes the fields, and knows nothing of the check."""
    content = killed.store.checkpoint.read_bytes()
    killed.store.checkpoint.write_bytes(encode(Checkpoint(physic_msg_timestamp=2))[:CHECK_AT] + content[CHECK_AT:])


def another_programs_record_behind_it(killed: Killed) -> None:
    with killed.segment(0).open("r+b") as segment:
        segment.seek(COMMITTED)
        segment.write(bytes([0, 0, killed.log[COMMITTED + 2] ^ 1]))


def another_programs_record_in_the_next_segment(killed: Killed) -> None:
    with killed.segment(SIZE).open("r+b") as segment:
        segment.seek(500)
        segment.write(bytes([killed.log[SIZE + 500] ^ 1]))


def another_log_before_it(killed: Killed) -> None:
    with killed.segment(0).open("r+b") as segment:
        segment.seek(BEGIN - 1)
        segment.write(bytes([killed.log[BEGIN - 1] ^ 1]))


def no_log_any_more(killed: Killed) -> None:
    for path in killed.store.commitlog.iterdir():
        path.unlink()


def a_new_store_in_its_place(killed: Killed) -> None:
    """`written` of it reads what it has: nothing."""
    shutil.rmtree(killed.store.root)
    killed.store.staging.mkdir(parents=True)
    IdentityFile(killed.store.root).create("DefaultCluster")


def an_older_state_file(killed: Killed) -> None:
    killed.store.durable.unlink()
    DurableFile(killed.store.root).save(Durable(flushed=FLUSHED - 1))


def a_missing_buffer(killed: Killed) -> None:
    killed.pool.path_of(SIZE).unlink()


STRANGERS = {
    another_identity: "the store has another identity",
    no_word_in_the_store: "the store does not say that the pool is its",
    owned(boot_id="another"): "they are of another boot of the machine",
    owned(generation=6): "they are of another start of the node",
    put_back_from_a_copy: "commitlog/ is another directory, a copy",
    older_files_in_the_same_directory: "does not hold what was committed to it before",
    an_older_state_file: "the store was not written so far",
    another_program_stopped_in_order: "abort is gone: another program ran and stopped in order",
    another_programs_checkpoint: "the checkpoint is another program's",
    another_programs_record_behind_it: f"{0:020d} behind what was committed",
    another_programs_record_in_the_next_segment: f"{SIZE:020d} behind what was committed",
    another_log_before_it: f"the log before {BEGIN} is not what it was when the pool was made",
    no_log_any_more: f"the log before {BEGIN} is not what it was when the pool was made",
    a_new_store_in_its_place: "the store does not say that the pool is its",
    a_missing_buffer: "a buffer is missing",
}


@pytest.mark.parametrize(("change", "why"), STRANGERS.items(), ids=STRANGERS.values())
def test_bytes_of_another_life_are_never_applied_but_kept(killed, change, why):
    change(killed)
    before = killed.written()
    said = killed.salvage()
    assert f"[{COMMITTED}, {APPENDED}) in the transient pool are not applied: " in said
    assert why in said
    assert killed.written() == before
    kept = b"".join(path.read_bytes() for path in sorted((killed.store.root / "diverged").iterdir()))
    wanted = killed.log[COMMITTED:]
    assert kept == (wanted if change is not a_missing_buffer else killed.log[COMMITTED:SIZE] + killed.log[2 * SIZE :])


def test_a_commit_that_was_cut_short_is_no_other_program(killed):
    """Of what it wrote any pages are there."""
    with killed.segment(0).open("r+b") as segment:
        for start in (COMMITTED, 3 * PAGE, 8 * PAGE):
            segment.seek(start)
            segment.write(killed.log[start : start + PAGE])
    assert killed.salvage().endswith("committed now")
    assert killed.written() == killed.log


def test_after_a_failed_sync_the_pool_waits_until_an_operator_has_mended_the_store(killed):
    file = DurableFile(killed.store.root)
    file.save(Durable(flushed=FLUSHED, sync_failed=True))
    before = killed.written()
    assert "waits until the failed sync of the store is mended" in killed.salvage()
    assert killed.written() == before
    file.clear_sync_failed()
    assert killed.salvage().endswith("committed now")
    assert killed.written() == killed.log


def test_a_disk_that_cannot_take_them_keeps_the_pool_for_the_next_start(killed, monkeypatch):
    def copy(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(transient_pool, "copy_committed", copy)
        with pytest.raises(StoreNotWritable, match="No space left"):
            salvage_pool(killed.store, killed.runtime)
    clear_runtime(killed.store, killed.runtime)
    assert killed.salvage().endswith("committed now")


def test_without_room_for_the_word_about_it_there_is_no_pool(killed, monkeypatch):
    def write(path, _):
        raise StoreNotWritable(str(path), "No space left on device")

    drop_pool(killed.store, killed.runtime)
    monkeypatch.setattr(transient_pool, "write_atomically", write)
    assert open_pool(killed.node, BEGIN) is PoolState.NOT_RECORDED
    assert not killed.runtime.pool.exists()


def test_a_pool_whose_positions_have_gone_is_not_guessed_at(killed):
    (killed.runtime.pool / "positions").unlink()
    killed.runtime.positions.unlink()
    before = killed.written()
    assert "nobody can tell" in killed.salvage()
    assert killed.written() == before


def test_a_pool_that_was_never_finished_holds_nothing(killed):
    (killed.runtime.pool / OWNER_NAME).unlink()
    assert salvage_pool(killed.store, killed.runtime) == []


def test_a_machine_that_was_booted_again_has_no_pool_and_the_start_says_what_that_means(killed):
    leave_nothing = killed.runtime.pool
    for path in sorted(leave_nothing.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    leave_nothing.rmdir()
    assert "has gone with the machine's memory" in killed.salvage()


def test_a_start_that_would_look_for_the_pool_in_another_place_is_refused(killed, tmp_path):
    """The runtime directory follows XDG_RUNTIME_DIR, which a service and a shell may have set differently."""
    other = Runtime(tmp_path / "other")
    with pytest.raises(PoolElsewhere, match=f"is {killed.runtime.pool}, and this start would use {other.pool}"):
        salvage_pool(killed.store, other)
    clear_runtime(killed.store, other)  # as a start that was refused does
    assert killed.salvage().endswith("committed now")
    put_back_from_a_copy(killed)  # whose own start finds nothing of it
    assert "has gone with the machine's memory" in salvage_pool(killed.store, other)[0]


def test_a_pool_in_another_place_that_holds_nothing_alone_keeps_no_start_from_happening(killed, tmp_path):
    (killed.runtime.pool / "positions").unlink()
    Positions.create(killed.runtime.positions, 7).writer(Position.COMMITTED, Duty.FLUSH).advance(APPENDED)
    Positions.open(killed.runtime.positions).writer(Position.APPENDED, Duty.PUT).advance(APPENDED)
    assert salvage_pool(killed.store, Runtime(tmp_path / "other")) == []


def test_a_node_that_ends_leaves_the_pool_behind_only_while_something_is_in_it_alone(killed):
    clear_runtime(killed.store, killed.runtime)
    assert [path.name for path in killed.runtime.root.iterdir()] == ["pool"]
    assert killed.salvage().endswith("committed now")
    assert killed.written() == killed.log
    drop_pool(killed.store, killed.runtime)
    clear_runtime(killed.store, killed.runtime)
    assert not killed.runtime.root.exists()
