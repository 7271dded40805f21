"""An entry of `.index`: where the batch with an offset begins. One stands for about every `index.interval.bytes` bytes.

    at  len  field
     0  4  relative_offset of the batch's last record, from the segment's base offset
     4  4  position        of the batch in the segment, bytes

Offsets and positions rise. While a segment is written its file has `segment.index.bytes` bytes, zeros behind the last
entry; at a roll it is cut to its entries.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from towline.format.layout import Field, Layout

LAYOUT: Final = Layout(
    Field("relative_offset", "i", "of the batch's last record, from the segment's base offset"),
    Field("position", "i", "of the batch in the segment, bytes"),
)
SIZE: Final = LAYOUT.size
assert SIZE == 8, "Kafka's entries have 8 bytes"

ENTRY: Final = np.dtype([(field.name, f">{field.letter}4") for field in LAYOUT.fields])
Numbers = NDArray[np.int64]


def encode(base_offset: int, offsets: Numbers, positions: Numbers) -> bytes:
    """Entries of the batches with these last offsets."""
    entries = np.empty(len(offsets), ENTRY)
    entries["relative_offset"] = offsets - base_offset
    entries["position"] = positions
    return entries.tobytes()


def decode(data: bytes, base_offset: int) -> tuple[Numbers, Numbers]:
    """Offsets and positions of the entries; zeros of a file that was not cut, and bytes of no whole entry, are none."""
    entries = np.frombuffer(data[: len(data) // SIZE * SIZE], ENTRY)
    count = used(entries["relative_offset"].astype(np.int64), entries["position"].astype(np.int64))
    entries = entries[:count]
    return entries["relative_offset"] + np.int64(base_offset), entries["position"].astype(np.int64)


def used(*columns: Numbers) -> int:
    """How many entries stand before the zeros that end a file which was not cut."""
    rows = np.zeros(len(columns[0]), np.bool_)
    for column in columns:
        rows |= column != 0
    found = np.flatnonzero(rows)
    return int(found[-1]) + 1 if len(found) else 0
