"""Segments go all the time, under puts, a slow consumer, a slave and a process that reads the files (F27)."""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.processes.nodes import SEGMENT, TestNode, check_nothing_is_left, ended, free_port
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.allocate.segments import AHEAD
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused
from towline.format.wire.status import GetStatus, PutStatus
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.node.process.context import runtime_of
from towline.runtime.positions import Position
from towline.runtime.queue_ends import QueueEnds
from towline.runtime.settings import Settings

ROOT = Path(__file__).parents[3]
TOPIC = "orders"
QUEUES = 4
KEPT = 6
PER_REQUEST, REQUESTS = 400, 140
WINDOW = 2 << 20
CLEAN = {
    "file_reserved_bytes": KEPT * SEGMENT,
    "delete_commit_log_files_interval": 5,
    "delete_consume_queue_files_interval": 5,
    "clean_resource_interval": 100,
    "flush_interval_consume_queue": 50,
    "flush_consume_queue_least_pages": 0,
    "mapped_file_size_consume_queue": 20 * 1000,
    "max_index_num": 20_000,
}


POOL = {"transient_store_pool_enable": "true", "flush_disk_type": "ASYNC_FLUSH", "transient_store_pool_size": 3}


@pytest.fixture
def pair(tmp_path, request) -> Iterator[tuple[TestNode, TestNode]]:
    """A master, with more settings where the test has a parameter, and its slave."""
    port, more = free_port(), getattr(request, "param", {})
    master = TestNode("master", tmp_path / "master", ha_listen_port=port, **(CLEAN | more))
    slave = TestNode("slave", tmp_path / "slave", ha_master_address=f"127.0.0.1:{port}", **CLEAN)
    ending = ended(master, slave)
    next(ending)
    yield master, slave
    next(ending, None)


