"""Orderly stops, processes started by hand, and stores on which a node must not start."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.faults.noting import note
from tests.processes.load import BODY_SIZE, Load
from tests.processes.nodes import SEGMENT, ZYGOTE, Pair, TestNode, check_nothing_is_left, ending, processes_of
from tests.processes.stopping import stopped
from tests.processes.stored import check_pair
from tests.processes.waiting import Watch, await_
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import DutyTaken, SegmentSizeMismatch, StoreNotWritable, StoreTaken
from towline.format.files.index_file import HEADER_SIZE, decode_header
from towline.log.state.durable_file import DurableFile
from towline.node.supervise.launch import spawn_node
from towline.runtime.positions import Duty, Position, State
from towline.start import home

BY_HAND = ("allocate", "flush", "reput", "serve")
HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestNode]:
    """A master without slaves, not started."""
    made = TestNode("master", tmp_path / "store", ha_listen_port=0)
    yield from _given(made)


def _given(made: TestNode) -> Iterator[TestNode]:
    with ending(made):
        yield made


@contextmanager
def by_hand(module: str, store: Path) -> Iterator[subprocess.Popen[str]]:
    """`python -m towline.<module> --store DIR` until the block ends."""
    command = [sys.executable, "-m", f"towline.{module}", "--store", str(store)]
    with subprocess.Popen(command, cwd=home(), stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def put(node: TestNode, count: int, topic: str = "orders") -> int:
    """How many of `count` messages were acknowledged."""
    with Producer(node.endpoint) as producer:
        results = producer.send_batch(Message(topic, b"x" * 200) for _ in range(count))
    return sum(result.acknowledged for result in results)


def keys_in_index(node: TestNode) -> int:
    """How many keys the index of a stopped node holds: a file's count begins at 1."""
    return sum(decode_header(path.read_bytes()[:HEADER_SIZE]).index_count - 1 for path in node.store.index.iterdir())


# --- the stop


def test_an_index_that_was_off_for_a_while_is_completed(node: TestNode) -> None:
    counts = []
    for indexing in ("true", "false", "true"):
        node.start("--set", f"message_index_enable={indexing}")
        assert put(node, 200) == 200
        assert node.stop()
        counts.append(keys_in_index(node))
    assert counts[0] >= 200
    assert counts == [counts[0], counts[0], 3 * counts[0]]


def test_a_stop_that_cannot_write_what_it_knows_is_clean_all_the_same(node: TestNode) -> None:
    node.start()
    assert put(node, 100) == 100
    (node.store.known / "in the way").mkdir(parents=True)
    assert node.stop()
    check_nothing_is_left(node)
    assert not node.store.abort.exists()
    node.start()
    assert node.stop()


@pytest.mark.parametrize("role", ["master", "slave"])
@pytest.mark.parametrize("signals", [1, 2])
def test_a_stop_under_load_is_clean_and_the_next_start_has_nothing_to_recover(pair: Pair, role: str, signals: int):
    node = pair.node(role)
    seed = 30 + signals + len(role)
    load = Load(pair.master.endpoint, f"stop-{role}-{signals}", seed)
    moment = load.moment()
    load.start()
    load.await_acked(moment)
    at_stop = len(load.acked)
    watch = Watch(node.pids().values())
    for _ in range(signals):
        os.kill(node.pid, signal.SIGTERM)
    launched, node.launched = node.launched, None
    started = time.monotonic()
    assert launched.process.wait(90) == 0
    launched.readable.close()
    took = time.monotonic() - started
    watch.await_gone(60.0)
    check_nothing_is_left(node)
    check_clean(node)
    start_s = node.start()
    load.finish()
    counted = check_pair(pair, load)
    assert counted.doubled == 0, "a message that was stored was not answered before the stop"
    note(1, acknowledged=counted.acked, doubled=counted.doubled, outage_s=took + start_s, seed=seed)
    print(
        f"\n{role}, {signals} SIGTERM at {at_stop} of {load.count}: {took:.2f} s, again in {start_s:.2f} s; {counted}"
    )


