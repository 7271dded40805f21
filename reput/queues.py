"""Dispatch to ConsumeQueues: kernels group a batch by queue and write what each queue gets."""

from typing import NoReturn

import numpy as np

from towline.errors import DiskFull, QueueGap
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.dispatch import Batch
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.gather import Gather
from towline.log.queues.queue_entries import QueueEntries, Round, holes_of
from towline.log.queues.queue_writer import QueueWriter
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.queue_ends import QueueEnds

from .extensions import ExtensionWriter


class QueueDispatcher:
    """The owner of the queues' bytes and of the table of their ends. A queue's number is its row in the table."""

    name = "queues"

    def __init__(
        self,
        files: ConsumeQueueFiles,
        ends: QueueEnds,
        directory: QueueDirectory,
        open_max: int,
        extensions: ExtensionWriter | None = None,
    ) -> None:
        """At most `open_max` files are kept open, beside those of `files`. `extensions` where ConsumeQueueExt is on."""
        self._extensions = extensions
        self._ends = ends
        self._directory = directory
        self._files = files
        self._writer = QueueWriter(files, directory, open_max)
        for end in ends:
            directory.add(end.topic, end.queue_id)
        _, expected, reached = ends.columns()
        self._entries = QueueEntries(directory, self._raise_gap, expected, reached)
        self._gather: Gather | None = None

    def put(self, batch: Batch) -> None:
        """Writes queue bytes, then ends (H13). Raises DiskFull, and QueueGap for a record that is not its queue's
        next."""
        for one in self._entries.rounds(batch):
            self._extend(batch, one)
            if ARMED:
                reach("reput.before_entries")
            self._write(one)
            self._publish(one)

    def begin(self, entries_max: int) -> None:
        """Begins gathering batches, until `commit` writes their entries or `discard` drops them."""
        queues = len(self._directory)
        if self._gather is None or self._gather.entries_max < entries_max or self._gather.queues < queues:
            self._gather = Gather(entries_max, queues)
        self._entries.keep()

    def gather(self, batch: Batch) -> bool:
        """Adds a batch's entries in memory; False, and none are kept, where they might not fit.

        Raises QueueGap: then call `discard`, as some of the batch's entries are kept.
        """
        gather = self._gather
        assert gather is not None, "begun"
        if len(batch.rows) > gather.room or len(self._directory) > gather.queues or holes_of(batch):
            return False
        for one in self._entries.rounds(batch):
            gather.add(one)
        return True

    def commit(self) -> None:
        """Writes and publishes the gathered entries, and raises what `put` raises: then call `discard`."""
        assert self._gather is not None, "begun"
        for one in self._gather.rounds():
            if ARMED:
                reach("reput.in_settle")
            self._write(one)
            self._publish(one)
            self._entries.settle(one.runs)

    def discard(self) -> None:
        """Drops gathered entries that were not published: their batches must be sent again."""
        assert self._gather is not None, "begun"
        self._gather.clear()
        self._entries.restore()

    def close_queue(self, topic: str, queue_id: int) -> None:
        """Closes the files of a queue without entries, before they are removed."""
        self._writer.close_queue(topic.encode(), queue_id)
        if self._extensions is not None:
            self._extensions.remove(topic, queue_id)

    def release(self) -> None:
        """Frees the memory for gathering."""
        self._gather = None

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
            self._extensions.discard()
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
        """Publishes the ends. New queues are numbered as they appear; one without entries yet (half messages) stays
        empty."""
        if ARMED:
            reach("reput.before_ends")
        numbers = one.runs["queue_index"].astype(np.int64)
        starts = one.runs["queue_offset"].astype(np.int64)
        if len(numbers) and int(numbers.max()) >= self._ends.count:
            firsts = dict(zip(numbers.tolist(), starts.tolist(), strict=True))
            for place in range(self._ends.count, int(numbers.max()) + 1):
                start = firsts.get(place, 0)
                self._ends.add(self._directory.topic(place), self._directory.queue_id(place), start, start, 0)
        self._ends.move_all(numbers, starts + one.runs["count"], one.runs["phy_end"].astype(np.int64))

    def _raise_gap(self, batch: Batch, row: int, number: int, due: int) -> NoReturn:
        raise QueueGap(
            self._directory.topic(number).decode("utf-8", "replace"),
            self._directory.queue_id(number),
            int(batch.rows[row]["queue_offset"]),
            due,
            int(batch.rows[row]["phy"]),
        )
