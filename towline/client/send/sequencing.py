"""The batches of an idempotent producer: each record says its place in what the producer sends to its queue.

A batch gets its places when it is first taken to be sent, and keeps them and its queue through every further attempt,
also at another master. Of each queue one batch is under way, so attempts come in the order of the places, and the node
knows by the last record alone what it has (`towline/format/record/sequence.py`, docs/decisions/0093).

Places count within an epoch, which the node gives out. A new one begins when the count is in doubt: what became of a
batch is not known and will not be asked again, or the node does not know the producer any more. Before that every batch
of the old epoch has its outcome.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from towline.client.errors import AskRefused
from towline.client.link.rpc import Reply
from towline.errors import ProducerFenced, TowlineError
from towline.format.record import property_crc, sequence
from towline.format.record.columns import Integers
from towline.format.record.sequence import Place
from towline.format.record.sequence_columns import numbered
from towline.format.wire.status import PutStatus
from towline.limits import REQUEST_GROUPS_MAX

from .accumulator import Accumulator, BatchLimits
from .futures import Batch

BEGIN: Final = "begin_producer"
ASKED_MS: Final = 5_000  # for an epoch; then it is asked for again
_SIZE_BYTES: Final = 4  # TOTALSIZE
_IN_DOUBT: Final = (PutStatus.OUT_OF_ORDER_SEQUENCE, PutStatus.UNKNOWN_PRODUCER)

Tell = Callable[[str, dict[str, Any], int, Callable[[Reply | None, TowlineError | None], None]], None]
QueueKey = tuple[bytes, int]


class SequencedAccumulator(Accumulator):
    """`name` is the producer's, "" for one without; `tell` asks the node's put process (`IoThread.tell`)."""

    def __init__(
        self, limits: BatchLimits, wake: Callable[[], None], push: Callable[[], bool], name: str, tell: Tell
    ) -> None:
        super().__init__(limits, wake, push)
        self._name, self._tell = name, tell
        self._begun: tuple[int, int] | None = None  # producer and epoch
        self._asking = False
        self._in_doubt = False  # a new epoch is to begin
        self._numbers: dict[QueueKey, int] = {}  # of the next record
        self._under_way: dict[QueueKey, Batch] = {}

    # --- the I/O thread, or who has its turn

    def next_request(self, now: float, bytes_max: int, count_max: int = REQUEST_GROUPS_MAX) -> list[Batch]:
        """The oldest ready batch of a queue that has none under way."""
        with self.lock:
            self._seal_due(now)
            batch = self._next()
            if batch is not None:
                self._take(batch)
            if self._waiting and not self._ready:
                self._room.notify_all()
        if batch is None:
            self._ask_if_due()
            return []
        self._number(batch)
        return [batch]

    def take_only(self, batch: Batch) -> bool:
        with self.lock:
            if len(self._unfinished) > 1 or self._next() is not batch:
                return False
            self._take(batch)
        self._number(batch)
        return True

    def requeue(self, batches: Iterable[Batch]) -> None:
        again = list(batches)
        with self.lock:
            for batch in again:
                self._leave(batch)
        super().requeue(again)

    def may_pass(self, batches: Iterable[Batch], status: PutStatus, retry_after_ms: int) -> bool:
        """As for others; and what the node cannot place, and has surely not stored, goes in a new epoch."""
        fresh = [batch for batch in batches if not batch.unknown]
        if status is not PutStatus.UNKNOWN_PRODUCER or not fresh:
            return super().may_pass(batches, status, retry_after_ms)
        self._in_doubt = True
        for batch in fresh:
            batch.number = -1
        return True

    def finish(self, batches: Iterable[Batch], status: PutStatus, error: TowlineError | None = None) -> None:
        ended = list(batches)
        with self.lock:
            for batch in ended:
                self._leave(batch)
                if batch.number < 0:
                    continue
                if error is None:
                    self._numbers[_key(batch)] = batch.number + batch.count
                elif batch.unknown or status in _IN_DOUBT:
                    self._in_doubt = True
        super().finish(ended, status, error)
        if isinstance(error, ProducerFenced):
            self._end(error)

    def plan_sleep(self, now: float, can_send: bool) -> float:
        with self.lock:
            first = self._ready[0].deadline if self._ready else math.inf
            if not can_send:
                self._wake_before = -math.inf
                return first
            if self._next() is not None:
                return now
            self._wake_before = next(iter(self._open)).due if self._open else math.inf
            return min(first, self._wake_before)

    # --- what is next

    def _next(self) -> Batch | None:
        if self._begun is None:
            return None
        for batch in self._ready:
            if _key(batch) not in self._under_way and (batch.number >= 0 or not self._in_doubt):
                return batch
        return None

    def _take(self, batch: Batch) -> None:
        self._ready.remove(batch)
        self._under_way[_key(batch)] = batch

    def _leave(self, batch: Batch) -> None:
        if self._under_way.get(_key(batch)) is batch:
            del self._under_way[_key(batch)]

    def _number(self, batch: Batch) -> None:
        """Writes the places into a batch that has none."""
        if batch.number >= 0:
            return
        assert self._begun is not None
        batch.number = self._numbers.get(_key(batch), 0)
        ends = _ends(batch)
        records = b"".join(batch.records)
        batch.records = [numbered(records, ends - _behind(records), Place(*self._begun, batch.number))]

    # --- epochs

    def _ask_if_due(self) -> None:
        with self.lock:
            numbered = bool(self._under_way) or any(batch.number >= 0 for batch in self._ready)
            due = self._begun is None or (self._in_doubt and not numbered)
            if not due or self._asking or not self._ready:
                return
            self._asking = True
        begun = self._begun
        facts = {"name": self._name} if begun is None else {"producer": begun[0], "epoch": begun[1]}
        self._tell(BEGIN, facts, ASKED_MS, self._told)

    def _told(self, reply: Reply | None, error: TowlineError | None) -> None:
        """On the I/O thread. Where nobody answers, or the link ended, the next request asks again."""
        self._asking = False
        if reply is not None:
            self._begun = int(reply.facts["producer"]), int(reply.facts["epoch"])
            self._numbers.clear()
            self._in_doubt = False
        elif isinstance(error, AskRefused):
            fenced = error.error == ProducerFenced.__name__
            self._end(ProducerFenced(error.sentence) if fenced else error)

    def _end(self, error: TowlineError) -> None:
        """Nothing can be sent any more. What is under way has its outcome still to come."""
        super().finish(self.close(error), PutStatus.UNKNOWN_ERROR, error)


def _key(batch: Batch) -> QueueKey:
    return batch.route.name, batch.queue_id


def _ends(batch: Batch) -> Integers:
    """Where each record of a batch ends in its bytes."""
    if len(batch.records) == batch.count:
        return np.cumsum(np.fromiter(map(len, batch.records), np.int64, batch.count))
    data = b"".join(batch.records)
    size = int.from_bytes(data[:_SIZE_BYTES])
    if size * batch.count == len(data):
        sizes = np.frombuffer(data, np.uint8).reshape(batch.count, size)[:, :_SIZE_BYTES]
        if (sizes == sizes[0]).all():
            return np.arange(1, batch.count + 1, dtype=np.int64) * size
    ends, at = np.empty(batch.count, np.int64), 0
    for number in range(batch.count):
        at += int.from_bytes(data[at : at + _SIZE_BYTES])
        ends[number] = at
    return ends


def _behind(records: bytes) -> int:
    """Bytes of the property CRC behind the places, where the store wants one."""
    end = len(records)
    alone = records.startswith(sequence.HEAD, end - sequence.SIZE)
    assert alone or records.startswith(sequence.HEAD, end - sequence.SIZE - property_crc.SIZE), "room was left for them"
    return 0 if alone else property_crc.SIZE