def test_a_master_and_then_its_slave_stop_clean_under_load(pair: Pair) -> None:
    load = Load(pair.master.endpoint, "stop-both", 40)
    moment = load.moment()
    load.start()
    load.await_acked(moment)
    assert (pair.master.stop(), pair.slave.stop()) == (True, True)
    check_nothing_is_left(*pair.nodes)
    for node in pair.nodes:
        check_clean(node)
    pair.start()
    load.finish()
    assert check_pair(pair, load).doubled == 0


def test_a_slave_that_stops_hears_what_is_confirmed_though_more_is_on_its_way_to_it(pair: Pair) -> None:
    pair.await_caught_up()
    before, during = (Load(pair.master.endpoint, f"stop-{when}", 50, count=200) for when in ("before", "during"))
    with stopped(pair.master.pids()["flush"]):  # nothing is confirmed meanwhile
        before.start()
        await_(lambda: unconfirmed(pair.slave) > 200 * BODY_SIZE, 60.0, "the slave holds what is not confirmed")
        os.kill(pair.slave.pid, signal.SIGTERM)
        await_(lambda: pair.slave.positions.duty(Duty.RECEIVE).state is State.STOPPING, 60.0, "the receiver drains")
        end = pair.master.at(Position.APPENDED)
        during.start()
        await_(lambda: pair.master.at(Position.APPENDED) > end, 60.0, "the master has more to send")
    launched, pair.slave.launched = pair.slave.launched, None
    assert launched is not None
    assert launched.process.wait(90) == 0
    launched.readable.close()
    check_clean(pair.slave)
    pair.slave.start()
    for load in (before, during):
        load.finish()
    for load in (before, during):
        assert check_pair(pair, load).doubled == 0


def unconfirmed(node: TestNode) -> int:
    """Bytes at the end of its log that could be taken back."""
    return node.at(Position.APPENDED) - node.at(Position.CONFIRMED)


def check_clean(node: TestNode) -> None:
    """No abort file, everything durable, and no segment that holds nothing."""
    assert not node.store.abort.exists()
    file = DurableFile(node.store.root)
    durable = file.load()
    file.close()
    assert durable is not None
    assert durable.queues_durable == durable.flushed
    segments = sorted(int(path.name) for path in node.store.commitlog.iterdir())
    assert segments == list(range(0, durable.flushed, SEGMENT)) or segments == [0] == [durable.flushed]
    assert not node.store.diverged.exists() or not any(node.store.diverged.iterdir())


def test_a_node_that_took_nothing_stops_clean(node: TestNode) -> None:
    node.start()
    assert node.stop()
    assert not node.store.abort.exists()
    assert not any(node.store.commitlog.iterdir())
    check_nothing_is_left(node)


@pytest.mark.parametrize(
    ("moment", "number"),
    [(ZYGOTE, signal.SIGKILL), (ZYGOTE, signal.SIGTERM), ("recovered", signal.SIGTERM), ("recovered", signal.SIGKILL)],
    ids=str,
)
def test_an_end_while_it_starts_leaves_no_process(node: TestNode, moment: str, number: signal.Signals) -> None:
    launched = spawn_node("master", node.store.root, node.flags, tied=True)

    def reached() -> bool:
        if moment == "recovered":
            return node.store.abort.exists()
        return any("towline.node.process.zygote" in command for _, command in processes_of(node.store.root))

    await_(reached, 10, moment)
    os.kill(launched.pid, number)
    launched.process.wait(90)
    launched.readable.close()
    await_(lambda: not processes_of(node.store.root), 60.0, "nobody is left")
    node.start()
    assert put(node, 10) == 10
    assert node.stop()


# --- processes started by hand


@pytest.mark.parametrize("module", BY_HAND)
def test_a_process_by_hand_is_refused_while_another_process_has_its_duty(pair: Pair, module: str) -> None:
    owner = pair.master.pids()[module]
    with by_hand(module, pair.master.store.root) as process:
        assert process.wait(90) == 1
        said = process.stderr.read()
    assert f"the duty {module} is held by process {owner}" in said
    assert "stop that process first" in said
    assert pair.master.pids()[module] == owner
    assert psutil.pid_exists(owner)


