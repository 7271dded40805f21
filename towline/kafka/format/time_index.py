"""An entry of `.timeindex`: the greatest time up to an offset. One stands with each entry of `.index` that has a new.

    at  len  field
     0  8  timestamp       the greatest of all batches up to here, ms since 1970
     8  4  relative_offset of the last record of the batch that has it, from the segment's base offset

Times and offsets rise. At a roll, and at a clean stop, the segment's greatest time is its last entry.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from towline.format.layout import Field, Layout

from .offset_index import used

LAYOUT: Final = Layout(
    Field("timestamp", "q", "the greatest of all batches up to here, ms since 1970"),
    Field("relative_offset", "i", "of the last record of the batch that has it, from the segment's base offset"),
)
SIZE: Final = LAYOUT.size
assert SIZE == 12, "Kafka's entries have 12 bytes"

ENTRY: Final = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
assert ENTRY.itemsize == SIZE
Numbers = NDArray[np.int64]


def encode(base_offset: int, timestamps: Numbers, offsets: Numbers) -> bytes:
    """Entries of the batches with these last offsets."""
    entries = np.empty(len(timestamps), ENTRY)
    entries["timestamp"] = timestamps
    entries["relative_offset"] = offsets - base_offset
    return entries.tobytes()


def decode(data: bytes, base_offset: int) -> tuple[Numbers, Numbers]:
    """Times and offsets of the entries; zeros of a file that was not cut, and bytes of no whole entry, are none."""
    entries = np.frombuffer(data[: len(data) // SIZE * SIZE], ENTRY)
    timestamps, relative = entries["timestamp"].astype(np.int64), entries["relative_offset"].astype(np.int64)
    count = used(timestamps, relative)
    return timestamps[:count], relative[:count] + base_offset
