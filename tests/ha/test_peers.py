"""What an acknowledgement of a slave may say, and what the sender makes of it."""

from collections import deque

import pytest

from ha.peers import FRAMES_IN_FLIGHT_MAX, BadAck, Peer, replicated


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
        pytest.param({}, 510, 10, id="the end of the log at most"),
        pytest.param({"limit": 400}, 10_000, 0, id="credit used up"),
        pytest.param({"in_flight": deque(range(FRAMES_IN_FLIGHT_MAX))}, 10_000, 0, id="too many frames on their way"),
    ],
)
def test_what_may_go_out_next_is_bounded(facts, end, expected):
    assert slave(**facts).room(end, batch_size=100) == expected


def test_replicated_is_the_least_that_every_slave_in_sync_holds():
    fast, slow, new = slave(caught_up=True, appended=400, flushed=300), slave(caught_up=True), slave(appended=1)
    assert replicated([fast, slow, new], 1, on_disk=True) == 50
    assert replicated([fast, slow, new], 2, on_disk=False) == 100
    assert replicated([new], 1, on_disk=False) == 0


def test_nothing_is_replicated_while_fewer_slaves_are_in_sync_than_the_settings_ask_for():
    assert replicated([slave(caught_up=True), slave()], 2, on_disk=False) == 0
