"""What the transient pool promises, and what it may lose: nothing by kill -9, a suffix by a power cut (H25).

A power cut takes the runtime directory with the machine's memory; the tests take it away by hand.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.processes.load import Load
from tests.processes.nodes import POOLED, SEGMENT, TestNode, check_nothing_is_left, ended, free_port
from tests.processes.stopping import stopped
from tests.processes.stored import Stored
from tests.processes.waiting import await_
from tests.processes.wire import Request, WireClient, records_of
from towline.client.message import ReceivedMessage
from towline.errors import StartFailed
from towline.format.record.properties import UNIQ_KEY
from towline.format.wire.status import PutStatus
from towline.node.report.status import read_status
from towline.node.store.pool_state import PoolState
from towline.places import Store
from towline.runtime.failpoints import ENVIRONMENT
from towline.runtime.positions import Position

TOPIC = b"orders"
# Nothing is committed by itself: what was put stands in the pool alone.
STILL = POOLED | {
    "commit_interval_commit_log": 3_600_000,
    "commit_commit_log_thorough_interval": 3_600_000,
    "wake_commit_when_put_message": False,
}
Make = Callable[..., TestNode]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes nodes, which are ended and lose their shared memory at the end."""
    endings = []

    def made(role: str = "master", name: str = "store", **settings: object) -> TestNode:
        ports = {"ha_listen_port": 0}
        node = TestNode(role, tmp_path / name, **(ports | settings))
        endings.append(ended(node))
        next(endings[-1])
        return node

    yield made
    for ending in reversed(endings):
        next(ending, None)


@contextlib.contextmanager
def client_of(node: TestNode) -> Iterator[WireClient]:
    client = WireClient(node.endpoint)
    client.create_topic(TOPIC.decode(), 4)
    try:
        yield client
    finally:
        client.close()


def numbered(first: int, count: int, size: int = 300) -> Request:
    """Records of one size whose unique keys go on from `first`."""
    request = records_of(TOPIC, count, size=size)
    for place, record in enumerate(request.records):
        wanted = b"UNIQ_KEY\x01%08d" % (first + place)
        request.records[place] = record.replace(b"UNIQ_KEY\x01%08d" % place, wanted)
    return request


def put(node: TestNode, first: int, count: int, *, in_one: int = 50) -> None:
    """Records with unique keys from `first` on, every one of them acknowledged."""
    with client_of(node) as client:
        for start in range(first, first + count, in_one):
            answer = client.put(numbered(start, min(in_one, first + count - start)))
            assert answer.status == PutStatus.PUT_OK, answer.sentence


def keys_in(store: Store, end: int) -> list[int]:
    """The unique keys of the topic's records in the order of queue 0, found through the queue; the queue is exact."""
    stored = Stored(store, end)
    stored.check_queues()
    stored.check_zeros_behind()
    keys = [key_of(stored, int(entry["physical_offset"])) for entry in stored.entries(TOPIC.decode(), 0)]
    stored.close()
    return keys


def key_of(stored: Stored, offset: int) -> int:
    return int(ReceivedMessage(stored.log.record(offset, stored.end)).properties[UNIQ_KEY])


def everything_is_dispatched(node: TestNode) -> int:
    def level() -> bool:
        ends = {node.at(part) for part in (Position.APPENDED, Position.COMMITTED, Position.DISPATCHED)}
        return len(ends) == 1

    await_(level, 60.0, "everything is committed and dispatched")
    return node.at(Position.APPENDED)


