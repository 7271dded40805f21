"""The Arrow schema of a message: names, types and order of columns (the names of rocketmq-spark first)."""

import difflib
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from .errors import UnknownColumn

_TIME: Final = pa.timestamp("us", tz="UTC")

SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queueId", pa.int32(), nullable=False),
        pa.field("queueOffset", pa.int64(), nullable=False),
        pa.field("tags", pa.string()),  # null without the property, as keys and uniqKey
        pa.field("keys", pa.string()),  # as stored: several keys stand with a space between them
        pa.field("uniqKey", pa.string()),
        pa.field("body", pa.binary(), nullable=False),  # decompressed
        pa.field("properties", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("flag", pa.int32(), nullable=False),
        pa.field("bornTimestamp", _TIME, nullable=False),
        pa.field("bornHost", pa.string(), nullable=False),  # "10.0.0.1:4711", "[::1]:4711"
        pa.field("storeTimestamp", _TIME, nullable=False),
        pa.field("storeHost", pa.string(), nullable=False),
        pa.field("brokerName", pa.string(), nullable=False),
        pa.field("commitLogOffset", pa.int64(), nullable=False),
        pa.field("size", pa.int32(), nullable=False),  # bytes of the whole record as it is stored
        pa.field("sysFlag", pa.int32(), nullable=False),
        pa.field("bodyCRC", pa.int32(), nullable=False),  # of the stored body
        pa.field("reconsumeTimes", pa.int32(), nullable=False),
        pa.field("preparedTransactionOffset", pa.int64(), nullable=False),
        pa.field("tagsCode", pa.int64(), nullable=False),  # as it stands in the ConsumeQueue (spec 3.1)
    ]
)
COLUMNS: Final[tuple[str, ...]] = tuple(SCHEMA.names)


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """SCHEMA's fields of these names, in this order. Raises UnknownColumn, which names the nearest."""
    for name in columns:
        if name not in COLUMNS:
            raise UnknownColumn(name, nearest(name))
    return pa.schema([SCHEMA.field(name) for name in columns])


def nearest(name: str) -> str:
    """The column whose name is most like this one."""
    lower = {column.lower(): column for column in COLUMNS}
    found = difflib.get_close_matches(name.lower().replace("_", ""), lower, n=1, cutoff=0.0)
    return lower[found[0]]
