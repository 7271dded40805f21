"""Dispatch to ConsumeQueues: one kernel groups a batch by queue, then one write per queue that it touches."""

import numpy as np
import numpy.typing as npt

from towline.errors import QueueGap
from towline.format.consume_queue import SIZE
from towline.kernels.directory import QueueDirectory
from towline.kernels.queues import GAP, GROUP_STATE_SIZE, NEW_QUEUE, ROWS, group_entries
from towline.kernels.rows import RUN
from towline.log.consume_queue import ConsumeQueueFiles
from towline.log.dispatch import RECORDS_MAX, Batch
from towline.runtime.queue_ends import QueueEnds

RUNS_MAX = 4096  # queues that one write round touches; more make another round


class QueueDispatcher:
    """Owner of the queues' bytes and of the table of their ends. A queue's place in the table is its number."""

    def __init__(self, files: ConsumeQueueFiles, ends: QueueEnds, directory: QueueDirectory) -> None:
        self._files = files
        self._ends = ends
        self._directory = directory
        for end in ends:
            directory.add(end.topic, end.queue_id)
        self._expected = np.full(max(64, len(directory)), NEW_QUEUE, dtype=np.int64)
        self._expected[: len(directory)] = ends.max_offsets()
        self._marks = np.zeros(len(self._expected), dtype=np.int32)
        self._runs = np.zeros(RUNS_MAX, dtype=RUN)
        self._entries = np.zeros(RECORDS_MAX * SIZE, dtype=np.uint8)
        self._order = np.zeros(RECORDS_MAX, dtype=np.int32)
        self._state = np.zeros(GROUP_STATE_SIZE, dtype=np.int64)

    def put(self, batch: Batch) -> None:
        """Queue bytes first, then the ends (H13). Raises QueueGap when a record is not its queue's next, DiskFull."""
        self._grow()
        first, stop = 0, len(batch.rows)
        while first < stop:
            count = group_entries(
                batch.rows,
                first,
                stop,
                self._expected,
                self._runs,
                self._entries,
                self._marks,
                self._order,
                self._state,
            )
            for run in self._runs[:count]:
                self._write(run)
            first = int(self._state[ROWS])
            if first < stop and self._state[GAP] >= 0:
                self._raise_gap(batch, first)

    def _write(self, run: npt.NDArray[np.void]) -> None:
        number, start, count, offset = (int(run[name]) for name in ("queue_index", "start", "count", "queue_offset"))
        topic, queue_id = self._directory.topic(number), self._directory.queue_id(number)
        self._files.write(
            topic.decode("utf-8", "replace"), queue_id, offset, self._entries[start : start + count * SIZE].data
        )
        if number >= self._ends.count:
            self._register(number, offset)
        self._expected[number] = offset + count
        self._ends.move(number, offset + count, int(run["phy_end"]))

    def _register(self, number: int, first_offset: int) -> None:
        """Queues are numbered as they are met; one that was met and got no entry yet (half messages) stands empty."""
        for place in range(self._ends.count, number + 1):
            start = first_offset if place == number else 0
            self._ends.add(self._directory.topic(place), self._directory.queue_id(place), start, start, 0)

    def _grow(self) -> None:
        missing = len(self._directory) - len(self._expected)
        if missing > 0:
            room = max(missing, len(self._expected))
            self._expected = np.concatenate((self._expected, np.full(room, NEW_QUEUE, dtype=np.int64)))
            self._marks = np.zeros(len(self._expected), dtype=np.int32)

    def _raise_gap(self, batch: Batch, row: int) -> None:
        number = int(self._state[GAP])
        raise QueueGap(
            self._directory.topic(number).decode("utf-8", "replace"),
            self._directory.queue_id(number),
            int(batch.rows[row]["queue_offset"]),
            int(self._expected[number]),
            int(batch.rows[row]["phy"]),
        )
