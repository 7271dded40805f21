"""What put knows of idempotent producers: of each its epoch, and of each queue it sends to the last record it stored.

Pure: no clock, no log. `judge` says of a batch, before a byte of it is copied, what it is; `stored` and `recovered`
take what the log holds. The rule, for a batch of one producer, in one epoch, for one queue:

    the number after the last one             NEW: it is stored
    it ends with the last one                 a repeat: it is answered with the place where it stands
    anything else                             OUT_OF_ORDER
    of an epoch before the newest             FENCED
    number 0, and nothing is known here       NEW if all of the epoch is known, else UNKNOWN
    another number, and nothing is known      UNKNOWN

A repeat is the same bytes, and a batch stands in the log in one piece. So the end of its last record, its size and its
count say where it begins, and nothing is kept of where batches begin, which the log does not tell.

What is forgotten, by age or for want of room, is remembered as one moment: `known_since_ms`. An epoch begins with the
moment when it was given out. By the times in the log, which never go back, that moment is after everything that was
stored before, and nothing that is stored in the epoch is from before it: put stamps it so.
Whoever has an epoch from after `known_since_ms` and is not known here has stored nothing in it: its first batch is new
and no repeat. With an older one nobody can tell, and nothing is stored. So what is lost of this table makes refusals,
and never a double, whatever clocks say, of one master or of two.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from towline.format.files.epochs import NODES

Queue = tuple[bytes, int]
DRAW_BITS: Final = 12
DRAWS: Final = 1 << DRAW_BITS
PER_MS: Final = NODES * DRAWS  # epochs: each node has its own, and gives none twice, whatever its clock does
AHEAD_MAX_MS: Final = 60_000  # of an epoch before the clock: no client moves the log's times further
BEGUN_AHEAD_MAX_MS: Final = AHEAD_MAX_MS // 2  # of an epoch that is given out
NO_EPOCH: Final = -1
ALWAYS: Final = -1  # as `known_since_ms`: nothing was ever forgotten


class Claim(NamedTuple):
    """A batch as it comes: who sends it, its first record's number, its records, its bytes, and its queue."""

    producer: int
    epoch: int
    first: int
    records: int
    size: int
    queue: Queue

    @property
    def last(self) -> int:
        return self.first + self.records - 1

    @property
    def begun_ms(self) -> int:
        """When its epoch was given out; nothing of it is stored with an earlier time."""
        return self.epoch // PER_MS


class Repeat(NamedTuple):
    """A batch is in the log already: the place of its first record, and the log's end behind its last one."""

    queue_offset: int
    physical_offset: int
    end: int


class Verdict(Enum):
    NEW = auto()
    FENCED = auto()
    UNKNOWN = auto()
    OUT_OF_ORDER = auto()


@dataclass(slots=True)
class Last:
    """The last record of an epoch in a queue: its number, its queue offset, and the log's end behind it."""

    number: int
    queue_offset: int
    end: int


@dataclass(slots=True)
class ProducerState:
    """`used_ms`: when it stored something last, by the times in the log; or was given its epoch. `whole`: all that it
    stored in this epoch is known here. `before`: the epoch of which whoever has this one asked for it."""

    epoch: int
    used_ms: int
    whole: bool
    before: int = NO_EPOCH
    queues: dict[Queue, Last] = field(default_factory=dict)


