"""Rounds of checks: producers are asked how their open transactions end, a limited number of times.

A check first stores the half again with its count, as RocketMQ does, and then asks one producer of the group. So the
count survives a restart, and no half stays behind while the log is cleaned. The check counts even when no producer was
there to ask. A half that will not be checked for long is stored again too, without a count, once many op records lie
behind it: they stay in memory as long as it stands before them.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from towline.errors import MalformedRecord
from towline.format.record.record import Host, Record
from towline.format.record.transactions import (
    CHECKED,
    HALF,
    OP,
    Half,
    Outcome,
    as_sent,
    checked_again,
    moved,
    put_aside,
)
from towline.format.wire.frames import PutAnswer
from towline.format.wire.status import PutStatus
from towline.limits import MIB
from towline.link.permissions import Act, Permit
from towline.node.peers.local_links import Batch, Outbox
from towline.runtime.failpoints import ARMED, reach

from .endings import LostPuts, RecordOptions
from .ledger import Ledger, OpenTransaction
from .topic_reader import TopicReader

CHECKS_MAX: Final = 32  # of one answer
BYTES_MAX: Final = MIB  # of one answer; the first half comes whatever its size
WATCHES_MAX: Final = 4_096
PEER_WATCHES_MAX: Final = 16
OTHERS_MAX: Final = 256  # halves that are passed over for one producer: they come last then
OPS_MAX: Final = 10_000  # op records that are kept in mind, and as many as transactions are open
HOLD_MAX_MS: Final = 10_000
BLOCKED_MS: Final = 50  # while put takes nothing
MOVE_RETRY_MS: Final = 1_000  # after put could not store it


@dataclass(slots=True)
class ProducerWatch:
    """A request of a producer that waits for checks. `until_ms` is monotonic; `permit` where its key is limited."""

    peer: bytes
    request_id: int
    until_ms: int
    permit: Permit | None = None


class ProducerWatches:
    """Waiting producers by group, and the checks they are sent."""

    def __init__(
        self,
        ledger: Ledger,
        reader: TopicReader,
        answer: Callable[[ProducerWatch, dict[str, Any], list[bytes]], bool],
    ) -> None:
        """`answer` returns whether the producer is still connected."""
        self._ledger, self._reader, self._answer = ledger, reader, answer
        self._watches: dict[str, deque[ProducerWatch]] = {}
        self._peers: Counter[bytes] = Counter()  # watches of each

    def __len__(self) -> int:
        return self._peers.total()

    def has_room(self, peer: bytes) -> bool:
        return len(self) < WATCHES_MAX and self._peers[peer] < PEER_WATCHES_MAX

    def add(self, group: str, watch: ProducerWatch) -> None:
        self._watches.setdefault(group, deque()).append(watch)
        self._peers[watch.peer] += 1

    def cycle(self, now_ms: int) -> int:
        """Answers producers, those of a group by turns; returns how many."""
        done = 0
        for group in list(self._watches):
            waiting = self._watches[group]
            for watch in list(waiting):
                asked = self._next_checks(group, watch.permit)
                if not asked:
                    continue
                self._remove(waiting, watch)
                if self._send_checks(watch, asked):
                    done += 1
                else:
                    for half, _ in asked:
                        self._ledger.ask(half)
            while waiting and waiting[0].until_ms <= now_ms:
                late = waiting[0]
                self._remove(waiting, late)
                self._send_checks(late, [])
                done += 1
            if not waiting:
                del self._watches[group]
        return done

    def due_ms(self, now_ms: int, otherwise: int) -> int:
        return min((waiting[0].until_ms - now_ms for waiting in self._watches.values()), default=otherwise)

    def release_all(self) -> None:
        """Answers every waiting producer, so that none waits for a process that has ended."""
        for waiting in self._watches.values():
            for watch in waiting:
                self._send_checks(watch, [])
        self._watches.clear()
        self._peers.clear()

    def _remove(self, waiting: deque[ProducerWatch], watch: ProducerWatch) -> None:
        waiting.remove(watch)
        self._peers[watch.peer] -= 1
        if not self._peers[watch.peer]:
            del self._peers[watch.peer]

    def _next_checks(self, group: str, permit: Permit | None) -> list[tuple[Half, Record]]:
        """The transactions that a producer of the group is asked about; what its key does not reach is another's."""
        found: list[tuple[Half, Record]] = []
        others: list[Half] = []
        size = 0
        while len(found) < CHECKS_MAX and size < BYTES_MAX and (asked := self._ledger.next_asked(group)):
            if permit is not None and not permit.may(Act.PRODUCE, asked.half.topic):
                others.append(asked.half)
                if len(others) == OTHERS_MAX:
                    break
                continue
            record = self._reader.record(HALF, asked.half.offset)
            if record is not None:
                found.append((asked.half, record))
                size += len(record.body)
        for half in others:
            self._ledger.ask(half)
        return found

    def _send_checks(self, watch: ProducerWatch, asked: list[tuple[Half, Record]]) -> bool:
        facts = {"checks": [{"first": half.first, "checks": half.checks} for half, _ in asked]}
        return self._answer(watch, facts, [as_sent(record) for _, record in asked])


