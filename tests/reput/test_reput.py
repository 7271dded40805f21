"""Reput: what it derives, where it stops, and what a kill between any two of its steps leaves."""

import logging

import numpy as np
import pytest

from tests.log.stores import INDEXES, QUEUE_FILE, SEGMENT, SLOTS, StoreMaker
from towline.errors import DiskFull
from towline.format.record.rules import Rule
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.index_service import IndexService
from towline.node.process.context import Node, make_private
from towline.places import Runtime
from towline.reput.indexing import IndexDispatcher
from towline.reput.queues import QueueDispatcher
from towline.reput.service import ReputAgent
from towline.runtime.doorbell import Doorbell
from towline.runtime.positions import Duty, Position, Positions
from towline.runtime.queue_ends import QueueEnds
from towline.runtime.settings import Settings


class StillClock:
    def __init__(self):
        self.ms = 1000

    def now_ms(self):
        return self.ms

    monotonic_ms = now_ms


class Killed(Exception):
    """Stands for kill -9 at a step."""


class Bench:
    """A store and its shared memory; `agent()` is a reput process that starts on them."""

    def __init__(self, root, **settings):
        self.maker = StoreMaker(root / "store")
        self.store = self.maker.store
        for directory in (self.store.consumequeue, self.store.index, self.store.run):
            directory.mkdir(parents=True, exist_ok=True)
        self.runtime = Runtime(root / "runtime" / "n")
        make_private(self.runtime.root)
        self.positions = Positions.create(self.runtime.positions, generation=1)
        QueueEnds.create(self.runtime.queue_ends)
        self.settings = Settings(
            store_path_root_dir=self.store.root,
            mapped_file_size_commit_log=SEGMENT,
            mapped_file_size_consume_queue=QUEUE_FILE,
            max_hash_slot_num=SLOTS,
            max_index_num=INDEXES,
            **settings,
        )
        self.clock = StillClock()

    def agent(self):
        log = logging.getLogger("reput-test")
        node = Node(self.store, self.runtime, self.settings, self.positions, Duty.REPUT, 1, log, self.clock)
        agent = ReputAgent(node)
        agent.on_start(Doorbell(self.runtime.bell("reput"), node.line))
        return agent

    def publish(self, appended, flushed=None):
        self.positions.writer(Position.APPENDED, Duty.PUT).advance(appended)
        self.positions.writer(Position.FLUSHED, Duty.FLUSH).advance(appended if flushed is None else flushed)

    def fill(self, count=120):
        """Records of four queues over two segments."""
        for number in range(count):
            self.maker.append(b"%d" % number * 300, topic=f"Topic{number % 2}", queue_id=number % 4 // 2)
        self.publish(self.maker.end)

    def work(self, agent, turns=1000):
        """Turns until there is nothing to do; how many did something."""
        done = 0
        while agent.do_work():
            done += 1
            assert done < turns, "reput spins"
        return done

    def queues(self):
        """What the files say: {(topic, queue id): physical offsets} up to the published ends."""
        files = ConsumeQueueFiles(self.store.consumequeue, QUEUE_FILE, 8)
        found = {}
        for end in QueueEnds.open(self.runtime.queue_ends):
            entries = []
            while len(entries) < end.max_offset:
                entries += files.read(end.topic.decode(), end.queue_id, len(entries), 1000)["physical_offset"].tolist()
            found[end.topic.decode(), end.queue_id] = entries[: end.max_offset]
        return found

    def expected_queues(self):
        found = {}
        for stored in self.maker.records:
            found.setdefault((stored.topic, stored.queue_id), []).append(stored.at)
        return found

    def indexed(self):
        """Hits of every record's key."""
        service = IndexService(self.store.index, SLOTS, INDEXES)
        service.load()
        return [service.query(stored.topic, f"k{n}", 0, 1 << 62) for n, stored in enumerate(self.maker.records)]

    def expected_index(self):
        return [[stored.at] for stored in self.maker.records]


def test_queues_and_index_hold_every_record_once_and_in_order(tmp_path):
    bench = Bench(tmp_path)
    bench.fill()
    bench.work(bench.agent())
    assert bench.positions.get(Position.DISPATCHED) == bench.maker.end
    assert bench.positions.get(Position.DISPATCHED_TIMESTAMP) == bench.maker.records[-1].timestamp
    assert bench.queues() == bench.expected_queues()
    assert bench.indexed() == bench.expected_index()


STEPS = ["before the queues", "between queues and index", "inside the queues", "between index and DISPATCHED"]


def kill_at(step, monkeypatch):
    """From here on the next batch dies at a step."""
    put, write, index = QueueDispatcher.put, QueueDispatcher._write, IndexDispatcher.put

    def dying_put(self, batch):
        if step == STEPS[0]:
            raise Killed
        put(self, batch)
        if step == STEPS[1]:
            raise Killed

    def dying_write(self, one):
        if step == STEPS[2]:
            self._writer.write(one.runs[:1], one.entries)
            raise Killed
        write(self, one)

    def dying_index(self, batch):
        index(self, batch)
        if step == STEPS[3]:
            raise Killed

    monkeypatch.setattr(QueueDispatcher, "put", dying_put)
    monkeypatch.setattr(QueueDispatcher, "_write", dying_write)
    monkeypatch.setattr(IndexDispatcher, "put", dying_index)


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_between_two_steps_leaves_nothing_missing_and_nothing_double(tmp_path, monkeypatch, step):
    bench = Bench(tmp_path)
    bench.fill(60)
    agent = bench.agent()
    bench.work(agent)
    dispatched = bench.positions.get(Position.DISPATCHED)
    bench.fill(60)
    with monkeypatch.context() as patched:
        kill_at(step, patched)
        with pytest.raises(Killed):
            bench.work(agent)
    assert bench.positions.get(Position.DISPATCHED) == dispatched
    bench.work(bench.agent())
    assert bench.positions.get(Position.DISPATCHED) == bench.maker.end
    assert bench.queues() == bench.expected_queues()
    assert bench.indexed() == bench.expected_index()


def test_nothing_behind_the_flushed_end_is_dispatched_under_sync_flush(tmp_path):
    bench = Bench(tmp_path, flush_disk_type="SYNC_FLUSH")
    first = bench.maker.append(b"flushed")
    bench.maker.append(b"not yet")
    bench.publish(bench.maker.end, flushed=first.end)
    agent = bench.agent()
    bench.work(agent)
    assert bench.queues() == {("TopicA", 0): [first.at]}
    bench.publish(bench.maker.end)
    bench.work(agent)
    assert bench.queues() == bench.expected_queues()


def test_a_record_that_has_not_arrived_whole_is_waited_for_without_spinning(tmp_path):
    bench = Bench(tmp_path, broker_role="SYNC_MASTER")
    first, second = bench.maker.append(b"whole"), bench.maker.append(b"half")
    bench.publish(second.end)
    replicated = bench.positions.writer(Position.REPLICATED, Duty.SEND)
    replicated.advance(second.at + 40)
    agent = bench.agent()
    assert bench.work(agent) == 1
    assert agent.do_work() == 0
    assert not bench.positions.get(Position.DISPATCH_STOPPED)
    assert bench.positions.get(Position.DISPATCHED) == first.end
    replicated.advance(second.end)
    bench.work(agent)
    assert bench.queues() == bench.expected_queues()


@pytest.mark.parametrize("claimed", [200, SEGMENT, 0x7FFF_FFFF], ids=["past the end", "past the segment", "huge"])
def test_a_record_that_claims_more_than_the_log_has_stops_dispatching(tmp_path, claimed):
    bench = Bench(tmp_path)
    bench.maker.append(b"good")
    last = bench.maker.append(b"last")
    bench.maker.write(last.at, claimed.to_bytes(4, "big"))
    bench.publish(bench.maker.end)
    bench.work(bench.agent())
    assert bench.positions.get(Position.DISPATCHED) == last.at
    assert bench.positions.get(Position.DISPATCH_STOPPED) == last.at + 1
    assert bench.positions.get(Position.DISPATCH_STOPPED_WHY) == Rule.SIZE_PAST_END


def test_a_bad_record_stops_dispatching_before_it_and_is_named(tmp_path, caplog):
    bench = Bench(tmp_path)
    bench.fill(10)
    bad = bench.maker.records[5]
    bench.maker.write(bad.at + 84, (77).to_bytes(4, "big"))
    bench.work(bench.agent())
    assert bench.positions.get(Position.DISPATCHED) == bad.at
    assert bench.positions.get(Position.DISPATCH_STOPPED) == bad.at + 1
    assert "PARTS_DO_NOT_ADD_UP" in caplog.text or "SIZE_PAST_END" in caplog.text


def test_a_gap_in_a_queue_stops_dispatching(tmp_path, caplog):
    bench = Bench(tmp_path)
    bench.fill(10)
    gap = bench.maker.records[6]
    bench.maker.write(gap.at + 20, (99).to_bytes(8, "big"))
    bench.work(bench.agent())
    assert bench.positions.get(Position.DISPATCH_STOPPED)
    assert "number 99" in caplog.text


def test_a_full_disk_pauses_the_index_while_queues_go_on_and_it_catches_up(tmp_path, monkeypatch):
    bench = Bench(tmp_path)
    bench.fill(20)

    def full(self, log, rows, keys):
        raise DiskFull("index", 1)

    agent = bench.agent()
    with monkeypatch.context() as patched:
        patched.setattr(IndexService, "put", full)
        bench.work(agent)
        assert bench.queues() == bench.expected_queues()
        assert bench.positions.get(Position.INDEXED) == 0
    assert agent.do_work() == 0, "it is too early to try again"
    bench.clock.ms += 2000
    bench.work(agent)
    assert bench.positions.get(Position.INDEXED) == bench.maker.end
    assert bench.indexed() == bench.expected_index()


def test_a_queue_that_begins_in_the_middle_has_fillers_before_it(tmp_path):
    bench = Bench(tmp_path)
    stored = bench.maker.append(b"late")
    bench.maker.write(stored.at + 20, (11).to_bytes(8, "big"))
    bench.publish(bench.maker.end)
    bench.work(bench.agent())
    (end,) = QueueEnds.open(bench.runtime.queue_ends)
    assert (end.min_offset, end.max_offset) == (11, 12)
    sizes = ConsumeQueueFiles(bench.store.consumequeue, QUEUE_FILE, 8).read("TopicA", 0, 0, 100)["record_size"]
    assert np.array_equal(sizes, [0x7FFFFFFF] * 11 + [len(stored.data)])


def test_the_index_catches_up_while_records_keep_coming(tmp_path, monkeypatch):
    bench = Bench(tmp_path)
    bench.fill(40)
    agent = bench.agent()

    def full(self, log, rows, keys):
        raise DiskFull("index", 1)

    with monkeypatch.context() as patched:
        patched.setattr(IndexService, "put", full)
        bench.work(agent)
    bench.clock.ms += 2000
    for _ in range(20):  # never a turn without a new record
        bench.fill(1)
        agent.do_work()
    assert bench.positions.get(Position.INDEXED) == bench.maker.end
    assert bench.indexed() == bench.expected_index()


def test_the_index_catches_up_in_large_batches_however_queues_alternate(tmp_path, monkeypatch):
    bench = Bench(tmp_path)
    bench.fill(120)
    agent = bench.agent()

    def full(self, log, rows, keys):
        raise DiskFull("index", 1)

    with monkeypatch.context() as patched:
        patched.setattr(IndexService, "put", full)
        bench.work(agent)
    bench.clock.ms += 2000
    assert bench.work(agent) < 20
    assert bench.indexed() == bench.expected_index()
