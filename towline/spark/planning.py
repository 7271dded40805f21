"""Plans a read on the driver: which messages are meant, scan or queues, and which task reads what.

scan    segments of the log, filtered: a task for each segment; small ones together, large ones in splits where there
        are fewer of them than tasks. Splits begin and end only at boundaries that are known: entries of a queue, or a
        scan that began at the segment's start. A place found by its looks alone may lie inside a forged message.
queue   the ConsumeQueue files lead to the messages: for a few queues of many.
"""

import importlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from towline.arrow.boundaries import boundaries
from towline.arrow.selection import EVERY_OFFSET, Selection
from towline.format.files.topics import is_system_topic
from towline.format.record.columns import field
from towline.format.record.forms import SCHEDULE_TOPIC
from towline.format.record.record import SIZE_MIN
from towline.log.queues.consume_queue import Boundary, ConsumeQueueFiles, is_filler, places_of
from towline.log.state.queue_minima import read_minima
from towline.log.state.topics_file import read_table

from .errors import BadOption, MessagesGone, UnknownRead
from .options import EARLIEST, LATEST, AtTime, Offsets, SourceOptions
from .reading import LogPartition, LogSplit, Partition, QueuePartition, QueueSplit, Reading, gone_from_queue, lose
from .stores import QueueBounds, StoreKind, StoreView, server_part

QUEUE_SHARE: Final = 4  # queue mode below one in so many entries: from there on it is the faster one
ENTRIES_MIN: Final = 20_000  # of a task, unless minPartitions asks for more tasks
CLOCK_SLACK_MS: Final = 60_000  # store times may step back by so much: a new master's clock, or one that was set
SPLIT_QUEUES: Final = 8  # queues asked for a boundary near a place
_REMOTE: Final = "towline.spark.remote"

QueueRanges = Mapping[tuple[str, int], tuple[int, int]]
TimeSearch = Callable[[tuple[str, int], tuple[int, int], int], int]  # queue, offsets, ms since 1970 -> offset


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """`mode` is scan, queue or endpoint."""

    mode: str
    reading: Reading
    partitions: list[Partition]


def plan(options: SourceOptions, columns: tuple[str, ...], narrowed: Selection | None = None) -> ReadPlan:
    """The whole plan of a batch read. `narrowed` is what a job adds to the options' selection.

    Raises what StoreView.open raises, BadOption, UnknownRead, MessagesGone.
    """
    selection = narrowed or selection_of(options)
    if options.endpoint:
        remote: Callable[..., list[Partition]] = importlib.import_module(_REMOTE).partitions
        return ReadPlan("endpoint", Reading.of(options, columns, selection), remote(options, selection))
    with StoreView.open(options.path, segment_size=options.segment_size) as view:
        return _plan_store(view, options, columns, selection)


def selection_of(options: SourceOptions) -> Selection:
    """What the options say of each message. Offsets of queues are the plan's: they need the store."""
    topics = None if options.subscribe is None else frozenset(options.subscribe)
    assigned = None
    if options.assign is not None:
        assigned = {(topic, queue_id): EVERY_OFFSET for topic, ids in options.assign.items() for queue_id in ids}
    return Selection(
        topics=topics,
        topic_pattern=options.subscribe_pattern,
        queues=assigned,
        start_offset=options.starting_physical_offset,
        end_offset=options.ending_physical_offset,
        start_ms=options.starting_timestamp,
        end_ms=options.ending_timestamp,
        tags=options.sub_expression,
        keys=options.keys,
        uniq_keys=options.uniq_keys,
        system=options.include_system_topics,
        halves=options.include_halves,
    )


def tasks_wanted(options: SourceOptions) -> int:
    """As many as this machine has cores, which local[*] has too, unless the option says."""
    return options.min_partitions or len(os.sched_getaffinity(0))


# --- a store's files


