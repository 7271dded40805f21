"""`df.write.format("towline")` and `df.writeStream.format("towline")`: rows become messages, each once.

Every row has a unique key that is made of whose write it is, the batch, the partition and the number of the row:
writing it again changes nothing. Whose write it is: the option txnAppId, else the id of the streaming query, which its
checkpoint keeps; the batch: txnVersion, else the number of the micro-batch, also within foreachBatch. A batch write
with neither is a new one each time it is called.

A task cannot know whether another one wrote its rows before: an attempt that failed, or a driver that died. So row 0 is
sent alone, and the others after it was promised. Whoever finds no row 0, when everything that the log held was
dispatched, is the first; whoever finds it reads what the topic has got since then, and sends what is missing.

Requests that an attempt leaves behind when it is cut off are taken by the node for another second, and one that runs on
(speculation, an executor that is thought lost) is to stop. So whoever finds that rows are missing behind row 0, or is a
later attempt, raises a fence (`fencing`) and waits (replayWaitMs) before it reads again; nobody else pays for it.

What is left of at-least-once: row 0 alone is written twice when the request with it is all that a driver left behind,
and the next one was there before the node took it.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from towline.format.record.compression import KINDS
from towline.format.record.forms import FORM_TOPICS
from towline.places import Store

from .daemons import keep_loaded
from .delays import stored_topics
from .errors import BadOption, NoTable, NotAppendable, UnknownOption, nearest
from .fencing import FENCE_WAIT_MS, FencedProducer
from .idempotent_producer import CLOCKS_APART_MS, TIMEOUT_MS, Sent, There
from .options import NAMES as READERS
from .options import SINK_NAMES as NAMES
from .options import truth, whole
from .rows import STEM_SIZE, by_topic, check_schema, prepared, unique_keys

BATCH_ID: Final = "streaming.sql.batchId"  # local properties that Spark sets for the tasks of a micro-batch
QUERY_ID: Final = "sql.streaming.queryId"
REPLAY_WAIT_MS: Final = FENCE_WAIT_MS
_NUMBERS: Final = ("txnVersion", "timeoutMs", "replayWaitMs")
_OF_READERS: Final = frozenset(name.lower() for name in READERS) - {name.lower() for name in NAMES}
_SPARKS: Final = frozenset({"checkpointlocation", "queryname"})  # meant for Spark, and handed on


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What the options of a write say. `app` and `version` are "" and -1 where Spark is to say them."""

    endpoint: str
    serve: str = ""
    cluster: str = ""
    topic: str = ""
    app: str = ""
    version: int = -1
    idempotent: bool = True
    compression: str | None = "zlib"
    drop_reserved: bool = False
    timeout_ms: int = TIMEOUT_MS
    replay_wait_ms: int = REPLAY_WAIT_MS

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Names in any case. Raises UnknownOption, BadOption."""
        by_case = {name.lower(): name for name in NAMES}
        given: dict[str, str] = {}
        for name, value in options.items():
            if name.lower() in _SPARKS or name.lower() in _OF_READERS:
                continue
            if name.lower() not in by_case:
                raise UnknownOption(name, nearest(name, (*NAMES, *READERS)))
            given[by_case[name.lower()]] = value
        if not given:
            raise NoTable()
        if ("endpoint" in given) == ("path" in given):
            raise BadOption("endpoint", given.get("endpoint", ""), "give either it or the path of a running store")
        kind = given.get("compression", "zlib").lower()
        if kind not in (*KINDS, "none"):
            raise BadOption("compression", kind, f"it is one of {', '.join(KINDS)}, none")
        if "txnVersion" in given and "txnAppId" not in given:
            raise BadOption("txnVersion", given["txnVersion"], "it counts the writes of a txnAppId, which is missing")
        numbers = {name: whole(name, given[name]) for name in _NUMBERS if name in given}
        return cls(
            endpoint=given.get("endpoint") or _endpoint_of(given["path"]),
            serve=given.get("serve", ""),
            cluster=given.get("cluster", ""),
            topic=given.get("topic", ""),
            app=given.get("txnAppId", ""),
            version=numbers.get("txnVersion", -1),
            idempotent=truth("idempotent", given.get("idempotent", "true")),
            compression=None if kind == "none" else kind,
            drop_reserved=truth("dropReserved", given.get("dropReserved", "false")),
            timeout_ms=numbers.get("timeoutMs", TIMEOUT_MS),
            replay_wait_ms=numbers.get("replayWaitMs", REPLAY_WAIT_MS),
        )


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt at the rows of one partition. `stem` begins their unique keys; `attempt` is 0 for the first.

    `looks_back`: whether somebody may have been here before.
    """

    stem: str
    attempt: int
    looks_back: bool


@dataclass
class Written(WriterCommitMessage):
    """What a task did: rows that it stored, rows that were there."""

    partition: int
    sent: int
    there: int


