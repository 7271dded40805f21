"""Offsets of a stream, as Spark keeps them in its checkpoint.

    scan mode    {"v": 1, "store": ID, "commitLog": {BROKER_NAME: N}}
    queue mode   {"v": 1, "store": ID, "brokerName": BROKER_NAME, "queues": {TOPIC: {"0": N}}}

N is where the next batch begins: a byte of the log at which a record begins, or the number of a message in its queue.
`store` is the id of the log, which slaves share with their master; a real broker's store has none.

Spark keeps only where a batch ends. So the end also holds, as `began`, where the batch began if no batch before it says
so: everything of the first batch, whose beginning (marked `initial`) would be another one by the time of a replay, and
later the queues that were new. `turn` counts the batches that a limit cut, so that every queue has its turn.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from towline.log.queues.consume_queue import Entries, is_filler

from .errors import CheckpointUnusable

VERSION: Final = 1
LOG: Final = "commitLog"
QUEUES: Final = "queues"
_BEGAN: Final = "began"
_INITIAL: Final = "initial"
_MODES: Final = {LOG: "scan", QUEUES: "queue"}

QueueKey: TypeAlias = tuple[str, int]
Bounds: TypeAlias = Mapping[QueueKey, tuple[int, int]]
Integers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Source:
    """Whose offsets they are; "" where it is not known."""

    store_id: str
    broker_name: str


@dataclass(frozen=True, slots=True)
class LogOffset:
    source: Source
    position: int
    began: int | None = None
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        name = self.source.broker_name
        began = {} if self.began is None else {_BEGAN: {name: self.began}}
        return _head(self.source) | {LOG: {name: self.position}} | began | ({_INITIAL: True} if self.initial else {})

    @classmethod
    def read(cls, offset: dict[str, Any], source: Source) -> "LogOffset":
        """The offset in a checkpoint's JSON. Raises CheckpointUnusable."""
        _check(offset, LOG, source)
        try:
            ((broker_name, position),) = offset[LOG].items()
            began = [_number(value) for value in offset.get(_BEGAN, {}).values()]
            theirs = Source(str(offset.get("store", "")), str(broker_name))
            found = cls(source, _number(position), began[0] if began else None, bool(offset.get(_INITIAL)))
        except (AttributeError, TypeError, ValueError):
            raise _unusable(offset, "it is not an offset of this source") from None
        _check_source(offset, theirs, source)
        return found

    def after(self, position: int) -> "LogOffset":
        """The offset behind a batch that ends there; this one itself when that is empty."""
        if position <= self.position:
            return self
        return LogOffset(self.source, position, self.position if self.initial else None)

    def range_to(self, end: "LogOffset") -> tuple[int, int]:
        """What a batch from this offset to `end` holds: the same for the same two for ever."""
        return (self.position if end.began is None else end.began), end.position


@dataclass(frozen=True, slots=True)
class QueueOffsets:
    """`ends` by topic and queue id."""

    source: Source
    ends: Mapping[QueueKey, int]
    began: Mapping[QueueKey, int] = field(default_factory=dict)
    turn: int = 0
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        more: dict[str, Any] = {"brokerName": self.source.broker_name, QUEUES: _by_topic(self.ends)}
        if self.began:
            more[_BEGAN] = _by_topic(self.began)
        if self.initial:
            more[_INITIAL] = True
        if self.turn:
            more["turn"] = self.turn
        return _head(self.source) | more

    @classmethod
    def read(cls, offset: dict[str, Any], source: Source) -> "QueueOffsets":
        """The offsets in a checkpoint's JSON. Raises CheckpointUnusable."""
        _check(offset, QUEUES, source)
        try:
            ends, began = _flat(offset[QUEUES]), _flat(offset.get(_BEGAN, {}))
            turn = _number(offset.get("turn", 0))
            theirs = Source(str(offset.get("store", "")), str(offset.get("brokerName", "")))
        except (AttributeError, TypeError, ValueError):
            raise _unusable(offset, "it is not an offset of this source") from None
        _check_source(offset, theirs, source)
        return cls(source, ends, began, turn, bool(offset.get(_INITIAL)))

    def wanted(self, bounds: Bounds) -> dict[QueueKey, tuple[int, int]]:
        """[from, to) of every queue of `bounds` (min and max): what is new since these offsets.

        A queue that was not there begins at its earliest message. One that ends before the offset has nothing new:
        a node that is just starting knows the ends of its queues only by and by.
        """
        found = {}
        for key, (low, high) in sorted(bounds.items()):
            first = self.ends.get(key, low)
            found[key] = first, max(first, high)
        return found

    def after(self, ranges: Mapping[QueueKey, tuple[int, int]], *, cut: bool) -> "QueueOffsets":
        """The offsets behind a batch of these ranges; these themselves when it is empty. `cut`: by a limit."""
        if all(first == end for first, end in ranges.values()) and ranges.keys() <= self.ends.keys():
            return self
        began = {key: first for key, (first, _) in ranges.items() if self.initial or key not in self.ends}
        ends = dict(self.ends) | {key: end for key, (_, end) in ranges.items()}
        return QueueOffsets(self.source, ends, began, self.turn + cut)

    def ranges_to(self, end: "QueueOffsets") -> dict[QueueKey, tuple[int, int]]:
        """What a batch from these offsets to `end` holds: the same for the same two for ever; no empty ranges."""
        found = {}
        for key, upto in sorted(end.ends.items()):
            first = end.began.get(key, self.ends.get(key, upto))
            if first < upto:
                found[key] = first, upto
        return found


