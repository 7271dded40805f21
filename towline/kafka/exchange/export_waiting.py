"""What a store holds for a topic and has not delivered: delayed messages, and halves of open transactions.

They stand in system topics under the name of their own one. An export leaves them there: nobody has seen them yet.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from towline.arrow.errors import DamagedRecord
from towline.arrow.heads import Heads
from towline.format.files.consume_queue import SIZE
from towline.format.record.columns import Bytes, Integers
from towline.format.record.forms import HALF_TOPIC, OP_TOPIC, TIMER_DELIVER_MS, TIMER_TOPIC
from towline.format.record.properties import REAL_TOPIC
from towline.kernels.kafka.exports import listed_numbers, numbers_of, property_places
from towline.log.queues.consume_queue import ConsumeQueueFiles, is_filler, places_of
from towline.log.state.floors import levels_of, timers_due, undelivered_offsets
from towline.spark.errors import MessagesGone
from towline.spark.stores import StoreFacts

from .export_errors import Undelivered

_AT_ONCE: Final = 65_536
_PAIRS: Final = 4 * 11_000  # room for the pairs of one record
_OP_QUEUE: Final = 0


@dataclass(slots=True)
class Waiting:
    """Messages of a topic that nobody has got yet."""

    topic: str
    delayed: int = 0
    halves: int = 0

    def document(self) -> dict[str, Any]:
        return asdict(self)


def refuse_waiting(found: Sequence[Waiting]) -> None:
    """Raises Undelivered."""
    for each in found:
        raise Undelivered(each.topic, each.delayed, each.halves)


def waiting_of(facts: StoreFacts, topics: set[str]) -> list[Waiting]:
    """Of these topics, in order, those that have any. A record that cannot be read is none."""
    files = facts.queue_files()
    counted = {topic.encode(): Waiting(topic) for topic in topics}
    try:
        due = timers_due(facts.store)
        ended = _ended(facts, files)
        for topic, queue_id, offset in undelivered_offsets(facts.store, levels_of(files, 0)):
            for heads in _heads(facts, files, topic, queue_id, offset):
                kept = np.ones(len(heads), np.bool_)
                if topic == TIMER_TOPIC:
                    kept = _numbers(heads, TIMER_DELIVER_MS) > due
                if topic == HALF_TOPIC:
                    kept = ~np.isin(heads["queue_offset"], ended)
                _count(heads.keep(kept), counted, "halves" if topic == HALF_TOPIC else "delayed")
    finally:
        files.close()
    return [each for _, each in sorted(counted.items()) if each.delayed or each.halves]


def _count(heads: Heads, counted: dict[bytes, Waiting], what: str) -> None:
    """Adds each record to the topic that it is for."""
    starts, sizes = _places(heads, REAL_TOPIC)
    for size in np.unique(sizes[sizes > 0]).tolist():
        everywhere = np.ndarray(len(heads.log) - size + 1, f"V{size}", heads.log, 0, (1,))
        names, counts = np.unique(everywhere[starts[sizes == size]].view(f"S{size}"), return_counts=True)
        for name, count in zip(names.tolist(), counts.tolist(), strict=True):
            if name in counted:
                setattr(counted[name], what, getattr(counted[name], what) + count)


def _ended(facts: StoreFacts, files: ConsumeQueueFiles) -> Integers:
    """Numbers of halves whose transactions ended."""
    found = [np.empty(0, np.int64)]
    for heads in _heads(facts, files, OP_TOPIC, _OP_QUEUE, 0):
        room = np.empty(int(heads.parts.body_size.sum()) + 1, np.int64)
        count = listed_numbers(heads.log, heads.parts.body_start, heads.parts.body_size, room)
        found.append(room[:count])
    return np.concatenate(found)


def _heads(facts: StoreFacts, files: ConsumeQueueFiles, topic: str, queue_id: int, start: int) -> Iterator[Heads]:
    """Of the messages of a queue from a number on, before the safe end, a segment at a time."""
    bases = files.bases(topic, queue_id)
    at = max(start, min(bases, default=0) // SIZE)
    while bases and len(entries := files.read(topic, queue_id, at, _AT_ONCE)):
        at += len(entries)
        places, sizes = places_of(entries), entries["record_size"].astype(np.int64)
        inside = ~is_filler(entries) & (places >= facts.log_min) & (places + sizes <= facts.safe_end)
        for base in np.unique(places[inside] // facts.segment_size * facts.segment_size).tolist():
            here = places[inside & (places >= base) & (places < base + facts.segment_size)] - base
            with suppress(MessagesGone):
                yield from _sound(facts.array(base), base, here)


def _sound(log: Bytes, base: int, positions: Integers) -> Iterator[Heads]:
    """Of the records at these places those that can be read: where one of many cannot, each half by itself."""
    try:
        found = Heads(log, base, positions, ("queue_offset",), placed=True)
    except DamagedRecord:
        if len(positions) > 1:
            half = len(positions) // 2
            yield from _sound(log, base, positions[:half])
            yield from _sound(log, base, positions[half:])
        return
    yield found


def _places(heads: Heads, name: str) -> tuple[Integers, Integers]:
    """Where the value of a property begins in each record, and its size: 0 without one."""
    found = np.empty(2 * len(heads), np.int64)
    ends = np.ascontiguousarray(heads.positions + heads.size)
    wanted = np.frombuffer(name.encode(), np.uint8)
    starts = np.ascontiguousarray(heads.parts.properties_start)
    property_places(heads.log, starts, ends, wanted, np.empty(_PAIRS, np.int64), found)
    return found[: len(heads)], found[len(heads) :]


def _numbers(heads: Heads, name: str) -> Integers:
    """A property that is a number; 0 where it is none."""
    found = np.empty(len(heads), np.int64)
    numbers_of(heads.log, *_places(heads, name), found)
    return found
