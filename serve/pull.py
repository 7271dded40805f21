"""getMessage: records of one queue from one offset on, as they stand in the log (spec 10.1)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from towline.errors import MalformedFile, NotInLog
from towline.format.consume_queue import SIZE
from towline.format.frames import Buffer, Pull
from towline.format.record import SIZE_MIN
from towline.format.status import GetStatus
from towline.kernels.queues import gather
from towline.log.commit_log import CommitLogReader
from towline.log.consume_queue import ConsumeQueueFiles
from towline.runtime.positions import Position
from towline.runtime.queue_ends import QueueEnds

from .selection import Entries, Integers, Limits, adjoining, fitting, matching, outside
from .topics import TopicsView


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to a pull. `sizes` holds a big-endian u4 per record; `records` is a view of the log or a buffer."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    count: int = 0
    sizes: bytes = b""
    records: Buffer = b""


@dataclass(frozen=True, slots=True)
class PullRules:
    """`in_memory_bytes`: the log's newest bytes count as cached, and pulls from there are limited by `memory`."""

    memory: Limits
    disk: Limits
    in_memory_bytes: int
    scan_entries: int  # a pull looks at so many entries at most, or at as many as it wants records
    corrects: bool  # a wrong offset is answered with a right one
    written: Position = Position.APPENDED  # up to where the segment files hold the log


class Puller:
    """Reads for pulls. Never past the queue ends that reput published, so never past the confirmed end (H15)."""

    def __init__(
        self,
        queues: ConsumeQueueFiles,
        log: CommitLogReader,
        ends: QueueEnds,
        topics: TopicsView,
        get: Callable[[Position], int],
        rules: PullRules,
    ) -> None:
        self._queues = queues
        self._log = log
        self._ends = ends
        self._topics = topics
        self._get = get
        self._rules = rules

    def run(self, pull: Pull) -> Outcome:
        """One answer, out of one ConsumeQueue file and one log segment.

        Raises MalformedFile when an entry cannot be one, SegmentSizeMismatch, ForeignFile.
        """
        place = self._ends.find(pull.topic, pull.queue_id)
        if place < 0:
            return self._without_messages(pull)
        low, high = self._ends.bounds(place)
        found = outside(low, high, pull.offset, corrects=self._rules.corrects)
        if found is not None:
            return Outcome(*found, low, high)
        topic = pull.topic.decode()
        wanted = max(self._rules.scan_entries, min(pull.max_count, self._rules.memory.count))
        entries = self._queues.read(topic, pull.queue_id, pull.offset, min(wanted, high - pull.offset))
        nothing = Outcome(GetStatus.OFFSET_FOUND_NULL, 0, low, high)
        if len(entries) == 0:
            per_file = self._queues.file_size // SIZE
            return replace(nothing, next_offset=min(high, pull.offset - pull.offset % per_file + per_file))
        rows = np.flatnonzero(matching(entries, pull.codes))
        after = pull.offset + len(entries)
        if len(rows) == 0:
            return replace(nothing, status=GetStatus.NO_MATCHED_MESSAGE, next_offset=after)
        return self._take(pull, entries, rows, replace(nothing, next_offset=after))

    def _without_messages(self, pull: Pull) -> Outcome:
        """The queue may exist although nothing was ever dispatched to it."""
        status = GetStatus.NO_MATCHED_LOGIC_QUEUE
        try:
            topic = self._topics.get(pull.topic.decode())
        except UnicodeDecodeError:
            topic = None
        if topic is not None and 0 <= pull.queue_id < topic.read_queue_nums:
            status = GetStatus.NO_MESSAGE_IN_QUEUE
        return Outcome(status, 0 if self._rules.corrects else pull.offset, 0, 0)

    def _take(self, pull: Pull, entries: Entries, rows: Integers, nothing: Outcome) -> Outcome:
        """The records of the entries `rows`, as many as fit.

        Where the first of them have left the log, the answer says so and leads to the first that has not.
        """
        physical = entries["physical_offset"][rows].astype(np.int64)
        if physical[0] < 0:
            raise self._damaged(pull, int(physical[0]), int(entries["record_size"][rows[0]]))
        floor = self._get(Position.LOG_MIN)
        while True:
            first = int(np.searchsorted(physical, floor))
            if first == len(rows):
                return replace(nothing, status=GetStatus.MESSAGE_WAS_REMOVING)
            base = self._log.segment_of(int(physical[first]))
            try:
                segment = self._log.array(base)
            except NotInLog:  # deleted since LOG_MIN was read
                floor = base + self._log.segment_size
                continue
            break
        if first:
            return replace(nothing, status=GetStatus.MESSAGE_WAS_REMOVING, next_offset=pull.offset + int(rows[first]))
        sizes = entries["record_size"][rows].astype(np.int64)
        count = fitting(physical, sizes, base + self._log.segment_size, self._limits(pull, int(physical[0])))
        after = nothing.next_offset if count == len(rows) else pull.offset + int(rows[count])
        physical, sizes = physical[:count], sizes[:count]
        self._check(pull, physical, sizes, base)
        if 2 * int(sizes.sum()) >= int(physical[-1] + sizes[-1] - physical[0]):  # else most of it would be read in vain
            self._log.expect(int(physical[0]), int(physical[-1] + sizes[-1]))
        if adjoining(physical, sizes):
            records: Buffer = self._log.slice(int(physical[0]), int(physical[-1] + sizes[-1]))
        else:
            target = np.empty(int(sizes.sum()), dtype=np.uint8)
            gather(segment, physical - base, sizes.astype(np.int32), count, target)
            records = target.data
        packed = entries["record_size"][rows[:count]].tobytes()
        return replace(nothing, status=GetStatus.FOUND, next_offset=after, count=count, sizes=packed, records=records)

    def _limits(self, pull: Pull, physical: int) -> Limits:
        """What the pull asks for, as far as the settings allow for records that are in memory, or are not."""
        cached = self._get(self._rules.written) - physical <= self._rules.in_memory_bytes
        allowed = self._rules.memory if cached else self._rules.disk
        return Limits(min(pull.max_count, allowed.count), min(pull.max_bytes, allowed.size))

    def _check(self, pull: Pull, physical: Integers, sizes: Integers, base: int) -> None:
        """Entries were written by reput: one that leads out of the log is damage, and is named, not followed."""
        end = min(base + self._log.segment_size, self._get(self._rules.written))
        bad = (physical < base) | (sizes < SIZE_MIN) | (physical + sizes > end)
        bad[1:] |= physical[1:] < physical[:-1] + sizes[:-1]
        if bad.any():
            row = int(bad.argmax())
            raise self._damaged(pull, int(physical[row]), int(sizes[row]))

    def _damaged(self, pull: Pull, physical: int, size: int) -> MalformedFile:
        path = self._queues.root / pull.topic.decode() / str(pull.queue_id)
        problem = f"an entry names {size} bytes at {physical} of the log, which holds no such record"
        return MalformedFile(str(path), problem)
