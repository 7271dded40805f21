"""An acknowledgement waits for the disk and for the slave: shown by stopping them, and by the system calls themselves.

A kill shows nothing here, because the page cache survives it.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes.stopping import stopped
from tests.processes.tracing import strace, traced
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, endpoint_of, records_of
from towline.errors import StoreSyncFailed
from towline.format.wire.status import PutStatus
from towline.link.free_port import free_port
from towline.log.state.durable_file import DurableFile
from towline.node.process.context import runtime_of
from towline.node.supervise.launch import start_node, stop_node
from towline.runtime.positions import Duty, Position, Positions

FLUSH_TIMEOUT_MS = 3000
SLAVE_TIMEOUT_MS = 3000
STILL_S = 0.35  # without an answer
SMALL = {
    "mapped_file_size_commit_log": 1 << 20,
    "max_hash_slot_num": 1000,
    "max_index_num": 4000,
    "listen_port": 0,
    "flush_disk_type": "SYNC_FLUSH",
    "sync_flush_timeout": FLUSH_TIMEOUT_MS,
    "slave_timeout": SLAVE_TIMEOUT_MS,
}


def start(role, store, **flags):
    arguments = [word for key, value in (SMALL | flags).items() for word in ("--set", f"{key}={value}")]
    return start_node(role, store, [*arguments, "--without", "serve"], tied=True)


@pytest.fixture
def master(tmp_path):
    launched = start("master", tmp_path / "master", ha_listen_port=0)
    yield tmp_path / "master"
    launched.end()


@pytest.fixture
def client(master):
    client = WireClient(endpoint_of(runtime_of(master).root))
    client.create_topic("orders", queues=4)
    yield client
    client.close()


def positions_of(store: Path) -> Positions:
    return Positions.open(runtime_of(store).positions, writable=False)


def pid_of(store: Path, duty: Duty) -> int:
    return positions_of(store).duty(duty).pid


@pytest.mark.alone
def test_with_flush_stopped_no_put_is_acknowledged_until_it_goes_on(master, client):
    request = records_of(b"orders", 1)
    assert client.put(request).status == PutStatus.PUT_OK
    with stopped(pid_of(master, Duty.FLUSH)):
        began = time.monotonic()
        answer = client.put(request)
        waited_ms = (time.monotonic() - began) * 1000
        assert answer.status == PutStatus.FLUSH_DISK_TIMEOUT
        assert FLUSH_TIMEOUT_MS * 0.9 <= waited_ms < FLUSH_TIMEOUT_MS + 1000
        assert positions_of(master).get(Position.FLUSHED) < positions_of(master).get(Position.APPENDED)
        client.send(request)
        assert client.receive(STILL_S) is None, "acknowledged with nothing flushed"
    assert client.answer().status == PutStatus.PUT_OK
    assert client.put(request).status == PutStatus.PUT_OK


@pytest.mark.alone
def test_after_a_failed_sync_nothing_is_acknowledged_whatever_counts_as_flushed(master, client):
    """Flush moves FLUSHED no more once it has failed; put does not rely on that."""
    with stopped(pid_of(master, Duty.FLUSH)):
        client.send(records_of(b"orders", 1))
        words = Positions.open(runtime_of(master).positions).words
        await_(lambda: words[Position.APPENDED.word] > words[Position.FLUSHED.word], 60.0, "it is appended")
        words[Position.SYNC_FAILED.word] = 1
        words[Position.FLUSHED.word] = words[Position.APPENDED.word]
        assert client.answer().status == PutStatus.FLUSH_DISK_TIMEOUT


ACKNOWLEDGED = re.compile(r'(?:send|sendto|sendmsg|write|writev)\(.*"[^"]*\\x0b\\x00\\x00\\x00\\x01')
SYNCED = re.compile(r"(?:msync|fdatasync)\(.*= 0|<\.\.\. (?:msync|fdatasync) resumed>.*= 0")


@strace
def test_every_acknowledgement_follows_a_completed_sync_of_its_own(master, client, tmp_path):
    puts = 20
    request, trace = records_of(b"orders", 1), tmp_path / "trace"
    calls = "trace=msync,fdatasync,fsync,sendto,sendmsg,write,writev"
    pids = [pid_of(master, Duty.FLUSH), pid_of(master, Duty.PUT)]
    with traced(["-xx", "-s", "96", "-e", calls, "-o", str(trace)], pids):
        for _ in range(puts):
            assert client.put(request).status == PutStatus.PUT_OK
    events = [
        "ack" if ACKNOWLEDGED.search(line) else "sync"
        for line in trace.read_text().splitlines()
        if ACKNOWLEDGED.search(line) or (SYNCED.search(line) and "msync" in line)
    ]
    assert events.count("ack") == puts, events
    synced = False
    for event in events:
        if event == "ack":
            assert synced, f"an acknowledgement left without a sync of its own: {events}"
        synced = event == "sync"


@strace
def test_the_first_failed_sync_ends_acknowledgements_for_good(master, client):
    request = records_of(b"orders", 1)
    assert client.put(request).status == PutStatus.PUT_OK
    with traced(
        ["-e", "trace=msync", "-e", "inject=msync:error=EIO:when=1", "-o", "/dev/null"], [pid_of(master, Duty.FLUSH)]
    ):
        answer = client.put(request)
        assert answer.status == PutStatus.FLUSH_DISK_TIMEOUT
    assert positions_of(master).get(Position.SYNC_FAILED) == 1
    refused = client.put(request)
    assert refused.status == PutStatus.SERVICE_NOT_AVAILABLE
    assert "sync_failed" in refused.sentence
    assert stop_node(master) is False, "a store whose sync failed must not count as clean"
    with pytest.raises(StoreSyncFailed, match="towline store mend"):
        start("master", master, ha_listen_port=0)
    assert command("store", "mend", "--store", master)["mended"] is False
    assert command("store", "mend", "--yes", "--store", master)["mended"] is True
    again = start("master", master, ha_listen_port=0)
    assert positions_of(master).get(Position.APPENDED) == positions_of(master).get(Position.FLUSHED) > 0
    again.end()


@strace
def test_a_failed_sync_of_a_queue_outlives_the_flush_process_that_met_it(master, client):
    assert client.put(records_of(b"orders", 1)).status == PutStatus.PUT_OK
    queue = master / "consumequeue" / "orders" / "0" / f"{0:020d}"
    await_(queue.exists, 60.0, "the queue is written")
    failing = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO", "-P", str(queue), "-o", "/dev/null"]
    flush = pid_of(master, Duty.FLUSH)
    with traced(failing, [flush]):
        assert client.put(records_of(b"orders", 1000)).status == PutStatus.PUT_OK
        await_(lambda: positions_of(master).get(Position.DERIVED_SYNC_FAILED), 60.0, "flush meets the error")
    watermark = DurableFile(master).load().queues_durable
    os.kill(flush, signal.SIGKILL)
    await_(lambda: pid_of(master, Duty.FLUSH) != flush, 60.0, "another flush process runs")
    assert client.put(records_of(b"orders", 1000)).status == PutStatus.PUT_OK
    assert command("master", "status", "--store", master)["positions"]["derived_sync_failed"] == 1
    assert stop_node(master) is False, "a queue that may be wrong on the disk must not count as clean"
    assert DurableFile(master).load().queues_durable == watermark
    again = start("master", master, ha_listen_port=0)
    positions = positions_of(master)
    end = positions.get(Position.APPENDED)
    await_(lambda: positions.get(Position.DISPATCHED) == end, 60.0, "the rest is derived again")
    assert positions.get(Position.DERIVED_SYNC_FAILED) == 0
    assert stop_node(master) is True
    assert DurableFile(master).load().queues_durable == end
    again.end()


def test_flush_has_the_next_segments_open_before_it_syncs_anything(master):
    """An error of write-back is told to who has the file open when it happens, not to who opens it later (H5)."""
    positions = positions_of(master)
    await_(lambda: positions.get(Position.ALLOCATED) >= 2 << 20, 60.0, "allocate is ahead")
    maps = Path(f"/proc/{pid_of(master, Duty.FLUSH)}/maps")
    segments = [str(master / "commitlog" / f"{base:020d}") for base in (0, 1 << 20)]
    await_(lambda: all(path in maps.read_text() for path in segments), 60.0, "flush has them open")
    assert positions.get(Position.FLUSHED) == 0


def command(*words: object) -> dict:
    """What `towline ... --json` prints."""
    return json.loads(subprocess.check_output([Path(sys.executable).parent / "towline", *map(str, words), "--json"]))


@pytest.fixture
def pair(tmp_path):
    port = free_port()
    flags = {"broker_role": "SYNC_MASTER", "ha_listen_port": port}
    master = start("master", tmp_path / "master", **flags)
    slave = start("slave", tmp_path / "slave", ha_master_address=f"127.0.0.1:{port}")
    in_sync = positions_of(tmp_path / "master")
    await_(lambda: in_sync.get(Position.IN_SYNC).bit_count() == 2, 60.0, "the slave is in sync")
    yield tmp_path / "master", tmp_path / "slave"
    slave.end()
    master.end()


@pytest.mark.parametrize("duty", [Duty.RECEIVE, Duty.FLUSH], ids=["the slave's writer", "the slave's flush"])
def test_with_the_slave_stopped_no_put_is_acknowledged_until_it_goes_on(pair, duty):
    master, slave = pair
    client = WireClient(endpoint_of(runtime_of(master).root))
    client.create_topic("orders", queues=4)
    request = records_of(b"orders", 1)
    assert client.put(request).status == PutStatus.PUT_OK
    with stopped(pid_of(slave, duty)):
        answer = client.put(request)
        assert answer.status == PutStatus.FLUSH_SLAVE_TIMEOUT
        assert positions_of(master).get(Position.REPLICATED) < positions_of(master).get(Position.APPENDED)
        client.send(request)
        assert client.receive(STILL_S) is None, "acknowledged without the slave"
    assert client.answer().status == PutStatus.PUT_OK
    client.close()
