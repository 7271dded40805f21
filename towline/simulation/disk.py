"""The disk of a simulated machine: a log of bytes of which a power cut keeps what was synced, and small files."""

import copy
import struct
from bisect import bisect_right
from collections.abc import Iterator
from random import Random
from typing import Any, Final, NamedTuple

HEAD: Final = struct.Struct(">IBIIq")  # size, queue, message; number of the append, time of it
_STAMP: Final = struct.Struct(">Iq")
_STAMP_AT: Final = HEAD.size - _STAMP.size
SIZE_MIN: Final = 48
SIZE_MAX: Final = 160

# Small files, and what is in them.
PROMISED: Final = "promise"  # (promise, the one before its own promotion or None)
SET: Final = "in_sync"  # InSyncRecord
EPOCHS: Final = "epochs"  # Epochs
ROLE: Final = "role"  # Role
OFFSETS: Final = "offsets"  # the content of consumerOffset.json
CHECKPOINT: Final = "checkpoint"  # the confirmed end, a second old at worst
QUEUES: Final = "queues"  # the queues' mark, older than that
TRUNCATION: Final = "truncate"  # the truncation that the next start carries out
DOUBT: Final = "doubt"  # the log may end before what was acknowledged
OUTCOME: Final = "outcome"  # of the last election


class Record(NamedTuple):
    """A record of a log, and where it ends. `serial`: of the append; `stored_ms`: by the clock of who stored it."""

    size: int
    queue: int
    message: int
    serial: int
    stored_ms: int
    end: int


def record_of(message: int, size: int, queue: int = 0, properties: bytes = b"") -> bytes:
    """A message as its client sends it. `size` is without the properties that end it, and their length before them."""
    end = len(properties).to_bytes(2) + properties if properties else b""
    return HEAD.pack(size + len(end), queue, message, 0, 0) + b"." * (size - HEAD.size) + end


def stamped(records: bytes, serial: int, stored_ms: int) -> bytes:
    """The records as a log holds them: no two appends have equal bytes."""
    data = bytearray(records)
    for record in records_of(records, 0, len(records)):
        at = record.end - record.size + _STAMP_AT
        data[at : at + _STAMP.size] = _STAMP.pack(serial, stored_ms)
    return bytes(data)


def records_of(data: bytes | bytearray, start: int, end: int) -> Iterator[Record]:
    """The whole records between two places."""
    while end - start >= HEAD.size:
        size, *others = HEAD.unpack_from(data, start)
        start += size
        if start > end:
            return
        yield Record._make((size, *others, start))


class Log:
    """A node's log. `ends` are the ends of its whole records; bytes behind the last may be the part of one."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray()
        self.ends: list[int] = []
        self.append(data)

    @property
    def end(self) -> int:
        return len(self.data)

    def append(self, data: bytes) -> int:
        """Appends bytes and returns the end."""
        self.data += data
        at, end = self.ends[-1] if self.ends else 0, len(self.data)
        while end - at >= HEAD.size and (size := int.from_bytes(self.data[at : at + 4])) <= end - at:
            at += size
            self.ends.append(at)
        return end

    def cut(self, end: int) -> None:
        del self.data[end:]
        del self.ends[bisect_right(self.ends, end) :]

    def records(self, end: int) -> int:
        """The number of whole records up to there: the end of the only queue."""
        return bisect_right(self.ends, end)

    def whole(self, end: int) -> int:
        """The end of the last whole record up to there."""
        count = self.records(end)
        return self.ends[count - 1] if count else 0

    @property
    def stored_ms(self) -> int:
        """The time of the newest whole record; 0 without one."""
        start = self.ends[-2] if len(self.ends) > 1 else 0
        return int(HEAD.unpack_from(self.data, start)[-1]) if self.ends else 0

    # what a handshake reads

    def slice(self, start: int, end: int) -> memoryview:
        return memoryview(bytes(self.data[start:end]))

    def segment_of(self, offset: int) -> int:
        return 0

    def close(self) -> None:
        pass


class Disk:
    """A machine's disk. `files`: small files by name, each durable when it was written.

    `flushed`: so much of the log a power cut keeps.
    """

    def __init__(self) -> None:
        self.log = Log()
        self.flushed = 0
        self.files: dict[str, Any] = {}

    def power_cut(self, chance: Random) -> None:
        """The power goes: of what was not synced any beginning may be left, and its last record torn."""
        kept = self.flushed
        if self.log.end > kept:
            kept += chance.choice((0, 0, chance.randint(0, self.log.end - kept)))
        self.log.cut(kept)

    def recovered(self) -> int:
        """Cuts a torn record behind the end, syncs, and returns the end."""
        self.log.cut(self.log.whole(self.log.end))
        self.flushed = self.log.end
        return self.flushed

    def copy(self) -> "Disk":
        made = Disk()
        made.log, made.flushed = Log(bytes(self.log.data)), self.flushed
        made.files = copy.deepcopy(self.files)
        return made
