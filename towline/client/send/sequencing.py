"""The batches of an idempotent producer: each record says its place in what the producer sends to its queue.

A batch gets its places when it is first taken to be sent, and keeps them and its queue through every further attempt,
also at another master. Of each queue one batch is under way, so attempts come in the order of the places, and the node
knows by the last record alone what it has (`towline/format/record/sequence.py`, docs/decisions/0093).

Places count within an epoch, which the node gives out. A new one begins when the count is in doubt: what became of a
batch is not known and will not be asked again, or the node does not know the producer any more. Before that every batch
of the old epoch has its outcome.

A node of an older version would store a batch without looking at its places. It does not say in its welcome that it
judges them, and is sent nothing: what is ready waits for another node, or for its end.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from towline.client.errors import AskRefused
from towline.client.link.rpc import Reply
from towline.errors import MalformedFrame, MalformedRecord, ProducerFenced, TowlineError
from towline.format.record import property_crc, sequence
from towline.format.record.columns import Integers
from towline.format.record.rules import Rule
from towline.format.record.sequence import EPOCH_MAX, PRODUCER_MAX, Place
from towline.format.record.sequence_columns import numbered
from towline.format.wire.status import PutStatus
from towline.limits import REQUEST_GROUPS_MAX

from .accumulator import Accumulator, BatchLimits
from .futures import Batch

log = logging.getLogger(__name__)

BEGIN: Final = "begin_producer"
JUDGES: Final = "idempotent"  # in put's welcome
OLDER: Final = "the node is of a version that knows no idempotent producers"
UPGRADE: Final = "upgrade the node, or send by a producer without idempotent=True"
ASKED_MS: Final = 5_000  # for an epoch; then it is asked for again
_SIZE_BYTES: Final = 4  # TOTALSIZE
_IN_DOUBT: Final = (PutStatus.OUT_OF_ORDER_SEQUENCE, PutStatus.UNKNOWN_PRODUCER)

Tell = Callable[[str, dict[str, Any], int, Callable[[Reply | None, TowlineError | None], None]], None]
QueueKey = tuple[bytes, int]


class SequencedAccumulator(Accumulator):
    """`name` is the producer's, "" for one without; `tell` asks the node's put process (`IoThread.tell`), `welcome`
    gives what it said in its welcome."""

    def __init__(
        self,
        limits: BatchLimits,
        wake: Callable[[], None],
        push: Callable[[], bool],
        name: str,
        tell: Tell,
        welcome: Callable[[], Mapping[str, Any]],
    ) -> None:
        super().__init__(limits, wake, push)
        self._name, self._tell, self._welcome = name, tell, welcome
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
        return [batch] if self._number(batch) else []

    def take_only(self, batch: Batch) -> bool:
        with self.lock:
            if len(self._unfinished) > 1 or self._next() is not batch:
                return False
            self._take(batch)
        return self._number(batch)

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

    @property
    def held(self) -> str:
        return "" if self._welcome().get(JUDGES) else OLDER

    # --- what is next

    def _next(self) -> Batch | None:
        if self._begun is None or self.held:
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

    def _number(self, batch: Batch) -> bool:
        """Writes the places into a batch that has none. Where that cannot be, the batch has failed, and is not sent."""
        if batch.number >= 0:
            return True
        assert self._begun is not None
        first = self._numbers.get(_key(batch), 0)
        try:
            records = b"".join(batch.records)
            data = numbered(records, _ends(batch) - _behind(records), Place(*self._begun, first))
        except Exception as error:
            log.exception("a batch for %s cannot be given its places", batch.route.topic)
            failed = MalformedRecord(Rule.SEQUENCE_ORDER.name, f"its places cannot be written ({error!r})", 0)
            self.finish([batch], PutStatus.UNKNOWN_ERROR, failed)
            return False
        batch.records, batch.number = [data], first
        return True

    # --- epochs

    def _ask_if_due(self) -> None:
        with self.lock:
            numbered = bool(self._under_way) or any(batch.number >= 0 for batch in self._ready)
            due = self._begun is None or (self._in_doubt and not numbered and not self.held)
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
            self._begin(reply.facts)
        elif isinstance(error, AskRefused):
            if error.error == ProducerFenced.__name__:
                self._end(ProducerFenced(error.sentence))
            elif not self.held:
                self._end(error)
            elif self._begun is None:
                self._end(AskRefused(BEGIN, error.error, OLDER, UPGRADE))

    def _begin(self, facts: Mapping[str, Any]) -> None:
        match facts:
            case {"producer": int(producer), "epoch": int(epoch)} if (
                0 <= producer <= PRODUCER_MAX and 0 <= epoch <= EPOCH_MAX
            ):
                self._begun = producer, epoch
                self._numbers.clear()
                self._in_doubt = False
            case _:
                given = ", ".join(f"{name} {facts.get(name)!r}" for name in ("producer", "epoch"))
                self._end(
                    MalformedFrame(f"the node gave an idempotent producer no numbers that fit its records: {given}")
                )

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
