"""What the sender knows of one slave, and what follows from an acknowledgement: pure."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

FRAMES_IN_FLIGHT_MAX: Final = 256  # below the socket's high-water mark, so that a send never finds it full (H20)


class BadAck(Enum):
    """An acknowledgement no honest slave sends; it costs the link (pain of every store that believed such numbers)."""

    AHEAD = "it acknowledges more than was sent on this link"
    BACK = "it takes back what it had acknowledged"
    FLUSHED = "it says more is on disk than in its log"
    EPOCH = "it follows another epoch"


@dataclass(slots=True)
class Peer:
    """One connected slave. Offsets are bytes of the log; `sent` is the end of what went out on this link."""

    identity: bytes
    name: str
    place: int
    sent: int
    appended: int
    flushed: int
    heard_ms: int
    limit: int = 0
    told_confirmed: int = -1
    told_ms: int = 0
    caught_up: bool = False
    in_flight: deque[int] = field(default_factory=deque)

    def acknowledge(self, appended: int, flushed: int, limit: int, now_ms: int) -> BadAck | None:
        """Take an acknowledgement over, or say what is wrong with it and change nothing."""
        if appended > self.sent:
            return BadAck.AHEAD
        if appended < self.appended or flushed < self.flushed:
            return BadAck.BACK
        if flushed > appended:
            return BadAck.FLUSHED
        self.appended, self.flushed, self.limit, self.heard_ms = appended, flushed, limit, now_ms
        while self.in_flight and self.in_flight[0] <= appended:
            self.in_flight.popleft()
        return None

    def room(self, end: int, batch_size: int) -> int:
        """Bytes that may go out next: up to the end of the log, the slave's credit and the frames on their way."""
        if len(self.in_flight) >= FRAMES_IN_FLIGHT_MAX:
            return 0
        return max(0, min(end - self.sent, self.limit - self.sent, batch_size))

    def was_sent(self, size: int) -> None:
        self.sent += size
        self.in_flight.append(self.sent)


def replicated(peers: Iterable[Peer], needed: int, *, on_disk: bool) -> int:
    """The least of what the in-sync slaves hold; 0 with fewer than `needed` of them (in_sync_replicas less the master).

    A slave is in sync once it has caught up on this link.
    """
    held = [peer.flushed if on_disk else peer.appended for peer in peers if peer.caught_up]
    return min(held, default=0) if len(held) >= needed else 0
