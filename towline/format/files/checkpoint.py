"""The checkpoint file: the store time up to which each kind of file was flushed (spec 6.6).

    at  len  field
     0  8  physic_msg_timestamp   store time covered by the last flush of the CommitLog
     8  8  logics_msg_timestamp   store time covered by the last flush of the ConsumeQueues
    16  8  index_msg_timestamp    store time covered by the last full IndexFile flushed
    24  8  master_flushed_offset  since RocketMQ 5.0
    32  8  confirm_phy_offset     since RocketMQ 5.1.1; Towline writes its confirmed offset
    40  8  logics_physical_offset since RocketMQ 5.5; records from behind it on are dispatched again after a crash

Towline puts a check into the last bytes of the page, as far as can be from what a later broker may add:

    at  len  field
     0  4  magic  TWCK
     4  4  crc    CRC-32 of the fields

What lies between is zero.
"""

import zlib
from dataclasses import dataclass
from typing import Final

from towline.errors import MalformedFile
from towline.format.layout import Field, Layout
from towline.limits import PAGE

LAYOUT: Final = Layout(
    Field("physic_msg_timestamp", "q", "store time covered by the last flush of the CommitLog"),
    Field("logics_msg_timestamp", "q", "store time covered by the last flush of the ConsumeQueues"),
    Field("index_msg_timestamp", "q", "store time covered by the last full IndexFile flushed"),
    Field("master_flushed_offset", "q", "since RocketMQ 5.0"),
    Field("confirm_phy_offset", "q", "since RocketMQ 5.1.1; Towline writes its confirmed offset"),
    Field(
        "logics_physical_offset",
        "q",
        "since RocketMQ 5.5; records from behind it on are dispatched again after a crash",
    ),
)
CHECK_LAYOUT: Final = Layout(
    Field("magic", "4s", "TWCK"),
    Field("crc", "I", "CRC-32 of the fields"),
)
CHECK_MAGIC: Final = b"TWCK"
SIZE: Final = PAGE
CHECK_AT: Final = SIZE - CHECK_LAYOUT.size
CHECKED_SIZE: Final = SIZE
assert SIZE == 4096, "RocketMQ maps 4096 bytes"

SAFETY_MS: Final = 3_000  # recovery begins this much before the earliest flush


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Times are epoch ms, offsets bytes of the log."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0

    @property
    def min_timestamp(self) -> int:
        """Records stored before this time are flushed and dispatched to their queues."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - SAFETY_MS)

    @property
    def min_timestamp_index(self) -> int:
        """Records stored before this time are also in full IndexFiles."""
        return min(self.min_timestamp, self.index_msg_timestamp)


def logics_physical_offset(dispatched: int) -> int:
    """The field for queues that are on the disk up to this end of a record.

    RocketMQ keeps the start of the last such record and dispatches what begins behind it; 0 means that it is not known.
    """
    return max(0, dispatched - 1)


def encode(checkpoint: Checkpoint) -> bytes:
    """4096 bytes."""
    return LAYOUT.pack(
        checkpoint.physic_msg_timestamp,
        checkpoint.logics_msg_timestamp,
        checkpoint.index_msg_timestamp,
        checkpoint.master_flushed_offset,
        checkpoint.confirm_phy_offset,
        checkpoint.logics_physical_offset,
    ).ljust(SIZE, b"\x00")


def sealed(data: bytes) -> bytes:
    """An encoded checkpoint with the check of its fields."""
    check = CHECK_LAYOUT.pack(CHECK_MAGIC, zlib.crc32(data[: LAYOUT.size]))
    return data[:CHECK_AT] + check


def check_fits(data: bytes) -> bool:
    """Whether the fields fit the check behind them, or there is none. They do not after a real broker wrote them."""
    return not any(data[CHECK_AT:CHECKED_SIZE]) or sealed(data)[:CHECKED_SIZE] == data[:CHECKED_SIZE]


def decode(data: bytes, path: str, *, check: bool = True) -> Checkpoint:
    """The checkpoint in `data`, the whole content of the file at `path`.

    Raises MalformedFile, with the path, when the fields are not all there, or do not fit the check behind them. Zeros
    there are no check: a real broker wrote the file.
    """
    if len(data) < LAYOUT.size:
        raise MalformedFile(path, f"a checkpoint has {SIZE} bytes, this file has {len(data)}")
    if check and not check_fits(data):
        raise MalformedFile(path, "its fields do not fit the check behind them: damaged, or a real broker wrote them")
    return Checkpoint(*LAYOUT.unpack_from(data))
