"""What an acknowledgement of a slave may say, and what the sender makes of it."""

from collections import deque

import pytest

from towline.ha.sender.peers import FRAMES_IN_FLIGHT_MAX, BadAck, Peer
from towline.replication.flow_control import FlowControl


def slave(**facts: object) -> Peer:
    defaults = {
        "identity": b"i",
        "name": "s",
        "place": 0,
        "sent": 500,
        "appended": 100,
        "flushed": 50,
        "heard_ms": 0,
        "limit": 900,
        "in_flight": deque([200, 300, 500]),
    }
    return Peer(**(defaults | facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("appended", "flushed", "expected"),
    [
        pytest.param(501, 50, BadAck.AHEAD, id="more than was sent on this link"),
        pytest.param(99, 50, BadAck.BACK, id="less than before in memory"),
        pytest.param(200, 49, BadAck.BACK, id="less than before on disk"),
        pytest.param(200, 201, BadAck.FLUSHED, id="more on disk than in its log"),
    ],
)
def test_a_lying_acknowledgement_is_named_and_moves_nothing(appended, flushed, expected):
    peer = slave()
    assert peer.acknowledge(appended, flushed, 10_000, now_ms=7) is expected
    assert (peer.appended, peer.flushed, peer.limit, peer.heard_ms, len(peer.in_flight)) == (100, 50, 900, 0, 3)


def test_an_honest_acknowledgement_frees_the_frames_it_covers():
    peer = slave()
    assert peer.acknowledge(300, 300, 1300, now_ms=7) is None
    assert list(peer.in_flight) == [500]
    assert (peer.appended, peer.flushed, peer.limit, peer.heard_ms) == (300, 300, 1300, 7)


@pytest.mark.parametrize(
    ("facts", "end", "expected"),
    [
        pytest.param({}, 10_000, 100, id="a batch at most"),
        pytest.param({"limit": 540}, 10_000, 40, id="the slave's credit at most"),
        pytest.param({"in_flight": deque()}, 510, 10, id="the end of the log at most"),
        pytest.param({}, 599, 0, id="less than a frame waits while another is on its way"),
        pytest.param({}, 600, 100, id="a whole frame does not"),
        pytest.param({"limit": 400}, 10_000, 0, id="credit used up"),
        pytest.param({"in_flight": deque(range(FRAMES_IN_FLIGHT_MAX))}, 10_000, 0, id="too many frames on their way"),
    ],
)
def test_what_may_go_out_next_is_bounded(facts, end, expected):
    assert slave(**facts).room(end, batch_size=100) == expected


def test_a_slave_that_takes_its_credit_back_stops_and_is_sent_nothing_more():
    peer = slave()
    assert not peer.is_stopping
    assert peer.acknowledge(300, 300, 300, now_ms=7) is None
    assert peer.is_stopping
    assert peer.room(10_000, batch_size=100) == 0


class TestCatchingUp:
    """`caught_up_ms` is the newest moment whose whole log the slave holds by now."""

    def test_a_slave_that_holds_everything_has_caught_up_now(self):
        peer = slave(on_disk=False)
        peer.begin(end=100, now_ms=10)
        peer.measure(end=100, now_ms=5000, paused_ms=0)
        assert peer.caught_up_ms == 5000

    def test_a_slave_always_a_little_behind_a_growing_log_is_not_late(self):
        peer = slave()
        peer.begin(end=100, now_ms=0)
        for now in range(100, 5000, 100):
            peer.appended = 100 + now - 100  # what we had a turn ago
            peer.measure(end=100 + now, now_ms=now, paused_ms=0)
            assert now - peer.caught_up_ms <= 200

    def test_a_slave_that_stands_still_while_the_log_grows_gets_later_and_later(self):
        peer = slave()
        peer.begin(end=100, now_ms=0)
        for now in range(100, 5000, 100):
            peer.measure(end=100 + now, now_ms=now, paused_ms=0)
        assert peer.caught_up_ms <= 100

    def test_a_pause_of_the_master_itself_is_no_slaves_fault(self):
        peer = slave()
        peer.begin(end=100, now_ms=0)
        peer.measure(end=500, now_ms=100, paused_ms=0)
        peer.measure(end=500, now_ms=60_100, paused_ms=60_000)
        assert 60_100 - peer.caught_up_ms <= 100

    def test_what_counts_under_sync_flush_is_what_is_on_the_disk(self):
        assert (slave(on_disk=True).held, slave(on_disk=False).held) == (50, 100)


class TestFlow:
    def test_without_a_limit_everything_may_go(self):
        flow = FlowControl(0)
        flow.spent(1 << 40)
        assert flow.room(0) > 1 << 50
        assert not flow.is_throttled

    def test_over_any_second_no_more_goes_than_the_rate_and_a_portion(self):
        flow, sent = FlowControl(100_000, now_ms=0), 0
        for now in range(0, 3000, 7):
            size = flow.room(now)
            flow.spent(size)
            sent += size
        assert 0.98 * 300_000 <= sent <= 310_000

    def test_what_was_not_used_is_not_saved_up(self):
        assert FlowControl(100_000, now_ms=0).room(60_000) == 10_000

    def test_one_that_has_used_its_portion_is_held_back_until_it_earned_more(self):
        flow = FlowControl(1000, now_ms=0)
        flow.spent(flow.room(0))
        assert (flow.room(0), flow.is_throttled) == (0, True)
        assert (flow.room(50), flow.is_throttled) == (50, False)

    def test_a_slave_is_sent_no_more_than_its_flow_allows(self):
        assert slave(flow=FlowControl(300, now_ms=0)).room(10_000, 100, now_ms=0) == 30
