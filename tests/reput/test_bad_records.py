"""A record that cannot be dispatched: reput stops before that very record, and all before it is dispatched wholly."""

import pytest

from tests.log.stores import SEGMENT
from towline.format.record.halts import Halt
from towline.format.record.record import LAYOUT
from towline.format.record.rules import Rule
from towline.kernels.base import directory
from towline.runtime.positions import Duty, Position

from .test_dispatchers import Sums, Watched, of
from .test_reput import Bench, Killed, kill_at

BAD = 26
QUEUE_OFFSET = LAYOUT.offset["queue_offset"]


def topic_at(stored):
    return stored.at + stored.data.index(stored.topic.encode())


def a_slash_in_the_topic(maker, stored):
    maker.write(topic_at(stored) + 1, b"/")


def a_nul_in_the_topic(maker, stored):
    maker.write(topic_at(stored) + 3, b"\0")


def a_negative_queue_id(maker, stored):
    maker.write(stored.at + LAYOUT.offset["queue_id"], b"\x80")


def a_number_that_was_given(maker, stored):
    maker.write(stored.at + QUEUE_OFFSET, (stored.queue_offset - 1).to_bytes(8, "big"))


def a_number_far_below(maker, stored):
    maker.write(stored.at + QUEUE_OFFSET, bytes(8))


def a_number_that_is_too_high(maker, stored):
    maker.write(stored.at + QUEUE_OFFSET, (stored.queue_offset + 4).to_bytes(8, "big"))


def another_magic(maker, stored):
    maker.write(stored.at + 4, b"\xdb")


DAMAGES = [
    (a_slash_in_the_topic, Rule.TOPIC_FORM),
    (a_nul_in_the_topic, Rule.TOPIC_FORM),
    (a_negative_queue_id, Rule.QUEUE_ID),
    (a_number_that_was_given, Halt.QUEUE_TWICE),
    (a_number_far_below, Halt.QUEUE_TWICE),
    (a_number_that_is_too_high, Halt.QUEUE_GAP),
    (another_magic, Rule.MAGIC),
]


def check(bench, bad, number):
    """What stands before `bad` is dispatched, to queues and index and in DISPATCHED; nothing else is."""
    assert bench.positions.get(Position.DISPATCH_STOPPED) == bad.at + 1
    assert bench.positions.get(Position.DISPATCH_STOPPED_WHY) == number
    assert bench.positions.get(Position.DISPATCHED) == bench.positions.get(Position.INDEXED) == bad.at
    before = [stored for stored in bench.maker.records if stored.at < bad.at]
    found = {}
    for stored in before:
        found.setdefault((stored.topic, stored.queue_id), []).append(stored.at)
    assert bench.queues() == found
    assert bench.indexed() == [[stored.at] if stored.at < bad.at else [] for stored in bench.maker.records]


@pytest.mark.parametrize(("damage", "number"), DAMAGES, ids=lambda each: getattr(each, "__name__", None))
def test_dispatching_stops_before_it_and_all_before_it_is_dispatched(tmp_path, damage, number):
    bench = Bench(tmp_path)
    bench.fill(40)
    bad = bench.maker.records[BAD]
    damage(bench.maker, bad)
    bench.work(bench.agent())
    check(bench, bad, number)


@pytest.mark.parametrize("damage", [a_number_far_below, a_number_that_is_too_high])
def test_a_further_dispatcher_gets_all_before_it_once(tmp_path, damage):
    bench = Watched(tmp_path, dispatchers="tests.reput.test_dispatchers:Sums")
    bench.fill(40)
    damage(bench.maker, bench.maker.records[BAD])
    bench.work(bench.agent())
    assert of(bench, Sums).places == [stored.at for stored in bench.maker.records[:BAD]]


@pytest.mark.parametrize("step", ["before the queues", "between queues and index", "inside the queues"])
def test_a_number_given_twice_is_told_from_a_record_that_comes_again_after_a_kill(tmp_path, monkeypatch, step):
    bench = Bench(tmp_path)
    bench.fill(12)
    agent = bench.agent()
    bench.work(agent)
    bench.fill(12)
    with monkeypatch.context() as patched:
        kill_at(step, patched)
        with pytest.raises(Killed):
            bench.work(agent)
    bench.fill(12)
    bad = bench.maker.records[BAD]
    a_number_far_below(bench.maker, bad)
    bench.work(bench.agent())
    check(bench, bad, Halt.QUEUE_TWICE)


