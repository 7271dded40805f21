"""The queue-offset table: the next QUEUEOFFSET of every queue (spec 5.3).

It changes only after every group of a request has passed (H2). After a restart of put alone it must equal the queues'
ends plus what lies in [dispatched, appended) of the log, before anything is answered (H11).
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np

from towline.errors import CorruptLog
from towline.format.record.record import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from towline.format.wire.frames import Group
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.dispatch import Batch
from towline.log.queues.queue_entries import holes_of
from towline.runtime.queue_ends import QueueEnds

UNCOUNTED: Final = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)  # they take no place in a queue


class Scan(Protocol):
    def read(self, start: int, end: int) -> Batch: ...


class QueueOffsets:
    """The next offset of each queue, by topic and queue id."""

    def __init__(self) -> None:
        self._next: dict[tuple[bytes, int], int] = {}

    def load(self, ends: QueueEnds, scan: Scan, directory: QueueDirectory, dispatched: int, appended: int) -> None:
        """`scan` reads up to `appended` and registers queues in `directory`.

        `dispatched` must have been read before `ends`, so that no record falls between the two.
        """
        for end in ends:
            self._next[end.topic, end.queue_id] = end.max_offset
        position = dispatched
        while position < appended:
            batch = scan.read(position, appended)
            if batch.end == position:
                raise CorruptLog(f"the log at {position}", position, batch.rule.name, batch.rule.sentence)
            following = np.zeros(len(directory), dtype=np.int64)
            counted = batch.rows[~np.isin(batch.rows["transaction"], UNCOUNTED)]
            np.maximum.at(following, counted["queue_index"], counted["queue_offset"] + 1)
            for lost in holes_of(batch):  # a number that was lost with a damaged stretch is not given again
                following[lost.number] = max(following[lost.number], lost.first + lost.count)
            for place in np.flatnonzero(following):
                key = directory.topic(int(place)), directory.queue_id(int(place))
                self._next[key] = max(self._next.get(key, 0), int(following[place]))
            position = batch.end

    def queues(self) -> list[tuple[bytes, int]]:
        """Topic and queue id of every queue that ever held a record."""
        return list(self._next)

    def raise_to(self, floors: Mapping[tuple[bytes, int], int]) -> None:
        """Raises offsets to the floors of deleted topics, so that no offset is given twice though nothing is left of
        the queue."""
        for queue, floor in floors.items():
            self._next[queue] = max(self._next.get(queue, 0), floor)

    def next_offsets_of(self, topic: bytes) -> dict[int, int]:
        """Queue id -> next offset, for the queues of a topic."""
        return {queue_id: offset for (name, queue_id), offset in self._next.items() if name == topic and offset}

    def next_of(self, topic: bytes, queue_id: int) -> int:
        return self._next.get((topic, queue_id), 0)

    def put(self, topic: bytes, queue_id: int, following: int) -> None:
        self._next[topic, queue_id] = following

    def update(self, groups: Sequence[Group], following: Sequence[int]) -> None:
        for group, offset in zip(groups, following, strict=True):
            self._next[group.topic, group.queue_id] = offset
