"""The sender's state of one slave, and how acknowledgements change it: pure."""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from towline.replication.flow_control import FlowControl

FRAMES_IN_FLIGHT_MAX: Final = 256  # below the socket's high-water mark, so that a send never finds it full (H20)


class BadAck(Enum):
    """An acknowledgement that no honest slave sends; it costs the link."""

    AHEAD = "it acknowledges more than was sent on this link"
    BACK = "it takes back what it had acknowledged"
    FLUSHED = "it says more is on disk than in its log"
    EPOCH = "it follows another epoch"


@dataclass(slots=True)
class Peer:
    """One connected slave. Offsets are bytes of the log; `sent` is the end of what was sent on this link."""

    identity: bytes
    name: str
    place: int
    sent: int
    appended: int
    flushed: int
    heard_ms: int
    limit: int = 0
    sent_confirmed: int = -1
    last_sent_ms: int = 0
    in_flight: deque[int] = field(default_factory=deque)
    node: int = -1
    learner: bool = False
    on_disk: bool = False
    seeding: bool = False  # its flow is what it asked for until it has caught up once
    flow: FlowControl = field(default_factory=lambda: FlowControl(0))
    caught_up_ms: int = 0
    _goal: int = 0

    @property
    def held(self) -> int:
        """The end of its log that counts: on disk under SYNC_FLUSH, else in memory."""
        return self.flushed if self.on_disk else self.appended

    @property
    def is_stopping(self) -> bool:
        """Whether it took its credit back: bytes in flight will not be acknowledged."""
        return self.limit < self.sent

    def begin(self, end: int, now_ms: int) -> None:
        """Starts measuring a slave that joined when the master's log ended at `end`."""
        self.caught_up_ms, self._goal = now_ms, end

    def measure(self, end: int, now_ms: int, paused_ms: int) -> None:
        """Checks whether it holds what the master had at the last check. Pauses of this process do not count."""
        self.caught_up_ms += paused_ms
        if self.held >= self._goal:
            self.caught_up_ms, self._goal = now_ms, end

    def acknowledge(self, appended: int, flushed: int, limit: int, now_ms: int) -> BadAck | None:
        """Adopts an acknowledgement, or returns what is wrong with it and changes nothing."""
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

    def room(self, end: int, batch_size: int, now_ms: int = 0) -> int:
        """Bytes that may be sent next: bounded by the log's end, the slave's credit and flow, and the frames in flight.

        While a frame is in flight, less than a whole frame waits for its acknowledgement and for more bytes: each frame
        wakes seven threads. So a lone request is sent at once, and under load frames are full.
        """
        if len(self.in_flight) >= FRAMES_IN_FLIGHT_MAX or (self.in_flight and end - self.sent < batch_size):
            return 0
        return max(0, min(end - self.sent, self.limit - self.sent, batch_size, self.flow.room(now_ms)))

    def was_sent(self, size: int) -> None:
        self.sent += size
        self.flow.spent(size)
        self.in_flight.append(self.sent)
