"""Sends the due messages of one source to put, one request at a time, each until it is stored."""

import logging
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from towline.format.record.rules import Rule
from towline.format.wire.frames import PutAnswer
from towline.format.wire.status import PutStatus
from towline.limits import KIB
from towline.node.peers.local_links import Outbox

from .restoring import CHUNK_COUNT, MissingTopics, Places, Restorer, Rows, Sizes

CHUNK_BYTES: Final = 512 * KIB
RETRY_MS: Final = 50  # after an answer that never came, or a refusal that says no time
RETRY_MAX_MS: Final = 5_000
_WAITED_FOR: Final = (  # what an operator changes, nothing about the record itself
    PutStatus.TOPIC_NOT_EXIST,  # it was deleted just now: restored again, its messages are left out
    PutStatus.NO_PERMISSION,  # broker_permission
)


_LOGGED_MAX: Final = 10  # of one request, one by one


@dataclass(frozen=True, slots=True)
class DeliveryRequest:
    """A request under way: how many messages of the source it covers, its bytes, how many it stores, and what is left
    out."""

    count: int
    size: int
    stored: int
    lost: int
    message: list[str]
    first: str


@dataclass(frozen=True, slots=True)
class DueRecords:
    """Records in the order of their delivery: positions in the log, and sizes in bytes."""

    positions: Places
    sizes: Sizes


class DeliverySource(Protocol):
    """Where the deliveries of a lane come from."""

    name: str
    end: int  # of the log, after the newest delivery
    gone: int  # how many left the log before they were delivered
    doubtful: int  # how many had left it when the process started, of which it is not known

    def clamp(self) -> int:
        """Clamps, after a start, offsets beyond the queues' ends (H15); returns by how much."""
        ...

    def pending(self) -> int:
        """The number of messages that wait, due or not."""
        ...

    def due_ms(self, now_ms: int) -> int:
        """Milliseconds until something may be due."""
        ...

    def next_due(self) -> int | None:
        """The earliest known delivery time (epoch ms), or None."""
        ...

    def due(self, count: int, now_ms: int) -> DueRecords | None:
        """The first due records, at most `count`, or None. Repeated calls return the same until `done`."""
        ...

    def kept(self, due: DueRecords, rows: Rows) -> npt.NDArray[np.bool_]:
        """Which of these records are to be delivered: a mask."""
        ...

    def done(self, count: int, end: int) -> None:
        """Completes the first `count` records: their deliveries stand in the log before `end`, 0 if nothing was
        stored."""
        ...


