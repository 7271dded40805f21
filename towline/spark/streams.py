"""Decides which part of the source each micro-batch holds. Runs on the driver, needs no Spark.

A batch is fixed by its offsets: whoever reads between the same two gets the same rows, whatever came since. What was
deleted before it was read is said by an error, or left out and logged where failOnDataLoss is false.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from towline.arrow.boundaries import boundaries
from towline.arrow.decode import batches
from towline.arrow.selection import Selection
from towline.format.record.rules import Rule
from towline.limits import MIB

from .errors import BadOption, MessagesGone
from .offsets import Integers, LogOffset, QueueKey, QueueOffsets, share, share_bytes
from .options import EARLIEST, LATEST, AtTime, Offsets, Place, SourceOptions
from .planning import check_offset, grouped, pruned, selection_of, tasks_wanted
from .reading import LogPartition, LogSplit, Partition, Reading, gone_from_queue
from .stores import StoreFacts
from .tail import Bounds, Queues, RemoteTail, StoreTail

WINDOW: Final = 8 * MIB  # of the log, read in one step when messages are counted
_PLACES: Final = ("commitLogOffset", "size")
_NOT_OF_STREAMS: Final = {
    "endingOffsets": "ending_offsets",
    "endingTimestamp": "ending_timestamp",
    "endingPhysicalOffset": "ending_physical_offset",
}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one batch: messages, bytes; None for no limit."""

    rows: int | None = None
    bytes: int | None = None


class Stream(Protocol):
    """Offsets are those of `towline.spark.offsets`, as JSON can carry them. Any call may raise CheckpointUnusable."""

    how: Reading

    def initial(self) -> Json:
        """Where the first batch begins, the same whenever it is asked."""
        ...

    def newest(self) -> Json: ...

    def aim(self) -> None:
        """From now on nothing ends behind what is there now."""
        ...

    def latest(self, start: Json, limits: Limits) -> Json:
        """Where a batch from `start` ends; `start` itself when there is nothing."""
        ...

    def partitions(self, start: Json, end: Json) -> list[Partition]: ...

    def close(self) -> None: ...


def open_stream(options: SourceOptions, columns: tuple[str, ...]) -> Stream:
    """Nothing is opened before it is asked. Raises BadOption."""
    for name, attribute in _NOT_OF_STREAMS.items():
        if getattr(options, attribute) is not None:
            raise BadOption(name, "", "a stream has no end; use trigger(availableNow=True) to read what is there")
    if options.starting_timestamp is not None:
        if options.starting_offsets is not None and options.starting_offsets.table:
            problem = "it says where every queue begins: give it, or the offsets of queues"
            raise BadOption("startingTimestamp", str(options.starting_timestamp), problem)
        options = replace(options, starting_offsets=Offsets(EARLIEST))  # the selection leaves out what is older
    selection = selection_of(options)
    how = Reading.of(options, columns, replace(selection, start_offset=None))
    mode = mode_of(options)
    if mode == "scan":
        if options.min_messages_per_trigger is not None:
            problem = "a log does not tell how many messages wait: name topics, so that queues are read"
            raise BadOption("minMessagesPerTrigger", str(options.min_messages_per_trigger), problem)
        return LogStream(options, selection, how)
    if options.endpoint:
        return QueueStream(options, selection, how, RemoteTail(options, selection))
    return QueueStream(options, selection, how, StoreTail(options, selection))


def mode_of(options: SourceOptions) -> str:
    """By the options alone, so that a restarted query chooses alike: queues where topics or their offsets are named."""
    table = options.starting_offsets is not None and not options.starting_offsets.word
    if options.read_mode == "scan" and table:
        raise BadOption("startingOffsets", "", "offsets of queues need readMode=queue; give startingPhysicalOffset")
    if options.read_mode != "auto":
        return options.read_mode
    by_queue = bool(options.endpoint) or options.names_topics or table
    return "queue" if by_queue and not options.has_physical_bounds else "scan"