def _plan_store(view: StoreView, options: SourceOptions, columns: tuple[str, ...], selection: Selection) -> ReadPlan:
    check_topics(view, options)
    mode, by_offset = options.read_mode, _names_offsets(options)
    if by_offset or mode == "queue":
        refuse_batch_queues(view, selection, by_offset or "readMode")
    has_queues = view.facts().store.consumequeue.is_dir()
    for name, needs in ((by_offset, by_offset), ("readMode", mode == "queue")):
        if needs and not has_queues:
            raise BadOption(name, "", f"{view.facts().root} has no consumequeue/; use timestamps or physical offsets")
    ranges, behind = None, None
    if by_offset or mode == "queue" or (mode == "auto" and has_queues and _may_use_queues(view, options, selection)):
        behind = dispatched(view)
        queues = view.queues if by_offset or behind is None else view.queues_to(behind)
        search = partial(offset_at, view)
        ranges = queue_ranges(queues, view.broker_name, view.facts().root, options, selection, search)
    reading = Reading.of(options, columns, selection, delays_of(view, columns, selection))
    if ranges is not None and mode == "auto":
        mode = "queue" if _may_use_queues(view, options, selection) and _few(view, ranges, behind) else "scan"
    if ranges is not None and mode == "queue":
        partitions = queue_partitions(view, in_time(view, ranges, selection), options)
        if behind is not None and not by_offset:  # the offsets that were named are those of queues
            partitions += log_partitions(view, behind, view.safe_end, options)
        return ReadPlan(mode, reading, partitions)
    if ranges is not None and by_offset:
        reading = replace(reading, selection=replace(selection, queues=dict(ranges)))
    start, end = aligned(view, *pruned(view, options, selection))
    return ReadPlan("scan", reading, log_partitions(view, start, end, options))


def delays_of(view: StoreView, columns: tuple[str, ...], selection: Selection) -> tuple[int, ...]:
    """The delays by level - 1, where somebody wants to see the tagsCode of delayed messages: when they are due."""
    if not shows_due_times(columns, selection):
        return ()
    running = server_part("the tagsCode of delayed messages")
    found: tuple[int, ...] = running.delays_ms(view.facts().store)
    return found


def shows_due_times(columns: tuple[str, ...], selection: Selection) -> bool:
    return "tagsCode" in columns and selection.wants_topic(SCHEDULE_TOPIC)


def check_topics(view: StoreView, options: SourceOptions) -> None:
    """A topic that is named must be one: a wrong name would look like an empty topic. Raises UnknownRead."""
    named = set(options.subscribe or ()) | set(options.assign or ())
    for offsets in (options.starting_offsets, options.ending_offsets):
        named |= set() if offsets is None else offsets.topics
    if not named or view.kind is StoreKind.BACKUP:
        return
    known = {queue.topic for queue in view.queues} | view.batch_topics | set(read_table(view.facts().store).topics)
    for topic in sorted(named - known):
        if known and not is_system_topic(topic):
            raise UnknownRead.of_topic(topic, known, view.facts().root)


def _names_offsets(options: SourceOptions) -> str:
    """The option by which offsets of queues say more than everything; "" where none does."""
    if options.starting_offsets not in (None, Offsets(EARLIEST)):
        return "startingOffsets"
    return "endingOffsets" if options.ending_offsets not in (None, Offsets(LATEST)) else ""


def refuse_batch_queues(view: StoreView, selection: Selection, name: str) -> None:
    """What queues show would lack all messages of such a topic. Raises BadOption with the option that wants queues."""
    for topic in sorted(filter(selection.wants_topic, view.batch_topics)):
        raise BadOption(name, "", f"topic {topic} has batch consume queues, which are not read: use readMode=scan")


def _may_use_queues(view: StoreView, options: SourceOptions, selection: Selection) -> bool:
    """Whether queues may be the faster way, and give the same: a half or a place in the log is in none.

    Nor is what the retention of a topic has cut, which the log still has.
    """
    if any(map(selection.wants_topic, view.batch_topics)):
        return False
    cut = {topic for topic, _ in read_minima(view.facts().store)}
    if not _names_offsets(options) and any(map(selection.wants_topic, cut)):
        return False
    wanted = (selection.topics, selection.topic_pattern, selection.queues, selection.queue_ids)
    chosen = any(each is not None for each in wanted) or bool(_names_offsets(options))
    return chosen and not options.has_physical_bounds and not selection.halves


def _few(view: StoreView, ranges: QueueRanges, behind: int | None) -> bool:
    """Whether the chosen messages are few enough for their queues to be the faster way, and the queues have them."""
    if behind is None or not view.facts().orderly:
        return False
    wanted = sum(end - start for start, end in ranges.values())
    is_behind = (view.safe_end - behind) * QUEUE_SHARE > view.safe_end - view.log_min
    return not is_behind and wanted * QUEUE_SHARE < sum(queue.count for queue in view.queues)


