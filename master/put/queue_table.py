"""The queue table: next QUEUEOFFSET of every queue, form of its records, and who may write to it (spec 5.3).

One row of PUT_QUEUE per queue, which the append reads and moves. An offset changes only after every group of a request
has passed (H2). After a restart of put alone the offsets must equal the queues' ends plus what lies in [dispatched,
appended) of the log, before anything is answered (H11).
"""

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

import numpy as np

from towline.errors import CorruptLog
from towline.format.record.forms import Form
from towline.format.record.record import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from towline.kernels.base.directory import NONE, QueueDirectory
from towline.kernels.jit.compiled import Numbers, Rows
from towline.kernels.jit.rows import PUT_QUEUE, Sender
from towline.kernels.put.append import PLACES_SIZE, Queues
from towline.log.commitlog.dispatch import Batch
from towline.log.queues.queue_entries import holes_of
from towline.runtime.queue_ends import QueueEnds

UNCOUNTED: Final = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)  # they take no place in a queue
_QUEUES_AT_FIRST: Final = 64
_COUNTED: Final = ["messages", "size", "requests"]
Queue = tuple[bytes, int]


class Scan(Protocol):
    """Reads the log and numbers its queues in the table's directory."""

    def read(self, start: int, end: int) -> Batch: ...


class QueueTable:
    """The queues of one put process, by topic and queue id."""

    def __init__(self) -> None:
        self.directory = QueueDirectory()
        self._names: list[Queue] = []
        self._rows: Rows = np.zeros(_QUEUES_AT_FIRST, PUT_QUEUE)
        self._touched: Numbers = np.zeros(_QUEUES_AT_FIRST, np.int64)
        self._places: Numbers = np.zeros(PLACES_SIZE, np.int64)

    @property
    def arguments(self) -> Queues:
        """The queues as the append takes them; valid until a queue is added."""
        return self.directory.arrays, self._rows, self._touched, self._places

    def load(self, ends: QueueEnds, scan: Scan, dispatched: int, appended: int) -> None:
        """`scan` reads up to `appended` and registers queues in `directory`.

        `dispatched` must have been read before `ends`, so that no record falls between the two.
        """
        for end in ends:
            self.raise_to({(end.topic, end.queue_id): end.max_offset})
        position = dispatched
        while position < appended:
            batch = scan.read(position, appended)
            if batch.end == position:
                raise CorruptLog(f"the log at {position}", position, batch.rule.name, batch.rule.sentence)
            self._grow()
            following = self._rows["next_offset"]
            counted = batch.rows[~np.isin(batch.rows["transaction"], UNCOUNTED)]
            np.maximum.at(following, counted["queue_index"], counted["queue_offset"] + 1)
            for lost in holes_of(batch):  # a number that was lost with a damaged stretch is not given again
                following[lost.number] = max(following[lost.number], lost.first + lost.count)
            position = batch.end

    def raise_to(self, floors: Mapping[Queue, int]) -> None:
        """Raises offsets to these, as for topics that were deleted: no offset is given twice though nothing is left of
        the queue. Raises TooManyQueues."""
        for queue, floor in floors.items():
            number = self._add(*queue)
            self._rows["next_offset"][number] = max(self._rows["next_offset"][number], floor)

    def allow(self, topic: bytes, queue_id: int, form: Form, sender: Sender) -> None:
        """Lets the sender write to a queue whose records have this form. Raises TooManyQueues."""
        number = self._add(topic, queue_id)
        self._rows["form"][number] = form
        self._rows["access"][number] |= sender

    def forbid_all(self) -> None:
        """Takes back every `allow`: the topics have changed."""
        self._rows["access"] = 0

    def queues(self) -> list[Queue]:
        """Topic and queue id of every queue of the table."""
        return list(self._names)

    def ends(self) -> list[tuple[bytes, int, int]]:
        """Topic, queue id and next offset of every queue."""
        offsets: list[int] = self._rows["next_offset"].tolist()
        return [(topic, queue_id, offsets[number]) for number, (topic, queue_id) in enumerate(self._names)]

    def next_offsets_of(self, topic: bytes) -> dict[int, int]:
        """Queue id -> next offset, for the queues of a topic that ever held a record."""
        return {queue_id: offset for name, queue_id, offset in self.ends() if name == topic and offset}

    def next_of(self, topic: bytes, queue_id: int) -> int:
        number = self.directory.lookup(topic, queue_id)
        return 0 if number == NONE else int(self._rows["next_offset"][number])

    def stored(self, count: int) -> Iterator[tuple[bytes, int, int, int, int]]:
        """Yields topic, queue id, records, bytes and requests of the `count` queues that the last calls wrote to."""
        touched = self._touched[:count]
        numbers: list[int] = touched.tolist()
        for number, counts in zip(numbers, self._rows[_COUNTED][touched].tolist(), strict=True):
            yield (*self._names[number], *counts)
        for name in _COUNTED:
            self._rows[name][touched] = 0

    def _add(self, topic: bytes, queue_id: int) -> int:
        number = self.directory.add(topic, queue_id)
        self._grow()
        return number

    def _grow(self) -> None:
        """Makes room for as many queues as the directory knows."""
        for number in range(len(self._names), len(self.directory)):
            self._names.append((self.directory.topic(number), self.directory.queue_id(number)))
        while self._rows.size < len(self._names):
            self._rows = np.concatenate((self._rows, np.zeros_like(self._rows)))
            self._touched = np.concatenate((self._touched, np.zeros_like(self._touched)))