class Sequences:
    """The table. At most `states_max` queues of producers are known, and no producer longer than `expiration_ms` after
    it stored its last record."""

    def __init__(self, states_max: int, expiration_ms: int) -> None:
        self.states_max, self.expiration_ms = states_max, expiration_ms
        self.known_since_ms = ALWAYS
        self._producers: OrderedDict[int, ProducerState] = OrderedDict()  # the one that was used longest ago first
        self._idle: OrderedDict[int, None] = OrderedDict()  # those that have stored nothing in their epoch, likewise
        self._states = 0
        self._newest_ms = 0  # of the epochs that were seen or given out

    def __len__(self) -> int:
        """The number of producers."""
        return len(self._producers)

    @property
    def states(self) -> int:
        """The number of queues of producers."""
        return self._states

    def epoch_of(self, producer: int) -> int | None:
        """The newest epoch of a producer that is known."""
        state = self._producers.get(producer)
        return None if state is None else state.epoch

    def last(self, claim: Claim) -> Last | None:
        """The last record of the claim's epoch in its queue."""
        state = self._producers.get(claim.producer)
        return state.queues.get(claim.queue) if state is not None and state.epoch == claim.epoch else None

    def judge(self, claim: Claim, now_ms: int, stored_ms: int) -> Repeat | Verdict:
        """`now_ms`: the clock's time; `stored_ms`: that of the log's newest record."""
        state = self._producers.get(claim.producer)
        if claim.begun_ms > max(now_ms + AHEAD_MAX_MS, stored_ms):
            # After a clock was set back the log may be that far ahead; then what was given out here is the next ms.
            given = state is not None and state.epoch == claim.epoch
            if not given or claim.begun_ms > max(stored_ms, self.known_since_ms) + 1:
                return Verdict.UNKNOWN
        if state is not None and claim.epoch < state.epoch:
            return Verdict.FENCED
        last = self.last(claim)
        if last is None:
            known = state is not None and state.epoch == claim.epoch
            whole = state.whole if known and state is not None else self._is_whole(claim.epoch)
            return Verdict.NEW if whole and claim.first == 0 else Verdict.UNKNOWN
        if claim.first == last.number + 1:
            return Verdict.NEW
        first = Repeat(last.queue_offset - claim.records + 1, last.end - claim.size, last.end)
        if claim.last == last.number and min(first) >= 0:
            return first
        return Verdict.OUT_OF_ORDER

    def may_begin(self, producer: int, now_ms: int, stored_ms: int) -> bool:
        """Whether a producer has not begun so often that its next epoch would be far ahead."""
        state = self._producers.get(producer)
        return state is None or state.epoch // PER_MS < max(now_ms + BEGUN_AHEAD_MAX_MS, stored_ms + 1)

    def may_go_on(self, producer: int, epoch: int) -> bool:
        """Whether who is in this epoch may have the next one: there is no newer, or an answer that gave it was lost."""
        state = self._producers.get(producer)
        return state is None or state.epoch <= epoch or state.before == epoch

    def begin(self, producer: int, now_ms: int, stored_ms: int, own: int, before: int = NO_EPOCH) -> int:
        """Gives a producer a new epoch, which fences those before. `stored_ms`: of the log's newest record; `own`: of
        `own_of`; `before`: the epoch of who asks, where he has one."""
        state = self._producers.get(producer)
        own_ms = 0 if state is None else state.epoch // PER_MS + 1
        ms = max(now_ms, stored_ms + 1, self.known_since_ms + 1, own_ms)
        epoch = ms * PER_MS + own
        self._enter(producer, epoch, ms).before = before
        self._make_room(now_ms)
        return epoch

    def stored(self, claim: Claim, queue_offset: int, end: int, stored_ms: int) -> None:
        """The claim's first record is stored at this offset, and the log ends behind its last one."""
        self.recovered(claim, Last(claim.last, queue_offset + claim.records - 1, end), stored_ms)

    def recovered(self, claim: Claim, last: Last, stored_ms: int) -> None:
        """The log holds this record; records come in the log's order."""
        state = self._producers.get(claim.producer)
        if state is not None and claim.epoch < state.epoch:
            return
        state = self._enter(claim.producer, claim.epoch, stored_ms)
        if claim.queue not in state.queues:
            self._states += 1
            self._idle.pop(claim.producer, None)
        state.queues[claim.queue] = last
        self._make_room(stored_ms)

    def forget(self, until_ms: int) -> None:
        """Forgets everything: of what was stored until then nobody can tell any more."""
        self._producers.clear()
        self._idle.clear()
        self._states = 0
        self.known_since_ms = max(self.known_since_ms, until_ms, self._newest_ms)

    def _enter(self, producer: int, epoch: int, used_ms: int) -> ProducerState:
        state = self._producers.get(producer)
        if state is None:
            state = self._producers[producer] = ProducerState(epoch, used_ms, self._is_whole(epoch))
        elif epoch > state.epoch:
            self._states -= len(state.queues)
            state.epoch, state.whole, state.before, state.queues = epoch, self._is_whole(epoch), NO_EPOCH, {}
        state.used_ms = max(state.used_ms, used_ms)
        self._newest_ms = max(self._newest_ms, epoch // PER_MS)
        self._producers.move_to_end(producer)
        if not state.queues:
            self._idle[producer] = None
            self._idle.move_to_end(producer)
        return state

    def _is_whole(self, epoch: int) -> bool:
        """Whether nothing was forgotten since this epoch was given out."""
        return epoch // PER_MS > self.known_since_ms

    def _make_room(self, now_ms: int) -> None:
        """Forgets those that were used longest ago, but never the one that was used last. Where there are too many
        producers, those go first that have only begun: who begins again and again pushes nobody out that sends."""
        newest = next(reversed(self._producers), None)
        while len(self._producers) > 1:
            oldest, state = next(iter(self._producers.items()))
            if len(self._producers) > self.states_max:
                idle = next(iter(self._idle), newest)
                self._forget_producer(oldest if idle == newest else idle)
            elif self._states > self.states_max or now_ms - state.used_ms > self.expiration_ms:
                self._forget_producer(oldest)
            else:
                return

    def _forget_producer(self, producer: int | None) -> None:
        assert producer is not None
        state = self._producers.pop(producer)
        self._idle.pop(producer, None)
        self._states -= len(state.queues)
        self.known_since_ms = max(self.known_since_ms, state.used_ms, state.epoch // PER_MS)


def own_of(node: int, draw: int) -> int:
    """What tells apart the epochs of one ms: the number of the node, and a random one below DRAWS."""
    return node % NODES * DRAWS + draw % DRAWS
