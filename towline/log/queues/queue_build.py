"""Building queues from the log, by one process or by many tasks side by side; and the check that the parts are whole.

Scan, grouping and writing are those of reput. An entry is a function of its record and has its own place, so tasks
need neither an order nor each other; what they must agree on is the end of the log.
"""

import resource
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt

from towline.errors import QueueGap
from towline.format.files.consume_queue import ENTRY, SIZE
from towline.format.files.topics import TopicTable
from towline.kernels.base.directory import QueueDirectory
from towline.kernels.scan.queues import NEW_QUEUE
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import Batch, DispatchScan

from .consume_queue import ConsumeQueueFiles, places_of
from .queue_entries import OnGap, QueueEntries, Round
from .queue_writer import QueueWriter

FILES_OPEN_MAX: Final = 16_384  # kept open, but no more than half of the descriptors that the process may have
_QUEUES_AT_FIRST: Final = 64


def files_open_max() -> int:
    """How many queue files a writer keeps open, by the process's limit, which is 1024 unless it was raised."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_OPEN_MAX if limit < 0 else max(1, min(FILES_OPEN_MAX, limit // 2))


@dataclass(frozen=True, slots=True, order=True)
class Stretch:
    """Numbers [first, end) of a queue, all of records or holes; `at` is the log offset of the first one's record."""

    topic: bytes
    queue_id: int
    at: int
    first: int
    end: int

    @property
    def name(self) -> str:
        """The topic as it names a directory."""
        return self.topic.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, order=True)
class LeadingHole:
    """Numbers [first, end) that were lost with a stretch at `at`, before anything else of the queue is known here.

    How many of them are really missing follows from what stands before: entries are never replaced by holes.
    """

    topic: bytes
    queue_id: int
    at: int
    first: int
    end: int