def dispatched(view: StoreView) -> int | None:
    """Up to where in the log the queues have every message: behind the newest record that one of them names.

    Entries are written in the log's order. What stands behind is read from the log: reput may be far from the safe end.
    It goes on while queue after queue is read, so what a queue holds before this place is to be asked after it.
    None where the newest entry does not lead to its record.
    """
    files = view.facts().queue_files()
    newest, place = None, view.log_min - 1
    try:
        for queue in view.queues:
            if queue.count:
                entries = files.read(queue.topic, queue.queue_id, queue.max_offset - 1, 1)
                if len(entries) and places_of(entries)[0] > place:
                    newest, place = queue, int(places_of(entries)[0])
        if newest is None:
            return view.log_min
        return _confirmed_end(view, files, newest, newest.max_offset - 1)
    finally:
        files.close()


def queue_ranges(
    queues: Sequence[QueueBounds],
    broker_name: str,
    where: str,
    options: SourceOptions,
    selection: Selection,
    search: TimeSearch,
) -> dict[tuple[str, int], tuple[int, int]]:
    """(topic, queue id) -> the messages to read, of each queue of one broker that is chosen. `search` finds offsets by
    time.

    Raises BadOption, UnknownRead, MessagesGone.
    """
    _check_tables(queues, broker_name, where, options)
    starting = options.starting_offsets or Offsets(EARLIEST)
    ending = options.ending_offsets or Offsets(LATEST)
    if starting.word == LATEST:
        raise BadOption("startingOffsets", LATEST, "a batch that begins at the end holds nothing")
    found = {}
    for queue in queues:
        if not wants_queue(selection, queue.topic, queue.queue_id):
            continue
        start = _offset_in(queue, starting, broker_name, queue.min_offset, "startingOffsets", search)
        end = _offset_in(queue, ending, broker_name, queue.max_offset, "endingOffsets", search)
        if start < min(queue.min_offset, end):
            _lose(queue, start, min(queue.min_offset, end), options)
        start = max(start, queue.min_offset)
        if start < end:
            found[queue.topic, queue.queue_id] = (start, end)
    return found


def wants_queue(selection: Selection, topic: str, queue_id: int) -> bool:
    """Whether messages of the queue may be wanted."""
    in_queues = selection.queues is None or (topic, queue_id) in selection.queues
    in_ids = selection.queue_ids is None or queue_id in selection.queue_ids
    return in_queues and in_ids and selection.wants_topic(topic)


def _check_tables(queues: Sequence[QueueBounds], broker_name: str, where: str, options: SourceOptions) -> None:
    """Raises UnknownRead for a queue that offsets name and that is not there; those of other brokers are their own."""
    there = {(queue.topic, queue.queue_id) for queue in queues}
    for offsets in (options.starting_offsets, options.ending_offsets):
        for topic, broker, queue_id in offsets.table if offsets is not None else ():
            if broker in ("", broker_name) and (topic, queue_id) not in there:
                raise UnknownRead(f"queue {queue_id} of topic {topic} with messages", where)


def _offset_in(
    queue: QueueBounds, offsets: Offsets, broker_name: str, otherwise: int, name: str, search: TimeSearch
) -> int:
    found = offsets.of(queue.topic, broker_name, queue.queue_id)
    if found is None:
        return otherwise
    if isinstance(found, AtTime):
        return search((queue.topic, queue.queue_id), (queue.min_offset, queue.max_offset), found.ms)
    if isinstance(found, str):
        return queue.min_offset if found == EARLIEST else queue.max_offset
    check_offset(name, found, queue.topic, queue.queue_id, queue.max_offset)
    return found


def check_offset(name: str, offset: int, topic: str, queue_id: int, end: int) -> None:
    """Raises BadOption for one behind the end of its queue."""
    if offset > end:
        where = f"queue {queue_id} of {topic} ends at {end}"
        raise BadOption(name, str(offset), f"{where}: there is nothing yet at that offset")


def _lose(queue: QueueBounds, start: int, end: int, options: SourceOptions) -> None:
    gone = gone_from_queue(queue.topic, queue.queue_id, start, end, "they were deleted before the read began")
    lose(gone, fails=options.fail_on_data_loss)


def in_time(view: StoreView, ranges: QueueRanges, selection: Selection) -> QueueRanges:
    """The ranges without what a search by store time shows to lie outside; each message is checked all the same."""
    if selection.start_ms is None and selection.end_ms is None:
        return ranges
    found = {}
    files = view.facts().queue_files()
    try:
        for queue, (start, end) in ranges.items():
            search = partial(_search_time, view, files, queue, start, end)
            first = start if selection.start_ms is None else search(selection.start_ms - CLOCK_SLACK_MS)
            if first > start and not _is_there(view, files, queue, start):
                first = start  # of what is deleted nobody knows that it was older: the task reports it
            last = end if selection.end_ms is None else search(selection.end_ms + CLOCK_SLACK_MS)
            if first < last:
                found[queue] = (first, last)
    finally:
        files.close()
    return found


