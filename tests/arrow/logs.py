"""Segments as bytes, made record by record: sound ones and hostile ones."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from towline.arrow.columns import COLUMNS
from towline.format.record import blank, record
from towline.format.record.columns import Bytes
from towline.format.record.record import Host, Record

BASE = 1 << 30
STORE = Host(bytes([10, 0, 0, 1]), 10911)


def segment(records: Iterable[Record], size: int | None = None, base: int = BASE) -> bytes:
    """The records back to back, their PHYSICALOFFSET set; with `size`, a blank and zeros up to it."""
    log = bytearray()
    for one in records:
        log += record.encode(replace(one, physical_offset=base + len(log)))
    if size is not None:
        room = size - len(log)
        assert room >= blank.SIZE, f"the records need {len(log)} bytes"
        log += blank.encode(room) + bytes(room - blank.SIZE)
    return bytes(log)


def array(log: bytes) -> Bytes:
    return np.frombuffer(log, np.uint8)


def message(number: int, **fields: Any) -> Record:
    """An ordinary one."""
    made = Record(
        topic=b"orders",
        body=b"body %d" % number,
        properties=b"TAGS\x01red\x02KEYS\x01a%d b%d\x02UNIQ_KEY\x01K%06d\x02" % (number, number, number),
        queue_id=number % 4,
        queue_offset=number,
        born_timestamp=1_700_000_000_000 + number,
        born_host=Host(bytes([10, 0, 0, 2]), 40_000 + number % 3),
        store_timestamp=1_700_000_000_100 + number,
        store_host=STORE,
    )
    return replace(made, **fields)


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """As the reference has them: times in microseconds, properties as a dictionary."""
    found = []
    for batch in batches:
        columns = []
        for column in batch.columns:
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.int64())
            values = column.to_pylist()
            columns.append([dict(pairs) for pairs in values] if pa.types.is_map(column.type) else values)
        found += [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
    return found


def narrowed(expected: list[dict[str, Any]], columns: Iterable[str] = COLUMNS) -> list[dict[str, Any]]:
    names = tuple(columns)
    return [{name: row[name] for name in names} for row in expected]
