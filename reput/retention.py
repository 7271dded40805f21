"""Cuts queues at the retention of their topics: older messages, or those beyond so many bytes, are no longer read.

The log keeps them until its segments go; a queue's minimum moves, and whole files below it are removed. In this order,
so that a kill between any two steps leaves nothing to be seen again:

1. What may be cut is synced in log and queues (the durable file, not the positions) and dispatched: a number that a
   power cut can take back is never below a minimum.
2. The minima are written to config/queueMinima.json, by a thread: a sync may wait for other writes to the disk.
3. They are published in the table of queue ends. A start reads the file before anybody is served.
4. Files wholly below them go, one at a time.
"""

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from towline.errors import MalformedFile, TowlineError
from towline.format.files.consume_queue import SIZE
from towline.format.files.durable import Durable
from towline.format.files.topics import TopicConfig
from towline.log.commitlog.cleaning import SteadyTime
from towline.log.commitlog.commit_log import CommitLogReader, store_time
from towline.log.files.config_file import ConfigFile
from towline.log.files.config_writer import Saver
from towline.log.queues.consume_queue import ConsumeQueueFiles, is_filler, places_of
from towline.log.queues.retention import ReadSizes, Sizes, SizeWindow, first_unexpired
from towline.log.state.durable_file import DurableFile
from towline.log.state.queue_minima import NAME, Queue, QueueMinimum, load_minima, minima_content, still_needed
from towline.log.state.topics_file import NAME as TOPICS
from towline.log.state.topics_file import TopicsFile
from towline.node.process.context import Node
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Position
from towline.runtime.queue_ends import QueueEnd, QueueEnds

from .extensions import ExtensionWriter

STEPS_PER_TURN: Final = 16
FILES_OPEN_MAX: Final = 16
BEHIND_MS: Final = 1000  # between two looks at queues that are derived again
HOLES_MAX: Final = 4096  # entries without a record that are passed over to find a time
Minima = dict[Queue, QueueMinimum]


