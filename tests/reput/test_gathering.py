"""A backlog of many queues: entries of several batches are gathered, written and published together."""

import pytest

from towline.errors import DiskFull
from towline.log.commitlog.dispatch import DispatchScan
from towline.log.queues.queue_writer import QueueWriter
from towline.reput import service
from towline.reput.queues import QueueDispatcher
from towline.runtime.positions import Position

from .test_extensions import ON, check_units
from .test_reput import Bench, Killed


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Two queues are many, ten bytes are a backlog, and a batch has seven records."""
    monkeypatch.setattr(service, "GATHER_QUEUES", 1)
    monkeypatch.setattr(service, "GATHER_BACKLOG", 10)
    monkeypatch.setattr(service, "GATHERED_BATCH", 7)
    return Bench(tmp_path, message_index_enable=False)


@pytest.fixture
def settled(monkeypatch):
    """DISPATCHED is published: after how many reads of the log each time."""
    found, reads, read, publish = [], [], DispatchScan.read, service.ReputAgent._publish

    def counted(self, *args):
        reads.append(args)
        return read(self, *args)

    def batches(self, *args):
        found.append(len(reads))
        publish(self, *args)
        reads.clear()

    monkeypatch.setattr(DispatchScan, "read", counted)
    monkeypatch.setattr(service.ReputAgent, "_publish", batches)
    return found


def begun(bench):
    """An agent that knows four queues, so that what comes then is gathered."""
    bench.fill(8)
    agent = bench.agent()
    bench.work(agent)
    return agent


def check(bench):
    assert bench.positions.get(Position.DISPATCHED) == bench.maker.end
    assert bench.positions.get(Position.DISPATCHED_TIMESTAMP) == bench.maker.records[-1].timestamp
    assert bench.queues() == bench.expected_queues()


def test_batches_of_a_backlog_are_written_together(bench, settled):
    agent = begun(bench)
    settled.clear()
    bench.fill(180)
    bench.work(agent)
    check(bench)
    assert max(settled) > 3, "several reads for one publication"


def test_with_an_index_each_batch_is_published_before_it_is_indexed(tmp_path, bench, settled):
    bench = Bench(tmp_path / "indexed")
    agent = begun(bench)
    settled.clear()
    bench.fill(100)
    bench.work(agent)
    check(bench)
    assert bench.indexed() == bench.expected_index()
    assert set(settled) == {1}


def test_with_extension_units_each_batch_gets_its_own(tmp_path, bench):
    bench = Bench(tmp_path / "extended", message_index_enable=False, **ON)
    agent = begun(bench)
    bench.fill(100)
    bench.work(agent)
    check_units(bench)


@pytest.mark.parametrize("writes", [1, 2])
def test_a_full_disk_loses_nothing_of_what_was_gathered(bench, monkeypatch, writes):
    agent = begun(bench)
    bench.fill(120)
    write, left = QueueWriter.write, [writes]

    def full(self, runs, entries):
        write(self, runs[: left[0]], entries)
        raise DiskFull("consumequeue", 1)

    with monkeypatch.context() as patched:
        patched.setattr(QueueWriter, "write", full)
        assert agent.do_work() == 0
    dispatched = bench.positions.get(Position.DISPATCHED)
    assert agent.do_work() == 0, "it pauses"
    assert bench.positions.get(Position.DISPATCHED) == dispatched
    bench.clock.ms += 2000
    bench.work(agent)
    check(bench)


def test_a_full_disk_between_two_rounds_of_a_settlement_loses_nothing(bench, monkeypatch):
    monkeypatch.setattr("towline.log.queues.gather._TARGET", 200)
    agent = begun(bench)
    bench.fill(120)
    write, calls = QueueWriter.write, []

    def full(self, runs, entries):
        calls.append(len(runs))
        if len(calls) > 1:
            raise DiskFull("consumequeue", 1)
        write(self, runs, entries)

    with monkeypatch.context() as patched:
        patched.setattr(QueueWriter, "write", full)
        agent.do_work()
    assert len(calls) > 1
    bench.clock.ms += 2000
    bench.work(agent)
    check(bench)


@pytest.mark.parametrize("step", ["_write", "_publish"])
def test_a_kill_while_gathered_entries_are_written_leaves_nothing_missing_and_nothing_double(bench, monkeypatch, step):
    monkeypatch.setattr("towline.log.queues.gather._TARGET", 400)
    agent = begun(bench)
    bench.fill(120)
    done, calls = getattr(QueueDispatcher, step), []

    def dying(self, one):
        done(self, one)
        calls.append(step)
        if len(calls) == 3:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(QueueDispatcher, step, dying)
        with pytest.raises(Killed):
            bench.work(agent)
    bench.work(bench.agent())
    check(bench)


def test_a_gap_among_gathered_batches_stops_at_its_record_and_what_is_before_is_dispatched(bench, caplog):
    agent = begun(bench)
    bench.fill(100)
    gap = bench.maker.records[77]
    bench.maker.write(gap.at + 20, (9999).to_bytes(8, "big"))
    bench.work(agent)
    assert bench.positions.get(Position.DISPATCH_STOPPED) == gap.at + 1
    assert "number 9999" in caplog.text
    before = [each for each in bench.maker.records if each.at < gap.at]
    assert sum(len(entries) for entries in bench.queues().values()) == len(before)


def test_a_bad_record_behind_gathered_batches_stops_dispatching_before_it(bench):
    agent = begun(bench)
    bench.fill(100)
    bad = bench.maker.records[77]
    bench.maker.write(bad.at + 4, b"XXXX")
    bench.work(agent)
    assert bench.positions.get(Position.DISPATCHED) == bad.at
    assert bench.positions.get(Position.DISPATCH_STOPPED) == bad.at + 1


def test_a_queue_that_is_new_among_them_is_dispatched(bench):
    agent = begun(bench)
    bench.fill(50)
    bench.maker.append(b"new", topic="Other", queue_id=5)
    bench.fill(50)
    bench.work(agent)
    check(bench)