class QueueBuild:
    """One stretch of the log, batch by batch. With `apart` others build what stands before it.

    Then leading holes are left to whoever knows what stands before.
    """

    def __init__(
        self, log: CommitLogReader, delays_ms: tuple[int, ...], on_gap: OnGap | None = None, *, apart: bool = False
    ) -> None:
        """`on_gap` as for QueueEntries; without it a gap raises QueueGap."""
        self._apart = apart
        self.directory = QueueDirectory()
        self._scan = DispatchScan(log, self.directory, delays_ms)
        self._entries = QueueEntries(self.directory, on_gap or self._raise_gap)
        self._firsts: npt.NDArray[np.int64] = np.full(_QUEUES_AT_FIRST, NEW_QUEUE, dtype=np.int64)
        self._places = np.zeros(_QUEUES_AT_FIRST, dtype=np.int64)
        self.holes: list[LeadingHole] = []
        self.records = 0
        self.keys = 0

    def batches(self, start: int, end: int) -> Iterator[Batch]:
        """The records of [start, end), which begins at a record. Raises CorruptLog where one is not whole."""
        for batch in self._scan.whole(start, end):
            self.records += len(batch.rows)
            self.keys += len(batch.keys)
            yield batch

    def rounds(self, batch: Batch) -> Iterator[Round]:
        """What is to be written of a batch: see QueueEntries. Raises QueueGap."""
        for one in self._entries.rounds(batch):
            if not len(one.order) and self._is_leading(one):
                self._keep_hole(one)
                continue
            self._note(one)
            yield one

    def stretches(self) -> Iterator[Stretch]:
        """What was built, of every queue one."""
        for number in np.flatnonzero(self._firsts != NEW_QUEUE).tolist():
            topic, queue_id = self.directory.topic(number), self.directory.queue_id(number)
            first, end = int(self._firsts[number]), self._entries.expected(number)
            yield Stretch(topic, queue_id, int(self._places[number]), first, end)

    def _note(self, one: Round) -> None:
        self._grow()
        numbers = one.runs["queue_index"]
        new = np.flatnonzero(self._firsts[numbers] == NEW_QUEUE)
        if len(new):
            found = one.runs[new]
            self._firsts[found["queue_index"]] = found["queue_offset"]
            entries = one.entries[: one.entries.size - one.entries.size % SIZE].view(ENTRY)
            self._places[found["queue_index"]] = places_of(entries[found["start"] // SIZE])

    def _is_leading(self, one: Round) -> bool:
        number = int(one.runs[0]["queue_index"])
        return self._apart and (number >= len(self._firsts) or self._firsts[number] == NEW_QUEUE)

    def _keep_hole(self, one: Round) -> None:
        run = one.runs[0]
        number, first = int(run["queue_index"]), int(run["queue_offset"])
        at = int(one.entries[:SIZE].view(ENTRY)["tags_code"][0])
        topic, queue_id = self.directory.topic(number), self.directory.queue_id(number)
        self.holes.append(LeadingHole(topic, queue_id, at, first, first + int(run["count"])))

    def _raise_gap(self, batch: Batch, row: int, number: int, due: int) -> NoReturn:
        one = batch.rows[row]
        topic = self.directory.topic(number).decode("utf-8", "replace")
        raise QueueGap(topic, self.directory.queue_id(number), int(one["queue_offset"]), due, int(one["phy"]))

    def _grow(self) -> None:
        more = len(self.directory) - len(self._firsts)
        if more > 0:
            more = max(more, len(self._firsts))
            self._firsts = np.concatenate((self._firsts, np.full(more, NEW_QUEUE, dtype=np.int64)))
            self._places = np.concatenate((self._places, np.zeros(more, dtype=np.int64)))


def build_queues(build: QueueBuild, files: ConsumeQueueFiles, start: int, end: int) -> Iterator[Batch]:
    """Writes the queues of [start, end), not synced; yields each batch when its entries are written.

    Raises CorruptLog, QueueGap, DiskFull, IllegalTopic.
    """
    writer = QueueWriter(files, build.directory, files_open_max())
    try:
        for batch in build.batches(start, end):
            for one in build.rounds(batch):
                writer.write(one.runs, one.entries)
            yield batch
    finally:
        writer.close()


Part = Stretch | LeadingHole


@dataclass(frozen=True, slots=True)
class Missing:
    """Numbers [first, end) of a queue are to be holes: they were lost with the stretch at `at`."""

    first: int
    end: int
    at: int


@dataclass(frozen=True, slots=True)
class Whole:
    """A queue that holds [first, end) when its holes are written."""

    built: Stretch
    holes: tuple[Missing, ...]


def cover(stretches: Iterable[Stretch], holes: Iterable[LeadingHole]) -> list[Whole]:
    """Puts the parts of each queue together, in the order in which they stand in the log.

    Raises QueueGap for a number that nobody wrote, and for one that two records claim.
    """
    parts: list[Part] = [*stretches, *holes]
    parts.sort(key=lambda part: (part.topic, part.queue_id, part.at, part.first))
    return [_whole(list(queue)) for _, queue in groupby(parts, key=lambda part: (part.topic, part.queue_id))]


def _whole(parts: list[Part]) -> Whole:
    first = due = parts[0].first
    missing: list[Missing] = []
    for part in parts:
        if part.first > due or (part.first < due and isinstance(part, Stretch)):
            topic = part.topic.decode("utf-8", "replace")
            raise QueueGap(topic, part.queue_id, part.first, due, part.at)
        if isinstance(part, LeadingHole) and part.end > due:
            missing.append(Missing(due, part.end, part.at))
        due = max(due, part.end)
    return Whole(Stretch(parts[0].topic, parts[0].queue_id, parts[0].at, first, due), tuple(missing))


def remove_deleted(
    files: ConsumeQueueFiles, table: TopicTable, log_min: int, end: int, wholes: Iterable[Stretch]
) -> None:
    """Removes of the queues of deleted topics what reput removes once the log is dispatched to `end`."""
    ends = {(whole.topic, whole.queue_id): whole.end for whole in wholes}
    for (topic, queue_id), floor in table.floors().items():
        name = topic.decode()
        deleted_at = table.deleted[name].log_offset
        if end < deleted_at or (topic, queue_id) not in ends:
            continue
        files.delete_below(name, queue_id, floor)
        if deleted_at <= log_min and name not in table.topics and ends[topic, queue_id] <= floor:
            files.delete(name, queue_id)