class QueueRetention:
    """Cuts queues. `files` is the dispatcher's own object, so that removed files are closed there too."""

    def __init__(
        self,
        node: Node,
        files: ConsumeQueueFiles,
        ends: QueueEnds,
        log: CommitLogReader,
        extensions: ExtensionWriter | None = None,
    ) -> None:
        """Before anything is dispatched: queues that are met from here on begin at their minima.

        Raises MalformedFile.
        """
        self._node, self._ends, self._log, self._extensions = node, ends, log, extensions
        self._files = files
        self._reader = ConsumeQueueFiles(files.root, files.file_size, FILES_OPEN_MAX)  # the dispatcher's stay open
        self._topics = TopicsFile(node.store.config / TOPICS)
        self._topics_unreadable = False
        self._rules: dict[str, TopicConfig] = {}
        self._file = ConfigFile(node.store.config / NAME)
        self._saver = Saver("retention")
        self._steady = SteadyTime()
        self._windows: dict[Queue, SizeWindow] = {}
        durable = self._durable()  # LOG_MIN itself may not be yet: what it implies is not forgotten before it is
        self._minima = still_needed(load_minima(node.store), 0 if durable is None else durable.log_min)
        self._offsets: dict[tuple[bytes, int], int] = {}
        self._ends.minima = self._offsets
        self._saving: tuple[Minima, Minima] | None = None  # all of them, and those that are new
        self._pass: Iterator[None] | None = None
        self._trimming: deque[Queue] = deque()
        self._trimmed: Minima = {}  # by queue, at which minimum its files were removed last
        self._next_ms = self._trim_ms = 0
        self._publish(self._minima)

    def cycle(self) -> int:
        """Does a bounded part of the work; returns 0 when none is left, or it has to wait."""
        now_ms = self._node.clock.monotonic_ms()
        if self._saving is not None:
            return self._finish_save()
        if self._pass is None and now_ms >= self._next_ms:
            self._next_ms = now_ms + self._node.settings.clean_resource_interval
            self._pass = self._look(now_ms)
        if self._pass is not None:
            self._go_on(self._pass)
            return 1
        return self._trim(now_ms) if self._trimming and now_ms >= self._trim_ms else 0

    def close(self) -> None:
        """Waits for the write under way."""
        self._saver.close()
        self._reader.close()

    # --- looking

    def _go_on(self, looking: Iterator[None]) -> None:
        try:
            for _ in range(STEPS_PER_TURN):
                if next(looking, self) is self:
                    self._pass = None
                    return
        except (TowlineError, OSError) as error:
            self._node.log.error("no queue is cut: %s", error)
            self._pass = None

    def _look(self, now_ms: int) -> Iterator[None]:
        """One pass over all queues of topics with a retention, in bounded steps."""
        self._refresh_rules()
        durable = self._durable() if self._rules else None
        if durable is None:
            return
        safe = min(durable.queues_durable, durable.flushed, self._node.positions.get(Position.DISPATCHED))
        time_ms = self._steady.believe(self._node.clock.now_ms(), now_ms)
        found: Minima = {}
        for name, topic in self._rules.items():
            for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
                place = self._ends.find(name.encode(), queue_id)
                if place < 0:
                    continue
                try:
                    yield from self._look_at(name, topic, self._ends.read(place), safe, time_ms, found)
                except (TowlineError, OSError) as error:  # others are cut all the same
                    self._node.log.error("queue %s/%d is not cut: %s", name, queue_id, error)
                yield
        self._reader.close()
        if found:
            if ARMED:
                reach("reput.before_retention")
            self._saving = still_needed(self._minima, durable.log_min) | found, found
            self._saver.submit(self._file, partial(minima_content, self._saving[0]))

    def _look_at(
        self, name: str, topic: TopicConfig, end: QueueEnd, safe: int, time_ms: int, found: Minima
    ) -> Iterator[None]:
        """Looks at one queue, in bounded steps; `found` gets where it is to begin, if that is further on."""
        first = self._first_in_time(name, end, topic.retention_ms, time_ms)
        if topic.retention_bytes is not None:
            window = self._window(name, end, topic.retention_bytes)
            while (within := window.advance(end.min_offset, end.max_offset, self._sizes(name, end))) is None:
                yield
            first = max(first, within)
        if first > end.min_offset and (cut := self._cut(name, end, first, safe)) is not None:
            found[name, end.queue_id] = cut

    def _refresh_rules(self) -> None:
        try:
            if self._topics.refresh():
                topics = self._topics.table.topics
                self._rules = {
                    name: topic
                    for name, topic in topics.items()
                    if topic.retention_ms is not None or topic.retention_bytes is not None
                }
                sized = {name for name, topic in self._rules.items() if topic.retention_bytes is not None}
                self._windows = {queue: window for queue, window in self._windows.items() if queue[0] in sized}
            self._topics_unreadable = False
        except MalformedFile as error:
            if not self._topics_unreadable:
                self._node.log.error("queues are cut as before: %s", error)
            self._topics_unreadable = True

    def _durable(self) -> Durable | None:
        try:
            return DurableFile(self._node.store.root).load()
        except MalformedFile as error:
            self._node.log.error("no queue is cut while %s", error)
            return None

    def _first_in_time(self, topic: str, end: QueueEnd, kept_ms: int | None, now_ms: int) -> int:
        """The first message that is not too old."""
        if kept_ms is None:
            return end.min_offset
        log_min = self._node.positions.get(Position.LOG_MIN)

        def is_expired(number: int) -> bool:
            place = self._place(topic, end, number)
            if place < 0:
                return False
            stored_ms = store_time(self._log, place)
            return place < log_min or 0 <= stored_ms < now_ms - kept_ms

        return first_unexpired(end.min_offset, end.max_offset, is_expired)

    def _place(self, topic: str, end: QueueEnd, number: int) -> int:
        """Where the message of a number stands, or the next one that has a record; -1 if there is none."""
        entry = self._reader.raw(topic, end.queue_id, number, 1)
        if is_filler(entry).any():
            entry = self._reader.raw(topic, end.queue_id, number, min(HOLES_MAX, end.max_offset - number))
            entry = entry[~is_filler(entry)]
        return int(entry["physical_offset"][0]) if len(entry) and entry["record_size"][0] > 0 else -1

    def _window(self, topic: str, end: QueueEnd, limit: int) -> SizeWindow:
        known = self._windows.get((topic, end.queue_id))
        if known is None or known.limit != limit:
            known = self._windows[topic, end.queue_id] = SizeWindow(limit, self._files.file_size // SIZE)
        return known

    def _sizes(self, topic: str, end: QueueEnd) -> ReadSizes:
        def read(first: int, count: int) -> Sizes:
            entries = self._reader.raw(topic, end.queue_id, first, count)
            return np.where(is_filler(entries), 0, entries["record_size"]).astype(np.int64)

        return read

    def _cut(self, topic: str, end: QueueEnd, first: int, safe: int) -> QueueMinimum | None:
        """The minimum for a queue that is to begin at `first`, or before it where later messages are not `safe` yet."""
        first = self._reader.min_offset_after(topic, end.queue_id, safe, end.min_offset, first)
        if first <= end.min_offset:
            return None
        newest = self._reader.raw(topic, end.queue_id, first - 1, 1)
        place = int(places_of(newest)[0])
        behind = place + (0 if is_filler(newest).any() else int(newest["record_size"][0]))
        return QueueMinimum(first, min(behind, safe)) if place >= 0 else None

    # --- moving

    def _finish_save(self) -> int:
        """What is written is published; what could not be written is looked for again."""
        for _, error in self._saver.finished():
            saved, self._saving = self._saving, None
            if error is not None or saved is None:
                self._node.log.error("no queue is cut: %s", error)
                continue
            self._minima, new = saved
            if ARMED:
                reach("reput.in_retention")
            self._publish(new)
            return 1
        return 0

    def _publish(self, new: Minima) -> None:
        per_file = self._files.file_size // SIZE
        for (topic, queue_id), minimum in new.items():
            self._offsets[topic.encode(), queue_id] = minimum.offset
            place = self._ends.find(topic.encode(), queue_id)
            if place >= 0:
                self._ends.raise_min(place, minimum.offset)
            before = self._trimmed.get((topic, queue_id))
            if before is None or minimum.offset // per_file > before.offset // per_file:
                self._trimming.append((topic, queue_id))

    def _trim(self, now_ms: int) -> int:
        """Removes one file at most, of queues whose messages below the minimum were all dispatched."""
        dispatched = self._node.positions.get(Position.DISPATCHED)
        for _ in range(min(STEPS_PER_TURN, len(self._trimming))):
            topic, queue_id = self._trimming.popleft()
            minimum = self._minima.get((topic, queue_id))
            if minimum is None:
                continue
            if minimum.log_offset > dispatched:  # it is derived again
                self._trimming.append((topic, queue_id))
                self._trim_ms = now_ms + BEHIND_MS
                continue
            if ARMED:
                reach("reput.before_retention_trim")
            if self._remove(topic, queue_id, minimum.offset):
                self._trimming.appendleft((topic, queue_id))
                self._trim_ms = now_ms + self._node.settings.delete_consume_queue_files_interval
                break
            self._trimmed[topic, queue_id] = minimum
        return 1

    def _remove(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a file of the queue was removed."""
        try:
            if self._files.delete_below(topic, queue_id, offset, at_most=1):
                self._node.log.info("removed a file of queue %s/%d: it begins at %d", topic, queue_id, offset)
                return True
            place = self._ends.find(topic.encode(), queue_id)
            if self._extensions is not None and place >= 0 and (end := self._ends.max_offset(place)) > 0:
                self._extensions.delete_expired(topic, queue_id, min(offset, end - 1))
        except (TowlineError, OSError) as error:
            self._node.log.error("files of queue %s/%d stay: %s", topic, queue_id, error)
        return False