def test_processes_by_hand_do_their_duty_and_leave_with_the_node(node: TestNode) -> None:
    node.start(*(word for module in BY_HAND for word in ("--without", module)))
    assert not set(BY_HAND) & set(node.facts["processes"])
    with ExitStack() as stack:
        processes = [stack.enter_context(by_hand(module, node.store.root)) for module in BY_HAND]
        for module, process in zip(BY_HAND, processes, strict=True):
            duty = node.positions.duty(Duty.named(module))
            await_(lambda duty=duty: duty.state is State.RUNNING, 60, f"{module} runs")
            assert duty.pid == process.pid
        assert put(node, 500) == 500
        await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), 60.0, "everything is dispatched")
        assert node.stop()
        assert [process.wait(90) for process in processes] == [0] * len(processes)
    check_clean(node)
    check_nothing_is_left(node)


def test_a_start_is_refused_while_a_process_by_hand_outlives_its_node(node: TestNode) -> None:
    node.start("--without", "flush")
    duty = node.positions.duty(Duty.FLUSH)
    with by_hand("flush", node.store.root) as process:
        await_(lambda: duty.state is State.RUNNING, 60, "flush runs")
        node.kill_supervisor()
        with pytest.raises(DutyTaken) as refused:
            node.start()
        assert (refused.value.duty, refused.value.pid) == ("flush", process.pid)
    node.start()
    assert put(node, 10) == 10
    assert node.stop()


# --- refused at start, with the remedy


def test_a_second_node_on_a_store_is_refused_with_the_pid_of_the_first(node: TestNode) -> None:
    node.start()
    first = node.launched
    with pytest.raises(StoreTaken, match=f"process {first.pid}; stop that node"):
        node.start()
    node.launched = first
    assert put(node, 10) == 10
    assert node.stop()
    check_nothing_is_left(node)


def test_a_store_that_another_program_holds_is_refused_with_its_pid(node: TestNode) -> None:
    node.store.root.mkdir(parents=True)
    command = [sys.executable, "-c", HOLDER, str(node.store.lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreTaken) as refused:
            node.start()
        assert refused.value.pid == holder.pid
        assert not node.runtime.exists()
        holder.stdin.close()
        holder.wait(60)
    node.start()
    assert node.stop()


def test_a_store_below_a_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    node = TestNode("master", tmp_path / "file" / "store", ha_listen_port=0)
    with pytest.raises(StoreNotWritable, match="give this user write permission"):
        node.start()
    assert said_in_foreground(node).startswith("master: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_write_permission_is_refused(tmp_path: Path) -> None:
    parent = tmp_path / "locked"
    parent.mkdir(mode=0o500)
    node = TestNode("master", parent / "store", ha_listen_port=0)
    with pytest.raises(StoreNotWritable, match="give this user write permission"):
        node.start()
    assert "cannot be written" in said_in_foreground(node)


def said_in_foreground(node: TestNode) -> str:
    """What `python -m towline.master` says on standard error before it gives up."""
    command = [sys.executable, "-m", "towline.master", "--store", str(node.store.root), *node.flags]
    done = subprocess.run(command, cwd=home(), capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert not processes_of(node.store.root)
    return done.stderr


def test_segments_of_another_size_than_the_settings_say_are_refused_and_left_alone(node: TestNode) -> None:
    node.start()
    assert put(node, 100) == 100
    assert node.stop()
    before = {path: path.stat().st_mtime_ns for path in node.store.commitlog.iterdir()}
    with pytest.raises(SegmentSizeMismatch, match="start with the segment size that the store was made with"):
        node.start("--set", f"mapped_file_size_commit_log={2 * SEGMENT}")
    assert {path: path.stat().st_mtime_ns for path in node.store.commitlog.iterdir()} == before
    check_nothing_is_left(node)
    node.start()
    assert put(node, 100) == 100
    assert node.stop()
