"""The tasks of `compact`: the newest message of each key within a part, then the messages that are the newest of all.

Newest is who stands last in the log.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from towline.spark.idempotent_producer import IdempotentProducer

from .archive_files import crc_of_file, write_parquet
from .copying import Target, attempt, sendable, unique_keys
from .location import Staging
from .output import Written
from .sources import Messages

# Of a part: key (null: of messages without one), its newest message and where that is read, how many messages it has.
NEWEST: Final = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("newest", pa.int64(), nullable=False),
        pa.field("part", pa.int32(), nullable=False),
        pa.field("messages", pa.int64(), nullable=False),
    ]
)
DDL: Final = "key string, newest bigint not null, part int not null, messages bigint not null"
_MERGED: Final = 1 << 20  # rows that are brought to one for each key before more are read

Offsets = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Key:
    """Which text of a message is its key: a column, or the property of this name."""

    column: str
    name: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, "commitLogOffset", "body")

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Null where a message has none, or an empty one."""
        column = batch.column(self.column)
        texts = pc.map_lookup(column, self.name, "last") if self.name else column
        return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def newest_in(messages: Messages, key: Key, number: int) -> Iterator[pa.RecordBatch]:
    """NEWEST of part `number`. `newest` is twice the log offset, 1 more where the body is empty: the key is gone."""
    held: list[pa.Table] = []
    rows = 0
    for batch in messages.of(messages.partitions[number]):
        offsets = batch.column("commitLogOffset").to_numpy()
        empty = pc.equal(pc.binary_length(batch.column("body")), 0).to_numpy(zero_copy_only=False)
        ones = np.ones(batch.num_rows, np.int64)
        held.append(pa.table({"key": key.of(batch), "newest": 2 * offsets + empty, "messages": ones}))
        rows += batch.num_rows
        if rows >= _MERGED:
            held = [_merged(held)]
            rows = held[0].num_rows // 2  # so that keys that are all different are not merged at every batch
    for merged in (_merged(held) if held else NEWEST.empty_table()).to_batches():
        parts = pa.array(np.full(merged.num_rows, number, np.int32))
        columns = {"key": merged["key"], "newest": merged["newest"], "part": parts, "messages": merged["messages"]}
        yield pa.RecordBatch.from_arrays([columns[name] for name in NEWEST.names], schema=NEWEST)


def _merged(tables: list[pa.Table]) -> pa.Table:
    grouped = pa.concat_tables(tables).group_by("key").aggregate([("newest", "max"), ("messages", "sum")])
    return grouped.rename_columns({"newest_max": "newest", "messages_sum": "messages"})


def kept(messages: Messages, rows: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Offsets]]:
    """(part, its offsets that are kept, ascending) of a task's rows `part`, `offset`."""
    parts: dict[int, list[Offsets]] = {}
    for batch in rows:
        numbers, offsets = (batch.column(name).to_numpy() for name in ("part", "offset"))
        for part in np.unique(numbers).tolist():
            parts.setdefault(part, []).append(offsets[numbers == part].astype(np.int64))
    for part, chunks in sorted(parts.items()):
        assert part < len(messages.partitions)
        yield part, np.sort(np.concatenate(chunks))


def _chosen(messages: Messages, part: int, offsets: Offsets) -> Iterator[pa.RecordBatch]:
    for batch in messages.of(messages.partitions[part]):
        found = batch.filter(pa.array(np.isin(batch.column("commitLogOffset").to_numpy(), offsets)))
        if found.num_rows:
            yield found


def write_kept(messages: Messages, staging: Staging, rows: Iterable[pa.RecordBatch]) -> Iterator[Written]:
    """A Parquet file for each part, in the run's staging, checked. Raises NotVerified, ScratchNotSeen."""
    for part, offsets in kept(messages, rows):
        with staging.attempt() as attempt:
            path = attempt.directory / "part"
            write_parquet(path, _chosen(messages, part, offsets), "zstd", expected=len(offsets))
            size, crc = path.stat().st_size, crc_of_file(path)
            name = attempt.keep(path, crc)
        yield Written(name, len(offsets), size, crc)


def send_kept(messages: Messages, target: Target, rows: Iterable[pa.RecordBatch]) -> Iterator[Written]:
    """Sends what is not there yet; `rows` of the answer counts what this run sent, `size` what was there."""
    with IdempotentProducer(target.endpoint, serve=target.serve, name="compact") as producer:
        queues = producer.write_queues(target.topic)
        if attempt():
            producer.wait_for_others(target.wait_ms)
        there = producer.there(target.topic, target.stem.encode())
        for part, offsets in kept(messages, rows):
            for batch in _chosen(messages, part, offsets):
                producer.send(target.topic, sendable(batch, queues), unique_keys(target.stem, batch), there)
        done = producer.finish()
    yield Written("", done.sent, done.there, 0)


Work = Callable[[Iterable[pa.RecordBatch]], Iterator[Written]]
