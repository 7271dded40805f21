"""Queues are cut at the retention of their topics: what is old, or too much, is read no more, whatever is killed."""

import errno

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.log.stores import NOON, QUEUE_FILE
from tests.processes.waiting import await_
from towline.errors import DiskFull, MalformedFile
from towline.format.files.consume_queue import SIZE
from towline.format.files.topics import RETENTION_BYTES, RETENTION_MS, TopicConfig, TopicTable, topics_content
from towline.log.files import config_writer
from towline.log.files.config_file import ConfigFile
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.state.queue_minima import QueueMinimum, read_minima
from towline.log.state.topics_file import TopicsConfig
from towline.reput.retention import QueueRetention
from towline.runtime.positions import Duty, Position
from towline.runtime.queue_ends import QueueEnds

from .test_reput import Bench, Killed

PER_FILE = QUEUE_FILE // SIZE
INTERVAL_MS = 10_000
TOPIC = "Topic0"


class Kept(Bench):
    """A store whose record number n was stored at NOON + n ms; everything put is synced, unless a test says less."""

    def put(self, count, topic=TOPIC, queue_id=0, body=b"x"):
        made = [self.maker.append(body, topic=topic, queue_id=queue_id) for _ in range(count)]
        self.publish(self.maker.end)
        return made

    def synced(self, upto=None):
        upto = self.maker.end if upto is None else upto
        self.maker.durable(upto, upto, self.positions.get(Position.LOG_MIN))

    def keep(self, topic=TOPIC, **attributes):
        """The topic's retention: `ms` or `bytes`."""
        names = {"ms": RETENTION_MS, "bytes": RETENTION_BYTES}
        kept = {names[name]: str(value) for name, value in attributes.items()}
        self.store.config.mkdir(exist_ok=True)
        config = TopicConfig(topic_name=topic, attributes=kept)
        TopicsConfig(self.store.config / "topics.json").save(topics_content(TopicTable(topics={topic: config})))

    def at(self, number):
        """It is as late as when this record was stored."""
        self.clock.wall = NOON + number

    def settle(self, agent):
        """Until a look of retention, and what it brings about, is through."""
        for _ in range(2):  # the first may have begun before the last change
            self.clock.ms += INTERVAL_MS
            self.work(agent)
            await_(lambda: self.is_written(agent), 20.0, "the minima are written")
            self.work(agent)

    def is_written(self, agent):
        agent.do_work()
        return agent._retention._saving is None

    def bounds(self, topic=TOPIC, queue_id=0):
        ends = QueueEnds.open(self.runtime.queue_ends)
        return ends.bounds(ends.find(topic.encode(), queue_id))

    def files(self, topic=TOPIC):
        files = ConsumeQueueFiles(self.store.consumequeue, QUEUE_FILE, 4)
        return [base // QUEUE_FILE for base in files.bases(topic, 0)]

    def begin_log_at(self, offset):
        self.positions.writer(Position.LOG_MIN, Duty.ALLOCATE).advance(offset)
        self.synced()


class WallClock:
    """Two times, as a machine has: neither goes by itself."""

    def __init__(self):
        self.wall, self.ms = NOON, 1000

    def now_ms(self):
        return self.wall

    def monotonic_ms(self):
        return self.ms


@pytest.fixture
def bench(tmp_path):
    made = Kept(tmp_path, delete_consume_queue_files_interval=0)
    made.clock = WallClock()
    return made


def started(bench, count, at=0, **kept):
    """A dispatched and synced queue of so many messages, before it is looked at."""
    bench.put(count)
    bench.synced()
    bench.at(at)
    bench.keep(**kept)
    agent = bench.agent()
    bench.settle(agent)
    return agent


def size_of(records):
    return sum(len(one.data) for one in records)


class TestByTime:
    @pytest.mark.parametrize("age", [0, 1, PER_FILE - 1, PER_FILE, 2 * PER_FILE + 3, 3 * PER_FILE + 4])
    def test_what_is_older_goes_with_every_file_of_it_but_the_last(self, bench, age):
        count = 3 * PER_FILE + 4
        started(bench, count, at=1000 + age, ms=1000)
        assert bench.bounds() == (age, count)
        assert bench.files() == list(range(min(age // PER_FILE, 3), 4))

    def test_it_goes_on_as_time_does(self, bench):
        agent = started(bench, 40, at=1000, ms=1000)
        for age in (1, 7, 7, 39):
            bench.at(1000 + age)
            bench.settle(agent)
            assert bench.bounds() == (age, 40)

    def test_a_queue_that_cannot_be_read_keeps_no_other_from_being_cut(self, bench, monkeypatch, caplog):
        def unreadable(self, topic, queue_id, *more, raw=ConsumeQueueFiles.raw):
            if queue_id == 0:
                raise OSError(errno.EIO, "Input/output error")
            return raw(self, topic, queue_id, *more)

        monkeypatch.setattr(ConsumeQueueFiles, "raw", unreadable)
        bench.put(10, queue_id=1)
        started(bench, 10, at=1000 + 15, ms=1000)
        assert bench.bounds(queue_id=1)[0] > 0
        assert bench.bounds()[0] == 0
        assert "queue Topic0/0 is not cut: " in caplog.text

    def test_topics_without_one_and_other_queues_are_left_alone(self, bench):
        bench.put(5, topic="Topic1")
        bench.put(5, queue_id=1)
        started(bench, 5, at=1012, ms=1000)
        assert (bench.bounds(), bench.bounds(queue_id=1), bench.bounds("Topic1")) == ((2, 5), (5, 5), (0, 5))

    def test_a_clock_that_jumps_makes_nothing_old(self, bench):
        agent = started(bench, 5, at=0, ms=1_000_000)
        bench.clock.wall += 3_000_000
        bench.settle(agent)
        assert bench.bounds() == (0, 5)

    def test_where_the_log_has_taken_more_nothing_is_to_do(self, bench):
        agent = started(bench, 20, at=1005, ms=1000)
        bench.begin_log_at(bench.maker.records[12].at)
        bench.settle(agent)
        assert bench.bounds() == (12, 20)


class TestByBytes:
    def test_the_newest_stay_that_fit(self, bench):
        made = bench.put(30, body=b"x" * 100)
        started(bench, 0, bytes=size_of(made[-5:]) + 1)
        assert bench.bounds() == (25, 30)
        assert bench.files() == [1]

    def test_each_queue_counts_by_itself_and_what_comes_later_pushes_out_what_was_there(self, bench):
        made = bench.put(6, body=b"x" * 100)
        bench.put(3, queue_id=1, body=b"x" * 100)
        agent = started(bench, 0, bytes=size_of(made[-4:]) + 50)
        assert (bench.bounds(), bench.bounds(queue_id=1)) == ((2, 6), (0, 3))
        bench.put(3, queue_id=1, body=b"x" * 100)
        bench.synced()
        bench.settle(agent)
        assert (bench.bounds(), bench.bounds(queue_id=1)) == ((2, 6), (2, 6))

    def test_of_time_and_bytes_the_later_beginning_counts(self, bench):
        made = bench.put(20, body=b"x" * 100)
        agent = started(bench, 0, at=1003, ms=1000, bytes=size_of(made[-10:]))
        assert bench.bounds() == (10, 20)
        bench.at(1015)
        bench.settle(agent)
        assert bench.bounds() == (15, 20)


class TestWhatIsNotCut:
    def test_what_is_not_synced_yet(self, bench):
        bench.put(20)
        bench.synced(bench.maker.records[8].at)
        bench.at(5000)
        bench.keep(ms=1000)
        agent = bench.agent()
        bench.settle(agent)
        assert bench.bounds() == (8, 20)
        assert read_minima(bench.store) == {(TOPIC, 0): QueueMinimum(8, bench.maker.records[8].at)}
        bench.synced()
        bench.settle(agent)
        assert bench.bounds() == (20, 20)

    def test_anything_before_flush_has_said_what_is_synced(self, bench):
        bench.put(20)
        bench.at(5000)
        bench.keep(ms=1000)
        bench.settle(bench.agent())
        assert bench.bounds() == (0, 20)

    def test_what_was_cut_comes_not_back_when_more_is_to_be_kept(self, bench):
        agent = started(bench, 20, at=1010, ms=1000)
        for kept in ({"ms": 100_000}, {}, {"bytes": 1 << 30}):
            bench.keep(**kept)
            bench.settle(agent)
            assert bench.bounds() == (10, 20)

    def test_a_time_that_cannot_be_read_stays_as_it_was(self, bench, caplog):
        agent = started(bench, 20, at=1010, ms=1000)
        for name in ("topics.json", "topics.json.bak"):
            (bench.store.config / name).write_text("{")
        bench.at(1012)
        bench.settle(agent)
        assert bench.bounds() == (12, 20)
        assert caplog.text.count("queues are cut as before") == 1


class TestAStart:
    def test_knows_the_minima_before_it_dispatches(self, bench):
        started(bench, 20, at=1010, ms=1000)
        QueueEnds.create(bench.runtime.queue_ends)
        bench.positions.words[Position.DISPATCHED.word] = 0
        bench.keep()
        bench.work(bench.agent())
        assert bench.bounds() == (10, 20)

    def test_while_older_records_are_dispatched_again_the_queue_looks_empty_and_no_file_goes(self, bench):
        count = 3 * PER_FILE
        started(bench, count, at=1000 + 2 * PER_FILE + 3, ms=1000)
        assert bench.files() == [2]
        QueueEnds.create(bench.runtime.queue_ends)
        for path in (bench.store.consumequeue / TOPIC / "0").iterdir():
            path.unlink()
        words = bench.positions.words
        words[Position.DISPATCHED.word] = 0
        words[Position.APPENDED.word] = words[Position.FLUSHED.word] = bench.maker.records[PER_FILE + 2].at
        bench.keep()
        agent = bench.agent()
        bench.settle(agent)
        assert (bench.bounds(), bench.files()) == ((PER_FILE + 2, PER_FILE + 2), [0, 1])
        bench.publish(bench.maker.end)
        bench.settle(agent)
        assert (bench.bounds(), bench.files()) == ((2 * PER_FILE + 3, count), [2])

    def test_forgets_what_the_log_no_longer_holds(self, bench):
        """Put may begin a topic of which nothing is left at number 0 again."""
        started(bench, 20, at=1010, ms=1000)
        bench.begin_log_at(bench.maker.end)
        QueueEnds.create(bench.runtime.queue_ends)
        agent = bench.agent()
        assert agent._retention._offsets == {}

    def test_is_refused_where_nobody_knows_what_was_cut(self, bench):
        started(bench, 20, at=1010, ms=1000)
        for path in bench.store.config.glob("queueMinima.json*"):
            path.write_text("{")
        with pytest.raises(MalformedFile, match=r"queueMinima\.json"):
            bench.agent()


STEPS = ["before it is written", "between the file and the table", "before a file goes", "after a file went"]


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_leaves_nothing_to_be_seen_again(bench, monkeypatch, step):
    count = 3 * PER_FILE + 4
    agent = started(bench, count)
    bench.at(1000 + 2 * PER_FILE + 3)
    bench.keep(ms=1000)
    seen = [bench.bounds()[0]]
    remove = ConsumeQueueFiles._remove

    def dying(self, *asked):
        if step == STEPS[3]:
            remove(self, *asked)
        raise Killed

    with monkeypatch.context() as patch:
        if step == STEPS[0]:
            patch.setattr(config_writer.Saver, "submit", dying)
        elif step == STEPS[1]:
            patch.setattr(QueueRetention, "_publish", dying)
        else:
            patch.setattr(ConsumeQueueFiles, "_remove", dying)
        with pytest.raises(Killed):
            bench.settle(agent)
        seen.append(bench.bounds()[0])
    bench.keep()  # what was not written before the kill is not written after it
    again = bench.agent()
    seen.append(bench.bounds()[0])
    bench.settle(again)
    seen.append(bench.bounds()[0])
    assert seen == sorted(seen)
    cut = step != STEPS[0]
    assert bench.bounds() == (2 * PER_FILE + 3 if cut else 0, count)
    assert bench.files() == ([2, 3] if cut else [0, 1, 2, 3])


def test_while_the_minima_cannot_be_written_nothing_is_cut(bench, monkeypatch, caplog):
    bench.put(20)
    bench.synced()
    bench.at(1010)
    bench.keep(ms=1000)
    agent = bench.agent()

    def full(self, content):
        raise DiskFull(str(self.path))

    with monkeypatch.context() as patch:
        patch.setattr(ConfigFile, "save", full)
        bench.settle(agent)
        assert bench.bounds() == (0, 20)
    assert "no queue is cut" in caplog.text
    bench.settle(agent)
    assert bench.bounds() == (10, 20)


class QueuesThatAreCut(RuleBasedStateMachine):
    """Messages, time, changes of the topic, syncs, cleaning of the log, restarts of reput; a model of what is read."""

    @initialize()
    def begin(self):
        self.root = next(ROOTS)
        self.bench = Kept(self.root, delete_consume_queue_files_interval=0)
        self.bench.clock = WallClock()
        self.agent = self.bench.agent()
        self.bench.settle(self.agent)
        self.lows = [0, 0]
        self.kept = {}
        self.safe = self.now = self.log_min = 0

    @rule(queue_id=st.integers(0, 1), count=st.integers(1, 2 * PER_FILE), size=st.sampled_from([10, 300]))
    def put(self, queue_id, count, size):
        self.bench.put(count, queue_id=queue_id, body=b"x" * size)
        self.bench.work(self.agent)

    @rule()
    def sync(self):
        self.safe = self.bench.maker.end
        self.bench.synced()

    @rule(share=st.floats(0, 1))
    def the_log_begins_later(self, share):
        records = self.bench.maker.records
        if not records:
            return
        begins = max(self.log_min, records[int(share * (len(records) - 1))].at)
        self.log_min, self.safe = begins, self.bench.maker.end
        self.bench.begin_log_at(begins)
        self.bench.work(self.agent)
        for queue_id in (0, 1):
            gone = sum(one.at < begins for one in self.records(queue_id))
            self.lows[queue_id] = max(self.lows[queue_id], gone)

    @rule(by=st.integers(1, 40))
    def time_goes_by(self, by):
        self.now += by
        self.bench.at(self.now)

    @rule(kept=st.sampled_from([{}, {"ms": 10}, {"ms": 30}, {"bytes": 2000}, {"ms": 20, "bytes": 5000}]))
    def alter(self, kept):
        self.kept = kept
        self.bench.keep(**kept)

    @rule()
    def restart(self):
        """It looks at once."""
        self.agent.on_close()
        self.agent = self.bench.agent()
        self.look()

    @rule()
    def look(self):
        self.bench.settle(self.agent)
        for queue_id in (0, 1):
            self.lows[queue_id] = self.expected(queue_id)
            self.check(queue_id)

    def records(self, queue_id):
        return [one for one in self.bench.maker.records if one.queue_id == queue_id]

    def expected(self, queue_id):
        """By looking at every message."""
        records = self.records(queue_id)
        low = self.lows[queue_id]
        if "ms" in self.kept:
            limit = NOON + self.now - self.kept["ms"]
            low = max(low, next((one.queue_offset for one in records if one.timestamp >= limit), len(records)))
        if "bytes" in self.kept:
            first = len(records)
            while first and (first == len(records) or size_of(records[first - 1 :]) <= self.kept["bytes"]):
                first -= 1
            low = max(low, first)
        synced = sum(one.at < self.safe for one in records)
        return max(self.lows[queue_id], min(low, synced))

    def check(self, queue_id):
        records = self.records(queue_id)
        if not records:
            return
        assert self.bench.bounds(queue_id=queue_id) == (self.lows[queue_id], len(records))
        files = ConsumeQueueFiles(self.bench.store.consumequeue, QUEUE_FILE, 4)
        low = self.lows[queue_id]
        places = []
        while low + len(places) < len(records):
            places += files.read(TOPIC, queue_id, low + len(places), 1000)["physical_offset"].tolist()
        assert places == [one.at for one in records[low:]]
        files.close()

    @invariant()
    def no_queue_goes_back(self):
        for queue_id in (0, 1):
            if getattr(self, "bench", None) and self.records(queue_id):
                assert self.bench.bounds(queue_id=queue_id)[0] == self.lows[queue_id]

    def teardown(self):
        if getattr(self, "agent", None):
            self.agent.on_close()


ROOTS = iter(())


def test_queues_that_are_cut_are_those_of_who_looks_at_every_message(tmp_path):
    global ROOTS
    ROOTS = (tmp_path / f"{number}" for number in range(1 << 20))
    case = QueuesThatAreCut.TestCase()
    case.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
    case.runTest()
