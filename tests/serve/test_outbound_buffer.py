"""What is kept for peers that do not read: how much each may cost, and who gives way."""

import pytest

from towline.format.wire.frames import Buffer
from towline.limits import MIB
from towline.serve.outbound_buffer import ALL_MAX, PEER_MAX, STUCK_MS, OutboundBuffer

PART = bytes(MIB)


class Peers:
    """`sent` are parts as ZeroMQ holds them."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.unsent = OutboundBuffer(lambda: self.now_ms)
        self.sent: dict[bytes, list[Buffer]] = {}

    def send(self, peer: bytes, count: int = 1) -> None:
        self.sent.setdefault(peer, []).extend(self.unsent.hold(peer, PART) for _ in range(count))


@pytest.fixture
def peers() -> Peers:
    return Peers()


def test_a_part_counts_until_it_is_let_go_of(peers: Peers):
    peers.send(b"a", 3)
    peers.send(b"b")
    assert (peers.unsent.of(b"a"), peers.unsent.total) == (3 * MIB, 4 * MIB)
    del peers.sent[b"a"][:2]
    assert (peers.unsent.of(b"a"), peers.unsent.total) == (MIB, 2 * MIB)
    peers.sent.clear()
    assert (peers.unsent.of(b"a"), peers.unsent.total) == (0, 0)


def test_the_bytes_are_the_same(peers: Peers):
    part = bytes(range(256))
    assert bytes(peers.unsent.hold(b"a", memoryview(part))) == part


def test_a_peer_is_full_until_it_reads_and_others_are_not(peers: Peers):
    peers.send(b"a", PEER_MAX // MIB)
    assert peers.unsent.is_full(b"a")
    assert not peers.unsent.is_full(b"b")
    del peers.sent[b"a"][0]
    assert not peers.unsent.is_full(b"a")


def test_of_many_who_has_read_nothing_for_a_while_and_holds_most_gives_way(peers: Peers):
    each = PEER_MAX // MIB
    names = [b"%d" % number for number in range(ALL_MAX // PEER_MAX)]
    for name in names[:-1]:
        peers.send(name, each)
    peers.send(names[0])
    peers.now_ms += STUCK_MS
    assert peers.unsent.slowest_full() is None, "there is room"
    peers.send(names[-1], each + 2)
    assert peers.unsent.is_full(b"new")
    assert peers.unsent.slowest_full() == names[0], "the last one may be about to read"
    peers.unsent.drop(names[0])
    assert not peers.unsent.is_full(b"new")
    assert peers.unsent.slowest_full() is None


def test_nobody_gives_way_who_is_reading(peers: Peers):
    for number in range(ALL_MAX // PEER_MAX):
        peers.send(b"%d" % number, PEER_MAX // MIB)
    assert peers.unsent.is_full(b"0")
    assert peers.unsent.slowest_full() is None
