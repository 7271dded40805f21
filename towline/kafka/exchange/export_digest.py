"""A digest of records in their order: what was to be written and what is read back are the same when it is."""

import zlib
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np

from towline.format.record.columns import Integers
from towline.format.record.property_crc import CRC_MASK
from towline.kafka.format import batch
from towline.kafka.format.records import Blobs, Records
from towline.kafka.log.reading import Columns
from towline.kernels.base.crc import crc32_each


@dataclass(slots=True)
class Digest:
    """`count` of records, and a CRC-32 over each column: it does not depend on how the columns come in pieces.

    `value` is over the CRC-32 of each value without its top bit, as the store's records have it.
    """

    count: int = 0
    bytes: int = 0  # of keys, values and headers
    offset: int = 0
    timestamp: int = 0
    append_time: int = 0
    key: int = 0
    value: int = 0
    headers: int = 0
    sizes: int = 0

    @classmethod
    def of(cls, known: dict[str, Any]) -> Self:
        """Of `asdict`."""
        return cls(**{each.name: int(known[each.name]) for each in fields(cls)})

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    def add(self, records: Records, append_time: Integers, value_crc: Integers) -> None:
        self.count += len(records)
        blobs = (records.key, records.value, records.headers)
        self.bytes += sum(int(np.maximum(each.sizes, 0).sum()) for each in blobs)
        self.offset = _over(records.offset, self.offset)
        self.timestamp = _over(records.timestamp, self.timestamp)
        self.append_time = _over(append_time, self.append_time)
        self.key = _over(crcs_of(records.key), self.key)
        self.value = _over(value_crc, self.value)
        self.headers = _over(crcs_of(records.headers), self.headers)
        self.sizes = _over(np.stack([each.sizes for each in blobs], axis=1), self.sizes)

    def add_read(self, columns: Columns) -> None:
        """Of a piece that was read from a partition."""
        append_time = (columns.of_batch("attributes") & batch.LOG_APPEND_TIME != 0).astype(np.int64)
        self.add(columns.records, append_time, crcs_of(columns.records.value))

    def difference(self, other: "Digest") -> str:
        """What of the other one is not as here; empty where all is."""
        names = [each.name for each in fields(self) if getattr(self, each.name) != getattr(other, each.name)]
        if "count" in names:
            return f"it has {other.count:,} records, not {self.count:,}"
        return f"other {', '.join(names)}" if names else ""


def crcs_of(blobs: Blobs) -> Integers:
    """CRC-32 of each without its top bit; of a null as of nothing."""
    held = blobs.contiguous()
    found = np.empty(len(held.sizes), np.int64)
    crc32_each(held.data, held.starts, np.maximum(held.sizes, 0), found)
    return found & CRC_MASK


def _over(column: Integers, before: int) -> int:
    return zlib.crc32(np.ascontiguousarray(column, np.int64).data, before)
