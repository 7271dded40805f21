"""Sends rows to a topic, so that what was sent before is not sent again. Needs no Spark.

A message is known by its unique key, which the caller makes from what it copies or computes, never from chance. Whoever
may have been here before asks `there` first. A miss counts only when everything that the log held when the question
began was dispatched (H22): a message that is stored and not dispatched yet is one that nobody finds.

A request whose outcome is not known is treated alike: its deadline is waited for, behind which the node takes it no
more, then its messages are searched for, and only what is missing is sent again. So a lost answer makes no doubles.
What is found was dispatched, and what is dispatched is confirmed: it also holds what was stored without a promise.

Nothing is waited for without an end: a question ends after ANSWER_MS; waiting for the node to come somewhere, and all
of putting right together, after the time that the caller gives, by an error that says where it stood.
"""

import math
import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from towline.client.admin import ALWAYS_MS, AdminClient
from towline.client.columns import Columns
from towline.client.consumer import Consumer
from towline.client.errors import DeliveryTimeout, ProducerFull, PutRefused, ResultPending, StoreBusy
from towline.client.message import ReceivedMessage
from towline.client.producer import Producer
from towline.client.send.futures import SendFuture, TopicRoute
from towline.errors import NoAnswer, UnknownTopic
from towline.format.record.forms import FORM_TOPICS
from towline.format.record.record import COMPRESSED, LAYOUT
from towline.limits import KIB, MIB

from .delays import has_delays, parts_of
from .errors import CannotLookBack, NotTheSameRows, NotWritten, SeveralGroups, UnwritableRow
from .rows import bodies_of, encoded_properties, numbers_of, prepared

CHUNK_BYTES: Final = 256 * KIB
OUTSTANDING_BYTES: Final = 32 * MIB
SEND_TIMEOUT_MS: Final = 3_000
TAKE_TIMEOUT_MS: Final = 1_000  # a request that waits longer is refused, so nobody has to fear it for longer
CLOCKS_MS: Final = 200  # by which this machine may have read the node's clock wrongly
TIMEOUT_MS: Final = 120_000
ANSWER_MS: Final = 10_000  # of a question
POLL_MS: Final = 100  # until it is seen again how far the queues were read
CLOCKS_APART_MS: Final = 60_000  # of this machine and the node, or of a master and the next
_PAUSE_S: Final = 0.001
_PAUSE_MAX_S: Final = 0.1
_ANY_QUEUE: Final = -1
_CRC: Final = slice(LAYOUT.offset["body_crc"], LAYOUT.offset["body_crc"] + 4)
_SYS_FLAG: Final = slice(LAYOUT.offset["sys_flag"], LAYOUT.offset["sys_flag"] + 4)

Keys = NDArray[np.bytes_]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sent:
    """Rows that were stored now, and rows that were there."""

    sent: int
    there: int


class There:
    """Messages that a topic holds already: their unique keys, and the CRCs of their bodies as they are stored."""

    def __init__(self, keys: Sequence[bytes] = (), crcs: Sequence[int] = ()) -> None:
        """CRCs of -1 are compared with nothing."""
        found = np.array(keys, dtype=np.bytes_) if len(keys) else np.empty(0, dtype="S1")
        order = np.argsort(found, kind="stable")
        self._keys: Keys = found[order]
        self._crcs: Integers = np.array(crcs, dtype=np.int64)[order] if len(crcs) else np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def last(self) -> bytes:
        """The greatest key; empty where there is none."""
        return bytes(self._keys[-1]) if len(self._keys) else b""

    def has_all(self, keys: pa.Array) -> bool:
        return bool((self.places(np.array(keys.to_pylist(), dtype=np.bytes_)) >= 0).all())

    def places(self, keys: Keys) -> Integers:
        """Where each key stands among these, -1 where it does not."""
        if not len(self._keys):
            return np.full(len(keys), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, at, -1).astype(np.int64)

    def check(self, places: Integers, keys: Keys, records: Sequence[bytes]) -> None:
        """Raises NotTheSameRows unless what is there has the bodies of these records."""
        for row in np.flatnonzero(places >= 0).tolist():
            theirs, ours = int(self._crcs[places[row]]), _crc_of(records[row])
            if theirs >= 0 and ours >= 0 and theirs != ours:
                raise NotTheSameRows(keys[row].decode("utf-8", "replace"), "its body is another")


