"""Which transactions are open, how the others ended, and what has to be read again after a start: from records alone.

A transaction is known by the queue offset of the half that its producer sent. A check stores the half again at the end
of the half queue, so open transactions stand in the order of their newest records, and everything before the first of
them is through. Op records are kept in mind until what they name is before that, too.

What put answers ends a transaction at once for who asks about it. What need not be read again moves by op records alone
that were read: those nobody can take back (H15).
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice, takewhile
from typing import Final

from towline.format.record.transactions import Half, Op, Outcome

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
    """A transaction by its newest record. While it is `busy`, something is being stored for it.

    `outcome`: it ended so, and its op record is not read yet.
    """

    half: Half
    busy: bool = False
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """`whose` is the hash of group and unique key; None where its half was not read."""

    outcome: Outcome
    whose: int | None


class Ledger:
    """`half_next` and `op_next` are the offsets to be read next of either queue."""

    def __init__(self, rules: Rules, half_next: int, op_next: int) -> None:
        self._rules = rules
        self._open: OrderedDict[int, Open] = OrderedDict()
        self._unread = 0  # of those in `_open` that have ended
        self._ended: OrderedDict[int, Ended] = OrderedDict()
        self._asked: dict[str, OrderedDict[int, None]] = {}  # by group, whom its producers are to be asked about
        self._by_key: dict[tuple[str, str], set[int]] = {}
        self._first_of: dict[int, int] = {}  # of halves that were stored again
        self._ops: deque[tuple[int, int]] = deque()  # (offset, greatest half offset it names)
        self.half_next = half_next
        self.op_next = op_next

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open) - self._unread

    @property
    def floors(self) -> tuple[int, int]:
        """Offsets of both queues before which nothing has to be read again."""
        first = self.oldest
        half_floor = self.half_next if first is None else first.half.offset
        while self._ops and self._ops[0][1] < half_floor:
            self._ops.popleft()
        return half_floor, self._ops[0][0] if self._ops else self.op_next

    @property
    def oldest(self) -> Open | None:
        """It holds the floors."""
        return next(iter(self._open.values()), None)

    @property
    def ops_kept(self) -> int:
        """Op records that have to be kept in mind, and read again after a start."""
        _ = self.floors  # lets go of the others
        return len(self._ops)

    def read_again(self) -> None:
        """From the beginning, before anything was done: the offsets it was made with do not fit what is there."""
        for known in (self._open, self._ended, self._asked, self._by_key, self._first_of, self._ops):
            known.clear()
        self._unread = self.half_next = self.op_next = 0

    # --- what is read

    def see_half(self, half: Half) -> None:
        """The record at `half_next` or later; what lies between is gone. That it is a copy of `first` was checked."""
        self.half_next = half.offset + 1
        ended = self._ended.get(half.first)
        if ended is not None:
            if ended.whose is None:
                self._ended[half.first] = Ended(ended.outcome, hash((half.group, half.unique_key)))
            return
        known = self._open.get(half.first)
        if known is not None and (known.half.group, known.half.unique_key) != (half.group, half.unique_key):
            half, known = half.on_its_own(), None  # it claims what is another's
        outcome = None
        if known is not None:
            self._first_of.pop(known.half.offset, None)
            outcome = known.outcome
        if half.first != half.offset:
            self._first_of[half.offset] = half.first
        if outcome is None:
            self._by_key.setdefault((half.group, half.unique_key), set()).add(half.first)
        self._open[half.first] = Open(half, outcome=outcome)
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
            ended = self._ended.get(first)
            if ended is None or ended.whose != hash((group, unique_key)):
                return None
            return ALREADY[ended.outcome]
        if found.half.unique_key != unique_key:
            return Verdict.NO_SUCH_TRANSACTION
        if found.half.group != group:
            return Verdict.ANOTHER_GROUP
        return found if found.outcome is None else ALREADY[found.outcome]

    def outcome_of(self, first: int) -> Outcome:
        """Of one that has ended, to whoever it belongs."""
        ended = self._ended.get(first)
        return Outcome.ENDED if ended is None else ended.outcome

    def get(self, first: int) -> Open | None:
        """An open one."""
        found = self._open.get(first)
        return found if found is not None and found.outcome is None else None

    def before(self, physical: int) -> list[Open]:
        """Those whose newest records stand before this offset of the log."""
        behind = takewhile(lambda found: found.half.physical < physical, self._open.values())
        return [found for found in behind if found.outcome is None]

    def open_of(self, group: str, count: int) -> list[Half]:
        """So many of a group, or of all where it is empty, in the order of their newest records."""
        halves = (each.half for each in self._open.values() if each.outcome is None)
        return list(islice((half for half in halves if group in ("", half.group)), count))

    def twins(self, found: Open) -> list[Open]:
        """It and all that have its unique key: a producer that got no answer stores its half again."""
        half = found.half
        firsts = self._by_key[half.group, half.unique_key] if half.unique_key else {half.first}
        return [self._open[first] for first in sorted(firsts)]

    def ended(self, first: int, outcome: Outcome) -> None:
        """Its op record is stored, and was not read yet."""
        found = self.get(first)
        if found is not None:
            found.outcome, found.busy = outcome, False
            self._unread += 1
            self._forget(found.half)

    def gone(self, first: int) -> None:
        """Its half has left the log, so no op record will ever tell of it."""
        self._end(first, Outcome.ENDED)

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
            if (
                found.outcome is None
                and not found.busy
                and (half.checks > 0 or not 0 <= now_ms - half.stored_ms < limit)
            ):
                yield found

    def is_checked_out(self, half: Half) -> bool:
        """Whether it has been checked as often as it may be."""
        return half.checks >= self._rules.check_max

    # --- who is to be asked

    def ask(self, half: Half) -> None:
        """A producer of its group, unless it has ended."""
        if self.get(half.first) is not None:
            self._asked.setdefault(half.group, OrderedDict())[half.first] = None

    def next_asked(self, group: str) -> Open | None:
        """Taken from those of the group."""
        asked = self._asked.get(group)
        if not asked:
            return None
        first, _ = asked.popitem(last=False)
        if not asked:
            del self._asked[group]
        return self._open[first]

    def _end(self, first: int, outcome: Outcome) -> None:
        found = self._open.pop(first, None)
        whose = None
        if found is not None:
            half = found.half
            whose = hash((half.group, half.unique_key))
            self._first_of.pop(half.offset, None)
            if found.outcome is None:
                self._forget(half)
            else:
                self._unread -= 1
                outcome = found.outcome if outcome is Outcome.ENDED else outcome
        known = self._ended.get(first)
        if known is None or known.outcome is Outcome.ENDED:
            self._ended[first] = Ended(outcome, whose if whose is not None or known is None else known.whose)
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    def _forget(self, half: Half) -> None:
        """It is not open any more."""
        alike = self._by_key[half.group, half.unique_key]
        alike.discard(half.first)
        if not alike:
            del self._by_key[half.group, half.unique_key]
        asked = self._asked.get(half.group)
        if asked is not None:
            asked.pop(half.first, None)
            if not asked:
                del self._asked[half.group]