def offset_at(view: StoreView, queue: tuple[str, int], span: tuple[int, int], time_ms: int) -> int:
    """The first offset in `span` of a message that was stored then or later, as a broker's search finds it."""
    files = view.facts().queue_files()
    try:
        return _search_time(view, files, queue, *span, time_ms)
    finally:
        files.close()


def _search_time(
    view: StoreView, files: ConsumeQueueFiles, queue: tuple[str, int], start: int, end: int, time_ms: int
) -> int:
    return files.search_time(
        *queue,
        time_ms,
        Boundary.LOWER,
        min_offset=start,
        end_offset=end,
        log_min=view.log_min,
        store_time=view.store_time,
    )


def _is_there(view: StoreView, files: ConsumeQueueFiles, queue: tuple[str, int], number: int) -> bool:
    """Whether the record of an entry can be read. Cleaning goes on from the oldest, so all behind it can."""
    entries = files.read(*queue, number, 1)
    return len(entries) > 0 and view.store_time(int(places_of(entries)[0])) >= 0


def pruned(view: StoreView, options: SourceOptions, selection: Selection) -> tuple[int, int]:
    """The stretch of the log that can hold what is wanted, by offset and by store times of segments' first records.

    Raises MessagesGone for a physical offset that was deleted.
    """
    facts = view.facts()
    start, end = facts.log_min, facts.safe_end
    if selection.start_offset is not None:
        if options.starting_physical_offset is not None and options.starting_physical_offset < start:
            _lose_bytes(options, start)
        start = max(start, selection.start_offset)
    if selection.end_offset is not None:
        end = min(end, selection.end_offset)
    times = {base: view.first_store_time(base) for base in facts.segments} if _by_time(selection) else {}
    if selection.start_ms is not None:
        # What begins late enough says that everything before it may be early.
        early = [base for base, time in times.items() if 0 <= time < selection.start_ms - CLOCK_SLACK_MS]
        start = max(start, early[-1]) if early else start
    if selection.end_ms is not None:
        late = [base for base, time in times.items() if time > selection.end_ms + CLOCK_SLACK_MS]
        end = min(end, late[0]) if late else end
    return start, max(start, end)


def _by_time(selection: Selection) -> bool:
    return selection.start_ms is not None or selection.end_ms is not None


def _lose_bytes(options: SourceOptions, log_min: int) -> None:
    asked = options.starting_physical_offset
    assert asked is not None
    if asked == 0:  # from the beginning, wherever that is by now
        return
    amount = f"{log_min - asked} bytes of the log from {asked} on"
    gone = MessagesGone(f"startingPhysicalOffset {asked}", amount, f"the log begins at {log_min}")
    lose(gone, fails=options.fail_on_data_loss)


# --- partitions of the log