class DeliveryLane:
    """The deliveries of one source in order: the next request is sent after the previous answer."""

    def __init__(
        self,
        source: DeliverySource,
        restorer: Restorer,
        outbox: Outbox,
        log: logging.Logger,
        missing: MissingTopics | None = None,
    ) -> None:
        """`missing` creates topics that this node was not told of; without it the node knows every topic there is."""
        self._source, self._restorer, self._outbox, self._log = source, restorer, outbox, log
        self._missing = missing
        self._limit = CHUNK_COUNT
        self._retry_at = 0
        self._refusals = 0
        self._sent: DeliveryRequest | None = None
        self._answered: tuple[PutAnswer | None] | None = None
        self.delivered = 0
        self.lost = 0
        self.through = 0  # what is cancelled included

    @property
    def busy(self) -> bool:
        return self._sent is not None

    def due_ms(self, now_ms: int) -> int:
        """Milliseconds until the next request may be sent; 0 if it may now."""
        return max(0, self._retry_at - now_ms)

    def cycle(self, now_ms: int, wall_ms: int, *, start_new: bool = True) -> int:
        """Handles an answer, then sends what is due (`start_new`); returns how much was done. `now_ms` is monotonic."""
        done = 0
        if self._answered is not None:
            self._handle_answer(self._answered[0], now_ms)
            done = 1
        if start_new and self._sent is None and now_ms >= self._retry_at and self._outbox.has_room:
            done += self._send(now_ms, wall_ms)
        return done

    def _send(self, now_ms: int, wall_ms: int) -> int:
        due = self._source.due(self._limit, wall_ms)
        if due is None:
            return 0
        fitting = int(np.searchsorted(np.cumsum(due.sizes.astype(np.int64)), CHUNK_BYTES, side="right"))
        count = min(len(due.sizes), max(1, fitting))
        due = DueRecords(due.positions[:count], due.sizes[:count])
        rows = self._restorer.read(due.positions, due.sizes)
        kept = self._source.kept(due, rows)
        if self._missing is not None and (wanted := self._restorer.unknown(due.positions, rows, kept)):
            self._missing.make(wanted)
            self._retry_at = now_ms + RETRY_MS
            return 0
        restored = self._restorer.restore(due.positions, rows, kept)
        request = DeliveryRequest(
            count,
            len(restored.records),
            restored.count,
            len(restored.lost),
            [self._why_lost(due, rows, place) for place in restored.lost[:_LOGGED_MAX].tolist()],
            self._describe(due, rows, 0),
        )
        if not restored.groups:
            self._complete(request, 0)
            return 1
        self._answered = None
        if not self._outbox.send_joined(restored.groups, restored.records, now_ms, self._keep_answer):
            self._retry_at = now_ms + RETRY_MS
            return 0
        self._sent = request
        return 1

    def _describe(self, due: DueRecords, rows: Rows, place: int) -> str:
        """Names one record for the log file."""
        topic = self._restorer.topic(due.positions, rows, place)
        return f"topic {topic}, unique key {self._restorer.unique_key(due.positions, rows, place)}"

    def _why_lost(self, due: DueRecords, rows: Rows, place: int) -> str:
        if rows["rule"][place] != Rule.OK:
            return f"its record at {due.positions[place]} has left the log or is damaged"
        name, at = self._describe(due, rows, place), due.positions[place]
        return f"{name}: there is no such topic; to have it, make the topic and put it again (its record is at {at})"

    def _keep_answer(self, answer: PutAnswer | None) -> None:
        self._answered = (answer,)

    def _handle_answer(self, answer: PutAnswer | None, now_ms: int) -> None:
        assert self._sent is not None, "an answer comes after what was sent"
        request, self._sent, self._answered = self._sent, None, None
        if answer is None:  # it may have been stored: sending it again makes doubles, leaving it out could lose it
            self._retry_at = now_ms + RETRY_MS
            return
        status = PutStatus(answer.status)
        if status.stored:
            self._limit, self._refusals = CHUNK_COUNT, 0
            self._complete(request, min(physical for _, physical in answer.places) + request.size)
        elif status.retryable or answer.retry_after or status in _WAITED_FOR:
            if not self._refusals:
                self._log.warning("%s wait: %s %s", self._source.name, status.name, answer.sentence)
            self._refusals += 1
            self._retry_at = now_ms + max(answer.retry_after, min(RETRY_MAX_MS, RETRY_MS * self._refusals))
        elif request.count > 1:  # one of them is bad; half of them at a time finds it
            self._limit = request.count // 2
        else:
            message = "one of %s is lost (%s): %s %s"
            self._log.critical(message, self._source.name, request.first, status.name, answer.sentence)
            self._limit = CHUNK_COUNT
            self._complete(replace(request, stored=0, lost=1), 0)

    def _complete(self, request: DeliveryRequest, end: int) -> None:
        """Completes a request whose deliveries stand in the log before `end`, 0 if nothing was stored."""
        for why in request.message:
            self._log.warning("one of %s is left out: %s", self._source.name, why)
        if request.lost > len(request.message) > 0:
            self._log.warning("%d of %s are left out", request.lost, self._source.name)
        self.delivered += request.stored
        self.lost += request.lost
        self.through += request.count
        self._source.done(request.count, end)