Looking = Callable[[str, pa.Array], There | None]


@dataclass(slots=True)
class Chunk:
    """Records of one queue that go together. `sent_ms` is wall time."""

    topic: str
    queue_id: int
    records: list[bytes]
    keys: Keys
    future: SendFuture | None = None
    sent_ms: int = 0
    unknown: bool = False  # it may be stored
    trouble: str = ""

    @property
    def size(self) -> int:
        return sum(map(len, self.records))

    def without(self, there: There) -> "Chunk | None":
        missing = np.flatnonzero(there.places(self.keys) < 0)
        if not len(missing):
            return None
        records = [self.records[row] for row in missing.tolist()]
        return Chunk(self.topic, self.queue_id, records, self.keys[missing], trouble=self.trouble)


@dataclass(slots=True)
class _Counts:
    sent: int = 0
    there: int = 0
    outstanding: int = 0
    pending: deque[Chunk] = field(default_factory=deque)


class IdempotentProducer:
    """Sends rows to one group of nodes and waits for what they promise. Used by one thread.

    `endpoint` is that of put, or of several nodes, as a producer takes it; `serve` where the master answers questions,
    found through the node unless given. `drop_reserved`: properties that only a broker writes are left out, and not
    refused. Nothing is connected before it is needed. Raises InvalidEndpoint.
    """

    def __init__(
        self,
        endpoint: str | Sequence[str],
        *,
        serve: str = "",
        cluster: str = "",
        name: str = "",
        timeout_ms: int = TIMEOUT_MS,
        compression: str | None = "zlib",
        drop_reserved: bool = True,
    ) -> None:
        self._timeout_ms, self._drop_reserved = timeout_ms, drop_reserved
        self._began = time.monotonic()
        self._producer = Producer(
            endpoint,
            name=name or f"spark-{os.getpid()}",
            cluster=cluster,
            linger_ms=0,
            buffer_bytes_max=2 * OUTSTANDING_BYTES,
            send_timeout_ms=SEND_TIMEOUT_MS,
            take_timeout_ms=TAKE_TIMEOUT_MS,
            delivery_timeout_ms=ANSWER_MS,
            retries=0,  # what has no known outcome is searched for first
            compression=compression,
            serve=serve,
        )
        self._serve, self._cluster = serve, cluster
        self._admin: AdminClient | None = None
        self._counts = _Counts()
        self._turn = 0

    # --- what is there

    def lookup(self, topic: str, unique_key: str) -> ReceivedMessage | None:
        """The message with this key, after everything that the log holds now was indexed.

        Raises CannotLookBack where no index is kept, NotWritten when it does not get that far in time.
        """
        if self._settled("indexed", self._deadline())["indexed"] < 0:
            raise CannotLookBack()
        try:
            found = self._asked.by_unique_key(topic, unique_key)
        except UnknownTopic:
            return None
        return found[0] if found else None

    def there(self, topic: str, prefix: bytes, since_ms: int = 0) -> There:
        """What the topic holds under unique keys with this prefix, stored at or after `since_ms`, after everything that
        the log holds now was dispatched.

        Raises NotWritten when the node does not get that far in time, or a queue gives nothing for so long.
        """
        return self._there(topic, prefix, since_ms, self._deadline())

    def _there(self, topic: str, prefix: bytes, since_ms: int, deadline: float, *, as_a_whole: bool = False) -> There:
        """`as_a_whole`: the deadline is that of the reading too, which otherwise may go on while something comes."""
        self._settled("dispatched", deadline)
        try:
            ends = {queue: high for queue, (low, high) in self._asked.bounds(topic).items() if high > low}
        except UnknownTopic:
            return There()
        keys: list[bytes] = []
        crcs: list[int] = []
        if ends:
            with Consumer(
                self._where,
                topic,
                queues=sorted(ends),
                start=since_ms or "first",
                cluster=self._cluster,
                suspend_ms=0,
                check_crcs=False,  # a message is there, whatever its body has become
            ) as consumer:
                for columns in self._up_to(consumer, ends, deadline if as_a_whole else math.inf):
                    _gather(columns, prefix, keys, crcs)
        return There(keys, crcs)

    def there_of(self, topic: str, keys: pa.Array, since_ms: int = 0) -> There:
        """What stands in a system topic under these unique keys, stored at or after `since_ms`: no queue of it can be
        read, so each is looked up.

        Raises CannotLookBack where no index is kept, NotWritten when that takes too long or damage hides the answer.
        """
        return self._there_of(topic, keys.to_pylist(), since_ms, self._deadline())

    def _there_of(self, topic: str, keys: Sequence[bytes], since_ms: int, deadline: float) -> There:
        """Of one master: another one's index may not have come as far."""
        while True:
            ends = self._settled("indexed", deadline)
            if ends["indexed"] < 0:
                raise CannotLookBack()
            found: list[bytes] = []
            crcs: list[int] = []
            for number, key in enumerate(keys):
                if time.monotonic() > deadline:
                    trouble = f"{number} of {len(keys)} messages were looked up in {topic}"
                    raise NotWritten(0, self._timeout_ms, trouble)
                self._look_up(topic, key, since_ms, found, crcs)
            if self._asked.ask("log_ends").facts["epoch"] == ends["epoch"]:
                return There(found, crcs)

    def _look_up(self, topic: str, key: bytes, since_ms: int, found: list[bytes], crcs: list[int]) -> None:
        facts = {"topic": topic, "key": key.decode(), "begin": since_ms, "end": ALWAYS_MS, "max": 1}
        reply = self._asked.ask("query_unique_key", **facts)
        before = len(found)
        _gather(reply.columns, key, found, crcs)
        if len(found) == before and reply.facts.get("damaged"):
            trouble = f"a message of {topic} with the key {facts['key']}, or with its hash, is damaged"
            raise NotWritten(0, self._timeout_ms, trouble)

    def has_topic(self, topic: str) -> bool:
        """Whether the node knows the topic; asking does not create it."""
        try:
            self._asked.bounds(topic)
        except UnknownTopic:
            return False
        return True

    def write_queues(self, topic: str) -> int:
        """How many queues messages may be sent to; the node may create the topic for the asking."""
        return self._producer.route(topic).write_queues

    def _up_to(self, consumer: Consumer, ends: dict[int, int], deadline: float) -> Iterator[Columns]:
        """What the queues hold before these offsets. Raises NotWritten when nothing comes for too long."""
        left, quiet = set(ends), self._deadline()
        while left:
            reached = {queue for queue, at in consumer.position().items() if queue in left and at >= ends[queue]}
            if reached:
                consumer.pause(*reached)
                left -= reached
                continue
            if time.monotonic() > min(quiet, deadline):
                behind = {queue: (at, ends[queue]) for queue, at in consumer.position().items() if queue in left}
                raise NotWritten(0, self._timeout_ms, f"{consumer.topic} was read up to, of: {behind}")
            columns = consumer.poll_columns(POLL_MS)
            if columns is not None:
                yield columns
                quiet = self._deadline()

    # --- sending

    def send(self, topic: str, batch: pa.RecordBatch, keys: pa.Array, there: Looking | There | None = None) -> None:
        """Puts the rows on their way, except those that are `there`; `finish` waits for them.

        The columns are those of `towline.spark.rows`, of which `topic` is not read; `keys` the unique key of each
        row. `there` may be a function: of a topic in which records of these rows stand, and their keys. Rows without a
        queueId go to the queue of their shardingKey, or to the queues in turn, many at a time; the order of a queue is
        that of the rows.
        Raises UnwritableRow, UnwritableType, NotTheSameRows, PutRefused, NotWritten, MessageTooLarge, MalformedRecord,
        UnknownTopic, NoAnswer, LinkRefused, SeveralGroups.
        """
        if self._producer.has_groups:
            raise SeveralGroups(", ".join(self._producer.linked_groups) or "a cluster")
        batch = prepared(batch)
        route = self._producer.route(topic)
        queue_ids = _queues(batch, route)
        properties = encoded_properties(batch, keys, drop_reserved=self._drop_reserved)
        flags = numbers_of(batch, "flag", 0)
        names: Keys = np.array(keys.to_pylist(), dtype=np.bytes_)
        bodies = bodies_of(batch)
        queue_ids = self._spread(queue_ids, _sizes(bodies, properties), route)
        if not has_delays(batch):
            records = route.encoder.encode_rows(bodies, properties, queue_ids, flags)
            self._send_missing(route, queue_ids, records, names, there(topic, keys) if callable(there) else there)
            return
        for part in parts_of(batch, topic, queue_ids, *self._producer.delays()):
            rows = part.rows.tolist()
            own = [properties[row] for row in rows]
            stands = route
            if part.pairs is not None:
                own = [one + more for one, more in zip(own, part.pairs, strict=True)]
                stands = self._producer.form_route(part.topic)
            records = stands.encoder.encode_rows([bodies[row] for row in rows], own, part.queue_ids, flags[part.rows])
            found = there(part.topic, keys.take(pa.array(part.rows))) if callable(there) else there
            self._send_missing(stands, part.queue_ids, records, names[part.rows], found)

    def _send_missing(
        self, route: TopicRoute, queue_ids: Integers, records: list[bytes], names: Keys, there: There | None
    ) -> None:
        """Puts records on their way to the topic in which they stand, except those that are `there`."""
        kept = np.arange(len(records))
        if there is not None and len(there):
            places = there.places(names)
            there.check(places, names, records)
            kept = np.flatnonzero(places < 0)
            self._counts.there += len(records) - len(kept)
        for chunk in _chunks(route, queue_ids, records, names, kept):
            self._launch(chunk)
            self._counts.pending.append(chunk)
            self._counts.outstanding += chunk.size
            self._drain(OUTSTANDING_BYTES)

    def finish(self) -> Sent:
        """Waits until every row is stored and promised; the counts since the beginning. Raises what `send` does."""
        self._drain(0)
        return Sent(self._counts.sent, self._counts.there)

    def wait_for_others(self, ms: int = TAKE_TIMEOUT_MS + CLOCKS_MS) -> None:
        """Until `ms` after this object was made, when nobody who sent before it can have a request under way."""
        time.sleep(max(0.0, self._began + ms / 1000 - time.monotonic()))

    def close(self) -> None:
        self._producer.close(flush=False)
        if self._admin is not None:
            self._admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- requests and what becomes of them

    def _launch(self, chunk: Chunk) -> None:
        chunk.sent_ms, chunk.unknown = time.time_ns() // 1_000_000, False
        records = b"".join(chunk.records)
        chunk.future = self._producer.send_records(chunk.topic, chunk.queue_id, records, len(chunk.records))

    def _drain(self, keep: int) -> None:
        """Waits for the oldest until at most `keep` bytes are under way, and puts right what went wrong."""
        troubled = []
        while self._counts.pending and self._counts.outstanding > keep:
            chunk = self._counts.pending.popleft()
            self._counts.outstanding -= chunk.size
            if not self._is_promised(chunk):
                troubled.append(chunk)
        if troubled:
            self._put_right(troubled)

    def _is_promised(self, chunk: Chunk) -> bool:
        """Raises what is wrong with the request itself, NotWritten when the producer knows no outcome of it."""
        assert chunk.future is not None
        try:
            error = chunk.future.exception(self._timeout_ms / 1_000)
        except ResultPending as pending:
            raise NotWritten(len(chunk.records), self._timeout_ms, pending.describe()) from None
        if error is None:
            status = chunk.future.result().status
            chunk.unknown, chunk.trouble = True, f"{status.name}: stored, but not promised"
            if status.acknowledged:
                self._counts.sent += len(chunk.records)
            return status.acknowledged
        if isinstance(error, PutRefused) and not isinstance(error, StoreBusy):
            raise error
        if not isinstance(error, StoreBusy | DeliveryTimeout):
            raise error
        chunk.unknown, chunk.trouble = isinstance(error, DeliveryTimeout), error.describe()
        return False

    def _put_right(self, chunks: list[Chunk]) -> None:
        """Sends again what is surely not stored, until all of it is; all chunks at once. Raises NotWritten."""
        deadline, pause = self._deadline(), _PAUSE_S
        while chunks:
            if time.monotonic() > deadline:
                raise NotWritten(sum(len(chunk.records) for chunk in chunks), self._timeout_ms, chunks[0].trouble)
            chunks = self._missing(chunks, deadline)
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_S)
            launched = [chunk for chunk in chunks if self._is_launched(chunk)]
            promised = {id(chunk) for chunk in launched if self._is_promised(chunk)}
            chunks = [chunk for chunk in chunks if id(chunk) not in promised]

    def _missing(self, chunks: list[Chunk], deadline: float) -> list[Chunk]:
        """What the log does not hold of these chunks, when nothing of them can come any more."""
        unknown: dict[str, list[Chunk]] = {}
        for chunk in chunks:
            if chunk.unknown:
                unknown.setdefault(chunk.topic, []).append(chunk)
        if not unknown:
            return chunks
        time.sleep((TAKE_TIMEOUT_MS + CLOCKS_MS) / 1000)  # a request may have left just before its outcome was lost
        missing = [chunk for chunk in chunks if not chunk.unknown]
        for topic, some in unknown.items():
            since_ms = max(0, min(chunk.sent_ms for chunk in some) - CLOCKS_APART_MS)
            prefix = _common_prefix(np.concatenate([chunk.keys for chunk in some]))
            if topic in FORM_TOPICS:
                keys = np.concatenate([chunk.keys for chunk in some]).tolist()
                there = self._there_of(topic, keys, since_ms, deadline)
            else:
                there = self._there(topic, prefix, since_ms, deadline, as_a_whole=True)
            for chunk in some:
                left = chunk.without(there)
                self._counts.sent += len(chunk.records) - (0 if left is None else len(left.records))
                if left is not None:
                    missing.append(left)
        return missing

    def _is_launched(self, chunk: Chunk) -> bool:
        try:
            self._launch(chunk)
        except (ProducerFull, NoAnswer) as error:
            chunk.trouble = error.describe()
            return False
        return True

    def _deadline(self) -> float:
        """Of what begins now; monotonic seconds."""
        return time.monotonic() + self._timeout_ms / 1000

    # --- questions

    @property
    def _where(self) -> str | Callable[[], str]:
        return self._serve or self._producer.follow("serve")

    @property
    def _asked(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(
                self._where, name=f"spark-{os.getpid()}", cluster=self._cluster, timeout_ms=ANSWER_MS, masters_only=True
            )
        return self._admin

    def _settled(self, position: str, deadline: float) -> dict[str, Any]:
        """The ends of the log when `position` has passed where it ended at the call; at once where it is -1."""
        pause = _PAUSE_S
        goal = facts = self._asked.ask("log_ends").facts
        while 0 <= facts[position] < goal["appended"]:
            # What another master does not have, or a start has cut off, was never confirmed.
            if facts["epoch"] != goal["epoch"] or facts["appended"] < goal["appended"]:
                goal = facts
            if time.monotonic() > deadline:
                behind = f"{position} stands at {facts[position]}, the log ended at {goal['appended']}"
                raise NotWritten(0, self._timeout_ms, behind)
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_S)
            facts = self._asked.ask("log_ends").facts
        return dict(facts)

    def _spread(self, queue_ids: Integers, sizes: Integers, route: TopicRoute) -> Integers:
        """Queues for the rows that have none: as many rows as make a chunk go to one, the next to the next."""
        free = np.flatnonzero(queue_ids == _ANY_QUEUE)
        if not len(free):
            return queue_ids
        turns = np.cumsum(sizes[free]) // CHUNK_BYTES
        found = queue_ids.copy()
        found[free] = (self._turn + turns) % route.write_queues
        self._turn += int(turns[-1]) + 1
        return found

    def begin_at(self, text: str) -> None:
        """Which queue has the first turn: so that many small tasks do not all begin with the same."""
        self._turn = zlib.crc32(text.encode())


