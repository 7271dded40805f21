"""The durable-offset state file: how far the log is synced, and whether a sync ever failed.

    at  len  field
     0  8  magic           TOWLDURA
     8  4  version         of this layout
    12  4  sync_failed     1 after a failed sync, until an operator repaired the store
    16  8  flushed         log offset up to which every byte was synced
    24  8  segment_base    log offset at which the segment that holds the flushed offset begins
    32  8  queues_durable  log offset up to which queue and index entries were synced
    40  8  log_min         log offset at which the log begins
    48  4  crc             CRC-32 of the bytes before it

Damage below `flushed` is corruption and refused; from it on, the first bad record ends the log. The file holds
two such states in slots of their own, written in turn (`durable_slots`): a torn write leaves the one before it.
"""

import zlib
from dataclasses import dataclass
from typing import Final

from towline.errors import MalformedFile
from towline.format.layout import Field, Layout

LAYOUT: Final = Layout(
    Field("magic", "8s", "TOWLDURA"),
    Field("version", "I", "of this layout"),
    Field("sync_failed", "I", "1 after a failed sync, until an operator repaired the store"),
    Field("flushed", "q", "log offset up to which every byte was synced"),
    Field("segment_base", "q", "log offset at which the segment that holds the flushed offset begins"),
    Field("queues_durable", "q", "log offset up to which queue and index entries were synced"),
    Field("log_min", "q", "log offset at which the log begins"),
    Field("crc", "I", "CRC-32 of the bytes before it"),
)
SIZE: Final = LAYOUT.size
MAGIC: Final = b"TOWLDURA"
VERSION: Final = 1
_SECTOR: Final = 512
assert SIZE <= _SECTOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Durable:
    """Offsets are bytes of the log. The default is the state of a new store."""

    flushed: int = 0
    segment_base: int = 0
    queues_durable: int = 0
    log_min: int = 0
    sync_failed: bool = False


def encode(durable: Durable) -> bytes:
    """52 bytes."""
    fields = (durable.flushed, durable.segment_base, durable.queues_durable, durable.log_min)
    crc_at = LAYOUT.offset["crc"]
    covered = LAYOUT.pack(MAGIC, VERSION, int(durable.sync_failed), *fields, 0)[:crc_at]
    return covered + zlib.crc32(covered).to_bytes(SIZE - crc_at, "big")


def decode(data: bytes, path: str) -> Durable:
    """The state in `data`, the whole content of the file at `path`.

    Raises MalformedFile, with the path, for another size, magic or version, or a wrong CRC.
    """
    if len(data) != SIZE:
        raise MalformedFile(path, f"the durable-offset file has {SIZE} bytes, this one has {len(data)}")
    magic, version, sync_failed, flushed, segment_base, queues_durable, log_min, crc = LAYOUT.unpack_from(data)
    if magic != MAGIC:
        raise MalformedFile(path, f"it begins with {magic.hex()}, not with {MAGIC.hex()}")
    if version != VERSION:
        raise MalformedFile(path, f"its layout is version {version}, this program reads version {VERSION}")
    if crc != zlib.crc32(data[: LAYOUT.offset["crc"]]):
        raise MalformedFile(path, "its CRC differs from its content")
    return Durable(
        flushed=flushed,
        segment_base=segment_base,
        queues_durable=queues_durable,
        log_min=log_min,
        sync_failed=sync_failed != 0,
    )
