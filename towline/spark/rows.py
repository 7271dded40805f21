"""Turns rows of a frame into parts of messages, column by column. Needs pyarrow and numpy, no Spark.

    topic       string, where the option `topic` is not meant
    body        binary or string, required; null is an empty body
    tags        string
    keys        string: keys with spaces between them
    queueId     int; where it is null or missing the sink spreads the rows over the topic's queues
    flag        int
    shardingKey string: rows of one key go to one queue, that of a producer with the same key
    delayLevel  int: delivered after the level's delay; null and 0: at once
    deliverAt   timestamp: delivered then; null: at once
    properties  map of strings; a null value is left out, an empty one refused

Of `properties`, `LEFT_OUT` are left out: what a column says or the broker where a message stood wrote, so that a frame
that was read from a store can be written into another topic. TAGS and KEYS among them stand in for a column that is
missing or null. Names that a broker alone may write (`REFUSED`) are refused, or left out where that is asked for.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from towline.format.record.properties import (
    KEYS,
    NAME_END,
    PAIR_END,
    RESERVED,
    SHARDING_KEY,
    TAGS,
    TRANSIENT_PREFIX,
    UNIQ_KEY,
    WAIT,
)
from towline.format.record.rules import Rule

from .errors import UnwritableColumn, UnwritableRow, UnwritableType

COLUMNS: Final = (
    *("topic", "body", "tags", "keys", "queueId", "flag"),
    *("shardingKey", "delayLevel", "deliverAt", "properties"),
)
BODY: Final = "body"
STEM_SIZE: Final = 24  # hex digits of a unique key before the number of its row
# Where a message stood, and who sent it there.
_OF_THE_PLACE: Final = (Rule.PROPERTY_OF_ANOTHER_BROKER, Rule.PROPERTY_CRC_MISPLACED, Rule.SEQUENCE_MISPLACED)
LEFT_OUT: Final = (UNIQ_KEY, TAGS, KEYS, WAIT, *(name for name, rule in RESERVED.items() if rule in _OF_THE_PLACE))
REFUSED: Final = tuple(name for name in RESERVED if name not in LEFT_OUT)
_COLUMN_OF: Final = {Rule.DELAY_MISPLACED: "delayLevel", Rule.TIMER_MISPLACED: "deliverAt"}
_TIME: Final = pa.timestamp("ms", "UTC")
_STRINGS: Final = "a string"
_UNSOUND: Final = "[\x00\x01\x02]"
_OF_TYPE: Final = {
    "topic": (pa.string(), _STRINGS),
    "body": (pa.binary(), "binary or a string"),
    "tags": (pa.string(), _STRINGS),
    "keys": (pa.string(), _STRINGS),
    "queueId": (pa.int64(), "an int"),
    "flag": (pa.int64(), "an int"),
    "shardingKey": (pa.string(), _STRINGS),
    "delayLevel": (pa.int64(), "an int"),
    "deliverAt": (_TIME, "a timestamp with a zone"),
    "properties": (pa.map_(pa.string(), pa.string()), "a map of strings"),
}
_FLAG_BITS: Final = 32


def check_schema(names: Sequence[str], *, topic: bool) -> None:
    """Checks the columns of what is written. Raises UnwritableColumn; `topic`: whether an option names one."""
    known = ", ".join(COLUMNS)
    for name in names:
        if name not in COLUMNS:
            raise UnwritableColumn(name, known)
    if BODY not in names:
        raise UnwritableColumn(BODY, f"{known}; body is missing, and")
    if not topic and "topic" not in names:
        raise UnwritableColumn("topic", f"{known}; neither the option topic nor the column is given, and")


def prepared(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the types of this module. Raises UnwritableType."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        wanted, words = _OF_TYPE[name]
        try:
            columns[name] = column.cast(wanted, safe=wanted != _TIME)  # of a time the parts of a ms are dropped
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise UnwritableType(name, str(column.type), words) from None
        kind = pa.types
        alike = kind.is_integer(column.type) == kind.is_integer(wanted)
        if wanted == _TIME:
            alike = kind.is_null(column.type) or (kind.is_timestamp(column.type) and bool(column.type.tz))
        if not alike:
            raise UnwritableType(name, str(column.type), words)
    return pa.RecordBatch.from_pydict(columns)


def unique_keys(stem: str, first: int, count: int) -> pa.Array:
    """Keys of rows `first`, ...: the stem (24 hex digits), then the row's number in 8."""
    assert len(stem) == STEM_SIZE
    numbers = np.arange(first, first + count, dtype=">u4").tobytes().hex().upper().encode()
    rows = np.empty((count, STEM_SIZE + 8), dtype=np.uint8)
    rows[:, :STEM_SIZE] = np.frombuffer(stem.encode(), dtype=np.uint8)
    rows[:, STEM_SIZE:] = np.frombuffer(numbers, dtype=np.uint8).reshape(count, 8)
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(STEM_SIZE + 8), count, [None, pa.py_buffer(rows.tobytes())]
    ).cast(pa.binary())


