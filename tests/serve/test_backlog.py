"""Answers that a peer's queue had no room for."""

import random

from towline.link.server import Sent
from towline.serve.backlog import KEPT_MAX, KEPT_MAX_MS, Backlog


class Peers:
    """Queues of peers, each with room for so many answers."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.room: dict[bytes, int] = {}
        self.sent: list[tuple[bytes, bytes]] = []
        self.backlog = Backlog(self._send, lambda: self.now_ms)

    def _send(self, peer: bytes, parts: list[bytes]) -> Sent:
        if peer not in self.room:
            return Sent.GONE
        if not self.room[peer]:
            return Sent.PAUSED
        self.room[peer] -= 1
        self.sent.append((peer, parts[0]))
        return Sent.SENT


def test_what_there_is_no_room_for_is_sent_later_in_its_order_and_others_do_not_wait() -> None:
    peers, chance, wanted = Peers(), random.Random(1), []
    peers.room = {b"slow": 0, b"quick": 1 << 20}
    for number in range(1_000):
        peer = chance.choice((b"slow", b"quick"))
        wanted.append((peer, b"%d" % number))
        assert peers.backlog.send(*wanted[-1][:1], [wanted[-1][1]]) is Sent.SENT
        peers.room[b"slow"] += chance.random() < 0.1
        if chance.random() < 0.1:
            assert peers.backlog.cycle()[1] == []
    assert [row for row in peers.sent if row[0] == b"quick"] == [row for row in wanted if row[0] == b"quick"]
    assert len(peers.backlog) == 1
    peers.room[b"slow"] = 1 << 20
    done, lost = peers.backlog.cycle()
    assert done > 100
    assert lost == []
    assert [row for row in peers.sent if row[0] == b"slow"] == [row for row in wanted if row[0] == b"slow"]
    assert len(peers.backlog) == 0


def test_a_peer_that_takes_nothing_is_to_be_cut_for_bytes_or_time() -> None:
    peers = Peers()
    peers.room = {b"full": 0, b"late": 0}
    answer, count = bytes(1 << 20), 0
    while peers.backlog.send(b"full", [answer]) is Sent.SENT:
        count += 1
    assert count == KEPT_MAX // (1 << 20) - 1
    peers.backlog.drop(b"full")
    assert peers.backlog.send(b"late", [b"x"]) is Sent.SENT
    peers.now_ms += KEPT_MAX_MS
    assert peers.backlog.cycle() == (0, [])
    peers.now_ms += 1
    assert peers.backlog.cycle() == (0, [b"late"])


def test_what_is_kept_for_a_peer_that_has_gone_is_forgotten() -> None:
    peers = Peers()
    peers.room = {b"gone": 0}
    assert peers.backlog.send(b"gone", [b"x"]) is Sent.SENT
    del peers.room[b"gone"]
    assert peers.backlog.cycle() == (0, [b"gone"])
    assert len(peers.backlog) == 0
    assert peers.backlog.send(b"gone", [b"x"]) is Sent.GONE
