"""Commits and rollbacks: each is one put of message and op record together, so both are stored or none.

Only a power cut can separate them, where recovery ends the log between the two: then the message is there, the half is
checked again and its message stored twice, with one unique key.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from towline.errors import MalformedFrame
from towline.format.record.record import Host
from towline.format.record.transactions import HALF, OP, Half, Outcome, committed, op_record, read_half
from towline.format.wire.frames import PutAnswer
from towline.format.wire.status import PutStatus
from towline.link.permissions import HOLDER, Act, NotPermitted, Permit
from towline.node.peers.local_links import DEADLINE_MS, Batch, Outbox
from towline.runtime.failpoints import ARMED, reach

from .ledger import ALREADY, EndRefusal, Ledger, OpenTransaction
from .topic_reader import TopicReader

HELD_MS: Final = 10_000  # an ending that cannot be stored by then is refused
RETRY_MS: Final = 10
WAITING_MAX: Final = 10_000
ENDINGS: Final = {"commit": Outcome.COMMITTED, "rollback": Outcome.ROLLED_BACK}


@dataclass(slots=True)
class Ending:
    """A request to end a transaction. Times are monotonic ms.

    `end` is the log's end at its arrival: a half that is missing when that is dispatched does not exist.
    """

    peer: bytes
    request_id: int
    first: int
    group: str
    unique_key: str
    outcome: Outcome
    until_ms: int
    end: int
    permit: Permit | None = None  # of who asks, where that is limited to topics
    not_before_ms: int = 0
    tried: bool = False  # it may have been stored


def read_ending(peer: bytes, request_id: int, question: dict[str, Any], until_ms: int, end: int) -> Ending:
    """Reads a request. Raises MalformedFrame."""
    match question:
        case {"first": int(first), "group": str(group), "key": str(key), "outcome": "commit" | "rollback" as outcome}:
            permit = permit_in(question)
            return Ending(peer, request_id, first, group, key, ENDINGS[str(outcome)], until_ms, end, permit)
    raise MalformedFrame("a transaction ends with first, group, key, and outcome commit or rollback")


def permit_in(question: dict[str, Any]) -> Permit | None:
    """What remoting says that the client may do for whom it asks; None where that is not limited. Raises
    MalformedFrame."""
    holder = question.get(HOLDER)
    try:
        return None if holder is None else Permit.read(holder)
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedFrame(f"a {HOLDER} that cannot be read: {error!r}") from None


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Options of the records that this process builds: the broker's address, its clock, whether a CRC ends them."""

    host: Host
    wall_ms: Callable[[], int]
    append_property_crc: bool

    def ops(self, half: Half, outcome: Outcome) -> list[bytes]:
        """The op records of a half: for its newest record, and for the first, which another broker may read again."""
        return [
            op_record(
                offset, half.first, outcome, self.host, self.wall_ms(), append_property_crc=self.append_property_crc
            )
            for offset in sorted({half.first, half.offset})
        ]


class LostPuts:
    """Transactions whose put got no answer. They are released once it is certain that the put will not be stored."""

    def __init__(self, ledger: Ledger, appended: Callable[[], int], read_to: Callable[[], int]) -> None:
        """`read_to`: the log's offset up to which it was dispatched and read."""
        self._ledger, self._appended, self._read_to = ledger, appended, read_to
        self._lost: list[tuple[int, int]] = []  # first, when put would refuse it as expired
        self._ends: list[tuple[int, int]] = []  # first, the log's end then

    def add(self, first: int, now_ms: int) -> None:
        self._lost.append((first, now_ms + DEADLINE_MS))

    def cycle(self, now_ms: int) -> None:
        if not self._lost and not self._ends:
            return
        end = self._appended()
        self._ends += [(first, end) for first, over in self._lost if over <= now_ms]
        self._lost = [(first, over) for first, over in self._lost if over > now_ms]
        read_to = self._read_to()
        for first, end in self._ends:
            if read_to >= end:
                self._ledger.released(first)
        self._ends = [(first, end) for first, end in self._ends if read_to < end]