def test_what_is_not_committed_is_in_no_file_and_nobody_reads_it_until_a_stop_commits_it(make: Make) -> None:
    node = make(**STILL)
    node.start()
    put(node, 0, 500)
    end = node.at(Position.APPENDED)
    assert end > 100_000
    assert [node.at(part) for part in (Position.COMMITTED, Position.FLUSHED, Position.DISPATCHED)] == [0, 0, 0]
    status = read_status(node.store.root)
    assert (status["visible_end"], status["lag"]["commit"]) == (0, end)
    assert status["transient_buffers"] == {"free": 4, "taken": 1, "used": 0}
    assert not np.fromfile(node.store.commitlog / f"{0:020d}", dtype=np.uint8, count=end).any()
    assert node.stop()
    check_nothing_is_left(node)
    assert keys_in(node.store, end) == list(range(500))


@pytest.mark.parametrize("size", [300, 3000], ids=["in one segment", "over segments"])
def test_a_killed_node_finds_what_was_in_its_pool_alone(make: Make, size: int) -> None:
    node = make(**STILL)
    node.start()
    with client_of(node) as client:
        for first in range(0, 3000, 100):
            assert client.put(numbered(first, 100, size)).status == PutStatus.PUT_OK
        full = node.at(Position.APPENDED) // SEGMENT * SEGMENT
        await_(lambda: node.at(Position.COMMITTED) >= full, 60.0, "full segments are committed at once")
        assert client.put(numbered(3000, 100, size)).status == PutStatus.PUT_OK
    appended = node.at(Position.APPENDED)
    assert full <= node.at(Position.COMMITTED) < appended
    node.kill_all(seed=1)
    node.start()
    assert "were in the transient pool alone and are committed now" in node.store.node_log.read_text()
    assert node.at(Position.APPENDED) == appended
    put(node, 3100, 100)
    node.kill_all(seed=2)
    node.start()
    assert node.stop()
    check_nothing_is_left(node)
    assert keys_in(node.store, node_end(node)) == list(range(3200))


def node_end(node: TestNode) -> int:
    """Where the log of a stopped store ends, which a start says."""
    node.start()
    end = node.at(Position.APPENDED)
    assert node.stop()
    return end


def test_a_start_that_is_refused_leaves_the_pool_to_the_next_one(make: Make) -> None:
    node = make(**STILL)
    node.start()
    put(node, 0, 500)
    node.kill_all(seed=3)
    (node.store.commitlog / "stranger").touch()
    for _ in range(2):
        with pytest.raises(Exception, match="stranger"):
            node.start()
    (node.store.commitlog / "stranger").unlink()
    node.start("--set", "transient_store_pool_enable=false")
    assert node.at(Position.TRANSIENT_POOL) == PoolState.OFF
    end = everything_is_flushed(node)
    assert node.stop()
    check_nothing_is_left(node)
    assert keys_in(node.store, end) == list(range(500))


def everything_is_flushed(node: TestNode) -> int:
    await_(lambda: node.at(Position.FLUSHED) == node.at(Position.APPENDED), 60.0, "everything is flushed")
    return node.at(Position.APPENDED)