def bodies_of(batch: pa.RecordBatch) -> list[bytes]:
    found: list[bytes] = pc.fill_null(batch[BODY], b"").to_pylist()
    return found


def numbers_of(batch: pa.RecordBatch, name: str, otherwise: int) -> NDArray[np.int64]:
    """A column of whole numbers, `otherwise` where it is missing. Raises UnwritableRow for what exceeds 32 bits."""
    if name not in batch.schema.names:
        return np.full(batch.num_rows, otherwise, dtype=np.int64)
    found: NDArray[np.int64] = pc.fill_null(batch[name], otherwise).to_numpy(zero_copy_only=False).astype(np.int64)
    wrong = (found < -(1 << _FLAG_BITS - 1)) | (found >= 1 << _FLAG_BITS - 1)
    if wrong.any():
        row = int(wrong.argmax())
        raise UnwritableRow(row, f"{name} is {found[row]}, and a message has 32 bits for it")
    return found


def encoded_properties(batch: pa.RecordBatch, keys: pa.Array, *, drop_reserved: bool = False) -> list[bytes]:
    """KEYS, TAGS, the row's own and UNIQ_KEY, as they stand in a record. Raises UnwritableRow; with `drop_reserved` a
    name of REFUSED is left out instead."""
    count = batch.num_rows
    own = _own(batch, drop_reserved=drop_reserved)
    parts = [
        _pair(KEYS, _column(batch, "keys", own, KEYS)),
        _pair(TAGS, _column(batch, "tags", own, TAGS)),
        _pair(SHARDING_KEY, _column(batch, "shardingKey", None, "")),
        own.encoded if own is not None else pa.array([b""] * count, pa.binary()),
        _pair(UNIQ_KEY, keys.cast(pa.binary())),
    ]
    found: list[bytes] = pc.binary_join_element_wise(*parts, pa.scalar(b"")).to_pylist()
    return found