class Endings:
    """Endings in the order of their arrival."""

    def __init__(
        self,
        ledger: Ledger,
        reader: TopicReader,
        outbox: Outbox,
        lost_puts: LostPuts,
        record_options: RecordOptions,
        read_to: Callable[[], int],
        answer: Callable[[Ending, dict[str, Any]], None],
        refuse: Callable[[Ending, str, str], None],
    ) -> None:
        self._ledger, self._reader, self._outbox, self._lost_puts = ledger, reader, outbox, lost_puts
        self._record_options, self._read_to = record_options, read_to
        self._answer, self._refuse = answer, refuse
        self._waiting: list[Ending] = []
        self.lost = 0  # open transactions whose half messages had left the log
        self._now_ms = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, ending: Ending) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._refuse(ending, "TOO_MANY", f"{WAITING_MAX} transactions wait to be ended already")
        else:
            self._waiting.append(ending)

    def cycle(self, now_ms: int) -> int:
        """Tries the waiting endings; returns how many are answered or sent."""
        self._now_ms = now_ms
        waiting, self._waiting = self._waiting, []
        left = [ending for ending in waiting if ending.not_before_ms > now_ms or not self._step(ending)]
        done = len(waiting) - len(left)
        self._waiting += left
        return done

    def _step(self, ending: Ending) -> bool:
        """Tries one ending; False while it has to wait."""
        found = self._ledger.find(ending.first, ending.group, ending.unique_key)
        if found is None:
            found = self._unknown(ending)
        if isinstance(found, EndRefusal):
            if ending.tried and found is ALREADY[ending.outcome]:
                self._done(ending, PutStatus.PUT_OK)  # it was its own put, without an answer; its op record was read
            else:
                self._refuse(ending, found.name, found.value)
            return True
        refused = None if found is None else self._not_permitted(ending, found)
        if refused is not None:
            self._refuse(ending, type(refused).__name__, str(refused))
            return True
        if found is not None and self._outbox.has_room and not any(twin.busy for twin in self._ledger.twins(found)):
            return self._store(ending, found)
        if self._now_ms < ending.until_ms:
            return False
        self._refuse(ending, EndRefusal.NOT_READABLE_YET.name, EndRefusal.NOT_READABLE_YET.value)
        return True

    def _not_permitted(self, ending: Ending, found: OpenTransaction) -> NotPermitted | None:
        """Why who asks may not end it, with all that end with it."""
        if ending.permit is None:
            return None
        topics = [twin.half.topic for twin in self._ledger.twins(found)]
        return next(filter(None, (ending.permit.refusal(Act.PRODUCE, topic) for topic in topics)), None)

    def _unknown(self, ending: Ending) -> EndRefusal | None:
        """The refusal for a transaction that is not open, from its record; None while that may still appear."""
        if ending.first >= self._ledger.half_next:
            return EndRefusal.NO_SUCH_TRANSACTION if self._read_to() >= ending.end else None
        record = self._reader.record(HALF, ending.first)
        if record is None:
            return EndRefusal.NO_SUCH_TRANSACTION
        half = read_half(record)
        if (half.first, half.unique_key) != (ending.first, ending.unique_key):
            return EndRefusal.NO_SUCH_TRANSACTION
        if half.group != ending.group:
            return EndRefusal.ANOTHER_GROUP
        return ALREADY[self._ledger.outcome_of(ending.first)]

    def _store(self, ending: Ending, found: OpenTransaction) -> bool:
        half = found.half
        record = self._reader.record(HALF, half.offset)
        if record is None:  # it left the log, unresolved for longer than messages are kept
            self._ledger.gone(half.first)
            self._refuse(ending, EndRefusal.NO_SUCH_TRANSACTION.name, "its half message has left the log")
            self.lost += 1
            return True
        twins = self._ledger.twins(found)
        ops = [op for twin in twins for op in self._record_options.ops(twin.half, ending.outcome)]
        batch: Batch = [(OP, 0, ops)]
        if ending.outcome is Outcome.COMMITTED:
            message = (half.topic.encode(), half.queue_id, [committed(record, self._record_options.host)])
            batch = [message, *batch]
        if ARMED:
            reach("schedule.before_end")
        firsts = [twin.half.first for twin in twins]
        if not self._outbox.send(batch, self._now_ms, lambda answer: self._answered(ending, firsts, answer)):
            return False
        for twin in twins:
            twin.busy = True
        return True

    def _answered(self, ending: Ending, firsts: list[int], answer: PutAnswer | None) -> None:
        if ARMED:
            reach("schedule.after_end")
        if answer is None:
            ending.tried = True
            for first in firsts:
                self._lost_puts.add(first, self._now_ms)
            self._waiting.append(ending)
            return
        status = PutStatus(answer.status)
        if status.stored:
            for first in firsts:
                self._ledger.ended(first, ending.outcome)
            self._done(ending, status)
            return
        for first in firsts:
            self._ledger.released(first)
        if status.retryable and self._now_ms < ending.until_ms:
            ending.not_before_ms = self._now_ms + max(RETRY_MS, answer.retry_after)
            self._waiting.append(ending)
        else:
            self._refuse(ending, status.name, answer.sentence)

    def _done(self, ending: Ending, status: PutStatus) -> None:
        self._answer(ending, {"outcome": ending.outcome.value, "status": status.name})
