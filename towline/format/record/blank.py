"""The blank that ends every full segment of the CommitLog (spec 2.2).

    at  len  field
     0  4  remaining  bytes to the end of the segment, these 8 included
     4  4  magic      CBD43194

A record is never split: if it and a blank do not both fit, a blank is written and the record goes to the next segment.
What follows the 8 bytes is unspecified and skipped by readers.
"""

from typing import Final

from towline.format.layout import Field, Layout
from towline.limits import BLANK_SIZE_MIN

LAYOUT: Final = Layout(
    Field("remaining", "I", "bytes to the end of the segment, these 8 included"),
    Field("magic", "I", "CBD43194"),
)
SIZE: Final = LAYOUT.size
MAGIC: Final = 0xCBD4_3194
assert SIZE == BLANK_SIZE_MIN


def encode(remaining: int) -> bytes:
    """8 bytes for a segment that has `remaining` bytes left, at least 8."""
    assert remaining >= SIZE, f"a blank needs {SIZE} bytes, {remaining} are left"
    return LAYOUT.pack(remaining, MAGIC)


def fits(size: int, room: int) -> bool:
    """Whether `size` bytes of records may be written where `room` bytes are left: the blank must still fit behind."""
    return size + SIZE <= room