def test_a_start_that_is_killed_while_it_commits_what_was_left_is_followed_by_one_that_does(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make(**STILL)
    node.start()
    put(node, 0, 500)
    node.kill_all(seed=5)
    with monkeypatch.context() as armed:
        armed.setenv(ENVIRONMENT, "recover.in_salvage=kill")
        with pytest.raises(StartFailed, match="recover did not start: exit status -9"):
            node.start()
    node.start()
    end = node.at(Position.APPENDED)
    assert node.stop()
    check_nothing_is_left(node)
    assert keys_in(node.store, end) == list(range(500))


def test_a_killed_put_goes_on_behind_what_is_in_the_pool_alone(make: Make) -> None:
    node = make(**STILL)
    node.start()
    put(node, 0, 1000)
    before, appended = node.pids(), node.at(Position.APPENDED)
    os.kill(before["put"], signal.SIGKILL)
    node.await_restarted("put", before)
    assert (node.at(Position.APPENDED), node.at(Position.COMMITTED)) == (appended, 0)
    put(node, 1000, 500)
    end = node.at(Position.APPENDED)
    assert node.stop()
    assert keys_in(node.store, end) == list(range(1500))


def test_a_power_cut_costs_a_suffix_and_nothing_that_was_committed(make: Make) -> None:
    node = make(**POOLED)
    node.start()
    load = Load(node.endpoint, TOPIC.decode(), seed=9, rate=2000)
    load.start()
    await_(lambda: node.at(Position.COMMITTED) > 100_000, 60.0, "some of it is committed")
    os.kill(node.pids()["flush"], signal.SIGSTOP)  # what is put from here on is in the pool alone
    load.await_acked(len(load.acked) + 500)
    load.stop()
    load.join(20)
    committed, appended, before = node.at(Position.COMMITTED), node.at(Position.APPENDED), appended_bytes(node)
    assert 0 < committed < appended == len(before)
    node.kill_all(seed=9)
    shutil.rmtree(node.runtime)
    node.start()
    end = node.at(Position.APPENDED)
    assert committed <= end < appended
    assert "has gone with the machine's memory" in node.store.node_log.read_text()
    assert appended_bytes(node) == before[:end]
    put(node, 0, 10)
    assert node.stop()
    stored = Stored(node.store, node_end(node))
    stored.check_queues()
    found = stored.read(load.topic)
    stored.close()
    survived = sum((key, load.sent[key]) in found for key in load.acked)
    assert 100 < survived < len(load.acked)
    print(f"\nacknowledged {len(load.acked)}, of which {len(load.acked) - survived} went with the machine's memory")


def appended_bytes(node: TestNode) -> bytes:
    """The log up to APPENDED: from the segment files up to COMMITTED, from the buffers behind it. Nobody appends."""
    committed, appended = node.at(Position.COMMITTED), node.at(Position.APPENDED)
    files, buffers = node.store.commitlog, node.runtime / "pool" / "taken"
    parts = []
    for directory, start, end in ((files, 0, committed), (buffers, committed, appended)):
        for base in range(start - start % SEGMENT, end, SEGMENT):
            content = (directory / f"{base:020d}").read_bytes()
            parts.append(content[max(start - base, 0) : min(end - base, SEGMENT)])
    return b"".join(parts)


def test_a_store_that_was_put_back_from_a_copy_gets_nothing_of_its_other_life(make: Make, tmp_path: Path) -> None:
    node = make(**STILL)
    node.start()
    put(node, 0, 100)
    # Of the running store: settings, identity, pool.json and all, but for what is being made just now.
    shutil.copytree(node.store.root, tmp_path / "copy", ignore=shutil.ignore_patterns(node.store.staging.name, "*.tmp"))
    put(node, 100, 400)
    node.kill_all(seed=4)
    shutil.rmtree(node.store.root)
    (tmp_path / "copy").rename(node.store.root)
    node.start()
    assert node.at(Position.APPENDED) == 0
    said = node.store.node_log.read_text()
    assert "in the transient pool are not applied: commitlog/ is another directory, a copy; kept in" in said
    kept = list(node.store.diverged.iterdir())
    assert len(kept) == 1
    assert kept[0].stat().st_size > 100_000
    put(node, 700, 10)
    assert node.stop()
    check_nothing_is_left(node)
    assert keys_in(node.store, node_end(node)) == list(range(700, 710))


def test_what_another_program_appended_after_a_kill_is_not_written_over(make: Make) -> None:
    """It takes what the files hold for the whole log. Played by a node on a copy, whose log is then put in place."""
    node, other = make(**STILL), make(name="other", transient_store_pool_enable=False)
    node.start()
    put(node, 0, 100)
    assert node.stop()
    node.start()
    committed = node.at(Position.COMMITTED)
    put(node, 1000, 100)
    node.kill_all(seed=6)
    shutil.copytree(node.store.root, other.store.root)
    for path in (other.store.pool_owner, other.store.abort):
        path.unlink()
    other.start()
    assert other.at(Position.APPENDED) == committed
    put(other, 5000, 60)
    assert other.stop()
    name = f"{0:020d}"
    with (node.store.commitlog / name).open("r+b") as segment:
        segment.write((other.store.commitlog / name).read_bytes())
    node.start()
    said = node.store.node_log.read_text()
    assert "in the transient pool are not applied: another program wrote to" in said
    end = everything_is_flushed(node)
    await_(lambda: node.at(Position.DISPATCHED) == end, 60.0, "everything is dispatched")
    assert node.stop()
    assert keys_in(node.store, end) == [*range(100), *range(5000, 5060)]


def fill_until_refused(client: WireClient) -> tuple[int, str, float]:
    """Puts until one is refused: its status, its sentence, and the seconds it took."""
    for first in range(0, 4000, 100):
        began = time.monotonic()
        answer = client.put(numbered(first, 100, 2000))
        if answer.status != PutStatus.PUT_OK:
            return answer.status, answer.sentence, time.monotonic() - began
    raise AssertionError("every put found a buffer")


@pytest.mark.parametrize("fast", [True, False], ids=["fast failure", "waiting"])
def test_a_put_that_finds_no_buffer_is_refused_at_once_or_after_the_allocation_time_out(make: Make, fast: bool) -> None:
    node = make(**(POOLED | {"transient_store_pool_size": 2, "fast_fail_if_no_buffer_in_store_pool": fast}))
    node.start()
    with client_of(node) as client:
        with stopped(node.pids()["flush"]):
            status, sentence, took = fill_until_refused(client)
            assert status == (PutStatus.SYSTEM_BUSY if fast else PutStatus.CREATE_MAPPED_FILE_FAILED)
            assert "cause=transient_pool" in sentence
            assert (took < 2.0) if fast else (5.0 <= took < 8.0)
            appended = node.at(Position.APPENDED)
            assert appended == 2 * SEGMENT
        await_(lambda: client.put(numbered(9000, 1)).status == PutStatus.PUT_OK, 60.0, "a buffer is free again")
    everything_is_dispatched(node)
    assert node.stop()
    check_nothing_is_left(node)


def test_a_pool_for_which_there_is_no_memory_is_off_and_the_node_says_why(make: Make) -> None:
    node = make(**(POOLED | {"transient_store_pool_size": 10_000_000}))
    node.start()
    said = read_status(node.store.root)["transient_pool"]
    assert said == f"off (shared memory has no room for 10000000 buffers of {SEGMENT} bytes)"
    assert f"transient pool: {said}" in node.store.node_log.read_text()
    command = [Path(sys.executable).parent / "towline", "master", "status", "--store", node.store.root]
    printed = subprocess.check_output(command, text=True, env=os.environ | {"COLUMNS": "400"})
    assert f"transient pool: {said}\n" in printed
    assert not (node.runtime / "pool").exists()
    put(node, 0, 100)
    assert node.stop()
    assert keys_in(node.store, node_end(node)) == list(range(100))


def test_a_slave_has_no_pool_whatever_its_settings_say_and_follows_a_master_that_has_one(make: Make) -> None:
    port = free_port()
    master = make(**(POOLED | {"ha_listen_port": port}))
    slave = make("slave", "slave", **(POOLED | {"ha_master_address": f"127.0.0.1:{port}"}))
    master.start()
    slave.start()
    assert read_status(slave.store.root)["transient_pool"] == "off (a SLAVE appends to the segment files themselves)"
    assert read_status(master.store.root)["transient_pool"] == "on"
    put(master, 0, 1000)
    end = everything_is_dispatched(master)
    await_(lambda: slave.at(Position.DISPATCHED) == end, 60.0, "the slave holds and dispatched everything")
    assert (slave.stop(), master.stop()) == (True, True)
    check_nothing_is_left(slave, master)
    assert keys_in(slave.store, end) == keys_in(master.store, end) == list(range(1000))
