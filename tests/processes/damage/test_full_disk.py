"""A disk without room (F10): puts are refused by name, everything else goes on, and puts go on by themselves."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes.disks import available, small_disk, take
from tests.processes.nodes import SEGMENT, TestNode, check_nothing_is_left, ended, free_port
from tests.processes.waiting import await_, read_saved
from tests.processes.wire import WireClient, records_of
from towline.client.consumer import Consumer
from towline.errors import DiskFull
from towline.format.wire.status import PutStatus
from towline.limits import MIB
from towline.log.commitlog.reserve_file import START_SHARE, ReserveFile
from towline.log.files.segment_files import segment_name
from towline.runtime.positions import Flag, Position

TOPIC = "orders"
DISK = 96 * MIB
RESERVE = 2 * MIB
PER_REQUEST = 400
AGAIN_S = 2.0  # what a client waits at most after there is room again
AWAITED_S = 60.0
SETTINGS = {
    "reserve_file_size": RESERVE,
    "flush_interval_consume_queue": 50,
    "flush_consume_queue_least_pages": 0,
    "clean_resource_interval": 100,
    "delete_commit_log_files_interval": 5,
    "max_index_num": 20_000,
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, DISK) as mounted:
        yield mounted


@pytest.fixture
def node(disk: Path) -> Iterator[TestNode]:
    made = TestNode("master", disk / "store", ha_listen_port=0, **SETTINGS)
    ending = ended(made)
    next(ending)
    yield made
    next(ending, None)


class Putter:
    """Puts requests of 0.8 MB. `stored` counts their records; `why` is the sentence of the last refusal."""

    def __init__(self, node: TestNode) -> None:
        self.client = WireClient(node.endpoint)
        self.client.create_topic(TOPIC, 1)
        self.request = records_of(TOPIC.encode(), PER_REQUEST, size=2000)
        self.stored = 0
        self.status = PutStatus.PUT_OK
        self.why = ""

    def put(self) -> bool:
        answer = self.client.put(self.request)
        self.status, self.why = PutStatus(answer.status), answer.sentence
        self.stored += PER_REQUEST * self.status.stored
        return self.status is PutStatus.PUT_OK

    def until_refused(self, at_most: int = 500) -> None:
        for _ in range(at_most):
            if not self.put():
                assert not self.status.stored
                assert "cause=disk_full" in self.why, self.why
                return
        raise AssertionError(f"{at_most} requests found room")

    def await_stored(self, deadline_s: float = AWAITED_S) -> float:
        started = time.monotonic()
        await_(self.put, deadline_s, f"puts go on (last refusal: {self.why})")
        return time.monotonic() - started


@pytest.fixture
def putting() -> Iterator[Callable[[TestNode], Putter]]:
    made: list[Putter] = []

    def new(node: TestNode) -> Putter:
        made.append(Putter(node))
        return made[-1]

    yield new
    for putter in made:
        putter.client.close()


def read_all(node: TestNode) -> int:
    """Every record from the minimum on; how many. What is deleted meanwhile is told of, and nothing else is missed."""
    with Consumer(f"ipc://{node.runtime / 'serve.sock'}", TOPIC, suspend_ms=50) as consumer:
        count = missed = following = 0
        while not consumer.at_end:
            columns = consumer.poll_columns(200)
            if columns is not None:
                offsets = columns.queue_offset.tolist()
                assert offsets[0] == following + consumer.missed - missed or not count
                missed = consumer.missed
                following, count = offsets[-1] + 1, count + len(offsets)
    return count


def behind(node: TestNode) -> int:
    return node.at(Position.APPENDED) - node.at(Position.DISPATCHED)


def dispatched(node: TestNode) -> bool:
    return node.at(Position.DISPATCHED) == node.at(Position.APPENDED)


@pytest.mark.alone
def test_puts_are_refused_by_name_and_go_on_by_themselves_when_there_is_room(node, disk, putting):
    ballast, rest = disk / "ballast", disk / "rest"
    take(ballast, 32 * MIB)
    node.start("--set", "clean_file_forcibly_enable=false")
    before, reserve = node.pids(), ReserveFile(node.store.root, RESERVE)
    putter = putting(node)
    putter.until_refused()
    assert node.positions.flags & Flag.DISK_FULL
    take(rest)
    await_(lambda: not reserve.held, 60.0, "the reserve is given up")
    await_(lambda: dispatched(node), 60.0, "everything is in its queue")
    assert available(disk) > 0
    assert read_all(node) == putter.stored
    assert not putter.put()
    ballast.unlink()
    rest.unlink()
    took = putter.await_stored()
    assert node.pids() == before, "nothing died and nothing was restarted"
    await_(lambda: reserve.held, 60.0, "the reserve is made again")
    await_(lambda: not node.positions.flags, 60.0, "no flag is left")
    await_(lambda: dispatched(node), 60.0, "everything is in its queue")
    assert read_all(node) == putter.stored
    assert node.stop()
    check_nothing_is_left(node)
    assert took < AGAIN_S
    print(f"\nputs went on {took:.2f} s after there was room")


def test_a_clean_stop_and_a_start_work_on_a_full_disk_and_the_start_serves(node, disk, putting):
    ballast, rest, more = (disk / name for name in ("ballast", "rest", "more"))
    take(ballast, 32 * MIB)
    node.start("--set", "clean_file_forcibly_enable=false")
    putter = putting(node)
    putter.until_refused()
    take(rest)
    await_(lambda: not ReserveFile(node.store.root, RESERVE).held, 60.0, "the reserve is given up")
    await_(lambda: dispatched(node), 60.0, "everything is in its queue")
    take(rest)  # what a node gives up, others take
    assert node.stop(), "the stop is clean"
    assert (node.store.root / "reserve").stat().st_size >= RESERVE // START_SHARE, "it is there for the next start"
    take(more)
    node.start("--set", "clean_file_forcibly_enable=false")
    again = putting(node)
    again.stored = putter.stored
    again.until_refused(1)
    assert read_all(node) == putter.stored
    node.kill_all(seed=1)
    take(more)
    with pytest.raises(DiskFull) as refused:  # not a byte is left, and nothing of ours that could be given up
        node.start()
    assert str(node.store.root) in str(refused.value)
    with rest.open("r+b") as file:
        file.truncate(rest.stat().st_size - MIB)
    node.start("--set", "clean_file_forcibly_enable=false")
    before = node.pids()
    again = putting(node)
    again.stored = putter.stored
    again.until_refused(1)
    assert read_all(node) == putter.stored
    for path in (ballast, rest, more):
        path.unlink()
    again.await_stored()
    assert node.pids() == before
    assert node.stop()


@pytest.mark.alone
def test_a_log_larger_than_its_disk_goes_on_for_ever(node, disk, putting):
    """Cleaning makes room: puts are refused for moments only, the oldest go, nothing else does."""
    node.start()
    before = node.pids()
    putter = putting(node)
    longest, refused = 0.0, 0
    while putter.stored * 2000 < 3 * DISK:
        if not putter.put():
            assert "cause=disk_full" in putter.why, putter.why
            refused += 1
            longest = max(longest, putter.await_stored())
    assert node.at(Position.LOG_MIN) > DISK, node.store.node_log.read_text()[-3000:]
    assert node.pids() == before
    await_(lambda: dispatched(node), 60.0, "everything is in its queue")
    assert read_all(node) < putter.stored
    assert (node.at(Position.APPENDED) - node.at(Position.LOG_MIN)) > DISK // 2
    assert node.stop()
    told = f"refused {refused} times, for {longest:.2f} s at most"
    assert longest < AGAIN_S, told
    print(f"\n{told}, while {putter.stored} records went through a disk of {DISK // MIB} MiB")


def test_a_sparse_store_on_a_full_disk_starts_and_serves_and_never_touches_a_hole(node, disk, putting):
    """As another broker or a copy leaves it: the segment to append to has no blocks behind its end."""
    node.start()
    putter = putting(node)
    assert putter.put()
    await_(lambda: ReserveFile(node.store.root, RESERVE).held, AWAITED_S, "there is a reserve for the next start")
    assert node.stop()
    active = node.store.commitlog / segment_name(0)
    data = active.read_bytes()
    active.unlink()
    with active.open("wb") as file:
        file.write(data.rstrip(b"\0") + bytes(64))
        file.truncate(SEGMENT)
    rest = disk / "rest"
    take(rest)
    node.start()
    again = putting(node)
    again.stored = putter.stored
    again.until_refused(1)
    assert 512 * active.stat().st_blocks < SEGMENT
    assert read_all(node) == putter.stored
    before = node.pids()
    rest.unlink()
    again.await_stored()
    assert 512 * active.stat().st_blocks >= SEGMENT
    assert node.pids() == before
    assert read_all(node) >= PER_REQUEST
    assert node.stop()
    assert os.path.ismount(disk)


def test_a_slave_whose_disk_is_full_serves_what_it_has_and_catches_up_when_there_is_room(disk, tmp_path, putting):
    """Its master goes on meanwhile, and nothing of either is restarted."""
    port = free_port()
    master = TestNode("master", tmp_path / "master", ha_listen_port=port, **SETTINGS)
    slave = TestNode("slave", disk / "slave", ha_master_address=f"127.0.0.1:{port}", **SETTINGS)
    ending = ended(master, slave)
    next(ending)
    try:
        ballast = disk / "ballast"
        take(ballast, 56 * MIB)
        master.start()
        slave.start("--set", "clean_file_forcibly_enable=false")
        before = master.pids(), slave.pids()
        putter = putting(master)
        assert putter.put(), putter.why
        known = slave.store.config / "topics.json"
        await_(lambda: TOPIC.encode() in read_saved(known), 60.0, "the slave knows the topic while it can")
        for _ in range(59):
            assert putter.put(), putter.why
        await_(lambda: slave.positions.flags & Flag.DISK_FULL, 60.0, "the slave's disk is full")
        await_(lambda: behind(slave) < 4096, 60.0, "it has dispatched all but the record that it has in part")
        held = slave.at(Position.APPENDED)
        assert held < master.at(Position.APPENDED)
        assert 0 < read_all(slave) < putter.stored
        assert putter.put(), putter.why
        ballast.unlink()
        await_(lambda: slave.at(Position.APPENDED) == master.at(Position.APPENDED), 60.0, "the slave catches up")
        await_(lambda: slave.at(Position.DISPATCHED) == master.at(Position.APPENDED), 60.0, "and dispatches")
        assert (master.pids(), slave.pids()) == before
        assert read_all(slave) == putter.stored
        assert (slave.stop(), master.stop()) == (True, True)
    finally:
        next(ending, None)
