"""Answers to questions that the queue of their peer has no room for just now: kept in their order, bounded in bytes and
time.

Serve may have to tell hundreds of members at once, all of whom are one peer's (remoting), and ZeroMQ's thread empties a
queue only when it gets a core. Pulls are not kept: their answers are made again (`PausedPull`).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from towline.limits import MIB
from towline.link.server import Sent

KEPT_MAX: Final = 16 * MIB  # of one peer
KEPT_MAX_MS: Final = 10_000  # who takes nothing for so long is cut off
_ANSWER_COST: Final = 256  # of one, beside its bytes

Parts = list[Any]


@dataclass(slots=True)
class _Kept:
    since_ms: int  # when one was sent last, or the first was kept
    answers: deque[tuple[Parts, int]] = field(default_factory=deque)
    size: int = 0


class Backlog:
    """Sends by `send`, and returns what became of it: SENT, or kept; GONE; PAUSED, where the peer is to be cut off."""

    def __init__(self, send: Callable[[bytes, Parts], Sent], now_ms: Callable[[], int]) -> None:
        self._send, self._now_ms = send, now_ms
        self._kept: dict[bytes, _Kept] = {}

    def __len__(self) -> int:
        """Peers for which something is kept."""
        return len(self._kept)

    def send(self, peer: bytes, parts: Parts) -> Sent:
        """Sends an answer, behind those that are kept."""
        kept = self._kept.get(peer)
        if kept is None:
            sent = self._send(peer, parts)
            if sent is not Sent.PAUSED:
                return sent
            kept = self._kept[peer] = _Kept(self._now_ms())
        size = sum(map(len, parts)) + _ANSWER_COST
        if kept.size + size > KEPT_MAX:
            return Sent.PAUSED
        kept.answers.append((parts, size))
        kept.size += size
        return Sent.SENT

    def cycle(self) -> tuple[int, list[bytes]]:
        """Sends what there is room for now: how many, and the peers that are gone or take nothing for long."""
        done, lost = 0, []
        for peer, kept in list(self._kept.items()):
            sent = Sent.SENT
            while kept.answers and (sent := self._send(peer, kept.answers[0][0])) is Sent.SENT:
                kept.size -= kept.answers.popleft()[1]
                kept.since_ms = self._now_ms()
                done += 1
            if sent is Sent.GONE or (sent is Sent.PAUSED and self._now_ms() - kept.since_ms > KEPT_MAX_MS):
                lost.append(peer)
            if not kept.answers or sent is Sent.GONE:
                del self._kept[peer]
        return done, lost

    def drop(self, peer: bytes) -> None:
        """Forgets what is kept for a peer."""
        self._kept.pop(peer, None)
