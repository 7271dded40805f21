"""What a stopped or killed node leaves for the next start, and when it is of no worth any more."""

import json
import logging
import shutil
import zlib
from pathlib import Path

import pytest

from towline.log.files.store_files import AbortFile
from towline.node.store.pool_state import clear_runtime
from towline.node.supervise import snapshot_store
from towline.places import Runtime, Store
from towline.runtime.positions import Duty, Position, Positions
from towline.runtime.queue_ends import QueueEnds
from towline.runtime.settings import Settings, read_settings

GENERATION = 5
LOG = logging.getLogger("towline")


@pytest.fixture
def node(tmp_path: Path) -> tuple[Store, Runtime]:
    """A node whose processes run."""
    store, runtime = Store(tmp_path / "store"), Runtime(tmp_path / "memory")
    for directory in (store.commitlog, store.run, runtime.root):
        directory.mkdir(parents=True)
    positions, ends = Positions.create(runtime.positions, GENERATION), QueueEnds.create(runtime.queue_ends)
    for position, value in ((Position.APPENDED, 900), (Position.DISPATCHED, 800), (Position.INDEXED, 700)):
        positions.writer(position, Duty.RECOVER).advance(value)
    ends.add("Straße".encode(), 3, 10, 20, 790)
    AbortFile(store.root).create(1)
    record_running(store, runtime, positions)
    return store, runtime


def settings_of(*, indexing: bool = True, **more: str) -> Settings:
    given = {"broker_role": "ASYNC_MASTER", "message_index_enable": str(indexing)} | more
    return read_settings(None, given, {})


def record_running(
    store: Store, runtime: Runtime, positions: Positions | None = None, *, indexing: bool = True
) -> None:
    positions = positions or Positions.open(runtime.positions)
    snapshot_store.record_running(store, runtime, LOG, positions, settings_of(indexing=indexing))


def write(store: Store, runtime: Runtime, *, indexing: bool = True, clean: bool = True) -> None:
    positions = Positions.open(runtime.positions)
    snapshot_store.save_stopped(store, runtime, LOG, positions, settings_of(indexing=indexing), clean=clean)


def set_position(runtime: Runtime, position: Position, value: int) -> None:
    Positions.open(runtime.positions).writer(position, Duty.RECOVER).advance(value)


def test_a_killed_node_is_remembered_once(node):
    store, runtime = node
    snapshot_store.save_killed(store, runtime, LOG)
    known = snapshot_store.load_snapshot(store, runtime, LOG)
    assert known is not None
    assert (known.appended, known.dispatched, known.indexed, known.clean) == (900, 800, 700, False)
    (queue,) = known.queues
    assert (queue.topic, queue.queue_id, queue.min_offset, queue.end_offset) == ("Straße", 3, 10, 20)
    assert queue.physical_end == 790
    assert snapshot_store.load_snapshot(store, runtime, LOG) is None
    snapshot_store.save_killed(store, runtime, LOG)
    assert snapshot_store.load_snapshot(store, runtime, LOG) is None


def test_a_start_that_is_killed_before_it_recovered_loses_nothing(node):
    store, runtime = node
    snapshot_store.save_killed(store, runtime, LOG)
    Positions.create(runtime.positions, GENERATION + 1)
    snapshot_store.save_killed(store, runtime, LOG)
    known = snapshot_store.load_snapshot(store, runtime, LOG)
    assert known is not None
    assert known.appended == 900


def test_a_node_that_stopped_in_order_is_remembered_without_its_memory(node):
    store, runtime = node
    for position in (Position.DISPATCHED, Position.INDEXED):
        set_position(runtime, position, 900)
    write(store, runtime)
    AbortFile(store.root).remove()
    shutil.rmtree(runtime.root)
    runtime.root.mkdir()
    snapshot_store.save_killed(store, runtime, LOG)
    known = snapshot_store.load_snapshot(store, runtime, LOG)
    assert known is not None
    assert known.clean
    assert known.dispatched == known.indexed == known.appended == 900


def test_a_node_that_stopped_in_order_with_bytes_that_nobody_confirmed_is_remembered_without_its_memory(node):
    store, runtime = node
    write(store, runtime, clean=False)
    shutil.rmtree(runtime.root)
    runtime.root.mkdir()
    snapshot_store.save_killed(store, runtime, LOG)
    known = snapshot_store.load_snapshot(store, runtime, LOG)
    assert known is not None
    assert (known.clean, known.synced, known.appended, known.dispatched) == (False, True, 900, 800)


@pytest.mark.parametrize("left", ["in memory", "in the store"])
def test_what_a_recovery_was_told_and_found_to_be_so_is_known_to_the_next_one(node, left):
    store, runtime = node
    if left == "in the store":
        write(store, runtime, clean=False)
        runtime.page_cache.unlink()
    snapshot_store.save_killed(store, runtime, LOG)
    known = snapshot_store.load_snapshot(store, runtime, LOG)
    assert known is not None
    snapshot_store.save_for_next_recovery(store, runtime, LOG, known)
    assert snapshot_store.load_snapshot(store, runtime, LOG) == known
    assert snapshot_store.load_snapshot(store, runtime, LOG) is None


