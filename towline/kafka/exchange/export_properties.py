"""What becomes of a message's properties in a record of Kafka.

KEYS is the key. What an import made of a record (`names`) becomes again what it was. Every other property is a header
of its name, in order, TAGS, UNIQ_KEY and those of retries among them, but for `LEFT_OUT`: they say how a broker is to
treat the message or has treated it, or they are of a cluster of Kafka that the record has left.
"""

from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Final

import numpy as np

from towline.format.record import properties, transactions
from towline.format.record.columns import Bytes, Integers
from towline.kafka.format.records import Blobs
from towline.kernels.kafka.exports import COLUMNS, PAIR, Meaning, export_properties
from towline.limits import PROPERTIES_SIZE_MAX

from . import names

LEFT_OUT: Final = tuple(
    sorted(
        {
            *properties.RESERVED,
            properties.WAIT,
            properties.PRODUCER_GROUP,
            properties.TRANSACTION_ID,
            transactions.CHECK_TIMES,
            transactions.FIRST_OFFSET,
            transactions.IMMUNITY,
            transactions.STORED,
            transactions.OUTCOME,
            names.PRODUCER,
            names.TRANSACTIONAL,
        }
    )
)
MEANINGS: Final = {
    names.KEYS: Meaning.KEY,
    names.KEY: Meaning.BASE64_KEY,
    names.HEADERS: Meaning.BASE64_HEADERS,
    names.TOMBSTONE: Meaning.TOMBSTONE,
    names.TIMESTAMP: Meaning.TIMESTAMP,
    names.TIMESTAMP_TYPE: Meaning.APPEND_TIME,
    **dict.fromkeys(LEFT_OUT, Meaning.LEFT_OUT),
}
_WORDS: Final = np.frombuffer((names.TRUE + names.LOG_APPEND_TIME).encode(), np.uint8)
_PAIRS_MAX: Final = PROPERTIES_SIZE_MAX // 3 + 1  # a name, a separator and a value of one byte each
_ROOM: Final = 24  # bytes a record beside twice its properties


@dataclass(frozen=True, slots=True)
class Parts:
    """Of many records: key, headers from their count on, and what properties say of value and time."""

    key: Blobs
    headers: Blobs
    tombstone: Integers  # 1: the value is null
    has_timestamp: Integers  # 1: `timestamp` (ms since 1970, below 0) in place of the born timestamp
    timestamp: Integers
    append_time: Integers  # 1: LogAppendTime


@dataclass(frozen=True, slots=True)
class _Table:
    rows: tuple[str, ...]
    names: Bytes
    places: Integers
    by_size: Integers
    meanings: Integers


class PropertyReader:
    """Reads the properties of many records; `left_out` counts those that became nothing, by name."""

    def __init__(self) -> None:
        self._pairs = np.empty(PAIR * _PAIRS_MAX, np.int64)
        self._counts = np.zeros(len(_table().rows), np.int64)

    @property
    def left_out(self) -> dict[str, int]:
        found = zip(_table().rows, self._counts.tolist(), strict=True)
        return {name: count for name, count in found if count}

    def read(self, log: Bytes, starts: Integers, ends: Integers, body_sizes: Integers) -> Parts:
        """Of the properties log[start:end] of each record, whose body has so many bytes."""
        table, count = _table(), len(starts)
        columns = np.empty(len(COLUMNS) * count, np.int64)
        target = np.empty(2 * int((ends - starts).sum()) + _ROOM * count, np.uint8)
        used = export_properties(
            log,
            np.ascontiguousarray(starts),
            np.ascontiguousarray(ends),
            np.ascontiguousarray(body_sizes),
            table.names,
            table.places,
            table.by_size,
            table.meanings,
            _WORDS,
            self._pairs,
            self._counts,
            count,
            columns,
            target,
        )
        assert used <= len(target)
        held = target[:used]
        rows = dict(zip(COLUMNS, columns.reshape(len(COLUMNS), count), strict=True))
        key, headers = (Blobs(held, rows[f"{name}_start"], rows[f"{name}_size"]) for name in ("key", "headers"))
        return Parts(key, headers, *(rows[name] for name in ("tombstone", "has_timestamp", "timestamp", "append_time")))


@cache
def _table() -> _Table:
    """Names by their sizes, so that few are compared."""
    rows = tuple(sorted(MEANINGS, key=lambda name: (len(name.encode()), name)))
    encoded = [name.encode() for name in rows]
    sizes = np.array([len(name) for name in encoded], np.int64)
    return _Table(
        rows,
        np.frombuffer(b"".join(encoded), np.uint8),
        np.array([0, *accumulate(sizes.tolist())][:-1], np.int64),
        np.searchsorted(sizes, np.arange(int(sizes[-1]) + 2)).astype(np.int64),
        np.array([MEANINGS[name] for name in rows], np.int64),
    )