class _Own:
    """The column `properties`, flat: `row` of each pair, `name` and `value`; `encoded` by row, without some names.

    `instead`: names that columns of the frame say.
    """

    def __init__(self, column: pa.Array, instead: Sequence[str], *, drop_reserved: bool) -> None:
        self.count = len(column)
        starts = column.offsets.to_numpy().astype(np.int64)
        lengths = np.diff(starts) * np.asarray(column.is_valid())
        self.row = np.repeat(np.arange(self.count), lengths)
        within = np.arange(len(self.row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        pairs = pa.array(np.repeat(starts[:-1], lengths) + within)  # a null or a slice may stand among other pairs
        self.name, self.value = column.keys.take(pairs), column.items.take(pairs)
        if not drop_reserved:
            self._refuse_reserved()
        left_out = pa.array([*LEFT_OUT, *REFUSED, *instead])
        kept = pc.and_(pc.invert(pc.is_in(self.name, left_out)), pc.invert(pc.starts_with(self.name, TRANSIENT_PREFIX)))
        kept = pc.and_(kept, pc.is_valid(self.value))
        names, values = self.name.filter(kept), self.value.filter(kept)
        rows = self.row[np.asarray(kept)]
        _check_text(names, "the name of a property", rows, empty=False)
        _check_text(values, "the value of a property", rows, empty=False)
        joined = pc.binary_join_element_wise(
            names.cast(pa.binary()),
            pa.scalar(NAME_END.encode()),
            values.cast(pa.binary()),
            pa.scalar(PAIR_END.encode()),
            pa.scalar(b""),
        )
        offsets = np.searchsorted(rows, np.arange(self.count + 1)).astype(np.int32)
        self.encoded = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), joined), pa.scalar(b""))

    def _refuse_reserved(self) -> None:
        """Raises UnwritableRow."""
        found = np.flatnonzero(np.asarray(pc.and_(pc.is_in(self.name, pa.array(REFUSED)), pc.is_valid(self.value))))
        if len(found):
            name = self.name[int(found[0])].as_py()
            column = _COLUMN_OF.get(RESERVED[name])
            way = f"the column {column} asks for it" if column else "leave it out of the map"
            why = f"only a broker writes the property {name}: {way}, or the option dropReserved leaves it out"
            raise UnwritableRow(int(self.row[found[0]]), why)

    def values(self, name: str) -> pa.Array:
        """The value of a name in each row; null without one."""
        places = np.full(self.count, -1, dtype=np.int64)
        hits = np.flatnonzero(np.asarray(pc.equal(self.name, name)))
        places[self.row[hits]] = hits
        return self.value.take(pa.array(places, mask=places < 0))


def _own(batch: pa.RecordBatch, *, drop_reserved: bool) -> _Own | None:
    instead = [SHARDING_KEY] if "shardingKey" in batch.schema.names else []
    if "properties" not in batch.schema.names:
        return None
    return _Own(batch["properties"], instead, drop_reserved=drop_reserved)


def _column(batch: pa.RecordBatch, name: str, own: _Own | None, inside: str) -> pa.Array:
    """The column, and where it is missing or null, what stands in the properties. Empty counts as null."""
    found: Any = pa.nulls(batch.num_rows, pa.string())
    if name in batch.schema.names:
        found = batch[name]
    if own is not None:
        found = pc.coalesce(found, own.values(inside))
    found = pc.if_else(pc.equal(found, ""), pa.scalar(None, pa.string()), found)
    _check_text(found, f"the column {name}", np.arange(batch.num_rows), empty=True)
    return found.cast(pa.binary())


def _pair(name: str, values: pa.Array) -> pa.Array:
    joined = pc.binary_join_element_wise(
        pa.scalar(f"{name}{NAME_END}".encode()), values, pa.scalar(PAIR_END.encode()), pa.scalar(b"")
    )
    return pc.fill_null(joined, b"")


def _check_text(values: pa.Array, what: str, rows: NDArray[np.int64], *, empty: bool) -> None:
    """Raises UnwritableRow for what a reader would not give back."""
    unsound = pc.match_substring_regex(values, _UNSOUND)
    if not empty:
        unsound = pc.or_(unsound, pc.equal(values, ""))
    wrong = np.flatnonzero(np.asarray(pc.fill_null(unsound, False)))
    if len(wrong):
        row = int(rows[wrong[0]])
        raise UnwritableRow(row, f"{what} is empty or holds 0x00, 0x01 or 0x02: {values[int(wrong[0])].as_py()!r}")


def by_topic(batch: pa.RecordBatch, topic: str) -> list[tuple[str, NDArray[np.int64]]]:
    """Each topic of the rows with their numbers, in order; `topic` is meant where the column is null or missing."""
    everything = np.arange(batch.num_rows)
    if "topic" not in batch.schema.names:
        return [(topic, everything)]
    topics = pc.fill_null(batch["topic"], topic)
    if (missing := np.flatnonzero(np.asarray(pc.equal(topics, "")))).size:
        raise UnwritableRow(int(missing[0]), "neither its column topic nor the option topic names a topic")
    encoded = topics.dictionary_encode()
    codes = np.asarray(encoded.indices)
    return [(str(name), everything[codes == code]) for code, name in enumerate(encoded.dictionary.to_pylist())]
