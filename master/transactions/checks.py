"""Rounds of checks: who left a transaction open is asked how it is to end, and not for ever.

A check first stores the half again with its count, as RocketMQ does, and then asks one producer of the group. So the
count outlives a restart, and no half stays behind while the log is cleaned. It counts whether anybody was there to ask.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from towline.errors import MalformedRecord
from towline.format.frames import PutAnswer
from towline.format.record import Record
from towline.format.status import PutStatus
from towline.format.transactions import CHECKED, HALF, OP, Half, Outcome, as_sent, checked_again, put_aside
from towline.limits import MIB
from towline.runtime.failpoints import ARMED, reach

from .endings import Settling, Writing
from .ledger import Ledger, Open
from .links import Batch, Outbox
from .reading import Reader

CHECKS_MAX: Final = 32  # of one answer
BYTES_MAX: Final = MIB  # of one answer; the first half comes whatever its size
WATCHES_MAX: Final = 4_096
HOLD_MAX_MS: Final = 10_000
BLOCKED_MS: Final = 50  # while put takes nothing


@dataclass(slots=True)
class Watch:
    """A producer that waits to be asked. `until_ms` is monotonic."""

    peer: bytes
    request_id: int
    until_ms: int


class Watches:
    """Producers by group, and what they are to be asked."""

    def __init__(
        self,
        ledger: Ledger,
        reader: Reader,
        answer: Callable[[Watch, dict[str, Any], list[bytes]], bool],
    ) -> None:
        """`answer` says whether the producer is still there."""
        self._ledger, self._reader, self._answer = ledger, reader, answer
        self._watches: dict[str, deque[Watch]] = {}
        self._count = 0
        self._asked: dict[str, OrderedDict[int, None]] = {}

    @property
    def has_room(self) -> bool:
        return self._count < WATCHES_MAX

    def add(self, group: str, watch: Watch) -> None:
        self._watches.setdefault(group, deque()).append(watch)
        self._count += 1

    def ask(self, half: Half) -> None:
        self._asked.setdefault(half.group, OrderedDict())[half.first] = None

    def turn(self, now_ms: int) -> int:
        """How many producers were answered. Those of a group take turns."""
        done = 0
        for group in list(self._watches):
            waiting = self._watches[group]
            while waiting and (asked := self._take(group)):
                if self._tell(waiting.popleft(), asked):
                    done += 1
                else:
                    self._asked.setdefault(group, OrderedDict()).update({half.first: None for half, _ in asked})
                self._count -= 1
            while waiting and waiting[0].until_ms <= now_ms:
                self._tell(waiting.popleft(), [])
                self._count -= 1
                done += 1
            if not waiting:
                del self._watches[group]
        return done

    def due_ms(self, now_ms: int, otherwise: int) -> int:
        return min((waiting[0].until_ms - now_ms for waiting in self._watches.values()), default=otherwise)

    def release_all(self) -> None:
        """Whoever waits is answered, so that nobody waits for a process that has gone."""
        for waiting in self._watches.values():
            for watch in waiting:
                self._tell(watch, [])
        self._watches.clear()
        self._count = 0

    def _take(self, group: str) -> list[tuple[Half, Record]]:
        """What the next producer of the group is asked about; transactions that ended meanwhile are dropped."""
        found: list[tuple[Half, Record]] = []
        size = 0
        asked = self._asked.get(group)
        while asked and len(found) < CHECKS_MAX and size < BYTES_MAX:
            first, _ = asked.popitem(last=False)
            known = self._ledger.get(first)
            record = None if known is None else self._reader.record(HALF, known.half.offset)
            if known is not None and record is not None:
                found.append((known.half, record))
                size += len(record.body)
        if asked is not None and not asked:
            del self._asked[group]
        return found

    def _tell(self, watch: Watch, asked: list[tuple[Half, Record]]) -> bool:
        facts = {"checks": [{"first": half.first, "checks": half.checks} for half, _ in asked]}
        return self._answer(watch, facts, [as_sent(record) for _, record in asked])


class Checks:
    """`interval_ms` from one round to the next; a round is over before another begins."""

    def __init__(
        self,
        ledger: Ledger,
        reader: Reader,
        outbox: Outbox,
        settling: Settling,
        writing: Writing,
        watches: Watches,
        interval_ms: int,
        now_ms: int,
        log: logging.Logger,
    ) -> None:
        self._ledger, self._reader, self._outbox, self._settling = ledger, reader, outbox, settling
        self._writing, self._watches, self._log = writing, watches, log
        self._interval_ms = interval_ms
        self._round_at = now_ms + interval_ms
        self._left: deque[int] = deque()
        self._now_ms = now_ms
        self._told = ""
        self.lost = 0  # open ones that left the log

    def turn(self, now_ms: int) -> int:
        """How many checks began."""
        self._now_ms = now_ms
        if now_ms >= self._round_at and not self._left:
            self._round_at = now_ms + self._interval_ms
            self._left.extend(found.half.first for found in self._ledger.due(self._writing.wall_ms()))
        done = 0
        while self._left and self._outbox.has_room:
            if not self._check(self._left[0]):
                break
            self._left.popleft()
            done += 1
        return done

    def due_ms(self, now_ms: int) -> int:
        return BLOCKED_MS if self._left else max(0, self._round_at - now_ms)

    def _check(self, first: int) -> bool:
        """False when it could not be sent."""
        found = self._ledger.get(first)
        if found is None or found.busy:
            return True
        half = found.half
        record = self._reader.record(HALF, half.offset)
        if record is None:
            self._lose(half)
            return True
        return self._store(found, *self._batch(half, record))

    def rescue(self, log_min: int, now_ms: int) -> None:
        """What the log begins behind is put aside while its bytes can be read, else it is lost."""
        self._now_ms = now_ms
        for found in self._ledger.before(log_min):
            if found.busy:  # of an end, or of a check that stores it anew
                continue
            record = self._reader.record(HALF, found.half.offset)
            if record is None:
                self._lose(found.half)
            else:
                self._store(found, *self._aside(found.half, record))

    def _lose(self, half: Half) -> None:
        self.lost += 1
        told = "the half message of transaction %s of %s was cleaned away while it was open: it is lost"
        self._log.error(told, half.unique_key, half.group)
        self._ledger.ended(half.first, Outcome.ENDED)

    def _store(self, found: Open, outcome: Outcome | None, batch: Batch) -> bool:
        half = found.half
        if not self._outbox.send(batch, self._now_ms, lambda answer: self._answered(half, outcome, answer)):
            return False
        found.busy = True
        return True

    def _batch(self, half: Half, record: Record) -> tuple[Outcome | None, Batch]:
        """What is stored, and how the transaction ends by it; None for a check."""
        if not self._ledger.is_checked_out(half):
            try:
                return None, [(HALF, 0, [checked_again(record, self._writing.host)])]
            except MalformedRecord:  # no room in its properties for the count: it cannot be checked
                self._log.warning("a half message of %s has no room for the count of its checks", half.group)
        return self._aside(half, record)

    def _aside(self, half: Half, record: Record) -> tuple[Outcome, Batch]:
        aside = put_aside(record, self._writing.host)
        return Outcome.PUT_ASIDE, [(CHECKED, 0, [aside]), (OP, 0, self._writing.ops(half, Outcome.PUT_ASIDE))]

    def _answered(self, half: Half, outcome: Outcome | None, answer: PutAnswer | None) -> None:
        if ARMED:
            reach("schedule.after_check")
        if answer is None:
            self._settling.add(half.first, self._now_ms)
        elif not PutStatus(answer.status).stored:
            self._ledger.released(half.first)  # the next round tries again
            if answer.sentence != self._told:
                self._log.warning("a transaction cannot be checked: %s", answer.sentence)
            self._told = answer.sentence
        elif outcome is None:
            self._watches.ask(half)  # it is open to endings when the copy was read
        else:
            self._ledger.ended(half.first, outcome)
            self._log.warning(
                "transaction %s of %s was checked %d times and is put aside", half.unique_key, half.group, half.checks
            )


def sizes_of(records: list[bytes]) -> bytes:
    """The part `sizes` of an answer."""
    return np.array([len(record) for record in records], dtype=">u4").tobytes()
