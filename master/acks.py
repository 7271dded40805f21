"""When a stored request may be answered, and with what: pure, decided from positions and the time alone."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from towline.format.status import PutStatus


@dataclass(frozen=True, slots=True)
class Promise:
    """What PUT_OK means under the settings: on this disk, and/or on the in-sync slaves."""

    flushed: bool
    replicated: bool
    flush_timeout_ms: int
    slave_timeout_ms: int


@dataclass(slots=True)
class Stored:
    """A request that lies in the log up to `end` and waits for its answer since `stored_ms`.

    Times are monotonic; it came at `arrived_ms`.
    """

    end: int
    stored_ms: int
    peer: bytes
    request_id: int
    places: list[tuple[int, int]]
    arrived_ms: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """Positions as read once per turn, and how long no slave has been connected (0 while one is)."""

    flushed: int
    replicated: int
    slaveless_ms: int


def verdict(promise: Promise, stored: Stored, progress: Progress, now_ms: int) -> PutStatus | None:
    """The status to answer with, None while it still waits. Both waits run side by side; the slave's failure wins."""
    waited = now_ms - stored.stored_ms
    flushed = not promise.flushed or progress.flushed >= stored.end
    replicated = not promise.replicated or progress.replicated >= stored.end
    if flushed and replicated:
        return PutStatus.PUT_OK
    flush_over = flushed or waited >= promise.flush_timeout_ms
    slave_over = replicated or max(waited, progress.slaveless_ms) >= promise.slave_timeout_ms
    if not (flush_over and slave_over):
        return None
    if replicated:
        return PutStatus.FLUSH_DISK_TIMEOUT
    return PutStatus.SLAVE_NOT_AVAILABLE if progress.slaveless_ms else PutStatus.FLUSH_SLAVE_TIMEOUT


class Waiting:
    """Stored requests in the order of the log, which is the order in which they can be answered."""

    def __init__(self, promise: Promise) -> None:
        self._promise = promise
        self._queue: deque[Stored] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, stored: Stored) -> None:
        assert not self._queue or stored.end > self._queue[-1].end
        self._queue.append(stored)

    def release(self, progress: Progress, now_ms: int) -> Iterator[tuple[Stored, PutStatus]]:
        """Those that can be answered now; the first that must wait keeps all behind it waiting."""
        while self._queue:
            status = verdict(self._promise, self._queue[0], progress, now_ms)
            if status is None:
                return
            yield self._queue.popleft(), status

    def due_ms(self, now_ms: int) -> int:
        """Until the oldest request's next time-out; large when none waits."""
        if not self._queue:
            return 1 << 30
        stored_ms, promise = self._queue[0].stored_ms, self._promise
        ends = (stored_ms + promise.flush_timeout_ms, stored_ms + promise.slave_timeout_ms)
        return min((end - now_ms for end in ends if end > now_ms), default=1)
