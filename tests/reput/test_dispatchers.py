"""Dispatchers that a setting adds: they see every record after queues and index; a wrong name is refused."""

import pytest

from towline.errors import DiskFull
from towline.log.errors import NoDispatcher
from towline.runtime.positions import Position

from .test_reput import Bench


class Sums:
    """Counts records and bytes, and what was published of a batch before it came here."""

    name = "sums"

    def __init__(self, node):
        self.node = node
        self.records, self.bytes, self.places = 0, 0, []

    def put(self, batch):
        assert self.node.queue_ends().max_offsets().sum() >= self.records + len(batch.rows)
        assert self.node.positions.get(Position.DISPATCHED) == batch.start
        self.records += len(batch.rows)
        self.bytes += int(batch.rows["size"].sum())
        self.places += batch.rows["phy"].tolist()


class Full:
    name = "full"

    def __init__(self, node):
        self.left = 1

    def put(self, batch):
        if self.left:
            self.left -= 1
            raise DiskFull("elsewhere", 1)


def no_dispatcher():
    """Takes no node."""


def of(bench, made):
    return next(each for each in bench.dispatchers if isinstance(each, made))


class Watched(Bench):
    def agent(self):
        agent = super().agent()
        self.dispatchers = agent._dispatchers
        return agent


def test_a_dispatcher_of_ones_own_sees_every_record_once_and_in_order(tmp_path):
    bench = Watched(tmp_path, dispatchers="tests.reput.test_dispatchers:Sums")
    bench.fill()
    bench.work(bench.agent())
    sums = of(bench, Sums)
    assert [each.name for each in bench.dispatchers] == ["queues", "index", "sums"]
    assert sums.places == [stored.at for stored in bench.maker.records]
    assert sums.bytes == sum(len(stored.data) for stored in bench.maker.records)


def test_while_one_has_no_room_nothing_is_dispatched_and_afterwards_nothing_is_double(tmp_path):
    bench = Watched(tmp_path, dispatchers="tests.reput.test_dispatchers:Full, tests.reput.test_dispatchers:Sums")
    bench.fill(20)
    agent = bench.agent()
    bench.work(agent)
    assert bench.positions.get(Position.DISPATCHED) == 0
    bench.clock.ms += 2000
    bench.work(agent)
    assert bench.positions.get(Position.DISPATCHED) == bench.maker.end
    assert of(bench, Sums).records == 20
    assert bench.queues() == bench.expected_queues()
    assert bench.indexed() == bench.expected_index()


@pytest.mark.parametrize(
    "place", ["nowhere:at_all", "tests.reput.test_dispatchers:missing", "tests.reput.test_dispatchers:no_dispatcher"]
)
def test_a_dispatcher_that_cannot_be_had_is_named(tmp_path, place):
    with pytest.raises(NoDispatcher, match=place):
        Bench(tmp_path, dispatchers=place).agent()
