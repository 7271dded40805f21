"""Messages of one topic sent into a topic of a running node, each once however often the job is run. Needs no Spark.

Every message has a unique key that is made of its source and its place in the log, so that
`towline.spark.idempotent_producer` knows a message that is there already. A lane is one task: all queues whose number
leaves the same rest, in the log's order, so the order within each queue is kept.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import TaskContext

from towline.format.record.properties import ORIGIN_MESSAGE_ID
from towline.spark.idempotent_producer import IdempotentProducer

from .sources import Messages

READ: Final = ("body", "tags", "keys", "uniqKey", "properties", "flag", "queueId", "commitLogOffset")
_SENT: Final = ("body", "tags", "keys", "properties", "flag", "queueId")
_STEM_BYTES: Final = 8
_DIGITS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where messages go. Requests of an attempt that was killed are under way for `wait_ms` at most."""

    endpoint: str
    serve: str
    topic: str
    stem: str
    wait_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What one task sends: the messages of `number`, of `count` lanes."""

    messages: Messages
    target: Target
    number: int
    count: int


@dataclass(frozen=True, slots=True)
class Copied:
    """Messages that were read, sent by this run, and there before."""

    lane: int
    read: int
    sent: int
    there: int


def stem_of(source: str, topic: str, target: str) -> str:
    """What the unique keys begin with: 16 hex digits of the source's name, the topic and the target's."""
    text = "\0".join((source, topic, target)).encode()
    return hashlib.blake2b(text, digest_size=_STEM_BYTES).hexdigest().upper()


def prepared_target(endpoint: str, serve: str, topic: str, stem: str, wait_ms: int) -> tuple[Target, int]:
    """The target and its queues, when no earlier run can have a request under way; makes the topic where there is none.

    Raises what `IdempotentProducer` does.
    """
    with IdempotentProducer(endpoint, serve=serve, name="copy") as producer:
        if producer.has_topic(topic):
            producer.wait_for_others(wait_ms)
        queues = producer.write_queues(topic)
    return Target(endpoint=endpoint, serve=serve, topic=topic, stem=stem, wait_ms=wait_ms), queues


def send_lane(lane: Lane) -> Copied:
    """Sends what of a lane is not there yet. Raises what `IdempotentProducer` does."""
    target, read = lane.target, 0
    with IdempotentProducer(target.endpoint, serve=target.serve, name=f"copy-{lane.number}") as producer:
        queues = producer.write_queues(target.topic)
        if attempt():
            producer.wait_for_others(target.wait_ms)
        there = producer.there(target.topic, target.stem.encode())
        for batch in _of_lane(lane):
            read += batch.num_rows
            producer.send(target.topic, sendable(batch, queues), unique_keys(target.stem, batch), there)
        done = producer.finish()
    return Copied(lane.number, read, done.sent, done.there)


def attempt() -> int:
    """Which attempt at its task this is; 0 for the first, and without Spark."""
    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


def _of_lane(lane: Lane) -> Iterator[pa.RecordBatch]:
    for partition in lane.messages.partitions:
        for batch in lane.messages.of(partition):
            if lane.count > 1:
                batch = batch.filter(pa.array(_queue_ids(batch) % lane.count == lane.number))
            if batch.num_rows:
                yield batch


def _queue_ids(batch: pa.RecordBatch) -> NDArray[np.int64]:
    found: NDArray[np.int64] = batch.column("queueId").to_numpy().astype(np.int64)
    return found


def unique_keys(stem: str, batch: pa.RecordBatch) -> pa.Array:
    """The stem and the log offset in 16 hex digits, for each row."""
    digits = np.frombuffer(
        batch.column("commitLogOffset").to_numpy().astype(">i8").tobytes().hex().upper().encode(), np.uint8
    )
    rows = np.empty((batch.num_rows, len(stem) + _DIGITS), np.uint8)
    rows[:, : len(stem)] = np.frombuffer(stem.encode(), np.uint8)
    rows[:, len(stem) :] = digits.reshape(batch.num_rows, _DIGITS)
    kind = pa.binary(rows.shape[1])
    return pa.FixedSizeBinaryArray.from_buffers(kind, batch.num_rows, [None, pa.py_buffer(rows.tobytes())]).cast(
        pa.binary()
    )


def sendable(batch: pa.RecordBatch, queues: int) -> pa.RecordBatch:
    """The columns that are sent: queue ids within those of the target, the unique key as ORIGIN_MESSAGE_ID."""
    columns = {name: batch.column(name) for name in _SENT}
    columns["queueId"] = pa.array((_queue_ids(batch) % queues).astype(np.int32))
    columns["properties"] = _with_origin(batch.column("properties"), batch.column("uniqKey"))
    return pa.RecordBatch.from_pydict(columns)


def _with_origin(properties: pa.MapArray, unique: pa.StringArray) -> pa.MapArray:
    """One pair more at each row's end; its value is null, and it is not sent, where there is nothing to say."""
    starts = properties.offsets.to_numpy().astype(np.int64)
    first, pairs, rows = int(starts[0]), int(starts[-1] - starts[0]), len(properties)
    names, values = properties.keys.slice(first, pairs), properties.items.slice(first, pairs)
    owners = np.repeat(np.arange(rows), np.diff(starts))
    has_one = np.zeros(rows, np.bool_)
    has_one[owners[pc.equal(names, ORIGIN_MESSAGE_ID).to_numpy(zero_copy_only=False)]] = True
    said = pc.if_else(pa.array(has_one), pa.scalar(None, pa.string()), unique)
    source = np.empty(pairs + rows, np.int64)
    ends = starts[1:] - first + np.arange(rows)
    source[ends] = pairs + np.arange(rows)
    source[np.arange(pairs) + owners] = np.arange(pairs)
    place = pa.array(source)
    both = pa.concat_arrays([names, pa.repeat(pa.scalar(ORIGIN_MESSAGE_ID), rows)]), pa.concat_arrays([values, said])
    offsets = pa.array((starts - first + np.arange(rows + 1)).astype(np.int32))
    return pa.MapArray.from_arrays(offsets, both[0].take(place), both[1].take(place))
