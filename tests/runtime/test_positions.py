"""Positions: one writer each, one layout, one generation."""

import multiprocessing

import pytest

from towline.errors import NotTheWriter, PositionsUnusable
from towline.format.wire.refusals import Cause
from towline.node.store.put_checks import Limits, store_state
from towline.runtime.positions import (
    REMOTING_AT,
    REMOTING_LINES,
    TAKEN_AT,
    TAKEN_LINES,
    Counter,
    Duty,
    Flag,
    Position,
    Positions,
    State,
)
from towline.runtime.shared import SharedWords


@pytest.fixture
def positions(tmp_path):
    return Positions.create(tmp_path / "positions", generation=7)


def test_a_position_published_by_its_owner_is_read_by_anybody(positions):
    positions.writer(Position.APPENDED, Duty.PUT).advance(4260)
    assert Positions.open(positions.path, writable=False).get(Position.APPENDED) == 4260


@pytest.mark.parametrize("position", list(Position), ids=lambda position: position.name)
def test_only_the_duties_in_the_table_may_write(positions, position):
    for duty in Duty:
        if duty in position.writers or duty is Duty.RECOVER:
            positions.writer(position, duty)
        else:
            with pytest.raises(NotTheWriter, match=position.name):
                positions.writer(position, duty)


def test_a_position_never_moves_back(positions):
    writer = positions.writer(Position.FLUSHED, Duty.FLUSH)
    writer.advance(10)
    with pytest.raises(AssertionError, match="never moves back"):
        writer.advance(9)


def test_every_line_of_the_file_has_one_use(positions):
    words = [position.word for position in Position]
    words += [positions.duty(duty)._at for duty in Duty] + [positions.duty(duty)._at + 8 for duty in Duty]
    words += [8 * line for line in range(64, 72)]  # refusals by cause
    words += [slave._at for slave in positions.slaves()] + [positions.delays._at]
    words += [slave._at for slave in positions.rocketmq_slaves()]
    words += [8 * line for line in range(REMOTING_AT, REMOTING_AT + REMOTING_LINES)]
    words += [8 * line for line in range(TAKEN_AT, TAKEN_AT + TAKEN_LINES)]
    assert len(set(words)) == len(words)
    assert min(words) >= 8
    assert max(words) + 8 <= len(positions.words)


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        pytest.param("10.1.2.3", "10.1.2.3:40001", id="IPv4"),
        pytest.param("fe80::ffff:1%eth0", "[fe80::ffff:1]:40001", id="IPv6"),
        pytest.param("::ffff:255.255.255.255", "255.255.255.255:40001", id="IPv4 in IPv6"),
    ],
)
def test_a_slave_of_rocketmq_is_told_by_where_it_comes_from(positions, host, shown):
    line = positions.rocketmq_slaves()[3]
    line.join(host, 40_001, 500)
    line.reach(900, 700)
    (found,) = [each for each in Positions.open(positions.path).rocketmq_slaves() if each.connected]
    assert (found.address, found.sent, found.reported) == (shown, 900, 700)
    line.leave()
    assert not found.connected


def test_a_broker_whose_old_connection_is_not_found_dead_yet_counts_once(positions):
    """Two brokers are to have a put: one of them reports it, its network breaks, and it is back before that shows."""
    for place, (host, port, reported) in enumerate([("10.0.0.1", 1, 900), ("10.0.0.1", 2, 900), ("10.0.0.2", 1, 500)]):
        positions.rocketmq_slaves()[place].join(host, port, reported)
    assert [positions.rocketmq_reported(count) for count in (1, 2, 3)] == [900, 500, 0]
    state = store_state(positions, Limits(waiting_max=1, flush_backlog_max=1, rocketmq_min=2), 0, stopping=False)
    assert state.rocketmq == 2


@pytest.mark.parametrize(
    ("word", "value", "said"),
    [
        pytest.param(0, 1, "not a positions file", id="another magic"),
        pytest.param(1, 99, "layout version 99", id="another layout"),
        pytest.param(3, 1, "last boot", id="another boot"),
    ],
)
def test_a_file_of_another_kind_layout_or_boot_is_refused(positions, word, value, said):
    SharedWords.open(positions.path).words[word] = value
    with pytest.raises(PositionsUnusable, match=said):
        Positions.open(positions.path)


def test_a_missing_file_is_refused_with_the_way_to_get_one(tmp_path):
    with pytest.raises(PositionsUnusable, match="towline master start"):
        Positions.open(tmp_path / "positions")


def test_a_new_start_tells_processes_of_the_old_one_to_leave(positions):
    Positions.create(positions.path, generation=8)
    assert positions.generation == 8


def test_a_duty_says_who_does_it_and_what_it_is_doing(positions):
    line = positions.duty(Duty.FLUSH)
    line.enter(generation=7)
    line.state = State.SYNCING
    line.count(Counter.SYNCS, 3)
    seen = Positions.open(positions.path).duty(Duty.FLUSH)
    assert (seen.state, seen.counter(Counter.SYNCS), seen.pid) == (State.SYNCING, 3, line.pid)
    assert seen.beat_ns > 0


def test_refusals_are_counted_by_cause_and_the_last_one_is_dated(positions):
    for cause in Cause:
        for now in range(1, cause + 2):
            positions.refused.add(cause, now)
    seen = Positions.open(positions.path, writable=False).refused
    assert [(seen.count(cause), seen.last_ns(cause)) for cause in Cause] == [(cause + 1, cause + 1) for cause in Cause]
    assert not any(slave.connected or slave.appended for slave in positions.slaves())


def test_the_running_flags_of_a_node_are_those_of_all_its_duties(positions):
    positions.duty(Duty.ALLOCATE).raise_flag(Flag.DISK_FULL)
    positions.duty(Duty.REPUT).raise_flag(Flag.LOGIC_DISK_FULL | Flag.INDEX_ERROR)
    positions.duty(Duty.REPUT).lower_flag(Flag.INDEX_ERROR)
    assert Positions.open(positions.path, writable=False).flags == Flag.DISK_FULL | Flag.LOGIC_DISK_FULL


def _flip(path, count):
    writer = Positions.open(path).writer(Position.APPENDED, Duty.PUT)
    low, high = 1, (1 << 56) + 1
    for number in range(count):
        writer._words[writer._word] = high if number % 2 else low


def test_no_reader_ever_sees_half_a_value(positions):
    process = multiprocessing.get_context("spawn").Process(target=_flip, args=(positions.path, 300_000))
    process.start()
    seen = set()
    while process.is_alive():
        seen.update(positions.get(Position.APPENDED) for _ in range(1000))
    process.join()
    assert seen <= {0, 1, (1 << 56) + 1}