class SlowConsumer:
    """Reads a little now and then. What is passed over must be told of; what comes must be what was put."""

    def __init__(self, node: TestNode) -> None:
        self.consumer = Consumer(serve_of(node), TOPIC, max_bytes=128 << 10, suspend_ms=100)
        self.read = 0
        self._next = self.consumer.position()  # what is deleted from here on is told
        self._told = 0

    def step(self) -> int:
        columns = self.consumer.poll_columns(0)
        if columns is None:
            return 0
        offsets = columns.queue_offset.tolist()
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), "a hole inside an answer"
        self.told_of(columns.queue_id, offsets[0])
        for message in columns.messages(1 << 20)[:: max(1, len(offsets) // 8)]:
            assert message.body[4:] == b"x" * (len(message.body) - 4)
        self._next[columns.queue_id] = offsets[-1] + 1
        self.read += len(offsets)
        return len(offsets)

    def told_of(self, queue_id: int, offset: int) -> None:
        """Every offset that was passed over is in `moved`."""
        ranges = [(move.from_offset, move.to_offset) for move in self.consumer.moved if move.queue_id == queue_id]
        at = self._next[queue_id]
        for begin, end in ranges:
            at = end if begin == at else at
        assert at == offset, f"queue {queue_id} went from {self._next[queue_id]} to {offset} untold ({ranges[-3:]})"


def serve_of(node: TestNode) -> str:
    return f"ipc://{node.runtime / 'serve.sock'}"


def put_of(client: WireClient, number: int) -> None:
    answer = client.put(records_of(TOPIC.encode(), PER_REQUEST, queue_id=number % QUEUES, size=2000))
    assert answer.status == PutStatus.PUT_OK


def segments(node: TestNode) -> list[int]:
    return sorted(int(path.name) for path in node.store.commitlog.iterdir())


def minima(node: TestNode) -> dict[int, int]:
    ends = QueueEnds.open(runtime_of(node.store.root).queue_ends)
    found = {end.queue_id: end.min_offset for end in ends}
    ends.close()
    return found


def due_minima(node: TestNode) -> dict[int, int]:
    """By the queues' files: the first entry of each that leads to a record still in the log."""
    settings = Settings.from_json(node.store.settings.read_text(encoding="utf-8"))
    files = ConsumeQueueFiles(node.store.consumequeue, settings.mapped_file_size_consume_queue, QUEUES)
    ends = QueueEnds.open(runtime_of(node.store.root).queue_ends)
    low = node.at(Position.LOG_MIN)
    found = {
        end.queue_id: files.min_offset_after(TOPIC, end.queue_id, low, end.min_offset, end.max_offset) for end in ends
    }
    ends.close()
    files.close()
    return found


def restarts(node: TestNode, before: dict[str, int]) -> list[str]:
    return [label for label, pid in node.pids().items() if pid != before[label]]


def settled(node: TestNode) -> bool:
    """Everything that has to go is gone, queues included, and no segment is made that would have another one go."""
    there, low = segments(node), node.at(Position.LOG_MIN)
    made = node.at(Position.ALLOCATED) == node.at(Position.WANTED) + (AHEAD + 1) * SEGMENT
    whole = made and there[0] == low and len(there) <= KEPT
    return whole and node.at(Position.DISPATCHED) == node.at(Position.APPENDED)


@pytest.fixture
def scanners(pair) -> Iterator[Callable[[], list[subprocess.Popen[bytes]]]]:
    """Starts a reader of files beside each node, which a test that fails leaves to this."""
    begun: list[subprocess.Popen[bytes]] = []

    def start() -> list[subprocess.Popen[bytes]]:
        for node in pair:
            command = [sys.executable, "-m", "tests.processes.scanner", str(node.store.root), str(SEGMENT)]
            begun.append(subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert all(scanner.stdout.readline() == b"ready\n" for scanner in begun)
        return begun

    yield start
    for scanner in begun:
        scanner.kill()
        scanner.communicate()


@pytest.mark.parametrize("pair", [{}, POOL], ids=["files", "a transient pool"], indirect=True)
def test_deleting_all_the_time_harms_no_reader(pair, scanners):
    master, slave = pair
    for node in pair:
        node.start()
    await_(lambda: any(line.connected for line in master.positions.slaves()), 60.0, "the slave is linked")
    before = {node: node.pids() for node in pair}
    client = WireClient(master.endpoint)
    client.create_topic(TOPIC, QUEUES)
    put_of(client, 0)
    await_(lambda: all(node.at(Position.DISPATCHED) for node in pair), 60.0, "the first request is dispatched")
    readers = scanners()
    slow = SlowConsumer(master)
    first_id = AdminClient(serve_of(master))
    old = first_id.ask("query_offset", offset=0)
    assert old.facts["found"] == 1
    for number in range(1, REQUESTS):
        put_of(client, number)
        if number % 5 == 0:
            slow.step()
    client.close()
    with pytest.raises(AskRefused, match="is not in the log"):
        first_id.ask("query_offset", offset=0)
    first_id.close()
    for node in pair:
        await_(lambda node=node: settled(node), 60.0, "what has to go is gone")
    for scanner in readers:
        output, _ = scanner.communicate(b"\n", timeout=30)
        assert scanner.returncode == 0, "a reader of files died"
        met = json.loads(output)
        assert met["records"] > PER_REQUEST, met
        assert met["held after deletion"] > 0, met
    for node in pair:
        assert not restarts(node, before[node])
        assert node.at(Position.LOG_MIN) > 15 * SEGMENT
        assert "removed segment" in node.store.node_log.read_text()
    while slow.step() or not slow.consumer.at_end:
        continue
    assert slow.consumer.missed > 0
    assert {move.status for move in slow.consumer.moved} <= {GetStatus.OFFSET_TOO_SMALL, GetStatus.MESSAGE_WAS_REMOVING}
    assert slow.read + slow.consumer.missed == REQUESTS * PER_REQUEST
    slow.consumer.close()
    check_same_log(master, slave)
    check_restarts(master)
    assert (slave.stop(), master.stop()) == (True, True)
    check_nothing_is_left(*pair)


def test_verify_of_a_node_that_cleans_finds_no_damage(pair):
    """Segments, queue files and index files go while it reads; what it is told of in time is no damage."""
    master, _ = pair
    master.start()
    client = WireClient(master.endpoint)
    client.create_topic(TOPIC, QUEUES)
    for number in range(20):
        put_of(client, number)
    command = [sys.executable, "-c", "from towline.start import main; main()", "store", "verify", "--store"]
    low = master.at(Position.LOG_MIN)
    verifying = subprocess.Popen([*command, str(master.store.root)], cwd=ROOT, stdout=subprocess.PIPE)
    number = 0
    while verifying.poll() is None and number < 60:
        put_of(client, number)
        number += 1
    output, _ = verifying.communicate(timeout=60)
    assert verifying.returncode == 0, output.decode()
    assert master.at(Position.LOG_MIN) > low, "nothing was deleted meanwhile"
    client.close()
    assert master.stop()


def test_an_operator_has_expired_segments_deleted_at_once(pair):
    master, _ = pair
    another_hour = (time.localtime().tm_hour + 12) % 24  # else the clock may be quicker than the operator
    master.start("--set", "file_reserved_bytes=0", "--set", f"delete_when={another_hour:02d}")
    client = WireClient(master.endpoint)
    client.create_topic(TOPIC, QUEUES)
    for number in range(22):
        put_of(client, number)
    client.close()
    for base in segments(master)[:2]:
        os.utime(master.store.commitlog / f"{base:020d}", (0, 0))
    command = [sys.executable, "-c", "from towline.start import main; main()", "store", "clean", "--json", "--store"]
    asked = json.loads(subprocess.check_output([*command, str(master.store.root)], cwd=ROOT))
    assert asked == {"asked": True, "log_min": 0, "file_reserved_time": 72}
    await_(lambda: segments(master)[0] == 2 * SEGMENT, 60.0, "what is old is gone")
    await_(lambda: minima(master).keys() == set(range(QUEUES)) and min(minima(master).values()), 60.0, "queues follow")
    assert master.stop()
    refused = subprocess.run([*command, str(master.store.root)], cwd=ROOT, capture_output=True, check=False)
    assert refused.returncode
    assert json.loads(refused.stdout)["error"] == "NodeNotRunning"


def check_same_log(master: TestNode, slave: TestNode) -> None:
    """Byte for byte over [the greater minimum, the lesser end)."""
    low = max(node.at(Position.LOG_MIN) for node in (master, slave))
    end = min(node.at(Position.APPENDED) for node in (master, slave))
    assert end > low
    for base in range(low, end, SEGMENT):
        size = min(SEGMENT, end - base)
        ours, theirs = (
            np.memmap(node.store.commitlog / f"{base:020d}", dtype=np.uint8, mode="r")[:size]
            for node in (master, slave)
        )
        assert np.array_equal(ours, theirs), f"segment {base} differs"


def check_restarts(node: TestNode) -> None:
    """The minima are there at once after a clean stop and after a kill of everything, and so are the files."""
    await_(lambda: minima(node) == due_minima(node), 60.0, "the queues begin where the log does")
    low, known = node.at(Position.LOG_MIN), minima(node)
    assert min(known.values()) > 0
    assert node.stop()
    node.start()
    assert (node.at(Position.LOG_MIN), minima(node)) == (low, known)
    node.kill_all(seed=4)
    node.start()
    assert (node.at(Position.LOG_MIN), minima(node)) == (low, known)
    await_(lambda: first_file_holds(node, known[0]), 60.0, "files that are wholly below the minimum go, no other")


def first_file_holds(node: TestNode, number: int) -> bool:
    first, *others = sorted(int(path.name) // 20 for path in (node.store.consumequeue / TOPIC / "0").iterdir())
    assert first <= number
    return not others or number < others[0]


def test_a_paused_slave_is_waited_for_and_then_told_what_to_do(pair):
    """Its process stands still; after the forcible time its segments go, its link is cut, and it says why."""
    master, slave = pair
    master.start("--set", "destroy_mapped_file_interval_forcibly=3000")
    slave.start("--set", f"ha_window_bytes={WINDOW}")
    await_(lambda: any(line.connected for line in master.positions.slaves()), 60.0, "the slave is linked")
    client = WireClient(master.endpoint)
    client.create_topic(TOPIC, QUEUES)
    for number in range(8):
        put_of(client, number)
    await_(lambda: slave.at(Position.APPENDED) == master.at(Position.APPENDED), 60.0, "the slave has it all")
    receiver = slave.pids()["receive"]
    held = slave.at(Position.APPENDED)
    try:
        subprocess.run(["kill", "-STOP", str(receiver)], check=True)
        numbers = itertools.count()

        def passed() -> bool:
            put_of(client, next(numbers))
            return master.at(Position.LOG_MIN) > held + SEGMENT

        await_(passed, 60.0, "the log begins behind what the slave holds")  # looked at as soon as that is so
        waited_for = held - held % SEGMENT
        await_(lambda: segments(master)[0] == waited_for, 60.0, "the segment that the slave needs next alone is left")
        for number in range(120):
            put_of(client, number)
        await_(lambda: segments(master)[0] > held + WINDOW + SEGMENT, 60.0, "its time is over")
    finally:
        subprocess.run(["kill", "-CONT", str(receiver)], check=True)
    await_(
        lambda: "move its store directory away and start it on an empty one" in slave.store.node_log.read_text(),
        20.0,
        "the slave says what to do",
    )
    log = master.store.node_log.read_text()
    assert "slave 0 has not got it yet" in log
    assert "cannot go on" in log
    client.close()
    slave.stop()
    subprocess.run(["rm", "-r", str(slave.store.root)], check=True)
    slave.start()
    await_(
        lambda: slave.at(Position.APPENDED) == master.at(Position.APPENDED), 60.0, "an empty one joins in the middle"
    )
    check_same_log(master, slave)
    assert slave.stop()
    assert master.stop()
