"""Deliveries: what is due of one source goes to put, one request after the other, each again until it is stored."""

import logging
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from master.schedule.transactions.links import Outbox
from towline.format.record.rules import Rule
from towline.format.wire.frames import PutAnswer
from towline.format.wire.status import PutStatus
from towline.limits import KIB

from .restoring import CHUNK_COUNT, MissingTopics, Places, Restorer, Rows, Sizes

CHUNK_BYTES: Final = 512 * KIB
AGAIN_MS: Final = 50  # after an answer that never came, or a refusal that says no time
AGAIN_MAX_MS: Final = 5_000
_WAITED_FOR: Final = (  # what an operator changes, nothing about the record itself
    PutStatus.TOPIC_NOT_EXIST,  # it was deleted just now: restored again, its messages are left out
    PutStatus.NO_PERMISSION,  # broker_permission
)


_TOLD_MAX: Final = 10  # of one request, one by one


@dataclass(frozen=True, slots=True)
class Request:
    """Under way: how many of the source it is for, its bytes, how many it stores, and what of it is left out."""

    count: int
    size: int
    stored: int
    lost: int
    told: list[str]
    first: str


@dataclass(frozen=True, slots=True)
class Due:
    """Records in the order of their delivery: where they stand, and their bytes."""

    positions: Places
    sizes: Sizes


class Source(Protocol):
    """Where a lane's deliveries come from."""

    name: str
    end: int  # of the log, after the newest delivery
    gone: int  # how many left the log before they were delivered
    doubtful: int  # how many had left it when the process started, of which it is not known

    def clamp(self) -> int:
        """After a start: offsets beyond the queues' ends go back to them (H15). By how much."""
        ...

    def pending(self) -> int:
        """How many wait, now or later."""
        ...

    def due_ms(self, now_ms: int) -> int:
        """ms until something may be due."""
        ...

    def next_due(self) -> int | None:
        """When the first of what waits is due (epoch ms), as far as it was looked at."""
        ...

    def due(self, count: int, now_ms: int) -> Due | None:
        """The first that are due, at most `count`; None without any. The same again until some are `done`."""
        ...

    def kept(self, due: Due, rows: Rows) -> npt.NDArray[np.bool_]:
        """Which of them are to be delivered."""
        ...

    def done(self, count: int, end: int) -> None:
        """The first `count` are through: the log holds what became of them before `end`, 0 if nothing did."""
        ...


class Lane:
    """One source's deliveries in order: the next request goes when the one before was answered."""

    def __init__(
        self,
        source: Source,
        restorer: Restorer,
        outbox: Outbox,
        log: logging.Logger,
        missing: MissingTopics | None = None,
    ) -> None:
        """`missing`: where topics are made that this node was not told of; else it knows all that there are."""
        self._source, self._restorer, self._outbox, self._log = source, restorer, outbox, log
        self._missing = missing
        self._limit = CHUNK_COUNT
        self._again_at = 0
        self._refusals = 0
        self._sent: Request | None = None
        self._answered: tuple[PutAnswer | None] | None = None
        self.delivered = 0
        self.lost = 0
        self.through = 0  # what is cancelled included

    @property
    def busy(self) -> bool:
        return self._sent is not None

    def due_ms(self, now_ms: int) -> int:
        """ms until it may send again; 0 if nothing holds it."""
        return max(0, self._again_at - now_ms)

    def turn(self, now_ms: int, wall_ms: int, *, take: bool = True) -> int:
        """Reads the answer that came; sends what is due (`take`). `now_ms` is monotonic. How much there was to do."""
        done = 0
        if self._answered is not None:
            self._settle(self._answered[0], now_ms)
            done = 1
        if take and self._sent is None and now_ms >= self._again_at and self._outbox.has_room:
            done += self._send(now_ms, wall_ms)
        return done

    def _send(self, now_ms: int, wall_ms: int) -> int:
        due = self._source.due(self._limit, wall_ms)
        if due is None:
            return 0
        fitting = int(np.searchsorted(np.cumsum(due.sizes.astype(np.int64)), CHUNK_BYTES, side="right"))
        count = min(len(due.sizes), max(1, fitting))
        due = Due(due.positions[:count], due.sizes[:count])
        rows = self._restorer.look(due.positions, due.sizes)
        kept = self._source.kept(due, rows)
        if self._missing is not None and (wanted := self._restorer.unknown(due.positions, rows, kept)):
            self._missing.make(wanted)
            self._again_at = now_ms + AGAIN_MS
            return 0
        restored = self._restorer.make(due.positions, rows, kept)
        request = Request(
            count,
            len(restored.records),
            restored.count,
            len(restored.lost),
            [self._why_lost(due, rows, place) for place in restored.lost[:_TOLD_MAX].tolist()],
            self._name(due, rows, 0),
        )
        if not restored.groups:
            self._settled(request, 0)
            return 1
        self._answered = None
        if not self._outbox.send_joined(restored.groups, restored.records, now_ms, self._take):
            self._again_at = now_ms + AGAIN_MS
            return 0
        self._sent = request
        return 1

    def _name(self, due: Due, rows: Rows, place: int) -> str:
        """Of one record, for whoever looks for it."""
        topic = self._restorer.topic(due.positions, rows, place)
        return f"topic {topic}, unique key {self._restorer.unique_key(due.positions, rows, place)}"

    def _why_lost(self, due: Due, rows: Rows, place: int) -> str:
        if rows["rule"][place] != Rule.OK:
            return f"its record at {due.positions[place]} has left the log or is damaged"
        name, at = self._name(due, rows, place), due.positions[place]
        return f"{name}: there is no such topic; to have it, make the topic and put it again (its record is at {at})"

    def _take(self, answer: PutAnswer | None) -> None:
        self._answered = (answer,)

    def _settle(self, answer: PutAnswer | None, now_ms: int) -> None:
        assert self._sent is not None, "an answer comes after what was sent"
        request, self._sent, self._answered = self._sent, None, None
        if answer is None:  # it may have been stored: sending it again makes doubles, leaving it out could lose it
            self._again_at = now_ms + AGAIN_MS
            return
        status = PutStatus(answer.status)
        if status.stored:
            self._limit, self._refusals = CHUNK_COUNT, 0
            self._settled(request, min(physical for _, physical in answer.places) + request.size)
        elif status.retryable or answer.retry_after or status in _WAITED_FOR:
            if not self._refusals:
                self._log.warning("%s wait: %s %s", self._source.name, status.name, answer.sentence)
            self._refusals += 1
            self._again_at = now_ms + max(answer.retry_after, min(AGAIN_MAX_MS, AGAIN_MS * self._refusals))
        elif request.count > 1:  # one of them is bad; half of them at a time finds it
            self._limit = request.count // 2
        else:
            told = "one of %s is lost (%s): %s %s"
            self._log.critical(told, self._source.name, request.first, status.name, answer.sentence)
            self._limit = CHUNK_COUNT
            self._settled(replace(request, stored=0, lost=1), 0)

    def _settled(self, request: Request, end: int) -> None:
        """It is through: the log holds what became of it before `end`, 0 if nothing did."""
        for why in request.told:
            self._log.warning("one of %s is left out: %s", self._source.name, why)
        if request.lost > len(request.told) > 0:
            self._log.warning("%d of %s are left out", request.lost, self._source.name)
        self.delivered += request.stored
        self.lost += request.lost
        self.through += request.count
        self._source.done(request.count, end)
