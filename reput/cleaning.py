"""CleanConsumeQueueService: cleans queues and index after the log's beginning has moved (spec 3.3, 4.3, 8.8).

The minima of all queues move first, a few queues per cycle, so that dispatching goes on; they are in shared memory and
a start computes them again. Files are removed one at a time, and only when flush has recorded the log's new beginning:
a start must never find records in the log whose queue entries are gone.
"""

from collections import deque
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.errors import MalformedFile, TowlineError
from towline.format.files.consume_queue import SIZE
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.state.durable_file import DurableFile
from towline.node.process.context import Node
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Position
from towline.runtime.queue_ends import QueueEnds

from .extensions import ExtensionWriter
from .indexing import IndexDispatcher

QUEUES_PER_TURN: Final = 16
FILES_OPEN_MAX: Final = 16
GATE_MS: Final = 250  # between two checks of what flush has recorded


class DerivedCleaner:
    """Cleans the derived files. `files` is the dispatcher's own object, so that removed files are closed there too."""

    def __init__(
        self,
        node: Node,
        files: ConsumeQueueFiles,
        ends: QueueEnds,
        index: IndexDispatcher | None,
        log: CommitLogReader,
        extensions: ExtensionWriter | None = None,
    ) -> None:
        self._extensions = extensions
        self._node = node
        self._files = files
        self._ends = ends
        self._index = index
        self._log = log
        self._reader = ConsumeQueueFiles(files.root, files.file_size, FILES_OPEN_MAX)  # the dispatcher's stay open
        self._per_file = files.file_size // SIZE
        self._let_go = 0  # segments that end before it are not mapped here
        self._begins = 0  # where the log begins for the minima, which are moved or being moved
        self._minima: deque[int] = deque()  # places of queues whose minimum is still to be checked
        self._removing = 0  # where the log begins for the files: what is wholly before it goes
        self._trimming: deque[int] = deque()  # places of queues with files to remove
        self._lows: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # by place: minima that belong to `_removing`
        self._trimmed: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # by place: files before it are gone
        self._index_done = True
        self._recorded = 0
        self._next_ms = 0

    def cycle(self) -> int:
        """Does a bounded part of the work; returns 0 when none is left, or it has to wait.

        Minima go first; removing files waits for the disk.
        """
        log_min = self._node.positions.get(Position.LOG_MIN)
        if log_min > self._let_go:  # not with the next pass: the disk waits for the blocks
            self._let_go = log_min
            self._log.release_below(log_min)
        if self._minima:
            return self._advance_minima()
        if log_min > self._begins:
            return self._begin(log_min)
        return self._remove(self._node.clock.monotonic_ms())

    def _begin(self, log_min: int) -> int:
        """Begins a pass over all queues. A queue without records needs no check of its files."""
        self._begins = log_min
        low, high, physical_end = self._ends.columns()
        held = low < high
        for place in np.flatnonzero(held & (physical_end <= log_min)):
            self._ends.move_min(int(place), int(high[place]))
        self._minima.extend(map(int, np.flatnonzero(held & (physical_end > log_min))))
        return 1

    def _advance_minima(self) -> int:
        for _ in range(min(QUEUES_PER_TURN, len(self._minima))):
            place = self._minima.popleft()
            end = self._ends.read(place)
            topic = end.topic.decode("utf-8", "replace")
            low = self._reader.min_offset_after(topic, end.queue_id, self._begins, end.min_offset, end.max_offset)
            if low > end.min_offset:
                self._ends.move_min(place, low)
                if ARMED:
                    reach("reput.in_minima")
        if not self._minima:
            self._reader.close()
        return 1

    def _remove(self, now_ms: int) -> int:
        if now_ms < self._next_ms:
            return 0
        if self._trimming:
            return self._remove_expired(now_ms)
        if self._index is not None and not self._index_done:
            self._remove_index_files(self._index)
            self._index_done = True
            return 1
        return self._find_files(now_ms) if self._begins > self._removing else 0

    def _find_files(self, now_ms: int) -> int:
        """Finds queues whose minimum has left a file since the last check, once flush has recorded the log's
        beginning."""
        if self._recorded < self._begins:
            self._recorded = self._durable_min()
            if self._recorded < self._begins:
                self._next_ms = now_ms + GATE_MS
                return 0
        self._removing, self._index_done = self._begins, False
        self._lows, _, _ = self._ends.columns()
        known = np.zeros(len(self._lows), dtype=np.int64)
        known[: len(self._trimmed)] = self._trimmed
        self._trimmed = known
        self._trimming.extend(map(int, np.flatnonzero(self._lows // self._per_file > known)))
        return 1

    def _remove_expired(self, now_ms: int) -> int:
        """Removes one file at most, after checking a few queues at most."""
        for _ in range(min(QUEUES_PER_TURN, len(self._trimming))):
            place = self._trimming[0]
            end = self._ends.read(place)
            topic = end.topic.decode("utf-8", "replace")
            if ARMED:
                reach("reput.before_trim")
            try:
                removed = self._files.delete_expired(topic, end.queue_id, self._removing, at_most=1)
            except (TowlineError, OSError) as error:
                self._node.log.error("files of queue %s/%d stay: %s", topic, end.queue_id, error)
                removed = 0
            if removed:
                if ARMED:
                    reach("reput.after_trim")
                self._next_ms = now_ms + self._node.settings.delete_consume_queue_files_interval
                text = "removed a file of queue %s/%d: the log begins at %d"
                self._node.log.info(text, topic, end.queue_id, self._removing)
                return 1
            low = int(self._lows[place])
            if self._extensions is not None:
                self._extensions.delete_expired(topic, end.queue_id, min(low, end.max_offset - 1))
            self._trimmed[place] = low // self._per_file
            self._trimming.popleft()
        return 1

    def _remove_index_files(self, index: IndexDispatcher) -> None:
        if ARMED:
            reach("reput.before_index_trim")
        try:
            for name in index.delete_expired(self._removing):
                self._node.log.info("removed index file %s: the log begins at %d", name, self._removing)
        except OSError as error:
            self._node.log.error("index files stay: %s", error)

    def _durable_min(self) -> int:
        """The log's beginning that a start would use."""
        try:
            durable = DurableFile(self._node.store.root).load()
        except MalformedFile as error:
            self._node.log.error("no file of queues and index is removed while %s", error)
            return -1
        return durable.log_min if durable is not None else self._begins
