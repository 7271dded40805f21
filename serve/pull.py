"""getMessage: records of one queue from one offset on, as they stand in the log (spec 10.1)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from towline.errors import MalformedRecord, NotInLog, QueueDamaged, TowlineError, UnknownQueue, UnknownTopic
from towline.format.files.consume_queue import SIZE
from towline.format.files.topics import TopicConfig
from towline.format.record.record import SIZE_MIN
from towline.format.record.transactions import HALF
from towline.format.wire.frames import STRETCH, Buffer, Pull, json_part
from towline.format.wire.refusals import error_facts
from towline.format.wire.status import GetStatus, PutStatus
from towline.kernels.scan.queues import gather
from towline.limits import MIB
from towline.link.log_files import STRETCH_MIN
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.node.store.pull_rules import Limits, PullRules
from towline.runtime.positions import Position
from towline.runtime.queue_ends import QueueEnds

from .filtering import ExtensionUnits
from .selection import (
    Bytes,
    ChosenEntries,
    Entries,
    Integers,
    Mask,
    RecordFilter,
    adjoining,
    chosen_of,
    fitting,
    joined,
    matching,
    outside,
)
from .topics import TopicsView

BLOCK: Final = 4_096  # entries that a filtered pull reads in one go: with their units they fit the cache of a core
EVALUATED: Final = 1_024  # records whose properties are evaluated in one go
READ_MAX: Final = 8 * MIB  # their bytes in one pull, while everybody else waits
SCATTERED_MAX: Final = 512  # records of one answer that are fetched from the disk one by one
FEW: Final = 1_024  # entries are read and checked as fast as one


@dataclass(frozen=True, slots=True)
class PullResult:
    """The answer to a pull. `sizes` holds a big-endian u4 per record; `records` is a view of the log or a buffer.

    `stretch`: the place of the records, for a reader that reads the file; else empty. `copied`: `records` is no view.
    `behind`: the records are so far behind the log's end that a slave had better be read. `why`: of REFUSED, JSON.
    """

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    count: int = 0
    sizes: bytes = b""
    records: Buffer = b""
    stretch: bytes = b""
    copied: bool = False
    behind: bool = False
    why: tuple[bytes, ...] = ()


class Puller:
    """Reads records for pulls; never beyond the queue ends that reput published, so never beyond the confirmed end
    (H15)."""

    def __init__(
        self,
        queues: ConsumeQueueFiles,
        log: CommitLogReader,
        ends: QueueEnds,
        topics: TopicsView,
        get: Callable[[Position], int],
        rules: PullRules,
        settled: Callable[[], bool],
        extension: ExtensionUnits | None = None,
    ) -> None:
        """Until `settled` no reader is sent back from behind the end of a queue: it may have been there."""
        self._queues = queues
        self._log = log
        self._ends = ends
        self._topics = topics
        self._get = get
        self.rules = rules
        self._settled = settled
        self._extension = extension

    def run(self, pull: Pull, record_filter: RecordFilter | None = None) -> PullResult:
        """One answer, out of one ConsumeQueue file and one log segment. `record_filter` is the pull's expression.

        Raises QueueDamaged when the first entry cannot be one, SegmentSizeMismatch, ForeignFile.
        """
        allowed = self._topics.allows(pull.topic, pull.queue_id)
        if allowed is False:
            return _not_readable(pull)
        if allowed is None:
            return self._unknown(pull)
        place = self._ends.find(pull.topic, pull.queue_id)
        if place < 0:
            return self._without_messages(pull)
        low, high = self._ends.bounds(place)
        corrects = self.rules.corrects and (pull.offset < high or self._settled())
        found = outside(low, high, pull.offset, corrects=corrects)
        if found is not None:
            return PullResult(*found, low, high)
        try:
            return self._within(pull, low, high, high, record_filter)
        except QueueDamaged as damage:
            if damage.offset <= pull.offset:
                raise
            return self._within(pull, low, high, damage.offset, record_filter)  # what stands before it

    def _within(self, pull: Pull, low: int, high: int, stop: int, record_filter: RecordFilter | None) -> PullResult:
        """Reads entries before number `stop`, in a queue [low, high)."""
        chosen = self._choose(pull, stop) if record_filter is None else self._evaluated(pull, stop, record_filter)
        nothing = PullResult(GetStatus.OFFSET_FOUND_NULL, chosen.after, low, high)
        if chosen.after == pull.offset:
            per_file = self._queues.file_size // SIZE
            return replace(nothing, next_offset=min(high, pull.offset - pull.offset % per_file + per_file))
        if len(chosen) == 0:
            return replace(nothing, status=GetStatus.NO_MATCHED_MESSAGE)
        return self._take(pull, chosen, nothing)

    def _unknown(self, pull: Pull) -> PullResult:
        """The answer for a queue that clients cannot read. A node that corrects no offset may only be behind its
        master.

        No reader is moved to another offset: the queue may return with all its messages (`alter_topic`).
        """
        if not self.rules.corrects:
            return PullResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, pull.offset, 0, 0)
        error: TowlineError = UnknownTopic(pull.topic.decode("utf-8", "replace"))
        if self._topic_of(pull) is not None:
            error = UnknownQueue(pull.topic.decode(), pull.queue_id)
        return PullResult(GetStatus.REFUSED, pull.offset, 0, 0, why=(json_part(error_facts(error)),))

    def _without_messages(self, pull: Pull) -> PullResult:
        """The answer for a queue to which nothing was ever dispatched; a broker's own topic may lack it altogether."""
        topic = self._topic_of(pull)
        if topic is None or not 0 <= pull.queue_id < topic.read_queue_nums:
            return PullResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, pull.offset, 0, 0)
        corrects = self.rules.corrects and self._settled()
        return PullResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0 if corrects else pull.offset, 0, 0)

    def _topic_of(self, pull: Pull) -> TopicConfig | None:
        try:
            return self._topics.get(pull.topic.decode())
        except UnicodeDecodeError:
            return None

    # --- which entries

    def _choose(self, pull: Pull, high: int) -> ChosenEntries:
        """Chooses entries of the wanted tags, until there are enough for an answer or enough were checked."""
        count = max(1, min(pull.max_count, self.rules.memory.count))
        if not pull.codes:
            entries = self._entries(pull, pull.offset, high, self._worth_reading(pull, high, count))
            return chosen_of(entries, matching(entries, ()), pull.offset)
        stop = min(high, self._end_of_scan(pull, count))
        found: list[ChosenEntries] = []
        kept = size = 0
        at = pull.offset
        while at < stop and kept < count and size < pull.max_bytes:
            entries = self._entries(pull, at, stop, BLOCK)
            if len(entries) == 0:
                break
            found.append(chosen_of(entries, self._matching(pull, entries), at))
            kept += len(found[-1])
            size += int(found[-1].sizes.sum())
            at += len(entries)
        return joined(found, at)

    def _worth_reading(self, pull: Pull, high: int, count: int) -> int:
        """How many entries an answer may hold, as far as the size of the first shows."""
        count = max(1, min(count, pull.max_bytes // SIZE_MIN + 1))
        if count <= FEW:
            return count
        first = self._entries(pull, pull.offset, high, 1)
        if len(first) == 0 or not matching(first, ()).all():
            return count
        return min(count, pull.max_bytes // max(SIZE_MIN, int(first["record_size"][0])) + FEW)

    def _evaluated(self, pull: Pull, high: int, record_filter: RecordFilter) -> ChosenEntries:
        """Chooses entries by the properties of their records, so from one segment only."""
        count = max(1, min(pull.max_count, self.rules.memory.count))
        stop = min(high, self._end_of_scan(pull, count))
        found: list[ChosenEntries] = []
        kept = size = base = 0
        left = READ_MAX
        at = pull.offset
        while at < stop and kept < count and size < pull.max_bytes and left > 0:
            wanted = Limits(min(count - kept, EVALUATED), pull.max_bytes - size)
            rows = self._possible(pull, at, stop, record_filter, wanted)
            if rows.after == at:
                break
            at = rows.after
            if len(rows) == 0:
                continue
            base = base if kept else self._log.segment_of(int(rows.physical[0]))
            border = base + self._log.segment_size
            full = left < READ_MAX and rows.sizes[0] > left
            if full or (kept and rows.physical[0] >= border):  # what was found is of the segment before
                at = int(rows.offsets[0])
                break
            inside = rows.first(fitting(rows.physical, rows.sizes, border, Limits(len(rows), left)))
            at = int(rows.offsets[len(inside)]) if len(inside) < len(rows) else at
            try:
                segment = self._readable(pull, inside, base)
            except NotInLog:
                return joined(found, int(inside.offsets[0])) if kept else joined([inside], at)
            try:
                hits = record_filter.keep(segment, inside.physical - base, inside.sizes)
            except MalformedRecord as error:
                row = int(np.searchsorted(inside.physical, base + error.at, side="right")) - 1
                raise _damaged(pull, inside, max(0, row), f": {error.sentence}") from None
            left -= int(inside.sizes.sum())
            if len(hits) < len(inside):
                at, left = int(inside.offsets[len(hits)]), 0
            found.append(inside.first(len(hits)).where(hits))
            kept += len(found[-1])
            size += int(found[-1].sizes.sum())
        return joined(found, at)

    def _possible(self, pull: Pull, at: int, stop: int, record_filter: RecordFilter, wanted: Limits) -> ChosenEntries:
        """Entries that may match, from as many blocks as a limit takes: evaluating few at a time is expensive."""
        found: list[ChosenEntries] = []
        kept = size = 0
        block = EVALUATED
        while at < stop and kept < wanted.count and size < wanted.size:
            entries = self._entries(pull, at, stop, block)
            if len(entries) == 0:
                break
            found.append(chosen_of(entries, record_filter.possible(pull, entries, self._matching(pull, entries)), at))
            kept += len(found[-1])
            size += int(found[-1].sizes.sum())
            at += len(entries)
            if len(found[-1]) * 8 < len(entries):
                block = min(2 * block, BLOCK)
        return joined(found, at)

    def _matching(self, pull: Pull, entries: Entries) -> Mask:
        codes = None
        if self._extension is not None and pull.codes:
            codes = self._extension.tags_codes(pull.topic.decode(), pull.queue_id, entries)
        return matching(entries, pull.codes, codes)

    def _readable(self, pull: Pull, rows: ChosenEntries, base: int) -> Bytes:
        """The segment of these rows, all of them checked. Raises NotInLog when it, or the first of them, has been
        deleted."""
        floor = self._get(Position.LOG_MIN)
        if rows.physical[0] < floor and rows.physical[0] >= 0:
            raise NotInLog(int(rows.physical[0]), floor, floor)
        self._check_places(pull, rows)
        segment = self._log.array(base)
        self._check(pull, rows, base)
        self._expect(rows.physical, rows.sizes)
        return segment

    def _end_of_scan(self, pull: Pull, count: int) -> int:
        """The queue offset at which this answer ends: it comes from one file of the queue."""
        per_file = self._queues.file_size // SIZE
        border = pull.offset - pull.offset % per_file + per_file
        return min(border, pull.offset + max(self.rules.scan_entries, count))

    def _entries(self, pull: Pull, at: int, stop: int, count: int) -> Entries:
        return self._queues.read(pull.topic.decode(), pull.queue_id, at, min(count, stop - at))

    # --- their records

    def _take(self, pull: Pull, chosen: ChosenEntries, nothing: PullResult) -> PullResult:
        """The records of these entries, as many as fit.

        Where the first of them have left the log, the answer says so and leads to the first that has not.
        """
        physical = chosen.physical
        self._check_places(pull, chosen)
        floor = self._get(Position.LOG_MIN)
        while True:
            first = int(np.searchsorted(physical, floor))
            if first == len(chosen):
                return replace(nothing, status=GetStatus.MESSAGE_WAS_REMOVING)
            base = self._log.segment_of(int(physical[first]))
            try:
                segment = self._log.array(base)
            except NotInLog:  # deleted since LOG_MIN was read
                floor = base + self._log.segment_size
                continue
            break
        if first:
            return replace(nothing, status=GetStatus.MESSAGE_WAS_REMOVING, next_offset=int(chosen.offsets[first]))
        count = fitting(physical, chosen.sizes, base + self._log.segment_size, self._limits(pull, int(physical[0])))
        if self._log.is_cold(base) and not _dense(physical[:count], chosen.sizes[:count]):
            count = min(count, SCATTERED_MAX)
        after = nothing.next_offset if count == len(chosen) else int(chosen.offsets[count])
        kept = chosen.first(count)
        self._check(pull, kept, base)
        self._expect(kept.physical, kept.sizes)
        records, stretch, copied = self._records(segment, kept, base, reads_files=pull.reads_files)
        return replace(
            nothing,
            status=GetStatus.FOUND,
            next_offset=after,
            count=count,
            sizes=kept.sizes.astype(">u4").tobytes(),
            records=records,
            stretch=stretch,
            copied=copied,
            behind=self._get(self.rules.written) - int(kept.physical[-1]) > self.rules.in_memory_bytes,
        )

    def _records(
        self, segment: Bytes, kept: ChosenEntries, base: int, *, reads_files: bool
    ) -> tuple[Buffer, bytes, bool]:
        """A view of the log where the records stand back to back, else a copy; the STRETCH of a view, if wanted;
        whether copied."""
        start, end = int(kept.physical[0]), int(kept.physical[-1] + kept.sizes[-1])
        if adjoining(kept.physical, kept.sizes):
            file = self._log.file_of(base) if reads_files and end - start >= STRETCH_MIN else None
            stretch = STRETCH.pack(*file, base, start, end - start) if file is not None else b""
            return self._log.slice(start, end), stretch, False
        target = np.empty(int(kept.sizes.sum()), dtype=np.uint8)
        gather(segment, kept.physical - base, kept.sizes.astype(np.int32), len(kept), target)
        return target.data, b"", True

    def _expect(self, physical: Integers, sizes: Integers) -> None:
        """Advises the kernel of reads from an uncached segment: all of it, or record by record where they are far
        apart."""
        start, end = int(physical[0]), int(physical[-1] + sizes[-1])
        if not self._log.is_cold(self._log.segment_of(start)):
            return
        if _dense(physical, sizes):
            self._log.expect(start, end)
        else:
            self._log.expect_scattered(physical.tolist(), (physical + sizes).tolist())

    def _limits(self, pull: Pull, physical: int) -> Limits:
        """The limits of the pull, within the settings for cached or uncached records."""
        cached = self._get(self.rules.written) - physical <= self.rules.in_memory_bytes
        allowed = self.rules.memory if cached else self.rules.disk
        return Limits(min(pull.max_count, allowed.count), min(pull.max_bytes, allowed.size))

    def _check_places(self, pull: Pull, rows: ChosenEntries) -> None:
        """Checks entries before segments are opened: a segment that never existed could not have been deleted."""
        bad = (rows.physical < 0) | (rows.physical >= self._get(self.rules.written))
        if bad.any():
            raise _damaged(pull, rows, int(bad.argmax()))

    def _check(self, pull: Pull, rows: ChosenEntries, base: int) -> None:
        """Checks entries against the segment: one that points outside the log is damage, and is reported, not
        followed."""
        end = min(base + self._log.segment_size, self._get(self.rules.written))
        bad = (rows.physical < base) | (rows.sizes < SIZE_MIN) | (rows.physical + rows.sizes > end)
        bad[1:] |= rows.physical[1:] < rows.physical[:-1] + rows.sizes[:-1]
        if bad.any():
            raise _damaged(pull, rows, int(bad.argmax()))


def _damaged(pull: Pull, rows: ChosenEntries, row: int, why: str = "") -> QueueDamaged:
    size, place = int(rows.sizes[row]), int(rows.physical[row])
    problem = f"it names {size} bytes at {place} of the log, which holds no such record{why}"
    return QueueDamaged(pull.topic.decode(), pull.queue_id, int(rows.offsets[row]), problem)


def _dense(physical: Integers, sizes: Integers) -> bool:
    """Whether these records fill most of the range that holds them; otherwise most of it would be read in vain."""
    return 2 * int(sizes.sum()) >= int(physical[-1] + sizes[-1] - physical[0])


def _not_readable(pull: Pull) -> PullResult:
    topic = pull.topic.decode("utf-8", "replace")
    why = "a message is seen when its transaction is committed" if pull.topic == HALF else "its permission says so"
    sentence = f"the topic {topic!r} is not readable: {why}"
    facts = {"error": PutStatus.NO_PERMISSION.name, "sentence": sentence}
    return PullResult(GetStatus.REFUSED, pull.offset, 0, 0, why=(json_part(facts),))
