"""Dispatch to ConsumeQueues: one kernel groups a batch by queue, then one write per queue that it touches."""

from towline.errors import QueueGap
from towline.kernels.directory import QueueDirectory
from towline.log.consume_queue import ConsumeQueueFiles
from towline.log.dispatch import Batch
from towline.log.queue_entries import QueueEntries, QueueRun
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.queue_ends import QueueEnds


class QueueDispatcher:
    """Owner of the queues' bytes and of the table of their ends. A queue's place in the table is its number."""

    def __init__(self, files: ConsumeQueueFiles, ends: QueueEnds, directory: QueueDirectory) -> None:
        self._files = files
        self._ends = ends
        self._directory = directory
        for end in ends:
            directory.add(end.topic, end.queue_id)
        self._entries = QueueEntries(directory, ends.max_offsets(), self._raise_gap)

    def put(self, batch: Batch) -> None:
        """Queue bytes first, then the ends (H13). Raises QueueGap when a record is not its queue's next, DiskFull."""
        for run in self._entries.runs(batch):
            self._write(run)

    def _write(self, run: QueueRun) -> None:
        topic, queue_id = self._directory.topic(run.number), self._directory.queue_id(run.number)
        self._files.write(topic.decode("utf-8", "replace"), queue_id, run.offset, run.entries)
        if ARMED:
            reach("reput.before_ends")
        if run.number >= self._ends.count:
            self._register(run.number, run.offset)
        self._ends.move(run.number, run.offset + run.count, run.phy_end)

    def _register(self, number: int, first_offset: int) -> None:
        """Queues are numbered as they are met; one that was met and got no entry yet (half messages) stands empty."""
        for place in range(self._ends.count, number + 1):
            start = first_offset if place == number else 0
            self._ends.add(self._directory.topic(place), self._directory.queue_id(place), start, start, 0)

    def _raise_gap(self, batch: Batch, row: int, number: int, due: int) -> None:
        raise QueueGap(
            self._directory.topic(number).decode("utf-8", "replace"),
            self._directory.queue_id(number),
            int(batch.rows[row]["queue_offset"]),
            due,
            int(batch.rows[row]["phy"]),
        )
