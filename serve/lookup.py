"""Answers questions: topics and bounds, offsets by time, messages by key, unique key, message id and log offset (spec
10.4).

An index holds only hashes, and a log offset may be a guess, so every record is checked before it is answered.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from towline.errors import (
    IndexDisabled,
    MalformedFrame,
    MalformedRecord,
    NoRecordHere,
    NotInLog,
    RecordDamaged,
    UnknownQueue,
    UnknownTopic,
)
from towline.format.files.topics import TopicConfig, topic_facts
from towline.format.record import properties
from towline.format.record.message_id import decode_offset_id
from towline.format.record.record import (
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Host,
    Record,
    decode,
)
from towline.format.record.transactions import HALF
from towline.limits import QUEUE_ENTRIES_MAX, STORE_TIMES_MAX
from towline.log.commitlog.commit_log import CommitLogReader, store_time
from towline.log.queues.consume_queue import Boundary, ConsumeQueueFiles
from towline.log.queues.index_service import QUERY_COUNT, IndexService
from towline.log.state.epoch_file import EpochFile
from towline.runtime.positions import Position, Writer
from towline.runtime.queue_ends import QueueEnds

from .catch_up import CatchUp
from .topics import TopicsView

TIME_MAX: Final = 2**63 - 1
LOOKUP_RECORDS_MAX: Final = 4_096  # records that a lookup by key may read, while everybody else waits
DAMAGED_MAX: Final = 65_536  # damaged records that are counted one by one
_MORE: Final = 8  # times as many hits as the time before
_GRID_MS: Final = 1000  # an index entry gives its time in whole seconds, rounded down
_NOT_QUEUED: Final = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """The facts of an answer, and records for some questions, each a view of the log."""

    facts: dict[str, Any]
    records: list[memoryview] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LookupRules:
    """Limits of one answer: at most `count_max` records, `count_default` unless asked otherwise, `size_max` bytes.

    `force_property_crc`: a record that does not end with its property CRC is damaged.
    """

    count_max: int
    count_default: int
    size_max: int
    force_property_crc: bool


class DamageCounter:
    """Counts records whose bytes are not what was stored, and logs each once.

    Pulls send records without checking their bodies. A reader that finds a damaged one asks for it by its offset, and
    its bytes are checked here: a reader's word is never believed. A restarted serve process continues the count, and
    may count a record again.
    """

    def __init__(self, count: Writer, newest: Writer, log: logging.Logger) -> None:
        self._counter, self._newest, self._log = count, newest, log
        self._known: set[int] = set()

    def count(self, offset: int, sentence: str) -> None:
        """Counts a damaged record at this offset of the log."""
        if offset in self._known or len(self._known) >= DAMAGED_MAX:
            return
        self._known.add(offset)
        self._newest.replace(offset + 1)
        self._counter.advance(self._counter.get() + 1)
        self._log.error(
            "the record at offset %d of the log is damaged: %s; run `towline store verify`", offset, sentence
        )


class Lookup:
    """Answers questions. `index` is None on a node without an index."""

    def __init__(
        self,
        topics: TopicsView,
        ends: QueueEnds,
        queues: ConsumeQueueFiles,
        log: CommitLogReader,
        index: IndexService | None,
        get: Callable[[Position], int],
        rules: LookupRules,
        epochs: EpochFile,
        catch_up: CatchUp,
        damaged: Callable[[int, str], None],
    ) -> None:
        """`damaged` is called with the offset of a damaged record, and what is wrong with it."""
        self._topics = topics
        self._ends = ends
        self._queues = queues
        self._log = log
        self._index = index
        self._get = get
        self._rules = rules
        self._epochs = epochs
        self._catch_up = catch_up
        self._damaged = damaged

    def answer(self, question: dict[str, Any]) -> LookupAnswer:
        """The answer to a question. Raises a TowlineError that says why there is none."""
        match question:
            case {"op": "route", "topic": str(topic)}:
                return LookupAnswer(topic_facts(self._topic(topic)))
            case {"op": "topics"}:
                return LookupAnswer({"topics": [topic_facts(topic) for topic in self._topics.all()]})
            case {"op": "bounds", "topic": str(topic)}:
                return LookupAnswer({"topic": topic, "queues": self._bounds(self._topic(topic))})
            case {"op": "follow", "topic": str(topic)}:
                return LookupAnswer({"topic": topic, "queues": self._readable_bounds(self._topic(topic))})
            case {"op": "offset_by_time", "topic": str(topic), "queue": int(queue), "time": int(time)}:
                return LookupAnswer({"offset": self._offset_by_time(topic, queue, time, _boundary(question))})
            case {"op": "store_times", "places": list(places)} if len(places) <= STORE_TIMES_MAX:
                return LookupAnswer({"times": [self._store_time_of(place) for place in places]})
            case {"op": "queue_entries", "topic": str(topic), "queue": int(queue), "offset": int(at)}:
                count = min(_number(question, "count", QUEUE_ENTRIES_MAX), QUEUE_ENTRIES_MAX)
                return LookupAnswer(self._queue_entries(self._topic(topic), queue, at, count))
            case {"op": "log_ends"}:
                return LookupAnswer(self._log_ends())
            case {"op": "epoch_ends", "topic": str(topic), "epoch": int(epoch)}:
                return LookupAnswer(self._epoch_ends(self._topic(topic), epoch))
            case {"op": "query_key", "topic": str(topic), "key": str(key)}:
                return self._by_key(topic, key, question, _has_key)
            case {"op": "query_unique_key", "topic": str(topic), "key": str(key)}:
                return self._by_key(topic, key, question, _has_unique_key)
            case {"op": "query_id", "id": str(text)}:
                place = decode_offset_id(text)
                return self._by_offset(place.physical_offset, place.store_host)
            case {"op": "query_offset", "offset": int(offset)}:
                return self._by_offset(offset, None)
        raise MalformedFrame(f"the serve process does not answer {question.get('op')!r} with these facts")

    # --- topics and queues

    def _topic(self, name: str) -> TopicConfig:
        self._topics.refresh()
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    def _bounds(self, topic: TopicConfig) -> list[dict[str, int]]:
        """Raises StillStarting."""
        self._catch_up.check_ends()
        name = topic.topic_name.encode()
        found = []
        for queue in range(topic.read_queue_nums):
            low, high = self._bounds_of(name, queue)
            found.append({"queue": queue, "min": low, "max": high})
        return found

    def _readable_bounds(self, topic: TopicConfig) -> list[dict[str, int]]:
        """Bounds of the queues that may be read now, for a reader that follows the log's end by itself: it asks again
        each second. Raises StillStarting."""
        name = topic.topic_name.encode()
        return [row for row in self._bounds(topic) if self._topics.allows(name, row["queue"])]

    def _log_ends(self) -> dict[str, int]:
        """Offsets for a sender that looks up what it may have sent before.

        A miss counts when `dispatched` has passed the `appended` that was read before (H22). Lookups by key cover what
        was `indexed`; -1 where no index is kept.
        """
        dispatched = self._get(Position.DISPATCHED)
        return {
            "epoch": self._get(Position.EPOCH),
            "log_min": self._get(Position.LOG_MIN),
            "indexed": min(dispatched, self._get(Position.INDEXED)) if self._index is not None else -1,
            "dispatched": dispatched,
            "appended": self._get(Position.APPENDED),
        }

    def _bounds_of(self, topic: bytes, queue: int) -> tuple[int, int]:
        place = self._ends.find(topic, queue)
        return self._ends.bounds(place) if place >= 0 else (0, 0)

    def _epoch_ends(self, topic: TopicConfig, epoch: int) -> dict[str, Any]:
        """The ends of an earlier epoch, for a reader that comes from another master; without queues when nothing has
        begun since."""
        name, queues = topic.topic_name, range(topic.read_queue_nums)
        found = {str(queue): self.end_of_epoch(name, queue, epoch) for queue in queues}
        ends = {queue: end for queue, end in found.items() if end is not None}
        return {"epoch": self._get(Position.EPOCH), "ends": ends}

    def end_of_epoch(self, topic: str, queue: int, epoch: int) -> int | None:
        """The queue's end before the next epoch began: a reader that read further has read records that are gone.

        None when nothing has begun since. Raises EpochsLost, and StillStarting while that is not known (again).
        """
        if epoch >= self._get(Position.EPOCH):
            return None
        starts = [later.start for later in self._epochs.load() if later.number > epoch]
        if not starts:
            return None
        self._catch_up.check_passed(starts[0])
        low, high = self._bounds_of(topic.encode(), queue)
        return self._queues.min_offset_after(topic, queue, starts[0], low, high)

    def _offset_by_time(self, topic: str, queue: int, time: int, boundary: Boundary) -> int:
        if not 0 <= queue < self._topic(topic).read_queue_nums:
            raise UnknownQueue(topic, queue)
        low, high = self._bounds_of(topic.encode(), queue)
        found = self._queues.search_time(
            topic,
            queue,
            time,
            boundary,
            min_offset=low,
            end_offset=high,
            log_min=self._get(Position.LOG_MIN),
            store_time=partial(store_time, self._log),
        )
        if found >= high - 1:  # what comes behind it may not be there again yet
            self._catch_up.check_ends()
        return found

    def _store_time_of(self, place: Any) -> int:
        """Store time in ms of the message at [topic, queue, offset]; -1 where there is none. Raises MalformedFrame."""
        match place:
            case [str(topic), int(queue), int(offset)]:
                low, high = self._bounds_of(topic.encode(errors="replace"), queue)
                if not low <= offset < high:
                    return -1
                entries = self._queues.read(topic, queue, offset, 1)
                return store_time(self._log, int(entries["physical_offset"][0])) if len(entries) else -1
        raise MalformedFrame(f"a message stands at a topic, a queue and an offset, not at {place!r}")

    def _queue_entries(self, topic: TopicConfig, queue: int, at: int, count: int) -> dict[str, Any]:
        """Entries of a queue from number `at` on, as far as one file of it has them: log offset, size, tags code.

        Raises UnknownQueue.
        """
        if not 0 <= queue < topic.read_queue_nums:
            raise UnknownQueue(topic.topic_name, queue)
        low, high = self._bounds_of(topic.topic_name.encode(), queue)
        count = max(0, min(count, high - at)) if at >= low else 0
        entries = self._queues.read(topic.topic_name, queue, at, count) if count else ()
        return {"min": low, "max": high, "entries": [list(map(int, entry)) for entry in entries]}

    # --- messages

    def _by_key(
        self, topic: str, key: str, question: dict[str, Any], has: Callable[[dict[str, str], str], bool]
    ) -> LookupAnswer:
        """The newest records of those stored in the given time, in the order of the log.

        `truncated`: there may be older ones. `complete`: the index covers what was dispatched at the time of the
        question. `damaged`: the number of unreadable hits, which may have been matches.
        """
        if self._index is None:
            raise IndexDisabled()
        dispatched = self._get(Position.DISPATCHED)
        complete = self._get(Position.INDEXED) >= dispatched and self._catch_up.settled()
        begin, end = _number(question, "begin", 0), _number(question, "end", TIME_MAX)
        limit = min(_number(question, "max", self._rules.count_default), self._rules.count_max)
        found: list[memoryview] = []
        more = False
        damaged = 0
        for looked_at, offset in enumerate(self._hits(topic, key, max(0, begin - _GRID_MS), end)):
            more = looked_at == LOOKUP_RECORDS_MAX
            try:
                view = None if more else self._passing(offset, topic, key, begin, end, has)
            except RecordDamaged:
                view, damaged = None, damaged + 1
            if more or (view is not None and len(found) == limit):
                more = True
                break
            if view is not None:
                found.append(view)
        answer = self._answer_with(found, more=more, complete=complete)
        return LookupAnswer({**answer.facts, "damaged": damaged}, answer.records)

    def _hits(self, topic: str, key: str, begin: int, end: int) -> Iterator[int]:
        """Log offsets of this key's hash in the index, newest first, as many as the caller takes.

        Other keys may share the hash, and an entry's second holds many ms, so the number needed is unknown. Each query
        asks for more than the last, since an index file is walked from its newest entry on.
        """
        assert self._index is not None
        seen: set[int] = set()
        wanted = QUERY_COUNT
        while True:
            hits = self._index.query(topic, key, begin, end, wanted)
            fresh = sorted(set(hits) - seen, reverse=True)
            yield from fresh
            seen.update(fresh)
            if len(hits) < wanted or min(seen) < self._get(Position.LOG_MIN):
                return
            wanted *= _MORE

    def _passing(
        self, offset: int, topic: str, key: str, begin: int, end: int, has: Callable[[dict[str, str], str], bool]
    ) -> memoryview | None:
        """The record at `offset`, if it is a match. The index is only a hint: it may be cut, expired or not dispatched
        yet.

        Raises RecordDamaged.
        """
        if not begin <= store_time(self._log, offset) <= end:  # much cheaper than the whole record
            return None
        try:
            view, record = self._record(offset)
        except (NoRecordHere, NotInLog):
            return None
        good = begin <= record.store_timestamp <= end and record.topic.decode() == topic
        return view if good and has(properties.decode(record.properties), key) else None

    def _by_offset(self, offset: int, store_host: Host | None) -> LookupAnswer:
        view, record = self._record(offset)
        if store_host is not None and record.store_host != store_host:
            raise NoRecordHere(offset, f"the id names store host {store_host}, the record there {record.store_host}")
        return self._answer_with([view])

    def _record(self, offset: int) -> tuple[memoryview, Record]:
        """The record that begins at `offset`.

        Raises NotInLog outside of what was dispatched, NoRecordHere, RecordDamaged.
        """
        low, end = self._get(Position.LOG_MIN), self._get(Position.DISPATCHED)
        if not low <= offset < end:
            raise NotInLog(offset, low, end)
        try:
            view = self._log.record(offset, end)
            record = decode(view, check_crc=False)
        except MalformedRecord as error:
            raise NoRecordHere(offset, error.sentence) from None
        self._check_queued(offset, record)
        try:
            decode(view, force_property_crc=self._rules.force_property_crc)
        except MalformedRecord as error:
            if record.sys_flag & TRANSACTION_MASK in _NOT_QUEUED:  # nothing shows that it is a record
                raise NoRecordHere(offset, error.sentence) from None
            self._damaged(offset, error.sentence)
            raise RecordDamaged(offset, error.sentence) from None
        return view, record

    def _check_queued(self, offset: int, record: Record) -> None:
        """Raises NoRecordHere for bytes that are no message."""
        if record.physical_offset != offset:
            raise NoRecordHere(offset, f"the bytes there say that they stand at {record.physical_offset}")
        try:
            topic = record.topic.decode()
        except UnicodeDecodeError:
            raise NoRecordHere(offset, "the topic there is not UTF-8") from None
        if record.topic == HALF:
            raise NoRecordHere(offset, "a message is seen when its transaction is committed")
        # A body may hold the bytes of a record, with any offset in it: only a queue's entry shows that one is real.
        if record.sys_flag & TRANSACTION_MASK not in _NOT_QUEUED and not self._is_queued(topic, record):
            low, _ = self._bounds_of(record.topic, record.queue_id)
            said = "no queue holds what looks like a record there"
            if record.queue_offset < low:  # cut by the topic's retention, or of a topic that was deleted
                said = f"what looks like number {record.queue_offset} of a queue is there, which begins at {low} by now"
            raise NoRecordHere(offset, said)

    def _is_queued(self, topic: str, record: Record) -> bool:
        low, high = self._bounds_of(record.topic, record.queue_id)
        if not low <= record.queue_offset < high:
            return False
        entries = self._queues.read(topic, record.queue_id, record.queue_offset, 1)
        return len(entries) == 1 and int(entries["physical_offset"][0]) == record.physical_offset

    def _answer_with(
        self, newest_first: Iterable[memoryview], *, more: bool = False, complete: bool = True
    ) -> LookupAnswer:
        """As many of the records as fit one answer."""
        kept: list[memoryview] = []
        size = 0
        for view in newest_first:
            size += len(view)
            if kept and size > self._rules.size_max:
                more = True
                break
            kept.append(view)
        return LookupAnswer({"found": len(kept), "truncated": more, "complete": complete}, kept[::-1])


def _boundary(question: dict[str, Any]) -> Boundary:
    try:
        return Boundary(question.get("boundary", Boundary.LOWER.value))
    except ValueError:
        raise MalformedFrame(f"a boundary is lower or upper, not {question['boundary']!r}") from None


def _number(question: dict[str, Any], name: str, otherwise: int) -> int:
    """An optional number of a question, bounded by what a file of the store can hold."""
    value = question.get(name)
    if value is None:
        return otherwise
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedFrame(f"{name} is a number, not {value!r}")
    return min(max(value, 0), TIME_MAX)


def _has_key(found: dict[str, str], key: str) -> bool:
    return key != "" and key in found.get(properties.KEYS, "").split(properties.KEY_SEPARATOR)


def _has_unique_key(found: dict[str, str], key: str) -> bool:
    return found.get(properties.UNIQ_KEY) == key
