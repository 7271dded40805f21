"""One unit of a ConsumeQueueExt: a queue entry's extra fields, above all the filter bitmap (spec 3.5).

    at  len  field
     0  2  unit_size        of the whole unit
     2  8  tags_code        hash of the tag, whose place in the queue the unit's address takes
    10  8  store_timestamp  of the record
    18  2  bitmap_size      bytes of the bitmap behind it, possibly none

A unit does not cross files and leaves at least 4 bytes free behind it; where none fits any more, END stands in place of
its size. The address of a unit, kept in the tags code of the queue's entry, is its offset in the stream less 2**63; no
hash of a tag is that low.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from towline.format.layout import Field, Layout

LAYOUT: Final = Layout(
    Field("unit_size", "h", "of the whole unit"),
    Field("tags_code", "q", "hash of the tag, whose place in the queue the unit's address takes"),
    Field("store_timestamp", "q", "of the record"),
    Field("bitmap_size", "h", "bytes of the bitmap behind it, possibly none"),
)
SIZE: Final = LAYOUT.size  # of a unit without a bitmap
assert SIZE == 20, "RocketMQ readers expect a head of 20 bytes"

SIZE_MAX: Final = 2**15 - 1
FREE_SIZE: Final = 4
END: Final = b"\xff\xff"

_LOOK_MIN: Final = 16  # units

ADDRESS_MAX: Final = -(2**31) - 1
_FIRST_ADDRESS: Final = -(2**63)

HEAD: Final = np.dtype([("unit_size", ">i2"), ("tags_code", ">i8"), ("store_timestamp", ">i8"), ("bitmap_size", ">i2")])
assert HEAD.itemsize == SIZE

Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Unit:
    """`store_timestamp` in epoch ms."""

    tags_code: int
    store_timestamp: int
    bitmap: bytes = b""

    @property
    def size(self) -> int:
        return SIZE + len(self.bitmap)


@dataclass(frozen=True, slots=True)
class Run:
    """Units laid out behind each other: `addresses` of each, and what to write, none of it across files.

    `slices` are (offset in the stream, bytes), an END among them; `end` is the offset behind the last unit.
    """

    addresses: Longs
    slices: list[tuple[int, bytes]]
    end: int


# --- addresses


def are_addresses(tags_codes: Longs) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = tags_codes <= ADDRESS_MAX
    return found


def address(offset: int) -> int:
    """The address of the unit at that offset of the stream."""
    return offset + _FIRST_ADDRESS


def offset_of(address: int) -> int:
    """The offset in the stream of the unit at the address."""
    return address - _FIRST_ADDRESS


def offsets_of(addresses: Longs) -> Longs:
    return addresses ^ np.int64(_FIRST_ADDRESS)  # the sign bit is all that differs


# --- units


def encode(unit: Unit) -> bytes:
    """The bytes of one unit of at most SIZE_MAX."""
    assert unit.size <= SIZE_MAX
    return LAYOUT.pack(unit.size, unit.tags_code, unit.store_timestamp, len(unit.bitmap)) + unit.bitmap


def decode(buffer: bytes | memoryview, at: int = 0) -> Unit | None:
    """The unit at byte `at`; None where there is none: at END, in what was never written, past the end, in damage."""
    if at < 0 or at + SIZE > len(buffer):
        return None
    size, tags_code, store_timestamp, bitmap_size = LAYOUT.unpack_from(buffer, at)
    if bitmap_size < 0 or size != SIZE + bitmap_size or at + size > len(buffer):
        return None
    return Unit(tags_code, store_timestamp, bytes(buffer[at + SIZE : at + size]))


def encode_units(tags_codes: Longs, store_timestamps: Longs, bitmaps: Bytes) -> Bytes:
    """A row of bytes for each unit. `bitmaps` has a row for each, too, of no columns for units without a bitmap."""
    count, bitmap_size = bitmaps.shape
    size = SIZE + bitmap_size
    assert size <= SIZE_MAX
    rows = np.empty((count, size), np.uint8)
    heads = np.empty(count, HEAD)
    heads["unit_size"], heads["bitmap_size"] = size, bitmap_size
    heads["tags_code"], heads["store_timestamp"] = tags_codes, store_timestamps
    rows[:, :SIZE] = heads.view(np.uint8).reshape(count, SIZE)
    rows[:, SIZE:] = bitmaps
    return rows


def lay_out(end: int, units: Bytes, file_size: int) -> Run:
    """The units, rows of `encode_units`, behind the offset `end` of a stream in files of `file_size` bytes."""
    count, size = units.shape
    assert size <= file_size - FREE_SIZE
    offsets = np.empty(count, np.int64)
    slices: list[tuple[int, bytes]] = []
    done = 0
    while done < count:
        room = file_size - end % file_size
        fitting = min((room - FREE_SIZE) // size, count - done)
        if fitting <= 0:
            slices.append((end, END))
            end += room
            continue
        offsets[done : done + fitting] = end + size * np.arange(fitting)
        slices.append((end, units[done : done + fitting].tobytes()))
        end += size * fitting
        done += fitting
    return Run(offsets + _FIRST_ADDRESS, slices, end)


def walk(data: Bytes) -> tuple[Longs, int]:
    """Where the units of one file begin, and the byte behind the last of them.

    The walk ends at END, and where no whole unit stands that leaves 4 bytes free.
    """
    starts: list[Longs] = [np.empty(0, np.int64)]
    at, usable, look = 0, len(data) - FREE_SIZE, _LOOK_MIN
    while at + SIZE <= usable:
        unit = decode(data[at:usable].data)
        if unit is None:
            break
        # Units of one size stand in runs: the longer the run, the more rows of it are looked at together.
        count = min((usable - at) // unit.size, look)
        rows = data[at : at + count * unit.size].reshape(count, unit.size)
        heads = np.ascontiguousarray(rows[:, :SIZE]).view(HEAD)[:, 0]
        other = (heads["unit_size"] != unit.size) | (heads["bitmap_size"] != unit.size - SIZE)
        look *= 4
        if other.any():
            count, look = int(other.argmax()), _LOOK_MIN
        starts.append(at + unit.size * np.arange(count))
        at += unit.size * count
    return np.concatenate(starts), at
