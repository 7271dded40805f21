"""Dispatch to ConsumeQueues: kernels group a batch by queue and write what each queue gets."""

import numpy as np

from towline.errors import DiskFull, QueueGap
from towline.kernels.directory import QueueDirectory
from towline.log.consume_queue import ConsumeQueueFiles
from towline.log.dispatch import Batch
from towline.log.queue_entries import QueueEntries, Round
from towline.log.queue_writer import QueueWriter
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.queue_ends import QueueEnds

from .extensions import Extensions


class QueueDispatcher:
    """Owner of the queues' bytes and of the table of their ends. A queue's place in the table is its number."""

    name = "queues"

    def __init__(
        self,
        files: ConsumeQueueFiles,
        ends: QueueEnds,
        directory: QueueDirectory,
        open_max: int,
        extensions: Extensions | None = None,
    ) -> None:
        """At most `open_max` files are kept open beside those of `files`. `extensions` where ConsumeQueueExt is on."""
        self._extensions = extensions
        self._ends = ends
        self._directory = directory
        self._files = files
        self._writer = QueueWriter(files, directory, open_max)
        for end in ends:
            directory.add(end.topic, end.queue_id)
        self._entries = QueueEntries(directory, ends.max_offsets(), self._raise_gap)

    def put(self, batch: Batch) -> None:
        """Queue bytes first, then the ends (H13). Raises QueueGap when a record is not its queue's next, DiskFull."""
        for one in self._entries.rounds(batch):
            self._extend(batch, one)
            self._write(one)
            if ARMED:
                reach("reput.before_ends")
            self._publish(one)

    @property
    def queue_count(self) -> int:
        return len(self._directory)

    def close(self) -> None:
        self._writer.close()
        self._files.close()

    def _extend(self, batch: Batch, one: Round) -> None:
        if self._extensions is None or not len(one.order):
            return
        try:
            self._extensions.put(batch, one)
        except DiskFull:
            self._extensions.forget()
            raise

    def _write(self, one: Round) -> None:
        begun = 0
        if ARMED:  # a kill inside a batch finds some queues written and others not
            begun = len(one.runs) // 2
            self._writer.write(one.runs[:begun], one.entries)
        if ARMED:
            reach("reput.in_queues")
        self._writer.write(one.runs[begun:], one.entries)

    def _publish(self, one: Round) -> None:
        """New queues are numbered as they are met; one that got no entry yet (half messages) stands empty."""
        numbers = one.runs["queue_index"].astype(np.int64)
        starts = one.runs["queue_offset"].astype(np.int64)
        if len(numbers) and int(numbers.max()) >= self._ends.count:
            firsts = dict(zip(numbers.tolist(), starts.tolist(), strict=True))
            for place in range(self._ends.count, int(numbers.max()) + 1):
                start = firsts.get(place, 0)
                self._ends.add(self._directory.topic(place), self._directory.queue_id(place), start, start, 0)
        self._ends.move_all(numbers, starts + one.runs["count"], one.runs["phy_end"].astype(np.int64))

    def _raise_gap(self, batch: Batch, row: int, number: int, due: int) -> None:
        raise QueueGap(
            self._directory.topic(number).decode("utf-8", "replace"),
            self._directory.queue_id(number),
            int(batch.rows[row]["queue_offset"]),
            due,
            int(batch.rows[row]["phy"]),
        )
