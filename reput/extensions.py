"""ConsumeQueueExt units of a batch, written before the queue entries that hold their addresses (spec 3.5).

Queues of SCHEDULE_TOPIC_XXXX have none: their tags code is the time of delivery, and no one filters them.
"""

import numpy as np
import numpy.typing as npt

from towline.format.files.consume_queue import ENTRY, SIZE
from towline.format.files.consume_queue_ext import encode_units
from towline.kernels.base.directory import QueueDirectory
from towline.kernels.scan.dispatch import SCHEDULE_TOPIC
from towline.log.commitlog.dispatch import Batch
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.consume_queue_ext import ConsumeQueueExtFiles, is_address
from towline.log.queues.queue_entries import Round


class Extensions:
    """The one writer of units. A queue's end is looked up when it gets its first unit here."""

    def __init__(self, files: ConsumeQueueExtFiles, queues: ConsumeQueueFiles, directory: QueueDirectory) -> None:
        self.files = files
        self._queues, self._directory = queues, directory
        self._ends: dict[int, int] = {}

    def put(self, batch: Batch, one: Round) -> None:
        """Writes a unit for each entry of the round and puts its address there. Raises DiskFull, IllegalTopic.

        A round that is put again, because the disk was full or reput was killed, gets units behind the newest entry
        that was published: those that no entry points to are written over.
        """
        kept = np.flatnonzero(one.order >= 0)
        rows = one.first + kept[np.argsort(one.order[kept], kind="stable")]  # in the order of the entries
        entries = one.entries[: len(rows) * SIZE].view(ENTRY)
        for run in one.runs:
            number, start, count, offset = (
                int(run[name]) for name in ("queue_index", "start", "count", "queue_offset")
            )
            topic = self._directory.topic(number)
            if topic != SCHEDULE_TOPIC:
                first = start // SIZE
                part = slice(first, first + count)
                entries["tags_code"][part] = self._write(batch, rows[part], number, topic, offset)

    def _write(
        self, batch: Batch, rows: npt.NDArray[np.int64], number: int, topic: bytes, offset: int
    ) -> npt.NDArray[np.int64]:
        found = batch.rows[rows]
        bitmaps = np.zeros((len(rows), 0), dtype=np.uint8)
        if batch.bitmaps is not None and batch.filtered is not None and batch.filtered[rows[0]]:
            bitmaps = batch.bitmaps[rows]  # of one topic: all of them or none
        units = encode_units(found["tags_code"].astype(np.int64), found["store_timestamp"].astype(np.int64), bitmaps)
        name, queue_id = topic.decode("utf-8", "replace"), self._directory.queue_id(number)
        end = self._ends.pop(number, -1)
        if end < 0:
            end = self._end_before(name, queue_id, offset)
        addresses, end = self.files.write(name, queue_id, end, units)
        self._ends[number] = end
        return addresses

    def forget(self) -> None:
        """The batch was not published: its units are written over."""
        self._ends.clear()

    def _end_before(self, topic: str, queue_id: int, offset: int) -> int:
        """Behind the unit of the entry before `offset`; without one behind all units there are."""
        if offset > 0:
            codes = self._queues.raw(topic, queue_id, offset - 1, 1)["tags_code"].astype(np.int64)
            if is_address(codes)[0]:
                end = self.files.behind(topic, queue_id, int(codes[0]))
                self.files.cut(topic, queue_id, end)  # of entries that were cut off, or never published
                return end
        return self.files.end_of(topic, queue_id)

    def delete_expired(self, topic: str, queue_id: int, first: int) -> int:
        """Removes files of which no entry from number `first` on has a unit. How many."""
        codes = self._queues.raw(topic, queue_id, first, 1)["tags_code"].astype(np.int64)
        if not is_address(codes).all():
            return 0
        return self.files.delete_expired(topic, queue_id, int(codes[0]))

    def remove(self, topic: str, queue_id: int) -> None:
        """All units of a queue."""
        self._ends.clear()
        self.files.remove(topic, queue_id)