def share(limit: int, backlogs: Sequence[int], turn: int = 0) -> list[int]:
    """How many messages of each queue a batch of `limit` messages takes: exactly `limit`, or all there are.

    In proportion to the backlogs, but one at least of each queue that has any; where the limit is less than the number
    of these queues, one of `limit` of them, beginning with number `turn`.
    """
    total = sum(backlogs)
    if limit >= total:
        return list(backlogs)
    waiting = rotated([place for place, backlog in enumerate(backlogs) if backlog], turn)
    taken = [0] * len(backlogs)
    for place in waiting[:limit]:
        taken[place] = 1
    rest = limit - len(waiting)
    if rest > 0:
        for place, more in zip(waiting, proportional(rest, [backlogs[place] - 1 for place in waiting]), strict=True):
            taken[place] += more
    return taken


def proportional(amount: int, weights: Sequence[int]) -> list[int]:
    """`amount` cut into whole parts in proportion to the weights, by largest remainder. All 0 for weights of 0."""
    total = sum(weights)
    if not total:
        return [0] * len(weights)
    parts = [amount * weight // total for weight in weights]
    remainders = [amount * weight % total for weight in weights]
    largest = sorted(range(len(weights)), key=lambda place: -remainders[place])
    for place in largest[: amount - sum(parts)]:
        parts[place] += 1
    return parts


def share_bytes(
    limit: int, backlogs: Sequence[int], sizes: Callable[[int, int, int], Integers], turn: int = 0
) -> list[int]:
    """How many messages of each queue a batch of `limit` bytes takes: at most `limit`, or a single larger message.

    `sizes(place, skip, count)` reads the sizes of up to `count` messages of a queue after its first `skip`. The first
    message of the queue whose turn it is comes first, the other bytes are shared in proportion to the backlogs, and
    what a queue does not need of its part goes to the others in turn.
    """
    waiting = rotated([place for place, backlog in enumerate(backlogs) if backlog], turn)
    taken = [0] * len(backlogs)
    if not waiting:
        return taken
    left = limit - int(sizes(waiting[0], 0, 1).sum())
    taken[waiting[0]] = 1
    if left <= 0:
        return taken
    parts = proportional(left, [backlogs[place] for place in waiting])
    for place, part in zip(waiting, parts, strict=True):
        left -= _take(place, part, taken, backlogs, sizes)
    for place in waiting:
        left -= _take(place, left, taken, backlogs, sizes)
    return taken


def sizes_of(entries: Entries, count: int) -> Integers:
    """Sizes of the messages of `count` entries of a queue, as far as they were read; none are there: 0 for each."""
    if not len(entries):
        return np.zeros(count, dtype=np.int64)
    found: Integers = np.where(is_filler(entries), 0, entries["record_size"]).astype(np.int64)
    return found


_SIZES_AT_ONCE: Final = 16_384


def _take(
    place: int, budget: int, taken: list[int], backlogs: Sequence[int], sizes: Callable[[int, int, int], Integers]
) -> int:
    """Takes as many messages of a queue as fit; their bytes."""
    used = 0
    while taken[place] < backlogs[place]:
        some = sizes(place, taken[place], min(_SIZES_AT_ONCE, backlogs[place] - taken[place]))
        ends = np.cumsum(some)
        fitting = int(np.searchsorted(ends, budget - used, side="right"))
        taken[place] += fitting
        used += int(ends[fitting - 1]) if fitting else 0
        if fitting < len(some) or not len(some):
            break
    return used


def rotated(places: list[int], turn: int) -> list[int]:
    """The same, beginning with number `turn`."""
    first = turn % len(places) if places else 0
    return places[first:] + places[:first]


def mode_of(offset: Mapping[str, Any]) -> str | None:
    """scan or queue; None for what is no offset of this source."""
    return next((mode for key, mode in _MODES.items() if key in offset), None)


def _head(source: Source) -> dict[str, Any]:
    return {"v": VERSION} | ({"store": source.store_id} if source.store_id else {})


def _check(offset: Any, key: str, source: Source) -> None:
    if not isinstance(offset, dict) or mode_of(offset) is None:
        raise _unusable(offset, "it is not an offset of this source")
    if offset.get("v") != VERSION:
        raise _unusable(offset, f"it has version {offset.get('v')!r}, and this program reads {VERSION}")
    if key not in offset:
        raise _unusable(offset, f"it was written with readMode {mode_of(offset)}, and the query reads {_MODES[key]}")


def _check_source(offset: Any, theirs: Source, ours: Source) -> None:
    """By the id of the log where both have one, else by name."""
    if theirs.store_id and ours.store_id:
        if theirs.store_id != ours.store_id:
            raise _unusable(offset, f"it is of the store {theirs.store_id}, and this is {ours.store_id}")
    elif theirs.broker_name and ours.broker_name and theirs.broker_name != ours.broker_name:
        raise _unusable(offset, f"it is of the broker {theirs.broker_name!r}, and this is {ours.broker_name!r}")


def _by_topic(ends: Mapping[QueueKey, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, queue_id), end in sorted(ends.items()):
        found.setdefault(topic, {})[str(queue_id)] = end
    return found


def _flat(found: dict[str, dict[str, Any]]) -> dict[QueueKey, int]:
    return {(topic, int(queue)): _number(end) for topic, queues in found.items() for queue, end in queues.items()}


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(value)
    return value


def _unusable(offset: Any, why: str) -> CheckpointUnusable:
    return CheckpointUnusable(json.dumps(offset, sort_keys=True), why)
