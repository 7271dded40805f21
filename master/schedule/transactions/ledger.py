"""The state of transactions, derived from records alone: which are open, how others ended, what a start reads again.

A transaction is named by the queue offset of the half that its producer sent. A check stores the half again at the end
of the half queue, so open transactions are ordered by their newest records, and everything before the first of them has
ended. Op records are held until the halves they name are before that, too.

An answer of put ends a transaction at once for its producer. The offsets for the next start move only by op records
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


class EndRefusal(Enum):
    """Why a transaction cannot be ended."""

    ALREADY_COMMITTED = "it was committed before"
    ALREADY_ROLLED_BACK = "it was rolled back before"
    ALREADY_PUT_ASIDE = "it was checked too often, and its message is in TRANS_CHECK_MAX_TIME_TOPIC now"
    ALREADY_ENDED = "it has ended, too long ago to tell how"
    ANOTHER_GROUP = "it belongs to another producer group"
    NO_SUCH_TRANSACTION = "no half message with this unique key stands there"
    NOT_READABLE_YET = "what the log holds is not confirmed yet; ask again"


ALREADY: Final = {
    Outcome.COMMITTED: EndRefusal.ALREADY_COMMITTED,
    Outcome.ROLLED_BACK: EndRefusal.ALREADY_ROLLED_BACK,
    Outcome.PUT_ASIDE: EndRefusal.ALREADY_PUT_ASIDE,
    Outcome.ENDED: EndRefusal.ALREADY_ENDED,
}


@dataclass(frozen=True, slots=True)
class CheckRules:
    """The age in ms from which an open transaction is checked, and how often at most."""

    time_out: int
    check_max: int


@dataclass(slots=True)
class OpenTransaction:
    """A transaction by its newest record. `busy` while a put for it is under way.

    `outcome`: it ended so, and its op record is not read yet.
    """

    half: Half
    busy: bool = False
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class EndedTransaction:
    """An ended transaction. `owner_hash` is that of group and unique key; None where its half was not read."""

    outcome: Outcome
    owner_hash: int | None


class Ledger:
    """All transactions. `half_next` and `op_next` are the next offsets to be read of either queue."""

    def __init__(self, rules: CheckRules, half_next: int, op_next: int) -> None:
        self._check_rules = rules
        self._open: OrderedDict[int, OpenTransaction] = OrderedDict()
        self._unread = 0  # of those in `_open` that have ended
        self._ended: OrderedDict[int, EndedTransaction] = OrderedDict()
        self._asked: dict[str, OrderedDict[int, None]] = {}  # by group, whom its producers are to be asked about
        self._by_key: dict[tuple[str, str], set[int]] = {}
        self._first_of: dict[int, int] = {}  # of halves that were stored again
        self._ops: deque[tuple[int, int]] = deque()  # (offset, greatest half offset it names)
        self.half_next = half_next
        self.op_next = op_next

    def __len__(self) -> int:
        """The number of open transactions."""
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
    def oldest(self) -> OpenTransaction | None:
        """The oldest open transaction, which holds the floors back."""
        return next(iter(self._open.values()), None)

    @property
    def ops_held(self) -> int:
        """The number of op records held in memory, which a start reads again."""
        _ = self.floors  # drops the others
        return len(self._ops)

    def restart(self) -> None:
        """Begins at offset 0 when the stored offsets do not fit the log; before anything else was done."""
        for known in (self._open, self._ended, self._asked, self._by_key, self._first_of, self._ops):
            known.clear()
        self._unread = self.half_next = self.op_next = 0

    # --- what is read

    def add_half(self, half: Half) -> None:
        """Adds the record at `half_next` or later; records between have gone. Its claim to be a copy of `first` was
        verified."""
        self.half_next = half.offset + 1
        ended = self._ended.get(half.first)
        if ended is not None:
            if ended.owner_hash is None:
                self._ended[half.first] = EndedTransaction(ended.outcome, hash((half.group, half.unique_key)))
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
        self._open[half.first] = OpenTransaction(half, outcome=outcome)
        self._open.move_to_end(half.first)

    def add_op(self, offset: int, op: Op) -> None:
        """Adds the record at `op_next` or later, after all halves that were dispatched before it."""
        self.op_next = offset + 1
        for named in op.offsets:
            self._end(op.first if op.first >= 0 else self._first_of.get(named, named), op.outcome)
        self._ops.append((offset, max(op.offsets, default=-1)))

    # --- what is done

    def find(self, first: int, group: str, unique_key: str) -> OpenTransaction | EndRefusal | None:
        """An open transaction, why it cannot be ended, or None where only its record can tell."""
        found = self._open.get(first)
        if found is None:
            ended = self._ended.get(first)
            if ended is None or ended.owner_hash != hash((group, unique_key)):
                return None
            return ALREADY[ended.outcome]
        if found.half.unique_key != unique_key:
            return EndRefusal.NO_SUCH_TRANSACTION
        if found.half.group != group:
            return EndRefusal.ANOTHER_GROUP
        return found if found.outcome is None else ALREADY[found.outcome]

    def outcome_of(self, first: int) -> Outcome:
        """The outcome of an ended transaction, whoever it belongs to."""
        ended = self._ended.get(first)
        return Outcome.ENDED if ended is None else ended.outcome

    def get(self, first: int) -> OpenTransaction | None:
        """An open transaction."""
        found = self._open.get(first)
        return found if found is not None and found.outcome is None else None

    def before(self, physical: int) -> list[OpenTransaction]:
        """The open transactions whose newest records stand before this offset of the log."""
        behind = takewhile(lambda found: found.half.physical < physical, self._open.values())
        return [found for found in behind if found.outcome is None]

    def open_of(self, group: str, count: int) -> list[Half]:
        """Up to `count` halves of a group, or of all for an empty name, in the order of their newest records."""
        halves = (each.half for each in self._open.values() if each.outcome is None)
        return list(islice((half for half in halves if group in ("", half.group)), count))

    def twins(self, found: OpenTransaction) -> list[OpenTransaction]:
        """The transaction and all with its unique key: a producer without an answer stores its half again."""
        half = found.half
        firsts = self._by_key[half.group, half.unique_key] if half.unique_key else {half.first}
        return [self._open[first] for first in sorted(firsts)]

    def ended(self, first: int, outcome: Outcome) -> None:
        """Ends a transaction whose op record is stored but not read yet."""
        found = self.get(first)
        if found is not None:
            found.outcome, found.busy = outcome, False
            self._unread += 1
            self._remove_open(found.half)

    def gone(self, first: int) -> None:
        """Ends a transaction whose half has left the log, so that no op record will name it."""
        self._end(first, Outcome.ENDED)

    def released(self, first: int) -> None:
        """Clears `busy` after a put that was certainly not stored."""
        found = self._open.get(first)
        if found is not None:
            found.busy = False

    def due(self, now_ms: int) -> Iterator[OpenTransaction]:
        """The transactions of a round of checks. A clock that went back makes none of them wait."""
        for found in self._open.values():
            half = found.half
            limit = half.immunity_ms if half.immunity_ms >= 0 else self._check_rules.time_out
            if (
                found.outcome is None
                and not found.busy
                and (half.checks > 0 or not 0 <= now_ms - half.stored_ms < limit)
            ):
                yield found

    def is_check_limit_reached(self, half: Half) -> bool:
        """Whether the half has been checked as often as it may be."""
        return half.checks >= self._check_rules.check_max

    # --- who is to be asked

    def ask(self, half: Half) -> None:
        """Queues the half for a check by a producer of its group, unless it has ended."""
        if self.get(half.first) is not None:
            self._asked.setdefault(half.group, OrderedDict())[half.first] = None

    def next_asked(self, group: str) -> OpenTransaction | None:
        """Removes and returns the next transaction that a producer of the group is to be asked about."""
        asked = self._asked.get(group)
        if not asked:
            return None
        first, _ = asked.popitem(last=False)
        if not asked:
            del self._asked[group]
        return self._open[first]

    def _end(self, first: int, outcome: Outcome) -> None:
        found = self._open.pop(first, None)
        owner_hash = None
        if found is not None:
            half = found.half
            owner_hash = hash((half.group, half.unique_key))
            self._first_of.pop(half.offset, None)
            if found.outcome is None:
                self._remove_open(half)
            else:
                self._unread -= 1
                outcome = found.outcome if outcome is Outcome.ENDED else outcome
        known = self._ended.get(first)
        if known is None or known.outcome is Outcome.ENDED:
            self._ended[first] = EndedTransaction(
                outcome, owner_hash if owner_hash is not None or known is None else known.owner_hash
            )
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    def _remove_open(self, half: Half) -> None:
        """Removes a half from the indexes of open ones."""
        alike = self._by_key[half.group, half.unique_key]
        alike.discard(half.first)
        if not alike:
            del self._by_key[half.group, half.unique_key]
        asked = self._asked.get(half.group)
        if asked is not None:
            asked.pop(half.first, None)
            if not asked:
                del self._asked[half.group]
