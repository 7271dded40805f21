"""Queues and index follow the log's beginning: minima at once, files when flush has recorded it, whatever is killed."""

from itertools import pairwise

import pytest

from tests.log.stores import QUEUE_FILE, SEGMENT
from towline.errors import DiskFull
from towline.format.files.consume_queue import SIZE
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.index_service import IndexService
from towline.reput.cleaning import QUEUES_PER_TURN, DerivedCleaner
from towline.runtime.positions import Duty, Flag, Position
from towline.runtime.queue_ends import QueueEnds

from .test_reput import Bench, Killed

PER_FILE = QUEUE_FILE // SIZE


class Cleaned(Bench):
    """A dispatched store of four queues over several segments, whose log is then made to begin further on."""

    def __init__(self, root, count=900, **settings):
        super().__init__(root, **settings)
        for number in range(count):
            self.maker.append(b"%d" % number * 80, topic=f"Topic{number % 2}", queue_id=number % 4 // 2)
        self.publish(self.maker.end)
        self.work(self.agent())
        self.segments = self.maker.end // SEGMENT
        assert self.segments >= 4

    def begin_at(self, segment, *, recorded=True):
        """What allocate publishes; `recorded`: what flush does a little later. The segments themselves go last."""
        self.positions.writer(Position.LOG_MIN, Duty.ALLOCATE).advance(segment * SEGMENT)
        if recorded:
            self.record()

    def record(self):
        end = self.positions.get(Position.DISPATCHED)
        self.maker.durable(end, end, self.positions.get(Position.LOG_MIN))

    def unlink(self, segment):
        for path in list(self.store.commitlog.iterdir()):
            if int(path.name) < segment * SEGMENT:
                path.unlink()

    def settle(self, agent, seconds=60):
        for _ in range(seconds * 10):
            self.work(agent)
            self.clock.ms += 100

    def minima(self):
        ends = QueueEnds.open(self.runtime.queue_ends)
        return {(end.topic.decode(), end.queue_id): end.min_offset for end in ends}

    def expected_minima(self, segment):
        """Of each queue the first number whose record is in the log, or the end."""
        found = {}
        for stored in self.maker.records:
            gone = stored.at < segment * SEGMENT
            found[stored.topic, stored.queue_id] = found.get((stored.topic, stored.queue_id), 0) + gone
        return found

    def files(self):
        """{queue: numbers of its files}."""
        files = ConsumeQueueFiles(self.store.consumequeue, QUEUE_FILE, 8)
        return {queue: [base // QUEUE_FILE for base in files.bases(*queue)] for queue in files.list_queues()}

    def expected_files(self, segment):
        """Every file with an entry of a record in the log, and the last."""
        numbers = {}
        for stored in self.maker.records:
            numbers.setdefault((stored.topic, stored.queue_id), []).append(stored)
        found = {}
        for queue, records in numbers.items():
            last = (len(records) - 1) // PER_FILE
            first = next((r.queue_offset // PER_FILE for r in records if r.at >= segment * SEGMENT), last)
            found[queue] = list(range(first, last + 1))
        return found

    def index_ends(self):
        service = IndexService(self.store.index, 64, 40)
        service.load()
        return [service.file(name).header.end_physical_offset for name in service.names]

    def check(self, segment):
        assert self.minima() == self.expected_minima(segment)
        assert self.files() == self.expected_files(segment)
        ends = self.index_ends()
        assert ends[0] >= segment * SEGMENT or len(ends) == 1


@pytest.mark.parametrize("segment", [1, 2, 3])
def test_minima_queue_files_and_index_files_follow_the_log(tmp_path, segment):
    bench = Cleaned(tmp_path)
    before = len(bench.index_ends())
    bench.begin_at(segment)
    bench.settle(bench.agent())
    bench.check(segment)
    assert len(bench.index_ends()) < before


def test_the_minima_move_at_once_and_no_file_goes_before_flush_has_recorded_it(tmp_path):
    bench = Cleaned(tmp_path)
    agent = bench.agent()
    before = bench.files(), bench.index_ends()
    bench.begin_at(2, recorded=False)
    bench.maker.durable(bench.maker.end, bench.maker.end, 0)
    bench.settle(agent)
    assert bench.minima() == bench.expected_minima(2)
    assert (bench.files(), bench.index_ends()) == before
    bench.record()
    bench.settle(agent)
    bench.check(2)


def test_minima_move_on_while_the_files_of_an_earlier_beginning_wait_for_flush(tmp_path):
    bench = Cleaned(tmp_path)
    agent = bench.agent()
    before = bench.files()
    bench.maker.durable(bench.maker.end, bench.maker.end, 0)
    for segment in (1, 2, 3):
        bench.begin_at(segment, recorded=False)
        bench.settle(agent, seconds=1)
        assert bench.minima() == bench.expected_minima(segment)
        assert bench.files() == before
    bench.record()
    bench.settle(agent)
    bench.check(3)


def test_files_that_were_to_go_for_an_earlier_beginning_go_on_while_minima_move(tmp_path):
    bench = Cleaned(tmp_path, delete_consume_queue_files_interval=500)
    agent = bench.agent()
    before = sum(map(len, bench.files().values()))
    bench.begin_at(1)
    while sum(map(len, bench.files().values())) == before:
        bench.work(agent)
        bench.clock.ms += 100
    bench.begin_at(3)
    bench.work(agent)
    assert bench.minima() == bench.expected_minima(3)
    assert bench.files() != bench.expected_files(1), "removing was still under way"
    bench.settle(agent)
    bench.check(3)


def test_a_queue_of_which_no_record_is_left_is_empty_at_its_end_and_keeps_its_last_file(tmp_path):
    bench = Bench(tmp_path)
    for _ in range(40):
        bench.maker.append(b"early", topic="Old")
    while bench.maker.end < 3 * SEGMENT:
        bench.maker.append(b"x" * 900, topic="New")
    bench.publish(bench.maker.end)
    agent = bench.agent()
    bench.work(agent)
    bench.positions.writer(Position.LOG_MIN, Duty.ALLOCATE).advance(2 * SEGMENT)
    Cleaned.settle(bench, agent)
    old = next(end for end in QueueEnds.open(bench.runtime.queue_ends) if end.topic == b"Old")
    assert (old.min_offset, old.max_offset) == (40, 40)
    assert Cleaned.files(bench)["Old", 0] == [2]
    bench.maker.append(b"late", topic="Old")
    bench.publish(bench.maker.end)
    bench.work(agent)
    found = ConsumeQueueFiles(bench.store.consumequeue, QUEUE_FILE, 8).read("Old", 0, 40, 5)
    assert found["physical_offset"].tolist() == [bench.maker.records[-1].at]


def test_files_go_one_by_one_with_the_pause_that_is_set(tmp_path):
    bench = Cleaned(tmp_path, delete_consume_queue_files_interval=500)
    agent = bench.agent()
    bench.begin_at(3)
    gone = []
    before = sum(map(len, bench.files().values()))
    for _ in range(2000):
        bench.work(agent)
        bench.clock.ms += 50
        left = sum(map(len, bench.files().values()))
        if left < before:
            gone.append((bench.clock.ms, before - left))
            before = left
        if bench.files() == bench.expected_files(3):
            break
    assert {count for _, count in gone} == {1}
    assert min(later - earlier for (earlier, _), (later, _) in pairwise(gone)) >= 500


STEPS = ["minimum of a queue", "second file", "index", "nothing"]


def kill_at(step, monkeypatch):
    move, delete, index = QueueEnds.move_min, ConsumeQueueFiles.delete_expired, IndexService.delete_expired
    done = []

    def dying_move(self, place, offset):
        if step == STEPS[0] and done:
            raise Killed
        done.append(move(self, place, offset))

    def dying_delete(self, *args, **more):
        removed = delete(self, *args, **more)
        if step == STEPS[1] and removed:
            raise Killed
        return removed

    def dying_index(self, log_min):
        if step == STEPS[2]:
            raise Killed
        return index(self, log_min)

    monkeypatch.setattr(QueueEnds, "move_min", dying_move)
    monkeypatch.setattr(ConsumeQueueFiles, "delete_expired", dying_delete)
    monkeypatch.setattr(IndexService, "delete_expired", dying_index)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("unlinked", [0, 1, 2], ids=["no segment gone", "one segment gone", "all segments gone"])
def test_a_kill_between_two_steps_is_made_good_by_the_next_reput_and_by_a_start(tmp_path, monkeypatch, step, unlinked):
    bench = Cleaned(tmp_path)
    agent = bench.agent()
    bench.begin_at(2)
    with monkeypatch.context() as patched:
        kill_at(step, patched)
        if step != STEPS[3]:
            with pytest.raises(Killed):
                bench.settle(agent)
    bench.unlink(unlinked)
    recovered = bench.maker.recover()
    assert recovered.log_min == 2 * SEGMENT
    assert recovered.dispatched == recovered.end == bench.maker.end
    found = {(queue.topic, queue.queue_id): queue.min_offset for queue in recovered.queues}
    assert found == bench.expected_minima(2)
    bench.settle(bench.agent())
    bench.check(2)


def test_before_it_was_recorded_a_kill_takes_the_deletion_back_whole(tmp_path):
    bench = Cleaned(tmp_path)
    bench.maker.durable(bench.maker.end, bench.maker.end, 0)
    bench.begin_at(2, recorded=False)
    bench.settle(bench.agent())
    recovered = bench.maker.recover()
    assert recovered.log_min == 0
    assert {queue.min_offset for queue in recovered.queues} == {0}


def test_dispatching_goes_on_while_the_minima_of_many_queues_move(tmp_path):
    """Never more than QUEUES_PER_TURN of them between two batches."""
    bench = Bench(tmp_path)
    queues = 3 * QUEUES_PER_TURN * 10
    for number in range(2 * queues):
        bench.maker.append(b"x" * 30, topic="Many", queue_id=number % queues)
    bench.publish(bench.maker.end)
    agent = bench.agent()
    bench.work(agent)
    looked = []
    original = ConsumeQueueFiles.min_offset_after
    agent._cleaner._reader.min_offset_after = lambda *args: looked.append(1) or original(agent._cleaner._reader, *args)
    bench.positions.writer(Position.LOG_MIN, Duty.ALLOCATE).advance(SEGMENT)
    turns = 0
    while len(looked) < queues // 2:
        before, dispatched = len(looked), bench.positions.get(Position.DISPATCHED)
        bench.maker.append(b"y", topic="Many", queue_id=0)
        bench.publish(bench.maker.end)
        agent.do_work()
        assert bench.positions.get(Position.DISPATCHED) > dispatched
        assert len(looked) - before <= QUEUES_PER_TURN
        turns += 1
        assert turns < queues
    assert turns >= queues // 2 // QUEUES_PER_TURN


def test_a_rising_minimum_never_starves_the_last_queues(tmp_path):
    bench = Cleaned(tmp_path)
    agent = bench.agent()
    for segment in (1, 2, 3):
        bench.begin_at(segment)
        agent.do_work()
    bench.settle(agent)
    bench.check(3)


def test_a_file_that_cannot_go_is_named_and_the_others_go(tmp_path, monkeypatch, caplog):
    bench = Cleaned(tmp_path)
    delete = ConsumeQueueFiles.delete_expired

    def refusing(self, topic, queue_id, *args, **more):
        if (topic, queue_id) == ("Topic0", 0):
            raise PermissionError(13, "not allowed")
        return delete(self, topic, queue_id, *args, **more)

    agent = bench.agent()
    monkeypatch.setattr(ConsumeQueueFiles, "delete_expired", refusing)
    bench.begin_at(3)
    bench.settle(agent)
    assert "files of queue Topic0/0 stay" in caplog.text
    files, expected = bench.files(), bench.expected_files(3)
    assert files.pop(("Topic0", 0))[0] == 0
    assert files == {queue: numbers for queue, numbers in expected.items() if queue != ("Topic0", 0)}
    assert isinstance(agent._cleaner, DerivedCleaner)


class TestFlags:
    def test_queues_without_room(self, tmp_path, monkeypatch):
        bench = Bench(tmp_path)
        bench.fill(20)
        agent = bench.agent()

        def full(self, *args):
            raise DiskFull("queue", 1)

        with monkeypatch.context() as patched:
            patched.setattr(ConsumeQueueFiles, "write", full)
            bench.work(agent)
            assert bench.positions.flags == Flag.LOGIC_DISK_FULL
        bench.clock.ms += 2000
        bench.work(agent)
        assert not bench.positions.flags
        assert bench.queues() == bench.expected_queues()

    def test_an_index_without_room(self, tmp_path, monkeypatch):
        bench = Bench(tmp_path)
        bench.fill(20)
        agent = bench.agent()

        def full(self, *args):
            raise DiskFull("index", 1)

        with monkeypatch.context() as patched:
            patched.setattr(IndexService, "put", full)
            bench.work(agent)
            assert bench.positions.flags == Flag.INDEX_ERROR
        bench.clock.ms += 2000
        bench.work(agent)
        assert not bench.positions.flags

    def test_a_record_that_cannot_be_dispatched_also_after_a_restart(self, tmp_path):
        bench = Bench(tmp_path)
        bench.fill(10)
        bench.maker.write(bench.maker.records[5].at + 84, (77).to_bytes(4, "big"))
        bench.work(bench.agent())
        assert bench.positions.flags == Flag.LOGIC_QUEUE_ERROR
        line = bench.positions.duty(Duty.REPUT)
        line.enter(1)
        assert not bench.positions.flags
        bench.agent()
        assert bench.positions.flags == Flag.LOGIC_QUEUE_ERROR