def stem_of(app: str, batch: int, partition: int, topic: str) -> str:
    """The beginning of the unique keys of a partition's rows: 24 hex digits of a digest."""
    named = json.dumps([app, batch, partition, topic]).encode()
    return hashlib.blake2b(named, digest_size=STEM_SIZE // 2).hexdigest().upper()


def write_rows(options: SinkOptions, task: Task, batches: Iterable[pa.RecordBatch]) -> Sent:
    """Sends every row that is not there. Raises what `IdempotentProducer` does. Nothing is connected for no rows."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Sent(0, 0)
    with FencedProducer(
        options.endpoint,
        stem=task.stem if options.idempotent else "",
        serve=options.serve,
        cluster=options.cluster,
        timeout_ms=options.timeout_ms,
        compression=options.compression,
        drop_reserved=options.drop_reserved,
    ) as producer:
        return _Writing(options, task, producer).run(first, filled)


class _Writing:
    def __init__(self, options: SinkOptions, task: Task, producer: FencedProducer) -> None:
        self._options, self._task, self._producer = options, task, producer
        self._there: dict[str, There] = {}
        self._since_ms: int | None = None  # when row 0 of an earlier attempt was stored
        self._row = 0
        producer.begin_at(task.stem)

    def run(self, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Sent:
        if self._options.idempotent:
            first = self._begin(first)
        self._send(first)
        for batch in others:
            self._send(batch)
        return self._producer.finish()

    def _begin(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Finds out whether the rows were written before. If not, row 0 is sent; the rows that are left to send."""
        task = self._task
        head = prepared(batch.slice(0, 1))
        if task.looks_back:
            ((topic, _),) = by_topic(head, self._options.topic)
            ((topic, _),) = stored_topics(head, topic)
            name = unique_keys(task.stem, 0, 1)[0].as_py().decode()
            found = self._producer.lookup(topic, name)
            if found is None and task.attempt:
                self._producer.fence_off(self._options.replay_wait_ms)
                found = self._producer.lookup(topic, name)
            if found is not None:
                self._since_ms = max(0, found.store_timestamp - CLOCKS_APART_MS)
                return batch
        self._send(head)
        self._producer.finish()
        return batch.slice(1)

    def _send(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        batch = prepared(batch)
        keys = unique_keys(self._task.stem, self._row, batch.num_rows)
        self._row += batch.num_rows
        topics = by_topic(batch, self._options.topic)
        for topic, rows in topics:
            if len(topics) == 1:
                self._producer.send(topic, batch, keys, self._there_in)
            else:
                some = pa.array(rows)
                self._producer.send(topic, batch.take(some), keys.take(some), self._there_in)

    def _there_in(self, topic: str, keys: pa.Array) -> There | None:
        """What an earlier attempt wrote, if there was one. With `keys` missing, nothing more of it comes."""
        if self._since_ms is None:
            return None
        there = self._look(topic, keys, self._since_ms)
        if self._producer.is_fencing or there.has_all(keys):
            return there
        self._producer.fence_off(self._options.replay_wait_ms)
        self._there.clear()
        return self._look(topic, keys, self._since_ms)

    def _look(self, topic: str, keys: pa.Array, since_ms: int) -> There:
        if topic in FORM_TOPICS:
            return self._producer.there_of(topic, keys, since_ms)
        if topic not in self._there:
            self._there[topic] = self._producer.there(topic, self._task.stem.encode(), since_ms)
        return self._there[topic]


class _Target:
    """What both writers do. Pickled to the tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        """Raises BadOption, UnwritableColumn, NotAppendable."""
        if overwrite:
            raise NotAppendable()
        self._options = SinkOptions.parse(options)
        self._drawn = secrets.token_hex(16)  # whose write it is, where nobody says so
        check_schema(schema.names, topic=bool(self._options.topic))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None, "rows are written by Spark's tasks"
        query = context.getLocalProperty(QUERY_ID) or ""
        app = self._options.app or query or self._drawn
        version = self._options.version
        batch = version if version >= 0 else int(context.getLocalProperty(BATCH_ID) or 0)
        partition, attempt = context.partitionId(), context.attemptNumber()
        stem = stem_of(app, batch, partition, self._options.topic)
        task = Task(stem, attempt, looks_back=app != self._drawn or attempt > 0)
        sent = write_rows(self._options, task, iterator)
        keep_loaded()
        return Written(partition, sent.sent, sent.there)


class BatchWriter(_Target, DataSourceArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is left to do: a task ends when its rows are promised."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was written stays; the same write, called again with its txnAppId, does not send it again."""


class StreamWriter(_Target, DataSourceStreamArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do: a task ends when its rows are promised."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was written stays; the batch is run again, and does not send it again."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    return BatchWriter(options, schema, overwrite)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    made = StreamWriter(options, schema, overwrite)
    keep_loaded()  # a micro-batch asks for its writer, and again to commit
    return made


def _endpoint_of(path: str) -> str:
    """Where the node that runs on a store takes puts. Raises BadOption."""
    try:
        facts: dict[str, Any] = json.loads(Store(Path(path).resolve()).node.read_text(encoding="utf-8"))
        return str(facts["endpoints"]["put"][0])
    except (OSError, ValueError, LookupError):
        raise BadOption("path", path, "no master runs on this store, which could take messages") from None