def test_units_of_what_stands_before_it_are_written_once(tmp_path):
    bench = Bench(tmp_path, enable_consume_queue_ext=True)
    bench.fill(40)
    bad = bench.maker.records[BAD]
    a_number_that_is_too_high(bench.maker, bad)
    bench.work(bench.agent())
    check(bench, bad, Halt.QUEUE_GAP)


@pytest.mark.parametrize("gathered", [False, True], ids=["batch by batch", "gathered"])
def test_one_queue_more_than_a_node_holds_stops_before_its_first_record(tmp_path, monkeypatch, gathered):
    monkeypatch.setattr(directory, "QUEUES_MAX", 4)
    if gathered:
        for name, value in (("GATHER_QUEUES", 1), ("GATHER_BACKLOG", 10), ("GATHERED_BATCH", 7)):
            monkeypatch.setattr(f"towline.reput.service.{name}", value)
    bench = Bench(tmp_path, message_index_enable=not gathered)
    bench.fill(4)
    agent = bench.agent()
    bench.work(agent)
    bench.fill(20)
    bad = bench.maker.append(b"of a fifth queue", topic="Other")
    bench.fill(20)
    bench.work(agent)
    assert bench.positions.get(Position.DISPATCH_STOPPED) == bad.at + 1
    assert bench.positions.get(Position.DISPATCH_STOPPED_WHY) == Halt.TOO_MANY_QUEUES
    assert bench.positions.get(Position.DISPATCHED) == bad.at
    assert sum(map(len, bench.queues().values())) == 24


@pytest.mark.parametrize("damage", [a_number_far_below, a_slash_in_the_topic])
def test_a_bad_record_in_a_backlog_of_many_queues_is_stopped_before(tmp_path, monkeypatch, damage):
    for name, value in (("GATHER_QUEUES", 1), ("GATHER_BACKLOG", 10), ("GATHERED_BATCH", 7)):
        monkeypatch.setattr(f"towline.reput.service.{name}", value)
    bench = Bench(tmp_path, message_index_enable=False)
    bench.fill(8)
    agent = bench.agent()
    bench.work(agent)
    bench.fill(100)
    bad = bench.maker.records[77]
    damage(bench.maker, bad)
    bench.work(agent)
    assert bench.positions.get(Position.DISPATCH_STOPPED) == bad.at + 1
    assert bench.positions.get(Position.DISPATCHED) == bad.at
    assert sum(map(len, bench.queues().values())) == 77


class TestALengthWordUnderLoad:
    """What is appended runs ahead of what is confirmed: no moment comes at which both ends are the same."""

    @pytest.fixture
    def bench(self, tmp_path):
        bench = Bench(tmp_path, flush_disk_type="SYNC_FLUSH")
        for number in range(40):
            bench.maker.append(b"%d" % number * 300, queue_id=number % 3)
        return bench

    def confirm(self, bench, number):
        """Everything is appended, and confirmed up to a record."""
        bench.publish(bench.maker.end, flushed=bench.maker.records[number].at)

    def test_that_reaches_past_the_end_of_the_log_stops_dispatching_at_once(self, bench):
        bad = bench.maker.records[BAD]
        claimed = bench.maker.end - bad.at + 1
        bench.maker.write(bad.at, claimed.to_bytes(4, "big"))
        self.confirm(bench, BAD + 3)
        bench.work(bench.agent())
        check(bench, bad, Rule.SIZE_PAST_END)

    def test_that_ends_within_the_log_is_waited_for_and_judged_when_so_much_is_confirmed(self, bench):
        bad = bench.maker.records[BAD]
        claimed = bench.maker.records[BAD + 5].at - bad.at
        bench.maker.write(bad.at, claimed.to_bytes(4, "big"))
        self.confirm(bench, BAD + 3)
        agent = bench.agent()
        bench.work(agent)
        assert not bench.positions.get(Position.DISPATCH_STOPPED)
        self.confirm(bench, BAD + 6)
        bench.work(agent)
        check(bench, bad, Rule.PARTS_DO_NOT_ADD_UP)

    def test_of_more_than_any_record_has_stops_a_slave_as_well(self, tmp_path, monkeypatch):
        monkeypatch.setattr("towline.log.commitlog.dispatch.KERNEL_BYTES_MAX", SEGMENT // 4)
        bench = Bench(tmp_path / "slave", broker_role="SLAVE")
        bench.fill(3)
        bad = bench.maker.records[2]
        bench.maker.write(bad.at, (SEGMENT // 4 + 1).to_bytes(4, "big"))
        bench.positions.writer(Position.CONFIRMED, Duty.RECEIVE).advance(bench.maker.end)
        bench.work(bench.agent())
        check(bench, bad, Rule.RECORD_TOO_LARGE)
