"""The tasks of `stats`: count how often each value occurs in batches of messages. Arrow only, no Spark.

Counts of values are all that exact percentiles need, and a value that occurs a million times is one row.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from towline.format.record.properties import KEY_SEPARATOR

Grain = Literal["topic", "queue", "minute"]
SIZE, DELAY, KEY, MISSED = "size", "delay", "key", "missed"
READ: Final = ("topic", "queueId", "storeTimestamp", "bornTimestamp", "size", "reconsumeTimes")
MINUTE_US: Final = 60_000_000
KEYS_MAX: Final = 50_000  # counted at once by a task
ROWS_MAX: Final = 200_000  # held before what is equal is added up

# size: `value` bytes of a message; delay: ms from born to stored; key: `text`; missed: by how much counts of keys may
# be too low in all. `retried` says how many of the n messages were consumed again.
COUNTS: Final = pa.schema(
    [
        pa.field("what", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queueId", pa.int32()),
        pa.field("minute", pa.int64()),
        pa.field("value", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("retried", pa.int64(), nullable=False),
    ]
)
DDL: Final = (
    "what string, topic string, queueId int, minute bigint, value bigint, text string, n bigint, retried bigint"
)
_GROUP: Final = COUNTS.names[:6]


@dataclass(frozen=True, slots=True)
class Counting:
    """`columns` have to be read for it. Keys are counted where `keys`."""

    by: Grain
    keys: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return (*READ, "keys") if self.keys else READ

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The counts of one task, as COUNTS."""
        sums, keys = COUNTS.empty_table(), HeavyHitters(KEYS_MAX)
        for batch in batches:
            table = pa.Table.from_batches([batch])
            sums = pa.concat_tables([sums, *self._values(table)])
            if sums.num_rows > ROWS_MAX:
                sums = added(sums)
                if sums.num_rows > ROWS_MAX:  # few are equal: it is no use to hold them
                    yield from sums.to_batches()
                    sums = COUNTS.empty_table()
            if self.keys:
                keys.add(table)
        yield from added(pa.concat_tables([sums, keys.counts()])).combine_chunks().to_batches()

    def _values(self, table: pa.Table) -> list[pa.Table]:
        store, born = (pc.cast(table[name], pa.int64()) for name in ("storeTimestamp", "bornTimestamp"))
        nothing = pa.nulls(table.num_rows, pa.int64())
        minute = pc.divide(store, MINUTE_US) if self.by == "minute" else nothing
        queue = table["queueId"] if self.by != "topic" else pa.nulls(table.num_rows, pa.int32())
        retried = pc.cast(pc.greater(table["reconsumeTimes"], 0), pa.int64())
        delay = pc.divide(pc.subtract(store, born), 1000)
        return [
            added(_counts(SIZE, table["topic"], queue, minute, pc.cast(table["size"], pa.int64()), retried)),
            added(_counts(DELAY, table["topic"], queue, minute, delay, pc.multiply(retried, 0))),
        ]


class HeavyHitters:
    """The most frequent keys of each topic, in bounded memory: exact for up to `limit` different ones (Misra, Gries).

    Beyond, the counts of all are lowered alike, and the rarest forgotten: a count is then too low by `missed` at most.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sums = COUNTS.empty_table()
        self._missed = 0

    def add(self, table: pa.Table) -> None:
        """The keys of messages; those without any do not count."""
        words = pc.split_pattern(table["keys"].combine_chunks(), KEY_SEPARATOR)
        topics = table["topic"].take(pc.list_parent_indices(words))
        found = pa.table([topics, words.flatten()], ["topic", "text"])
        found = found.filter(pc.not_equal(found["text"], ""))
        rows = found.num_rows
        nothing = pa.nulls(rows, pa.int64())
        fresh = _counts(KEY, found["topic"], pa.nulls(rows, pa.int32()), nothing, nothing, None, found["text"])
        self._sums = added(pa.concat_tables([self._sums, added(fresh)]))
        if self._sums.num_rows > self._limit:
            self._lower()

    def counts(self) -> pa.Table:
        """As COUNTS."""
        row = {"what": MISSED, "topic": "", "n": self._missed, "retried": 0}
        return pa.concat_tables([self._sums, pa.Table.from_pylist([row] if self._missed else [], schema=COUNTS)])

    def _lower(self) -> None:
        counts = self._sums["n"].to_numpy()
        by = int(sorted(counts.tolist(), reverse=True)[self._limit])
        self._missed += by
        at = COUNTS.get_field_index("n")
        lowered = self._sums.set_column(at, COUNTS.field(at), pc.subtract(self._sums["n"], by))
        self._sums = lowered.filter(pc.greater(lowered["n"], 0))


def added(table: pa.Table) -> pa.Table:
    """Rows of COUNTS that agree in everything but their numbers, added up."""
    sums = table.group_by(_GROUP, use_threads=False).aggregate([("n", "sum"), ("retried", "sum")])
    return sums.select([*_GROUP, "n_sum", "retried_sum"]).rename_columns(COUNTS.names).cast(COUNTS)


def _counts(
    what: str,
    topic: pa.ChunkedArray,
    queue: pa.Array,
    minute: pa.Array,
    value: pa.Array,
    retried: pa.Array | None,
    text: pa.Array | None = None,
) -> pa.Table:
    rows = len(topic)
    zero = pa.repeat(pa.scalar(0, pa.int64()), rows)
    whats = pa.repeat(pa.scalar(what), rows)
    texts = pa.nulls(rows, pa.string()) if text is None else text
    one = pa.repeat(pa.scalar(1, pa.int64()), rows)
    columns = [whats, topic, queue, minute, value, texts, one, zero if retried is None else retried]
    return pa.table(columns, schema=COUNTS)
