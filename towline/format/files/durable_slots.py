"""A slot of the durable-offset file: the state behind a growing number, so that two slots are written in turn.

    at  len  field
     0  8  sequence  number of the write; the valid slot with the greater one holds
     8  52  state    as in `durable`
    60  4  crc       CRC-32 of the bytes before it

The file is two slots of 4 KiB, each a sector of its own on every disk: a write that is torn, or a sector that becomes
unreadable, leaves the other slot. Older stores have slots of 512 bytes, both in one sector of a disk of 4-KiB sectors:
its length shows such a file, which is read as it stands and written anew whole.
"""

import zlib
from typing import Final

from towline.errors import MalformedFile
from towline.format.layout import Field, Layout

from . import durable

LAYOUT: Final = Layout(
    Field("sequence", "Q", "number of the write; the valid slot with the greater one holds"),
    Field("state", f"{durable.SIZE}s", "as in `durable`"),
    Field("crc", "I", "CRC-32 of the bytes before it"),
)
SLOT_SIZE: Final = 4096
SLOT_COUNT: Final = 2
SIZE: Final = SLOT_COUNT * SLOT_SIZE
OLD_SIZE: Final = SLOT_COUNT * 512
assert LAYOUT.size <= OLD_SIZE // SLOT_COUNT
assert SLOT_COUNT == 2, "a new file ends with the slot of sequence 1"


def encode(sequence: int, state: durable.Durable) -> bytes:
    """One slot, 4 KiB, to be written at byte `place(sequence)`. Sequences begin with 1."""
    assert sequence > 0
    covered = LAYOUT.pack(sequence, durable.encode(state), 0)[: LAYOUT.offset["crc"]]
    return (covered + zlib.crc32(covered).to_bytes(4, "big")).ljust(SLOT_SIZE, b"\x00")


def place(sequence: int) -> int:
    """Where in the file the slot of that number stands: beside the one before it."""
    return sequence % SLOT_COUNT * SLOT_SIZE


def first(state: durable.Durable) -> bytes:
    """A new file whose only valid slot has sequence 1; the other one is zero."""
    return bytes(place(1)) + encode(1, state)


def is_old(data: bytes) -> bool:
    """Whether this is a file with both slots in one sector, in which no slot of today's size has a place."""
    return len(data) == OLD_SIZE


def decode(data: bytes, path: str) -> tuple[int, durable.Durable]:
    """Sequence and state of the newest valid slot of the whole file.

    Raises MalformedFile for another size, when neither slot is valid, or for a state of another version.
    """
    if len(data) not in (SIZE, OLD_SIZE):
        raise MalformedFile(path, f"the durable-offset file has {SIZE} bytes, this one has {len(data)}")
    valid = [slot for at in _places(data) if (slot := _slot(data[at:])) is not None]
    if not valid:
        raise MalformedFile(path, "neither of its two slots is valid")
    sequence, state = max(valid)
    return sequence, durable.decode(state, path)


def torn(data: bytes) -> list[tuple[int, int]]:
    """Slots, from byte to byte, that are not as they were written; one that never was is zeros, and sound."""
    found = []
    size = len(data) // SLOT_COUNT
    for number, at in enumerate(_places(data)):
        data_of, other = data[at : at + size], _slot(data[size - at :])
        if not any(data_of) and other is not None and other[0] == 1:
            continue  # the file is new
        slot = _slot(data_of)
        whole = LAYOUT.pack(*slot, zlib.crc32(data_of[: LAYOUT.offset["crc"]])).ljust(size, b"\x00") if slot else b""
        if slot is None or whole != data_of or slot[0] % SLOT_COUNT != number:
            found.append((at, at + size))
    return found


def _places(data: bytes) -> range:
    """Where the slots of a whole file begin, whichever size they have."""
    return range(0, len(data), len(data) // SLOT_COUNT)


def _slot(data: bytes) -> tuple[int, bytes] | None:
    sequence, state, crc = LAYOUT.unpack_from(data)
    if sequence == 0 or crc != zlib.crc32(data[: LAYOUT.offset["crc"]]):
        return None
    return sequence, state
