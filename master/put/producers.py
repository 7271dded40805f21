"""Idempotent producers at put: what their requests claim is read and judged, and the table is recovered from the log.

The table (`sequences`) stands in memory alone: the log is the truth. Put reads it again from there when it is first
asked by such a producer, not when it starts, so a node without them does nothing; whatever was stored since
then came through this process. It reads the last RECOVERED_BYTES before the log's end as this process found it,
from the begin of a segment on; what stands before is forgotten. So kill -9, a torn tail that recovery has cut, a
repair, retention and the promotion of a slave need no rule of their own: the table says what the log says.
"""

import secrets
import threading
from hashlib import sha256
from typing import Any, Final, Protocol

import numpy as np

from towline.errors import CorruptLog, MalformedFrame, NotInLog, ProducerFenced, TooManyQueues
from towline.format.record import property_crc, sequence
from towline.format.record.rules import Rule
from towline.format.record.sequence import PRODUCER_MAX
from towline.format.record.sequence_columns import find
from towline.format.wire.frames import Group
from towline.format.wire.status import PutStatus
from towline.kernels.base.directory import QueueDirectory
from towline.limits import MIB
from towline.link.native import bytes_from
from towline.log.commitlog.dispatch import Batch
from towline.node.process.context import Node
from towline.node.store.put_checks import Refusal
from towline.node.store.tail import appended_scan
from towline.runtime.positions import Position

from .sequences import DRAW_BITS, NO_EPOCH, PER_MS, Claim, Last, Repeat, Sequences, Verdict, own_of

RECOVERED_BYTES: Final = 512 * MIB  # at least, of the log's end
_SIZE_BYTES: Final = 4  # TOTALSIZE
_UNREADABLE: Final = (CorruptLog, NotInLog, TooManyQueues, OSError)


class Scan(Protocol):
    """Reads a log from a record's start."""

    def read(self, start: int, end: int) -> Batch:
        """The batch that begins at `start`."""
        ...


class Producers:
    """The idempotent producers of one put process, which found the log ending at `end`. Any thread may use it."""

    def __init__(self, node: Node, end: int) -> None:
        self._node, self._end = node, end
        self._crc_size = property_crc.SIZE if node.settings.enabled_append_prop_crc else 0
        self._lock = threading.Lock()
        self._known: Sequences | None = None

    @property
    def _table(self) -> Sequences:
        if self._known is None:
            settings = self._node.settings
            self._known = Sequences(settings.producer_states_max, settings.producer_id_expiration_ms)
            self._recover(self._known)
        return self._known

    def begin(self, question: dict[str, Any]) -> dict[str, Any]:
        """Answers who asks for an epoch: with `producer` and `epoch` for the next one of a producer that has one, with
        a `name` for the producer of that name, with an empty one for a new producer. Raises ProducerFenced,
        MalformedFrame."""
        match question:
            case {"producer": int(producer), "epoch": int(epoch)} if 0 <= producer <= PRODUCER_MAX and epoch >= 0:
                pass
            case {"name": str(name)} if name:
                producer, epoch = producer_of(name), NO_EPOCH
            case {"name": ""}:
                producer, epoch = self._draw(63), NO_EPOCH
            case _:
                raise MalformedFrame("who asks for an epoch gives a producer and its epoch, or a name")
        with self._lock:
            table = self._table
            if epoch != NO_EPOCH and not table.may_go_on(producer, epoch):
                raise ProducerFenced(_fenced(producer, epoch, table.epoch_of(producer) or 0))
            stored_ms, now_ms = self._node.positions.get(Position.STORE_TIMESTAMP), self._node.clock.now_ms()
            if not table.may_begin(producer, now_ms, stored_ms):
                raise ProducerFenced(f"producer {producer} begins again and again: others have its name")
            own = own_of(self._node.settings.broker_id, self._draw(DRAW_BITS))
            given = table.begin(producer, now_ms, stored_ms, own, epoch)
        return {"producer": producer, "epoch": given}

    def claim_of(self, records: int, size: int, group: Group) -> Claim | None:
        """What a request of `size` bytes at an address claims; None where it breaks SEQUENCE_ORDER."""
        first_size = int.from_bytes(bytes_from(records, _SIZE_BYTES))
        first, last = (self._place(records + end) for end in (first_size, size))
        if first is None or last is None or last != first._replace(number=first.number + group.count - 1):
            return None
        return Claim(first.producer, first.epoch, first.number, group.count, size, (group.topic, group.queue_id))

    def judge(self, claim: Claim, now_ms: int, stored_ms: int) -> Refusal | Repeat | None:
        """None where the claim is new and may be stored. `now_ms`: the clock's time; `stored_ms`: the log's newest."""
        with self._lock:
            table = self._table
            verdict = table.judge(claim, now_ms, stored_ms)
            match verdict:
                case Verdict.NEW:
                    return None
                case Verdict.FENCED:
                    sentence = _fenced(claim.producer, claim.epoch, table.epoch_of(claim.producer) or 0)
                    return Refusal(PutStatus.PRODUCER_FENCED, sentence)
                case Verdict.UNKNOWN:
                    return Refusal(PutStatus.UNKNOWN_PRODUCER, f"{_named(claim)} is not known here any more")
                case Verdict.OUT_OF_ORDER:
                    last = table.last(claim)
                    following = "" if last is None else f"; here {last.number + 1} is the next"
                    sentence = f"{_named(claim)} comes with numbers {claim.first} to {claim.last}{following}"
                    return Refusal(PutStatus.OUT_OF_ORDER_SEQUENCE, sentence)
            return verdict

    def stored(self, claim: Claim, queue_offset: int, end: int, stored_ms: int) -> None:
        """The claim is stored: its first record at this offset, and the log ends behind its last one."""
        with self._lock:
            self._table.stored(claim, queue_offset, end, stored_ms)

    def _place(self, end: int) -> sequence.Place | None:
        return sequence.decode(bytes_from(end - self._crc_size - sequence.SIZE, sequence.SIZE))

    def _recover(self, table: Sequences) -> None:
        node, directory = self._node, QueueDirectory()
        try:
            known = recover(table, self._scan(directory), directory, self._first_read(), self._end)
        except _UNREADABLE as error:
            node.log.warning("idempotent producers are not known any more, they begin anew: %s", error)
            known = False
        if not known:
            table.forget(node.positions.get(Position.STORE_TIMESTAMP))

    def _first_read(self) -> int:
        """Where the recovery begins to read."""
        at = max(0, self._end - RECOVERED_BYTES)
        at -= at % self._node.settings.mapped_file_size_commit_log
        return max(at, self._node.positions.get(Position.LOG_MIN))

    def _scan(self, directory: QueueDirectory) -> Scan:
        return appended_scan(self._node, directory)

    def _draw(self, bits: int) -> int:
        """A random number of so many bits."""
        return secrets.randbits(bits)


