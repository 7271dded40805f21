"""The short recovery: a start goes on where the node before stopped, without reading the log again (hazard H25).

Two nodes leave a `Known` behind. One that was stopped in order wrote it when everything was synced and dispatched. One
that was killed left its positions in memory; they count as long as the kernel still holds every byte that was written,
which the caller must know. The snapshot is checked at the log's newest record: its queue's last entry must point to it,
and a walk from there, with every check, must reach the published end. Only zeros may follow. A misfit is no error: then
the whole recovery is done.

What a killed node had not synced yet is walked as well, as far as it is within UNSYNCED of the newest record: a record
that is damaged there ends the log, as it would in a whole recovery (H3). What lies further back, behind the durable
offset, is taken from the page cache unseen, as reput and readers took it before; `store verify` checks it.
"""

from bisect import bisect_right
from typing import Final

from towline.errors import CorruptLog, NotInLog
from towline.format.files.durable import Durable
from towline.format.record.rules import Rule
from towline.limits import MIB, REQUEST_SIZE_MAX
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.log_walk import Checks, LogEnd, LogWalk
from towline.log.queues.consume_queue import ConsumeQueueFiles, places_of

from .shutdown_snapshot import Known, KnownQueue

# Bytes that a killed writer may have copied behind what it published: one request, its blank, or a slice (H11).
REACH: Final = 2 * REQUEST_SIZE_MAX
UNSYNCED: Final = 64 * MIB  # of the log before the newest record that was dispatched


def verified_end(
    known: Known, durable: Durable | None, reader: CommitLogReader, queues: ConsumeQueueFiles, checks: Checks
) -> LogEnd | str:
    """Where the log ends, or why `known` does not fit these files. `reader` was loaded."""
    if durable is None:
        return "there is no durable-offset file"
    marks = (durable.flushed, durable.queues_durable, known.dispatched, known.indexed)
    if known.clean and any(mark != known.appended for mark in marks):
        return f"the log was closed at {known.appended}, its marks are {marks}"
    if known.synced and marks[:2] != (known.appended, min(known.dispatched, known.indexed)):
        return f"the log was synced up to {known.appended} when the node stopped, its marks are {marks}"
    if durable.flushed > known.appended or durable.queues_durable > min(known.dispatched, known.indexed):
        return f"the log was published up to {known.appended}, though the durable marks are {marks[:2]}"
    newest = max(known.queues, key=lambda queue: queue.physical_end, default=None)
    if newest is None or not newest.end_offset:
        return "no queue holds a record"
    entries = queues.read(newest.topic, newest.queue_id, newest.end_offset - 1, 1)
    if not len(entries):
        return f"{newest.topic}/{newest.queue_id} has no entry {newest.end_offset - 1}"
    start, size = int(entries["physical_offset"][0]), int(entries["record_size"][0])
    if start + size != newest.physical_end or reader.queue.base_of(start) is None:
        return f"the last entry of {newest.topic}/{newest.queue_id} leads to {start}, not to {newest.physical_end}"
    start = _unsynced(durable, reader, queues, newest, start)
    try:
        end = LogWalk(reader, durable.flushed, checks).run(start)
    except CorruptLog as error:
        return error.describe()
    least, most = max(known.appended, known.dispatched), known.appended if known.clean else known.appended + REACH
    if end.rule is not Rule.OK or not least <= end.end <= most or not end.last_store_timestamp:
        return f"the log was published up to {least}, a walk from {start} ends at {end.end} ({end.rule.name})"
    return end if _only_zeros(reader, end.end) else f"bytes stand behind the log's end {end.end}"


def _unsynced(
    durable: Durable, reader: CommitLogReader, queues: ConsumeQueueFiles, newest: KnownQueue, start: int
) -> int:
    """Where the walk begins: at `start`, the newest record, or before it at one that covers what was not synced.

    That is the queue's last record before, or where it has none so near the durable offset itself, which on a slave may
    lie inside a record: then nothing fits, which only costs time.
    """
    wanted = max(durable.flushed, start - UNSYNCED, reader.queue.min_offset)
    if wanted >= start:
        return start
    numbers = range(newest.end_offset)

    def place(number: int) -> int:
        entries = queues.read(newest.topic, newest.queue_id, number, 1)
        return int(places_of(entries)[0]) if len(entries) else -1

    before = bisect_right(numbers, wanted, lo=newest.min_offset, key=place) - 1
    found = place(before) if before >= newest.min_offset else -1
    if found >= max(wanted - UNSYNCED, reader.queue.min_offset):
        return found
    return durable.flushed if wanted == durable.flushed else start


def _only_zeros(reader: CommitLogReader, end: int) -> bool:
    """Whether nothing stands where a killed writer may have written: behind the end, and where next segments begin."""
    size = reader.segment_size
    for base in reader.queue.bases:
        if base + size > end:
            first = max(end - base, 0)
            try:
                if reader.array(base)[first : min(first + REACH, size)].any():
                    return False
            except NotInLog:
                return False
    return True