class Checks:
    """Starts a round every `interval_ms`; a round ends before another begins."""

    def __init__(
        self,
        ledger: Ledger,
        reader: TopicReader,
        outbox: Outbox,
        lost_puts: LostPuts,
        record_options: RecordOptions,
        watches: ProducerWatches,
        interval_ms: int,
        now_ms: int,
        log: logging.Logger,
    ) -> None:
        self._ledger, self._reader, self._outbox, self._lost_puts = ledger, reader, outbox, lost_puts
        self._record_options, self._watches, self._log = record_options, watches, log
        self._interval_ms = interval_ms
        self._round_at = now_ms + interval_ms
        self._left: deque[int] = deque()
        self._now_ms = now_ms
        self._move_at = now_ms
        self._last_warning = ""
        self.lost = 0  # open ones that left the log
        self.checked = self.put_aside = 0  # by this process

    def cycle(self, now_ms: int) -> int:
        """Starts checks that are due; returns how many."""
        self._now_ms = now_ms
        if now_ms >= self._round_at and not self._left:
            self._round_at = now_ms + self._interval_ms
            self._left.extend(found.half.first for found in self._ledger.due(self._record_options.wall_ms()))
        done = 0
        while self._left and self._outbox.has_room:
            if not self._check(self._left[0]):
                break
            self._left.popleft()
            done += 1
        return done + self._move_oldest()

    def due_ms(self, now_ms: int) -> int:
        return BLOCKED_MS if self._left else max(0, self._round_at - now_ms)

    def _check(self, first: int) -> bool:
        """Starts the check of one transaction; False when it could not be sent."""
        found = self._ledger.get(first)
        if found is None or found.busy:
            return True
        half = found.half
        record = self._reader.record(HALF, half.offset)
        if record is None:
            self._count_lost(half)
            return True
        if not self._ledger.is_check_limit_reached(half):
            again = self._copy_of(half, record, checked_again)
            if again is not None:
                return self._store(found, again, lambda: self._on_checked(half))
        return self._put_aside(found, record)

    def _move_oldest(self) -> int:
        """Stores the oldest open half again when too many op records are held in memory because of it."""
        ledger = self._ledger
        found = ledger.oldest
        crowded = ledger.ops_held > OPS_MAX + len(ledger)
        if not crowded or self._now_ms < self._move_at or not self._outbox.has_room:
            return 0
        if found is None or found.busy or found.outcome is not None:
            return 0
        record = self._reader.record(HALF, found.half.offset)
        if record is None:
            self._count_lost(found.half)
            return 1
        again = self._copy_of(found.half, record, moved)
        if again is None:
            return int(self._put_aside(found, record))
        return int(self._store(found, again, lambda: None))  # it stands elsewhere when the copy was read

    def rescue(self, log_min: int, now_ms: int) -> None:
        """Puts halves aside that are being cleaned away, while their bytes are readable; else they are lost."""
        self._now_ms = now_ms
        for found in self._ledger.before(log_min):
            if found.busy:  # of an end, or of a check that stores it anew
                continue
            record = self._reader.record(HALF, found.half.offset)
            if record is None:
                self._count_lost(found.half)
            else:
                self._put_aside(found, record)

    def _count_lost(self, half: Half) -> None:
        self.lost += 1
        message = "the half message of transaction %s of %s was cleaned away while it was open: it is lost"
        self._log.error(message, half.unique_key, half.group)
        self._ledger.gone(half.first)

    def _copy_of(self, half: Half, record: Record, make: Callable[[Record, Host], bytes]) -> Batch | None:
        """The half to be stored again; None when its properties have no room for the count, so that it cannot be
        checked."""
        try:
            return [(HALF, 0, [make(record, self._record_options.host)])]
        except MalformedRecord:
            self._log.warning("a half message of %s has no room for the count of its checks", half.group)
            return None

    def _put_aside(self, found: OpenTransaction, record: Record) -> bool:
        aside = put_aside(record, self._record_options.host)
        ops = self._record_options.ops(found.half, Outcome.PUT_ASIDE)
        return self._store(found, [(CHECKED, 0, [aside]), (OP, 0, ops)], lambda: self._on_put_aside(found.half))

    def _store(self, found: OpenTransaction, batch: Batch, stored: Callable[[], None]) -> bool:
        """Sends a batch; False when it could not be sent. `stored` is called when put has stored it."""
        half = found.half
        if not self._outbox.send(batch, self._now_ms, lambda answer: self._answered(half, stored, answer)):
            return False
        found.busy = True
        return True

    def _answered(self, half: Half, stored: Callable[[], None], answer: PutAnswer | None) -> None:
        if ARMED:
            reach("schedule.after_check")
        if answer is None:
            self._lost_puts.add(half.first, self._now_ms)
        elif PutStatus(answer.status).stored:
            stored()
        else:
            self._ledger.released(half.first)  # the next round tries again
            self._move_at = self._now_ms + MOVE_RETRY_MS
            if answer.sentence != self._last_warning:
                self._log.warning("a transaction cannot be checked: %s", answer.sentence)
            self._last_warning = answer.sentence

    def _on_checked(self, half: Half) -> None:
        """Asks a producer. The transaction can be ended again when the copy was read."""
        self.checked += 1
        self._ledger.ask(half)

    def _on_put_aside(self, half: Half) -> None:
        self.put_aside += 1
        self._ledger.ended(half.first, Outcome.PUT_ASIDE)
        message = "transaction %s of %s was checked %d times and is put aside"
        self._log.warning(message, half.unique_key, half.group, half.checks)


def sizes_of(records: list[bytes]) -> bytes:
    """The part `sizes` of an answer."""
    return np.array([len(record) for record in records], dtype=">u4").tobytes()
