"""Roll-back of the offsets in config/ when the log ends before the records that they count (H15, H17).

A start rolls back before put runs: later, queues have new messages under the offsets that were lost. No file says which
deliveries of delayed messages a shorter log still holds. But a delivery is stored when it is due: messages due after
the newest record were not delivered in that log, and messages due long before it were. The deletion of a topic may name
lost bytes of the log; then the floors of its queues are lowered. So are the minima to which retention had cut queues.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from towline.errors import MalformedFile
from towline.format.files.consume_queue import SIZE
from towline.format.files.topics import DeletedTopic, TopicTable, topics_content
from towline.format.record.forms import CANCEL_QUEUE, SCHEDULE_TOPIC, TIMER_QUEUE, TIMER_TOPIC
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.files.config_file import ConfigFile, read_config
from towline.log.queues.consume_queue import ConsumeQueueFiles, is_filler
from towline.log.state.floors import (
    DELAY_OFFSETS,
    EARLIER,
    GROUP_OFFSETS,
    LOG_END,
    TIMER_OFFSETS,
    TRANSACTION_OFFSETS,
)
from towline.log.state.queue_minima import NAME as MINIMA_FILE
from towline.log.state.queue_minima import QueueMinimum, load_minima, minima_content, offsets_of, still_needed
from towline.log.state.topics_file import TopicsConfig, read_table
from towline.places import Store

from .recover_derived import Queue, Tail
from .recovery import Recovered

LATE_MS: Final = 10_000  # a delivery that put refused for so long may be in the part of the log that is gone
_TIMERS: Final = {"upTo": TIMER_QUEUE, "from": TIMER_QUEUE, "cancelsFrom": CANCEL_QUEUE}  # of the timer topic
_NEVER: Final = (1 << 63) - 1
_LOOK: Final = 4096  # entries
_AT: Final = "@"
_FILES_OPEN_MAX: Final = 8
_NAMED_MAX: Final = 10  # offsets that are named one by one

Ends: TypeAlias = Mapping[Queue, int]
Clamp: TypeAlias = Callable[[dict[str, Any], Ends], list[str]]


@dataclass(frozen=True, slots=True)
class Shorter:
    """A log that ends at `end`, with the store time of its newest record, or of the first behind it (epoch ms)."""

    end: int
    newest_ms: int

    @property
    def delivered_ms(self) -> int:
        """What was due until then was delivered in it."""
        return max(0, self.newest_ms - LATE_MS)


@dataclass(frozen=True, slots=True)
class Clamped:
    """The offsets that were rolled back. `counts`: file -> how many. `notes`: sentences for the log."""

    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def clamp_offsets(store: Store, ends: Ends, log: Shorter, files: ConsumeQueueFiles) -> Clamped:
    """Rolls offsets beyond the end of their queue back to it; a queue that `ends` does not name has no record.

    `log` is the log as it is about to be cut, `files` are its queues. Later is too late: a log that has grown again
    does not show what was cut. Raises StoreNotWritable, SyncFailed, DiskFull.
    """
    return _clamp(store, ends, _clamps(log, files) | {TRANSACTION_OFFSETS: _transactions})


def clamp_to_recovered(
    store: Store, recovered: Recovered, floors: Mapping[tuple[bytes, int], int], sizes: tuple[int, int]
) -> Clamped:
    """The same for the start of a master, whose log ends where it was recovered. `floors` of deleted topics hold too.

    `sizes`: of a segment, and of a queue's file. Raises StoreNotWritable, SyncFailed, DiskFull. Files that cannot be
    read are left to their owners, who refuse them.
    """
    ends = {(queue.topic, queue.queue_id): queue.end_offset for queue in recovered.queues}
    for (topic, queue_id), floor in floors.items():
        key = topic.decode("utf-8", "replace"), queue_id
        ends[key] = max(floor, ends.get(key, 0))
    segment_size, queue_file_size = sizes
    files = ConsumeQueueFiles(store.consumequeue, queue_file_size, _FILES_OPEN_MAX)
    log = CommitLogReader(store.commitlog, segment_size)
    clamps = _clamps(Shorter(recovered.end, recovered.last_store_timestamp), files)
    try:
        if not any(clamp(content, ends) for name, clamp in clamps.items() if (content := _load(store, name)[0])):
            return Clamped()
        log.load()  # reput has not dispatched all of it
        for queue, end in Tail.of(log, recovered.dispatched, recovered.end).ends.items():
            ends[queue] = max(end, ends.get(queue, 0))
        return _clamp(store, ends, clamps)
    finally:
        log.close()
        files.close()


def _clamps(log: Shorter, files: ConsumeQueueFiles) -> dict[str, Clamp]:
    return {
        GROUP_OFFSETS: clamp_groups,
        DELAY_OFFSETS: lambda content, ends: clamp_levels(content, ends, log, files),
        TIMER_OFFSETS: lambda content, ends: clamp_timers(content, ends, log),
    }


def _clamp(store: Store, ends: Ends, clamps: Mapping[str, Clamp]) -> Clamped:
    done = Clamped()
    for name, clamp in clamps.items():
        content, is_backup = _load(store, name)
        said = clamp(content, ends) if content else []
        if not said:
            continue
        file = ConfigFile(store.config / name)
        for _ in range(2):  # the generation before too: a later start may have to believe it
            file.save(content)
        done.counts[name] = len(said)
        done.notes.append(f"{len(said)} offsets of {name} went back to the ends of their queues")
        done.notes.extend(said[:_NAMED_MAX])
        if is_backup:
            done.notes.append(f"{file.backup} is used: {name} cannot be read")
    return done


def _load(store: Store, name: str) -> tuple[dict[str, Any], bool]:
    """Empty where there is none, or whoever owns it will refuse it; whether it is the generation before."""
    file = ConfigFile(store.config / name)
    try:
        content = file.load() or {}
    except MalformedFile:
        return {}, False
    return content, bool(content) and read_config(file.path) is None


def clamp_groups(content: dict[str, Any], ends: Ends) -> list[str]:
    """Rolls back the content of consumerOffset.json; sentences about it."""
    said = []
    for table in ("offsetTable", "pullOffsetTable"):
        for key, queues in _tables(content.get(table)):
            topic, _, group = key.partition(_AT)
            for queue in queues:
                end = ends.get((topic, queue_id_of(queue)), 0)
                if number(queues, queue) > end:
                    said.append(
                        f"group {group}: its offset {queues[queue]} of queue {queue} of {topic} is beyond "
                        f"the queue's end and becomes {end}"
                    )
                    queues[queue] = end
    return said


def _transactions(content: dict[str, Any], ends: Ends) -> list[str]:
    """Halves whose op records were cut off are open again, so both topics are read from the beginning."""
    said = [f"{name} was {value}: transactions are read from the beginning" for name, value in content.items() if value]
    content.update(dict.fromkeys(content, 0))
    return said


def _tables(found: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(key, table) for key, table in found.items() if isinstance(table, dict)] if isinstance(found, dict) else []


# --- delayed messages


def clamp_levels(content: dict[str, Any], ends: Ends, log: Shorter, files: ConsumeQueueFiles) -> list[str]:
    """Rolls back the content of delayOffset.json; sentences about it."""
    said = []
    found = content.get("offsetTable")
    offsets: dict[str, Any] = found if isinstance(found, dict) else {}
    longer = number(content, LOG_END) > log.end
    for level in offsets:
        counted = number(offsets, level)
        end = ends.get((SCHEDULE_TOPIC, queue_id_of(level, 1)), 0)
        holds = min(counted, end)
        if longer and holds:
            holds = _first_after(files, queue_id_of(level, 1), holds, log.delivered_ms)
        if counted > holds:
            said.append(f"of level {level} {counted} count as delivered, and the log holds {holds}")
            offsets[level] = holds
    if longer:
        content[LOG_END] = log.end
        said = said or [f"the delay levels speak of a log that is longer than {log.end} bytes"]
    return said


def clamp_timers(content: dict[str, Any], ends: Ends, log: Shorter) -> list[str]:
    """Rolls back the content of timerOffset.json; sentences about it. Timers and cancellations are read again."""
    said = []
    earlier = content.get(EARLIER)
    marks = [mark for mark in earlier if isinstance(mark, dict)] if isinstance(earlier, list) else []
    for mark in (content, *marks):
        for name, queue in _TIMERS.items():
            end = ends.get((TIMER_TOPIC, queue), 0)
            if number(mark, name) > end:
                said.append(f"{name} is {mark[name]}, and the queue ends at {end}")
                mark[name] = end
    longer = number(content, LOG_END) > log.end
    if not (said or longer):
        return []
    until = log.delivered_ms if longer else log.newest_ms
    content["from"] = content["cancelsFrom"] = 0
    for mark in (content, *marks):
        delivered = number(mark, "deliveredDue"), mark.get("deliveredOffset", -1)
        mark["deliveredDue"], mark["deliveredOffset"] = min(delivered, (until, _NEVER))
    content[LOG_END] = min(number(content, LOG_END), log.end)
    return said or [f"the times speak of a log that is longer than {log.end} bytes"]


def number(content: Mapping[str, Any], name: str) -> int:
    """The member `name`; 0 where it is no number: the owner of the file refuses that."""
    value = content.get(name, 0)
    return value if type(value) is int else 0


def queue_id_of(text: str, first: int = 0) -> int:
    """The queue that a member of JSON names, where the first one is called `first`; -1 if it names none."""
    return int(text) - first if text.isdecimal() else -1


def _first_after(files: ConsumeQueueFiles, queue_id: int, before: int, time_ms: int) -> int:
    """The first entry before number `before` that is due after `time_ms`, or has no known time: so many are through.

    Backwards, until _LOOK in a row are due sooner: a queue's times go up, unless its delay was changed.
    """
    if queue_id < 0:
        return before
    bases = files.bases(SCHEDULE_TOPIC, queue_id)
    if not bases:  # it is derived again
        return 0
    low, per_file, first = bases[0] // SIZE, files.file_size // SIZE, before
    while before > max(low, first - _LOOK):
        start = max(low, before - _LOOK, (before - 1) // per_file * per_file)
        entries = files.raw(SCHEDULE_TOPIC, queue_id, start, before - start)
        codes = entries["tags_code"].astype(np.int64)
        untold = (entries["record_size"] <= 0) | (codes < 0)  # to be derived again, or an address of ConsumeQueueExt
        later = (untold | (codes > time_ms)) & ~is_filler(entries)
        first = start + int(later.argmax()) if later.any() else first
        before = start
    return first


# --- deleted topics, and queues that were cut


def lower_floors(store: Store, recovered: Recovered, segment_size: int) -> TopicTable:
    """The store's topics, with floors of deleted queues lowered where the deletion names lost bytes of the log.

    topics.json was synced and the log was not: offsets below a floor may have been lost. The log assigns them again, so
    the floor becomes the next offset. Not called on a slave: its master sends it those bytes again.
    """
    table = read_table(store)
    if all(deleted.log_offset <= recovered.end for deleted in table.deleted.values()):
        return table
    ends = _ends_of(store, recovered, segment_size)
    settled = replace(
        table,
        deleted={
            name: _lowered(name, deleted, recovered.end, ends) if deleted.log_offset > recovered.end else deleted
            for name, deleted in table.deleted.items()
        },
    )
    TopicsConfig(store.config / "topics.json").save(topics_content(settled))
    return settled


def lower_minima(store: Store, recovered: Recovered, segment_size: int) -> dict[tuple[bytes, int], int]:
    """To which number each queue was cut by its topic's retention, lowered where the log ends before what was cut.

    That is so behind a truncation, and where the files of an older log were put in place: the numbers of what is lost
    are given again. Of a queue of which no file is left, all of the log that there is says how far it goes; put goes on
    there. And what the log no longer holds is forgotten: put may begin a topic that is gone at 0 again.
    Called at every start, on a slave too. Raises MalformedFile, StoreNotWritable, SyncFailed, DiskFull.
    """
    known = load_minima(store)
    minima = still_needed(known, recovered.log_min)
    lost = [queue for queue, minimum in minima.items() if minimum.log_offset > recovered.end]
    if lost:
        ends = _ends_of(store, recovered, segment_size)
        if not ends.keys() >= set(lost):
            ends = _ends_in_log(store, recovered.log_min, recovered.end, segment_size) | ends
        for queue in lost:
            minima[queue] = QueueMinimum(min(minima[queue].offset, ends.get(queue, 0)), recovered.end)
    if minima != known:
        file = ConfigFile(store.config / MINIMA_FILE)
        for _ in range(2):  # the generation before too: a later start may have to believe it
            file.save(minima_content(minima))
    return offsets_of(minima)


def _ends_of(store: Store, recovered: Recovered, segment_size: int) -> dict[Queue, int]:
    """The ends that queues have when all of the recovered log is dispatched."""
    ends = _ends_in_log(store, recovered.dispatched, recovered.end, segment_size)
    for queue in recovered.queues:
        key = queue.topic, queue.queue_id
        ends[key] = max(ends.get(key, 0), queue.end_offset)
    return ends


def _ends_in_log(store: Store, start: int, end: int, segment_size: int) -> dict[Queue, int]:
    """The ends that queues have by the records of [start, end) alone."""
    reader = CommitLogReader(store.commitlog, segment_size)
    reader.load()
    try:
        return dict(Tail.of(reader, start, end).ends)
    finally:
        reader.close()


def _lowered(name: str, deleted: DeletedTopic, end: int, ends: dict[tuple[str, int], int]) -> DeletedTopic:
    """Of a queue of which nothing is left the floor stays: it begins anew, wherever that is."""
    floors = {queue_id: min(floor, ends.get((name, queue_id), floor)) for queue_id, floor in deleted.floors.items()}
    return DeletedTopic(log_offset=end, floors=floors)
