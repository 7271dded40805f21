"""Counts the bytes of copied answers that ZeroMQ holds for each peer until it has read them.

ZeroMQ frees a large part when it has written it to the connection, which is seen here by the end of the array that held
the part. Answers that are views of the log are not counted: they cost nothing but the mapping.
"""

import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from towline.format.wire.frames import Buffer
from towline.limits import MIB

PEER_MAX: Final = 16 * MIB  # one peer has to read before more is copied for it
ALL_MAX: Final = 64 * MIB  # and all of them together: less than costs the one that holds most its connection
STUCK_MS: Final = 1_000  # who has read nothing for so long gives way to the others


@dataclass(slots=True)
class _Kept:
    parts: deque[tuple[weakref.ref[Any], int, int]] = field(default_factory=deque)  # array, bytes, since when (ms)
    size: int = 0

    def refresh(self) -> None:
        """Drops parts that were sent; a connection is written in order."""
        while self.parts and self.parts[0][0]() is None:
            self.size -= self.parts.popleft()[1]


class OutboundBuffer:
    """The bytes held for each peer. `now_ms` is monotonic."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._kept: dict[bytes, _Kept] = {}

    def hold(self, peer: bytes, part: Buffer) -> Buffer:
        """The same bytes, to be sent without a copy: they count until ZeroMQ frees them."""
        array = np.frombuffer(part, dtype=np.uint8)
        kept = self._kept.setdefault(peer, _Kept())
        kept.parts.append((weakref.ref(array), len(array), self._now_ms()))
        kept.size += len(array)
        return array.data

    def of(self, peer: bytes) -> int:
        kept = self._kept.get(peer)
        if kept is None:
            return 0
        kept.refresh()
        if not kept.parts:
            del self._kept[peer]
        return kept.size

    @property
    def total(self) -> int:
        return sum(self.of(peer) for peer in list(self._kept))

    def is_full(self, peer: bytes) -> bool:
        """Whether the peer's next answer has to wait."""
        return bool(self._kept) and (self.of(peer) >= PEER_MAX or self.total >= ALL_MAX)

    def slowest_full(self) -> bytes | None:
        """The peer to cut off when the total is too much: of those that have read nothing for a while, the one that
        holds most."""
        if self.total < ALL_MAX:
            return None
        since = self._now_ms() - STUCK_MS
        waiting = [peer for peer, kept in self._kept.items() if kept.parts[0][2] <= since]
        return max(waiting, key=self.of, default=None)

    def drop(self, peer: bytes) -> None:
        """Forgets a peer whose connection has ended: ZeroMQ frees its parts in a moment."""
        self._kept.pop(peer, None)
