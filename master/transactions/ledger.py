"""Which transactions are open, how the others ended, and what has to be read again after a start: from records alone.

A transaction is known by the queue offset of the half that its producer sent. A check stores the half again at the end
of the half queue, so open transactions stand in the order of their newest records, and everything before the first of
them is through. Op records are kept in mind until what they name is before that, too.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile
from typing import Final

from towline.format.transactions import Half, Op, Outcome

ENDED_MAX: Final = 100_000  # transactions whose end is remembered by name


class Verdict(Enum):
    """What is said to who wants to end a transaction, and cannot."""

    ALREADY_COMMITTED = "it was committed before"
    ALREADY_ROLLED_BACK = "it was rolled back before"
    ALREADY_PUT_ASIDE = "it was checked too often, and its message is in TRANS_CHECK_MAX_TIME_TOPIC now"
    ALREADY_ENDED = "it has ended, too long ago to tell how"
    ANOTHER_GROUP = "it belongs to another producer group"
    NO_SUCH_TRANSACTION = "no half message with this unique key stands there"
    NOT_READABLE_YET = "what the log holds is not confirmed yet; ask again"


ALREADY: Final = {
    Outcome.COMMITTED: Verdict.ALREADY_COMMITTED,
    Outcome.ROLLED_BACK: Verdict.ALREADY_ROLLED_BACK,
    Outcome.PUT_ASIDE: Verdict.ALREADY_PUT_ASIDE,
    Outcome.ENDED: Verdict.ALREADY_ENDED,
}


@dataclass(frozen=True, slots=True)
class Rules:
    """Times in ms: age from which an open transaction is checked; how often at most."""

    time_out: int
    check_max: int


@dataclass(slots=True)
class Open:
    """An open transaction by its newest record. While it is `busy`, something is being stored for it."""

    half: Half
    busy: bool = False


class Ledger:
    """`half_next` and `op_next` are the offsets to be read next of either queue."""

    def __init__(self, rules: Rules, half_next: int, op_next: int) -> None:
        self._rules = rules
        self._open: OrderedDict[int, Open] = OrderedDict()
        self._ended: OrderedDict[int, Outcome] = OrderedDict()
        self._by_key: dict[tuple[str, str], set[int]] = {}
        self._first_of: dict[int, int] = {}  # of halves that were stored again
        self._ops: deque[tuple[int, int]] = deque()  # (offset, greatest half offset it names)
        self.half_next = half_next
        self.op_next = op_next

    def __len__(self) -> int:
        return len(self._open)

    @property
    def floors(self) -> tuple[int, int]:
        """Offsets of both queues before which nothing has to be read again."""
        first = next(iter(self._open.values()), None)
        half_floor = self.half_next if first is None else first.half.offset
        while self._ops and self._ops[0][1] < half_floor:
            self._ops.popleft()
        return half_floor, self._ops[0][0] if self._ops else self.op_next

    # --- what is read

    def see_half(self, half: Half) -> None:
        """The record at `half_next` or later; what lies between is gone. That it is a copy of `first` was checked."""
        self.half_next = half.offset + 1
        if half.first in self._ended:
            return
        known = self._open.get(half.first)
        if known is not None and (known.half.group, known.half.unique_key) != (half.group, half.unique_key):
            half, known = half.on_its_own(), None  # it claims what is another's
        if known is not None:
            self._first_of.pop(known.half.offset, None)
        if half.first != half.offset:
            self._first_of[half.offset] = half.first
        self._by_key.setdefault((half.group, half.unique_key), set()).add(half.first)
        self._open[half.first] = Open(half)
        self._open.move_to_end(half.first)

    def see_op(self, offset: int, op: Op) -> None:
        """The record at `op_next` or later. Halves that were dispatched before it must have been seen."""
        self.op_next = offset + 1
        for named in op.offsets:
            self._end(op.first if op.first >= 0 else self._first_of.get(named, named), op.outcome)
        self._ops.append((offset, max(op.offsets, default=-1)))

    # --- what is done

    def find(self, first: int, group: str, unique_key: str) -> Open | Verdict | None:
        """An open transaction, why it is not to be ended, or None for one that only its record can tell of."""
        found = self._open.get(first)
        if found is None:
            outcome = self._ended.get(first)
            return None if outcome is None else ALREADY[outcome]
        if found.half.unique_key != unique_key:
            return Verdict.NO_SUCH_TRANSACTION
        return found if found.half.group == group else Verdict.ANOTHER_GROUP

    def get(self, first: int) -> Open | None:
        return self._open.get(first)

    def before(self, physical: int) -> list[Open]:
        """Those whose newest records stand before this offset of the log."""
        return list(takewhile(lambda found: found.half.physical < physical, self._open.values()))

    def twins(self, found: Open) -> list[Open]:
        """It and all that have its unique key: a producer that got no answer stores its half again."""
        half = found.half
        firsts = self._by_key[half.group, half.unique_key] if half.unique_key else {half.first}
        return [self._open[first] for first in sorted(firsts)]

    def ended(self, first: int, outcome: Outcome) -> None:
        """Its op record is stored."""
        self._end(first, outcome)

    def released(self, first: int) -> None:
        """What was to be stored for it is not, for certain."""
        found = self._open.get(first)
        if found is not None:
            found.busy = False

    def due(self, now_ms: int) -> Iterator[Open]:
        """Those that a round of checks is for. A clock that was set back makes nothing wait."""
        for found in self._open.values():
            half = found.half
            limit = half.immunity_ms if half.immunity_ms >= 0 else self._rules.time_out
            if not found.busy and (half.checks > 0 or not 0 <= now_ms - half.stored_ms < limit):
                yield found

    def is_checked_out(self, half: Half) -> bool:
        """Whether it has been checked as often as it may be."""
        return half.checks >= self._rules.check_max

    def _end(self, first: int, outcome: Outcome) -> None:
        found = self._open.pop(first, None)
        if found is not None:
            half = found.half
            self._first_of.pop(half.offset, None)
            alike = self._by_key[half.group, half.unique_key]
            alike.discard(first)
            if not alike:
                del self._by_key[half.group, half.unique_key]
        if self._ended.get(first, Outcome.ENDED) is Outcome.ENDED:
            self._ended[first] = outcome
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)