def _gather(columns: Columns, prefix: bytes, keys: list[bytes], crcs: list[int]) -> None:
    stored = np.where(columns.sys_flag & COMPRESSED, -1, columns.body_crc).tolist()
    for key, crc in zip(columns.unique_keys(), stored, strict=True):
        if key.startswith(prefix):
            keys.append(key)
            crcs.append(crc)


def _common_prefix(keys: Keys) -> bytes:
    ordered = sorted(keys.tolist())
    first, last = ordered[0], ordered[-1]
    same = (place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return bytes(first[: next(same, len(first))])


def _queues(batch: pa.RecordBatch, route: TopicRoute) -> Integers:
    found = numbers_of(batch, "queueId", _ANY_QUEUE)
    if "shardingKey" in batch.schema.names:
        names = pc.fill_null(batch["shardingKey"], "")
        keyed = np.flatnonzero((found == _ANY_QUEUE) & np.asarray(pc.not_equal(names, "")))
        found[keyed] = [route.queue_of(key) for key in names.take(pa.array(keyed)).to_pylist()]
    wrong = (found < _ANY_QUEUE) | (found >= route.write_queues)
    if wrong.any():
        row = int(wrong.argmax())
        raise UnwritableRow(row, f"queueId is {found[row]}, and {route.topic} has queues 0 to {route.write_queues - 1}")
    return found


def _sizes(bodies: Sequence[bytes], properties: Sequence[bytes]) -> Integers:
    found = np.fromiter(map(len, bodies), dtype=np.int64, count=len(bodies))
    return found + np.fromiter(map(len, properties), dtype=np.int64, count=len(bodies)) + LAYOUT.size


def _chunks(route: TopicRoute, queue_ids: Integers, records: list[bytes], keys: Keys, kept: Integers) -> list[Chunk]:
    """Rows `kept` by queue, in order, in chunks of about CHUNK_BYTES, and no more records than a batch may have."""
    found = []
    for queue_id in np.unique(queue_ids[kept]).tolist():
        rows = kept[queue_ids[kept] == queue_id]
        ends = np.cumsum(np.fromiter((len(records[row]) for row in rows.tolist()), dtype=np.int64, count=len(rows)))
        first = 0
        while first < len(rows):
            before = int(ends[first - 1]) if first else 0
            end = max(first + 1, int(np.searchsorted(ends, before + CHUNK_BYTES, side="right")))
            end = min(end, first + route.records_max)
            some = rows[first:end]
            found.append(Chunk(route.topic, int(queue_id), [records[row] for row in some.tolist()], keys[some]))
            first = end
    return found


def _crc_of(record: bytes) -> int:
    """-1 for a compressed body, which another version of the library may make otherwise."""
    if int.from_bytes(record[_SYS_FLAG], "big") & COMPRESSED:
        return -1
    return int.from_bytes(record[_CRC], "big")