class LogStream:
    """The whole log, filtered, from a physical offset on."""

    def __init__(self, options: SourceOptions, selection: Selection, how: Reading) -> None:
        self._options, self._selection, self.how = options, selection, how
        self._tail = StoreTail(options, selection)
        self._first: LogOffset | None = None
        self._target: int | None = None

    def initial(self) -> Json:
        if self._first is None:
            self._first = LogOffset(self._tail.source(), self._while_cleaning(self._start), initial=True)
        return self._first.to_json()

    def _start(self) -> int:
        low, end = self._tail.log()
        options, asked = self._options, self._options.starting_physical_offset
        if asked is None and _word(options) == LATEST:
            return end
        if asked is not None and asked > end:
            raise BadOption("startingPhysicalOffset", str(asked), f"the log ends at {end}: there is nothing yet")
        with self._tail.view() as view:
            start, _ = pruned(view, options, self._selection)
            facts = _up_to(view.facts(), end)
        start = min(max(low, start), end)
        if start == max(low, facts.segment_of(start)) or start >= end:
            return start
        return _first_behind(facts, low, start, end, skips=self.how.on_corruption == "skip")

    def _while_cleaning(self, step: Callable[[], int]) -> int:
        """The same again where a segment was deleted in the middle of it: then the log begins later than before."""
        while True:
            low, _ = self._tail.log()
            try:
                return step()
            except MessagesGone:
                if self.how.fail_on_data_loss or self._tail.log()[0] <= low:
                    raise

    def newest(self) -> Json:
        return LogOffset(self._tail.source(), self._tail.log()[1]).to_json()

    def aim(self) -> None:
        self._target = self._tail.log()[1]

    def latest(self, start: Json, limits: Limits) -> Json:
        offset = LogOffset.read(start, self._tail.source())
        low, end = self._tail.log()
        if end < offset.position and self.how.fail_on_data_loss and self._tail.is_settled():
            _raise_cut("the log", offset.position, self._tail.log()[1])
        if self._target is not None:
            end = min(end, self._target)
        first = self._from(offset.position, low)
        if first < end and (limits.rows is not None or limits.bytes is not None):
            end = self._while_cleaning(lambda: self._limited(offset.position, end, limits))
        return offset.after(end).to_json()

    def partitions(self, start: Json, end: Json) -> list[Partition]:
        source = self._tail.source()
        first, upto = LogOffset.read(start, source).range_to(LogOffset.read(end, source))
        with self._tail.view() as view:
            facts = _up_to(view.facts(), upto)
        self.how = replace(self.how, delays_ms=self._tail.delays(self.how))
        first = self._from(first, facts.log_min)
        splits = [
            LogSplit(max(first, base), min(upto, base + facts.segment_size))
            for base in facts.segments
            if base < upto and base + facts.segment_size > first
        ]
        tasks, total = tasks_wanted(self._options), sum(split.bytes for split in splits)
        least = self._options.split_bytes
        if len(splits) < tasks and total >= 2 * least:
            splits = [part for split in splits for part in _divided(facts, split, max(least, -(-total // tasks)))]
        return [
            LogPartition(facts.only({facts.segment_of(split.start) for split in group}), tuple(group))
            for group in grouped(splits, least)
        ]

    def close(self) -> None:
        self._tail.close()

    def _from(self, position: int, log_min: int) -> int:
        """Where there is something to read at or behind `position`. Raises MessagesGone, or reports what is lost."""
        if position < log_min:
            amount = f"{log_min - position} bytes of the log from {position} on"
            self.how.lost(MessagesGone("the next part of the stream", amount, f"the log begins at {log_min} by now"))
        return max(position, log_min)

    def _limited(self, start: int, end: int, limits: Limits) -> int:
        with self._tail.view() as view:
            facts = _up_to(view.facts(), end)
        start = max(start, facts.log_min)
        if start >= end:
            return end
        if limits.bytes is not None:
            end = _end_of_bytes(facts, start, end, limits.bytes)
        return end if limits.rows is None else self._end_of_rows(facts, start, end, limits.rows)

    def _end_of_rows(self, facts: StoreFacts, start: int, end: int, count: int) -> int:
        """Behind row number `count` that a reader of [start, end) gives, or `end`."""
        at = start
        while at < end:
            base = facts.segment_of(at)
            data, upto = facts.array(base), min(end, base + facts.segment_size)
            stop = base + boundaries(data, base, at - base, min(at + WINDOW, upto) - base).end
            stop = upto if stop <= at else stop  # a blank, or damage, of which reading makes what its options say
            for batch in self._rows(facts, base, at, stop):
                if batch.num_rows >= count:
                    offsets, sizes = batch.columns
                    return int(offsets[count - 1].as_py()) + int(sizes[count - 1].as_py())
                count -= batch.num_rows
            at = stop
        return end

    def _rows(self, facts: StoreFacts, base: int, start: int, end: int) -> Iterable[Any]:
        return batches(
            facts.array(base),
            base,
            start - base,
            end - base,
            _PLACES,
            self.how.selection,
            on_corruption=self.how.on_corruption,
        )


class QueueStream:
    """Queues of topics, each from a number on."""

    def __init__(self, options: SourceOptions, selection: Selection, how: Reading, tail: Queues) -> None:
        self._options, self._selection, self.how, self._tail = options, selection, how, tail
        self._first: QueueOffsets | None = None
        self._target: dict[QueueKey, int] | None = None

    def initial(self) -> Json:
        if self._first is None:
            source, bounds = self._tail.source(), self._tail.queues()
            if self._selection.start_ms is not None:
                bounds = self._tail.since(bounds, self._selection)
            starting = self._options.starting_offsets or Offsets(LATEST)
            ends = {
                key: self._start_in(key, bound, starting.of(key[0], source.broker_name, key[1]))
                for key, bound in bounds.items()
            }
            self._first = QueueOffsets(source, ends, initial=True)
        return self._first.to_json()

    def _start_in(self, key: QueueKey, bound: tuple[int, int], wanted: Place | None) -> int:
        """Raises BadOption."""
        low, high = bound
        if isinstance(wanted, AtTime):
            return self._tail.offset_at(key, bound, wanted.ms)
        if isinstance(wanted, int):
            check_offset("startingOffsets", wanted, *key, high)
            return wanted
        return high if wanted == LATEST else low

    def newest(self) -> Json:
        ends = {key: high for key, (_, high) in self._tail.queues().items()}
        return QueueOffsets(self._tail.source(), ends).to_json()

    def aim(self) -> None:
        self._target = {key: high for key, (_, high) in self._tail.queues().items()}

    def latest(self, start: Json, limits: Limits) -> Json:
        offsets = QueueOffsets.read(start, self._tail.source())
        bounds = self._tail.queues()
        self._check_ends(offsets, bounds)
        bounds = self._aimed(bounds)
        wanted = offsets.wanted(bounds)
        self._check(wanted, bounds)
        keys = list(wanted)
        backlogs = [end - first for first, end in wanted.values()]
        counts = backlogs if limits.rows is None else share(limits.rows, backlogs, offsets.turn)
        if limits.bytes is not None:

            def sizes(place: int, skip: int, count: int) -> Integers:
                return self._tail.sizes(keys[place], wanted[keys[place]][0] + skip, count)

            counts = share_bytes(limits.bytes, counts, sizes, offsets.turn)
        ranges = {key: (wanted[key][0], wanted[key][0] + count) for key, count in zip(keys, counts, strict=True)}
        return offsets.after(ranges, cut=counts != backlogs).to_json()

    def count(self, start: Json) -> int:
        """How many messages wait behind `start`."""
        wanted = QueueOffsets.read(start, self._tail.source()).wanted(self._tail.queues())
        return sum(end - first for first, end in wanted.values())

    def partitions(self, start: Json, end: Json) -> list[Partition]:
        source = self._tail.source()
        self.how = replace(self.how, delays_ms=self._tail.delays(self.how))
        ranges = QueueOffsets.read(start, source).ranges_to(QueueOffsets.read(end, source))
        bounds = self._tail.queues()
        self._check(ranges, bounds)
        lows = {key: min(upto, bounds.get(key, (first, 0))[0]) for key, (first, upto) in ranges.items()}
        left = {key: (max(first, lows[key]), upto) for key, (first, upto) in ranges.items()}
        return self._tail.partitions({key: span for key, span in left.items() if span[0] < span[1]})

    def close(self) -> None:
        self._tail.close()

    def _aimed(self, bounds: Bounds) -> Bounds:
        if self._target is None:
            return bounds
        return {key: (low, min(high, self._target[key])) for key, (low, high) in bounds.items() if key in self._target}

    def _check_ends(self, offsets: QueueOffsets, bounds: Bounds) -> None:
        """Raises MessagesGone for a queue that was cut off behind where the stream stands."""
        behind = [key for key, (_, high) in bounds.items() if high < offsets.ends.get(key, 0)]
        if behind and self.how.fail_on_data_loss and self._tail.is_settled():
            now = self._tail.queues()  # what was read before may have been from before the node had settled
            for topic, queue_id in behind:
                first = offsets.ends[topic, queue_id]
                _raise_cut(f"queue {queue_id} of {topic}", first, now.get((topic, queue_id), (0, first))[1])

    def _check(self, ranges: Bounds, bounds: Bounds) -> None:
        """Raises MessagesGone for what is to be read and was deleted, or reports what is left out."""
        for (topic, queue_id), (first, end) in ranges.items():
            low = min(bounds.get((topic, queue_id), (first, 0))[0], end)
            if first < low:
                self.how.lost(gone_from_queue(topic, queue_id, first, low, "they were deleted before they were read"))


def _raise_cut(what: str, position: int, end: int) -> None:
    """What comes next under these numbers would be others than the stream takes them for."""
    if end < position:
        why = f"{what} ends at {end} by now: a power cut or another master has taken back what was read"
        raise MessagesGone(f"what the stream has read up to {position}", f"{position - end} of {what}", why)


def _word(options: SourceOptions) -> str:
    return LATEST if options.starting_offsets is None else options.starting_offsets.word


def _up_to(facts: StoreFacts, end: int) -> StoreFacts:
    """`end` was safe when it was planned, whatever the node says while it starts."""
    return replace(facts, safe_end=max(facts.safe_end, end))


def _first_behind(facts: StoreFacts, low: int, start: int, end: int, *, skips: bool) -> int:
    """The first record that begins at `start` or behind it, in a log that begins at `low`.

    At damage before it that nobody `skips`, which reading then fails or stops at. Raises MessagesGone.
    """
    base = facts.segment_of(start)
    data, at = facts.array(base), max(low, base) - base
    found = boundaries(data, base, at, start - base)
    if found.blank or found.waits or found.rule is Rule.OK or not skips:
        return base + found.end
    upto = min(end, base + facts.segment_size)
    selection = Selection(start_offset=start, system=True, halves=True)
    rows = batches(data, base, at, upto - base, _PLACES, selection, rows=1, on_corruption="skip")
    first = next(iter(rows), None)
    return upto if first is None else int(first["commitLogOffset"][0].as_py())


def _end_of_bytes(facts: StoreFacts, start: int, end: int, size: int) -> int:
    """The last boundary at most `size` bytes behind `start`, or that behind a single larger record."""
    limit = start + size
    if limit >= end:
        return end
    base = facts.segment_of(limit)
    at = max(start, base)
    data = facts.array(base)
    found = boundaries(data, base, at - base, limit - base)
    stop = base + found.end
    if found.blank or found.rule is not Rule.OK:  # of damage reading makes what its options say, to the segment's end
        return min(end, base + facts.segment_size)
    if stop <= limit:
        return max(stop, at)
    before = base + int(found.positions[-1])
    return before if before > start else stop


def _divided(facts: StoreFacts, split: LogSplit, size: int) -> list[LogSplit]:
    """Splits of about `size` bytes; the scan that finds where they may end begins at a known boundary."""
    base = facts.segment_of(split.start)
    try:
        data = facts.array(base)
    except MessagesGone:  # which the task reports
        return [split]
    found = []
    start = split.start
    while split.end - start > size + size // 2:
        border = base + boundaries(data, base, start - base, start + size - base).end
        if border <= start or border >= split.end:
            break
        found.append(LogSplit(start, border))
        start = border
    return [*found, LogSplit(start, split.end)]