def recover(table: Sequences, scan: Scan, directory: QueueDirectory, at: int, end: int) -> bool:
    """Takes over what the log holds from a record's start to its end. False where there is no record, so that what
    stands before is to be forgotten. Raises CorruptLog, and what the scan does."""
    settled = at == 0  # `known_since_ms`: nothing stands before
    while at < end:
        batch = scan.read(at, end)
        if batch.end == at:
            raise CorruptLog(f"the log at {at}", at, batch.rule.name, batch.rule.sentence)
        if not settled and len(batch.rows):
            table.known_since_ms = int(batch.rows["store_timestamp"][0])
            settled = True
        recover_batch(table, batch, directory)
        at = batch.end
    return settled


def recover_batch(table: Sequences, batch: Batch, directory: QueueDirectory) -> None:
    """Takes over the last record of each epoch in each queue of a batch, in the log's order."""
    ends = batch.rows["phy"] - batch.base + batch.rows["size"]
    found = [find(batch.log, ends - behind, behind) for behind in (0, property_crc.SIZE)]
    columns = map(np.concatenate, zip(*found, strict=True))
    rows, producers, epochs, numbers = columns
    # What this or another put has judged is no older than its epoch; a copy that came in with a log of others may be.
    judged = epochs // PER_MS <= batch.rows["store_timestamp"][rows]
    if not judged.any():
        return
    rows, producers, epochs, numbers = (each[judged] for each in (rows, producers, epochs, numbers))
    order = np.argsort(rows)[::-1]
    keys = np.stack([producers, epochs, batch.rows["queue_index"][rows].astype(np.int64)])[:, order]
    newest = order[np.unique(keys, axis=1, return_index=True)[1]]
    for place in newest[np.argsort(rows[newest])].tolist():
        row = batch.rows[rows[place]]
        number, queue = int(numbers[place]), int(row["queue_index"])
        claim = Claim(
            *(int(producers[place]), int(epochs[place]), number, 1, int(row["size"])),
            (directory.topic(queue), directory.queue_id(queue)),
        )
        last = Last(number, int(row["queue_offset"]), int(row["phy"] + row["size"]))
        table.recovered(claim, last, int(row["store_timestamp"]))


def producer_of(name: str) -> int:
    """The id of the producer of this name, the same on every node."""
    return int.from_bytes(sha256(name.encode("utf-8", "surrogatepass")).digest()[:8]) & PRODUCER_MAX


def broken_order() -> Refusal:
    rule = Rule.SEQUENCE_ORDER
    return Refusal(PutStatus.MESSAGE_ILLEGAL, rule.sentence, rule)


def _fenced(producer: int, epoch: int, known: int) -> str:
    return f"producer {producer} is in epoch {known}, and this is of epoch {epoch}"


def _named(claim: Claim) -> str:
    topic, queue_id = claim.queue
    name = topic.decode("utf-8", "replace")
    return f"producer {claim.producer} of epoch {claim.epoch}, in queue {queue_id} of {name!r},"