def test_what_is_handed_on_in_memory_is_past_with_the_page_cache(node):
    store, runtime = node
    snapshot_store.save_killed(store, runtime, LOG)
    known = snapshot_store.load_snapshot(store, runtime, LOG)
    assert known is not None
    snapshot_store.save_for_next_recovery(store, runtime, LOG, known)
    copied(store, runtime)
    assert snapshot_store.load_snapshot(store, runtime, LOG) is None


@pytest.mark.parametrize(
    ("role", "flush", "confirmed"),
    [
        ("ASYNC_MASTER", "ASYNC_FLUSH", 900),
        ("ASYNC_MASTER", "SYNC_FLUSH", 880),
        ("SYNC_MASTER", "SYNC_FLUSH", 860),
        ("SLAVE", "ASYNC_FLUSH", 840),
    ],
)
def test_what_a_killed_node_had_confirmed_is_remembered_by_its_role_and_flush_mode(node, role, flush, confirmed):
    store, runtime = node
    for position, value in ((Position.FLUSHED, 880), (Position.REPLICATED, 860), (Position.CONFIRMED, 840)):
        set_position(runtime, position, value)
    given = settings_of(broker_role=role, flush_disk_type=flush)
    snapshot_store.record_running(store, runtime, LOG, Positions.open(runtime.positions), given)
    snapshot_store.save_killed(store, runtime, LOG)
    known = snapshot_store.load_snapshot(store, runtime, LOG)
    assert known is not None
    assert known.confirmed == confirmed


@pytest.mark.parametrize("clean", [True, False])
def test_a_node_that_wrote_what_it_knew_leaves_no_memory(node, clean):
    store, runtime = node
    write(store, runtime, clean=clean)
    clear_runtime(store, runtime)
    assert not runtime.root.exists()


def test_a_node_that_could_not_say_what_it_knew_leaves_what_a_kill_would_leave(node):
    """Not everything was synced: it had trouble, or was stopped the hard way."""
    store, runtime = node
    for rest in (runtime.secret, runtime.socket("put"), runtime.put_stats):
        rest.touch()
    clear_runtime(store, runtime)
    left = {runtime.page_cache, runtime.wrote, runtime.positions, runtime.queue_ends}
    assert set(runtime.root.iterdir()) == left
    assert not snapshot_store.may_have_lost(store, runtime)
    snapshot_store.save_killed(store, runtime, LOG)
    known = snapshot_store.load_snapshot(store, runtime, LOG)
    assert known is not None
    assert known.appended == 900


def test_a_start_that_failed_leaves_what_the_killed_node_had_left(node):
    store, runtime = node
    snapshot_store.save_killed(store, runtime, LOG)
    known = snapshot_store.load_snapshot(store, runtime, LOG)
    assert known is not None
    snapshot_store.save_for_next_recovery(store, runtime, LOG, known)
    clear_runtime(store, runtime)
    assert set(runtime.root.iterdir()) == {runtime.known, runtime.wrote}
    assert not snapshot_store.may_have_lost(store, runtime)
    assert snapshot_store.load_snapshot(store, runtime, LOG) == known


def test_what_a_clean_stop_wrote_is_past_once_a_node_ran(node):
    store, runtime = node
    write(store, runtime)
    record_running(store, runtime)
    assert not store.known.exists()


def test_a_node_that_was_killed_after_a_clean_stop_does_not_go_by_that_stop(node):
    store, runtime = node
    write(store, runtime)
    runtime.page_cache.unlink()
    snapshot_store.save_killed(store, runtime, LOG)
    assert snapshot_store.load_snapshot(store, runtime, LOG) is None


def copied(store: Store, runtime: Runtime) -> None:
    shutil.copytree(store.commitlog, store.root / "copy")
    shutil.rmtree(store.commitlog)
    (store.root / "copy").rename(store.commitlog)


def another_mount(store: Store, runtime: Runtime) -> None:
    mount, rest = runtime.page_cache.read_text().split(" device")
    runtime.page_cache.write_text(f"{mount}1 device{rest}")


def another_boot(store: Store, runtime: Runtime) -> None:
    Positions.open(runtime.positions).words[3] ^= 1


def another_layout(store: Store, runtime: Runtime) -> None:
    Positions.open(runtime.positions).words[1] += 1


def a_failed_sync(store: Store, runtime: Runtime) -> None:
    set_position(runtime, Position.SYNC_FAILED, 1)


def a_failed_sync_of_a_queue(store: Store, runtime: Runtime) -> None:
    set_position(runtime, Position.DERIVED_SYNC_FAILED, 1)


def a_start_with_another_runtime_directory_since(store: Store, runtime: Runtime) -> None:
    other = Runtime(runtime.root.with_name("other"))
    other.root.mkdir()
    record_running(store, other, Positions.create(other.positions, GENERATION + 1))


def a_repair_that_did_not_see_the_runtime_directory(store: Store, runtime: Runtime) -> None:
    snapshot_store.discard_snapshots(store, Runtime(runtime.root.with_name("other")))


