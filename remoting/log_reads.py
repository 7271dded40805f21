"""Pulls that need nothing but what is there: their records are read from the files here, in place of a question to
serve.

Such a pull has no filter, its records are confirmed, near each other in one segment and in memory; any other goes to
serve, which also says what is wrong with a queue. Where a queue ends, and so what may be handed out, is what reput
published (H15, H24). The files are read, not mapped: a page that is not in memory would be waited for by everybody.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from towline.format.files.topics import is_system_topic
from towline.format.record.record import SIZE_MIN
from towline.format.wire.frames import STRETCH, Buffer
from towline.kernels.scan.queues import END, LEADING_SIZE, START, TOTAL, gather, leading_records
from towline.link.log_files import FileRegion, LogFiles
from towline.log.files.segment_files import segment_name
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.node.process.context import Node
from towline.node.store.confirmed import written_of
from towline.node.store.pull_rules import pull_rules
from towline.runtime.positions import Position

QUEUE_FILES_OPEN_MAX: Final = 128
TELL_MS: Final = 200  # serve is told this late of what was read here
SWEEP_MS: Final = 1_000

# Of a topic: what was read of its queues, as rows of queue, messages, bytes.
Tell = Callable[[str, list[list[int]]], None]


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """Records of a queue [low, end), as they stand in the log. `following` is the offset behind them."""

    count: int
    following: int
    low: int
    end: int
    records: Buffer


@dataclass(slots=True)
class FoundPlace:
    """Where such records stand: the first `count` of `entries` name them, all in [start, stop) of the segment that
    begins at `base`, and they are `total` bytes."""

    topic: str
    queue_id: int
    count: int
    following: int
    low: int
    end: int
    entries: Any
    base: int
    start: int
    stop: int
    total: int

    @property
    def sizes(self) -> bytes:
        """Bytes of each record, as big-endian u4."""
        sizes: bytes = self.entries["record_size"][: self.count].tobytes()
        return sizes

    @property
    def is_dense(self) -> bool:
        """Whether they stand back to back."""
        return self.total == self.stop - self.start


class LogReads:
    """Reads for clients, by one thread. Serve counts what is read of each queue: `tell` says it, some time later."""

    def __init__(self, node: Node, tell: Tell) -> None:
        settings = node.settings
        self._node = node
        self.adjust()
        self._segment_size = settings.mapped_file_size_commit_log
        self._get, self._ends = node.positions.get, node.queue_ends()
        self._queues = ConsumeQueueFiles(
            node.store.consumequeue, settings.mapped_file_size_consume_queue, QUEUE_FILES_OPEN_MAX
        )
        self._directory = node.store.commitlog
        self._files = LogFiles(self._directory)
        self._identities: dict[int, tuple[int, int]] = {}  # device and inode of segments, by base
        self._log_min = self._get(Position.LOG_MIN)
        self._found = np.zeros(LEADING_SIZE, dtype=np.int64)
        self._tell = tell
        self._read: dict[tuple[str, int], list[int]] = {}  # messages and bytes
        self._tell_at = self._sweep_at = 0

    def adjust(self) -> None:
        """Answers by the node's settings as they are now."""
        self._rules = replace(pull_rules(self._node.settings), written=written_of(self._node))

    @property
    def is_due(self) -> bool:
        """Whether serve has to be told of something."""
        return bool(self._read)

    def find(self, topic: str, queue_id: int, offset: int, count: int, size: int) -> FoundRecords | None:
        """At most so many records, and bytes, from an offset on; None where that is serve's to answer."""
        place = self.place(topic, queue_id, offset, count, size)
        records = None if place is None else self.records(place)
        if place is None or records is None:
            return None
        return FoundRecords(place.count, place.following, place.low, place.end, records)

    def place(self, topic: str, queue_id: int, offset: int, count: int, size: int) -> FoundPlace | None:
        """The place of such records, which nobody has read yet."""
        if is_system_topic(topic):
            return None
        queue = self._ends.find(topic.encode(), queue_id)
        if queue < 0:
            return None
        low, end = self._ends.bounds(queue)
        if not low <= offset < end:
            return None
        limits, written, floor = self._rules.memory, self._get(self._rules.written), self._get(Position.LOG_MIN)
        most = min(size, limits.size)
        count = max(1, min(count, limits.count, end - offset, most // SIZE_MIN))  # a client may ask for none, or fewer
        entries = self._queues.raw(topic, queue_id, offset, count)
        cached = max(floor, written - self._rules.in_memory_bytes)
        taken = int(
            leading_records(entries.view(np.uint8), SIZE_MIN, cached, written, self._segment_size, most, self._found)
        )
        if not taken:
            return None
        start, stop, total = int(self._found[START]), int(self._found[END]), int(self._found[TOTAL])
        base = start - start % self._segment_size
        return FoundPlace(topic, queue_id, taken, offset + taken, low, end, entries, base, start, stop, total)

    def stretch(self, place: FoundPlace) -> bytes:
        """The STRETCH of dense records, for a client that reads the files by itself; empty where the file has gone."""
        identity = self._identity(place.base)
        if identity is None:
            return b""
        self._count(place)
        return STRETCH.pack(*identity, place.base, place.start, place.total)

    def region(self, place: FoundPlace) -> FileRegion | None:
        """The same for the system to send; None where they are not all in memory."""
        identity = self._identity(place.base)
        if identity is None:
            return None
        region = self._files.region(STRETCH.pack(*identity, place.base, place.start, place.total))
        if region is not None:
            self._count(place)
        return region

    def records(self, place: FoundPlace) -> Buffer | None:
        """The records, back to back; None where they cannot be read without waiting."""
        identity = self._identity(place.base)
        if identity is None:
            return None
        asked = STRETCH.pack(*identity, place.base, place.start, place.stop - place.start)
        stretch = self._files.read(asked, waits=False)
        if stretch is not None and not place.is_dense:
            stretch = self._gathered(place, stretch)
        if stretch is not None:
            self._count(place)
        return stretch

    def cycle(self, now_ms: int) -> bool:
        """Lets deleted files go; tells of what was read. Whether files were deleted."""
        log_min = self._get(Position.LOG_MIN)
        deleted = log_min != self._log_min
        if deleted:
            self._log_min = log_min
            self._files.close()
            self._identities.clear()
        if now_ms >= self._sweep_at:
            self._sweep_at = now_ms + SWEEP_MS
            self._queues.close_removed()
        if self._read and now_ms >= self._tell_at:
            self._tell_at = now_ms + TELL_MS
            self._tell_all()
        return deleted

    def close(self) -> None:
        self._files.close()
        self._queues.close()

    def _gathered(self, place: FoundPlace, stretch: Buffer) -> Buffer | None:
        target = np.empty(place.total, dtype=np.uint8)
        rows = place.entries[: place.count]
        starts, sizes = rows["physical_offset"].astype(np.int64) - place.start, rows["record_size"].astype(np.int32)
        copied = gather(np.frombuffer(stretch, dtype=np.uint8), starts, sizes, place.count, target)
        return target.data if copied == place.total else None

    def _identity(self, base: int) -> tuple[int, int] | None:
        found = self._identities.get(base)
        if found is None:
            try:
                state = (self._directory / segment_name(base)).stat()
            except FileNotFoundError:  # deleted meanwhile
                return None
            found = self._identities[base] = state.st_dev, state.st_ino
        return found

    def _count(self, place: FoundPlace) -> None:
        sums = self._read.setdefault((place.topic, place.queue_id), [0, 0])
        sums[0] += place.count
        sums[1] += place.total

    def _tell_all(self) -> None:
        by_topic: dict[str, list[list[int]]] = defaultdict(list)
        for (topic, queue_id), sums in self._read.items():
            by_topic[topic].append([queue_id, *sums])
        self._read.clear()
        for topic, rows in by_topic.items():
            self._tell(topic, rows)