def log_partitions(view: StoreView, start: int, end: int, options: SourceOptions) -> list[Partition]:
    """[start, end) of the log, cut into what tasks read. Both must be boundaries of records, or of segments."""
    facts = view.facts()
    splits = [
        LogSplit(max(start, base + facts.start_in(base)), min(end, base + facts.end_in(base)))
        for base in facts.segments
    ]
    splits = [split for split in splits if split.bytes > 0]
    if not splits:
        return []
    total, tasks = sum(split.bytes for split in splits), tasks_wanted(options)
    if len(splits) < tasks and total >= 2 * options.split_bytes:
        splits = divided(view, splits, max(options.split_bytes, -(-total // tasks)), options)
    least = options.split_bytes if options.min_partitions is None else min(options.split_bytes, -(-total // tasks))
    return [
        LogPartition(facts.only({facts.segment_of(split.start) for split in group}), tuple(group))
        for group in grouped(splits, least)
    ]


def aligned(view: StoreView, start: int, end: int) -> tuple[int, int]:
    """The least stretch between known boundaries that holds [start, end): a queue's entries know them, and segments."""
    facts = view.facts()
    start, end = max(start, facts.log_min), min(end, facts.safe_end)
    if start >= end:
        return start, start
    base = facts.segment_of(start)
    if start > (low := base + facts.start_in(base)):
        start = _boundary_near(view, start, end, low=low) or low
    base = facts.segment_of(end)
    if base < end < (high := base + facts.end_in(base)):
        end = _boundary_near(view, end - 1, high) or high
    return start, end


def divided(view: StoreView, splits: list[LogSplit], size: int, options: SourceOptions) -> list[LogSplit]:
    """Splits of about `size` bytes, as far as boundaries are known."""
    found = []
    for split in splits:
        wanted = list(range(split.start + size, split.end - size // 2, size))
        for border in _known_boundaries(view, split, wanted, options):
            found.append(LogSplit(split.start, border))
            split = LogSplit(border, split.end)
        found.append(split)
    return found


def _known_boundaries(view: StoreView, split: LogSplit, wanted: Sequence[int], options: SourceOptions) -> Iterable[int]:
    """A boundary behind each wanted place, rising: by the queues, or without any and where asked for by a scan."""
    if view.queues:
        near = (_boundary_near(view, place, split.end) for place in wanted)
        return sorted({border for border in near if border is not None})
    if not wanted or options.min_partitions is None:
        return []
    base = view.facts().segment_of(split.start)
    data = view.array_if_there(base)
    if data is None:
        return []
    found = boundaries(data, base, split.start - base, split.end - base).positions + base
    places = np.searchsorted(found, np.array(wanted))
    return sorted({int(found[place]) for place in places if place < len(found)})


def _boundary_near(view: StoreView, place: int, end: int, *, low: int | None = None) -> int | None:
    """The start of a record in (place, end), or with `low` in (low, place], the nearest that a large queue names.

    What an entry says is compared with the record there. None where no queue has one.
    """
    at_most = low is not None
    files = view.facts().queue_files()
    try:
        near = []
        for queue in sorted(view.queues, key=lambda queue: -queue.count)[:SPLIT_QUEUES]:
            number = files.min_offset_after(queue.topic, queue.queue_id, place + 1, queue.min_offset, queue.max_offset)
            number -= at_most
            if queue.min_offset <= number < queue.max_offset:
                near.append(_confirmed_entry(view, files, queue, number))
        if low is not None:
            return max((found for found in near if found is not None and low < found <= place), default=None)
        return min((found for found in near if found is not None and place < found < end), default=None)
    finally:
        files.close()


def _confirmed_end(view: StoreView, files: ConsumeQueueFiles, queue: QueueBounds, number: int) -> int | None:
    """Where the record of an entry ends, if it stands where the entry says."""
    place = _confirmed_entry(view, files, queue, number)
    if place is None:
        return None
    size = int(files.read(queue.topic, queue.queue_id, number, 1)["record_size"][0])
    return min(place + size, view.safe_end)


def _confirmed_entry(view: StoreView, files: ConsumeQueueFiles, queue: QueueBounds, number: int) -> int | None:
    """Where the record of an entry begins, if a record of its place, size and number does stand there."""
    entries = files.read(queue.topic, queue.queue_id, number, 1)
    if not len(entries) or is_filler(entries).any():
        return None
    place, facts = int(places_of(entries)[0]), view.facts()
    if not facts.log_min <= place < facts.safe_end:
        return None
    base = facts.segment_of(place)
    data, at = view.array_if_there(base), np.array([place - base])
    if data is None or place - base + SIZE_MIN > len(data):
        return None
    stands = (
        field(data, at, "physical_offset")[0] == place
        and field(data, at, "queue_offset")[0] == number
        and field(data, at, "total_size")[0] == entries["record_size"][0]
    )
    return place if stands else None


def grouped(splits: Iterable[LogSplit], least: int) -> list[list[LogSplit]]:
    """Neighbours together until they hold `least` bytes; what is larger stands alone."""
    groups: list[list[LogSplit]] = []
    size = least
    for split in splits:
        if size + split.bytes > least:
            groups.append([])
            size = 0
        groups[-1].append(split)
        size += split.bytes
    return groups


# --- partitions of queues


def queue_partitions(view: StoreView, ranges: QueueRanges, options: SourceOptions) -> list[Partition]:
    """Messages of queues, cut into about as many partitions as tasks are wanted, of ENTRIES_MIN messages at least."""
    facts = view.facts().only(view.segments)
    return [QueuePartition(facts, tuple(group)) for group in dealt(ranges, options)]


def dealt(ranges: QueueRanges, options: SourceOptions) -> list[list[QueueSplit]]:
    """The ranges in order, cut into lists of about equal count."""
    total = sum(end - start for start, end in ranges.values())
    share = max(1, -(-total // tasks_wanted(options)))
    if options.min_partitions is None:
        share = max(share, ENTRIES_MIN)
    groups: list[list[QueueSplit]] = []
    room = 0
    for (topic, queue_id), (start, end) in sorted(ranges.items()):
        while start < end:
            if not room:
                groups.append([])
                room = share
            count = min(room, end - start)
            groups[-1].append(QueueSplit(topic, queue_id, start, start + count))
            start, room = start + count, room - count
    return groups