def a_record_that_cannot_be_dispatched(store: Store, runtime: Runtime) -> None:
    set_position(runtime, Position.DISPATCH_STOPPED, 801)


def no_abort_file(store: Store, runtime: Runtime) -> None:
    AbortFile(store.root).remove()


@pytest.mark.parametrize(
    "change",
    [
        copied,
        another_mount,
        another_boot,
        another_layout,
        a_failed_sync,
        a_failed_sync_of_a_queue,
        a_start_with_another_runtime_directory_since,
        a_repair_that_did_not_see_the_runtime_directory,
        a_record_that_cannot_be_dispatched,
        no_abort_file,
    ],
    ids=lambda change: change.__name__,
)
def test_memory_of_other_files_or_of_trouble_is_not_believed(node, change):
    store, runtime = node
    change(store, runtime)
    snapshot_store.save_killed(store, runtime, LOG)
    assert snapshot_store.load_snapshot(store, runtime, LOG) is None


def test_a_damaged_memory_is_none(node):
    store, runtime = node
    snapshot_store.save_killed(store, runtime, LOG)
    data = bytearray(runtime.known.read_bytes())
    data[20] ^= 1
    runtime.known.write_bytes(data)
    assert snapshot_store.load_snapshot(store, runtime, LOG) is None


@pytest.mark.parametrize("indexing", [True, False])
def test_whether_the_node_indexed_is_remembered(node, indexing):
    """INDEXED moves in either case."""
    store, runtime = node
    record_running(store, runtime, indexing=indexing)
    snapshot_store.save_killed(store, runtime, LOG)
    known = snapshot_store.load_snapshot(store, runtime, LOG)
    assert known is not None
    assert known.indexing is indexing
    write(store, runtime, indexing=indexing)
    AbortFile(store.root).remove()
    known = snapshot_store.load_snapshot(store, runtime, LOG)
    assert known is not None
    assert known.indexing is indexing


def without_the_layout(facts: dict) -> None:
    del facts["layout"]


def with_a_later_fact(facts: dict) -> None:
    facts["replicated"] = 0


def with_queues_by_name(facts: dict) -> None:
    facts["queues"] = [{"topic": "orders", "queue_id": 0, "min_offset": 0, "end_offset": 5, "physical_end": 9}]
    facts["layout"] -= 1


def with_queues_of_fewer_parts(facts: dict) -> None:
    facts["queues"] = [["orders", 0]]


@pytest.mark.parametrize(
    "change",
    [without_the_layout, with_a_later_fact, with_queues_by_name, with_queues_of_fewer_parts],
    ids=lambda change: change.__name__,
)
def test_what_another_version_wrote_is_none_and_gone(node, change):
    store, runtime = node
    snapshot_store.save_killed(store, runtime, LOG)
    facts = json.loads(runtime.known.read_bytes()[8:])
    change(facts)
    body = json.dumps(facts).encode()
    runtime.known.write_bytes(f"{zlib.crc32(body):08x}".encode() + body)
    assert snapshot_store.load_snapshot(store, runtime, LOG) is None
    assert not runtime.known.exists()


def test_what_cannot_be_written_or_read_costs_a_quick_start_and_nothing_else(node, caplog):
    store, runtime = node
    for path in (store.known, runtime.known):
        (path / "in the way").mkdir(parents=True)
    write(store, runtime)
    snapshot_store.save_killed(store, runtime, LOG)
    assert not runtime.page_cache.exists()
    assert snapshot_store.load_snapshot(store, runtime, LOG) is None
    record_running(store, runtime)
    assert caplog.text.count("the next start may have to read everything") == 5
    assert not runtime.page_cache.exists()


def test_killed_processes_lose_no_byte_however_often_they_start_anew(node):
    store, runtime = node
    for _ in range(3):  # nothing is left to go on with from the second time on
        snapshot_store.save_killed(store, runtime, LOG)
        snapshot_store.load_snapshot(store, runtime, LOG)
        Positions.create(runtime.positions, GENERATION + 1)
        assert not snapshot_store.may_have_lost(store, runtime)


def power_cut(store: Store, runtime: Runtime) -> None:
    said = runtime.wrote.read_text()
    runtime.wrote.write_text(said.replace("boot ", "boot 0"))


def orderly_stop(store: Store, runtime: Runtime) -> None:
    """Shared memory goes."""
    shutil.rmtree(runtime.root)


def failed_sync(store: Store, runtime: Runtime) -> None:
    set_position(runtime, Position.SYNC_FAILED, 1)
    snapshot_store.save_killed(store, runtime, LOG)


def changed_by_a_tool(store: Store, runtime: Runtime) -> None:
    snapshot_store.discard_snapshots(store, runtime)


@pytest.mark.parametrize("happens", [power_cut, orderly_stop, failed_sync, changed_by_a_tool, copied])
def test_after_anything_else_bytes_may_be_lost(node, happens):
    store, runtime = node
    happens(store, runtime)
    assert snapshot_store.may_have_lost(store, runtime)
