"""The end of a node's log, read by a client on the same machine: the records of one topic behind a place in the log.

Up to where records are confirmed (H15, H24) the node's positions say, in words that its welcome names. The positions
are of one start of the node: when another begins, or the files are not the node's, nothing is read here any more.
"""

import logging
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from towline.errors import MalformedRecord
from towline.format.record.blank import MAGIC as BLANK_MAGIC
from towline.format.record.record import (
    BORN_HOST_IPV6,
    LAYOUT,
    MAGIC_V1,
    MAGIC_V2,
    SIZE_MIN,
    STORE_HOST_IPV6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    layout_of,
)
from towline.format.record.rules import Rule
from towline.link.endpoints import parse
from towline.link.node_positions import NodePositions

HEAD: Final = struct.Struct(">iI")  # TOTALSIZE, MAGICCODE
_PLACE: Final = struct.Struct(">i4xqqi")  # QUEUEID, QUEUEOFFSET, PHYSICALOFFSET, SYSFLAG
_PLACE_AT: Final = LAYOUT.offset["queue_id"]
_BODY_SIZE: Final = struct.Struct(">i")
_FAMILIES: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6
_UNSEEN: Final = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)  # no queue names these
assert LAYOUT.offset["sys_flag"] == _PLACE_AT + _PLACE.size - 4

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TailRecord:
    """A record of the topic: [start, start + size) of the bytes that were read."""

    queue_id: int
    queue_offset: int
    start: int
    size: int


class LogTail:
    """The positions of the node, and the segment file that was read last. Used by one thread."""

    def __init__(self, directory: Path, positions: NodePositions, facts: Mapping[str, Any]) -> None:
        self._directory = directory
        self._positions = positions
        self._words = positions.words
        self._generation_word, self._generation = facts["generation"]
        self._confirmed: list[int] = facts["confirmed"]
        self._dispatched: int = facts["dispatched"]
        self._segment_size: int = facts["segment_size"]
        self._segment = -1
        self._descriptor = -1

    @classmethod
    def of(cls, endpoint: str, welcome: Mapping[str, Any]) -> Self | None:
        """The log of the node behind `endpoint`; None for one that others reach too, a node that names no files, or
        files that this process may not open."""
        facts, directory = welcome.get("tail"), welcome.get("commitlog")
        if not facts or not directory or not parse(endpoint).is_local:
            return None
        try:
            found = Path(directory).stat()
            if [found.st_dev, found.st_ino] != facts["directory"]:
                raise FileNotFoundError(f"{directory} is not the node's")
            device, inode = facts["file"]
            return cls(Path(directory), NodePositions(Path(facts["positions"]), (device, inode)), facts)
        except OSError as error:
            log.info("the log's end is not followed here: %s", error)
            return None

    @property
    def is_current(self) -> bool:
        """Whether the positions are still those of the running node."""
        return bool(self._words[self._generation_word] == self._generation)

    @property
    def confirmed(self) -> int:
        """The log offset up to which every record is confirmed."""
        words = self._words
        return min([words[word] for word in self._confirmed])

    @property
    def dispatched(self) -> int:
        """The log offset up to which every record stands in its queue."""
        return int(self._words[self._dispatched])

    def read(self, start: int, end: int) -> bytes:
        """The bytes of the log from `start` on, as many of those before `end` as stand in one segment.

        Raises OSError, also for a file that is too short.
        """
        base = start - start % self._segment_size
        if base != self._segment:
            self.release()
            self._descriptor = os.open(self._directory / f"{base:020d}", os.O_RDONLY | os.O_CLOEXEC)
            self._segment = base
        size = min(end, base + self._segment_size) - start
        data = os.pread(self._descriptor, size, start - base)
        if len(data) != size:
            raise FileNotFoundError(f"{len(data)} of {size} bytes at {start} of the log are there")
        return data

    def behind(self, start: int) -> int:
        """The first byte of the segment behind that of `start`."""
        return start - start % self._segment_size + self._segment_size

    def release(self) -> None:
        """Closes the segment file, so that it holds no disk space once it is deleted."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._segment = self._descriptor = -1

    def close(self) -> None:
        self.release()
        self._positions.close()

    def __del__(self) -> None:
        self.release()


def records_of(data: bytes, start: int, topic: bytes) -> tuple[list[TailRecord], int]:
    """The records of `topic` that queues name, in `data`, whose first byte has log offset `start`; and how many bytes
    of whole records there are, or -1 where the blank that ends the segment was met.

    Few at a time: where there are many, the node's answers bring them. Raises MalformedRecord where no record stands.
    """
    found: list[TailRecord] = []
    at, end = 0, len(data)
    while end - at >= SIZE_MIN:
        size, magic = HEAD.unpack_from(data, at)
        if magic == BLANK_MAGIC:
            return found, -1
        if magic not in (MAGIC_V1, MAGIC_V2):
            raise _malformed(Rule.MAGIC, at)
        if size < SIZE_MIN:
            raise _malformed(Rule.SIZE_TOO_SMALL, at)
        if size > end - at:
            break
        queue_id, queue_offset, place, sys_flag = _PLACE.unpack_from(data, at + _PLACE_AT)
        if place != start + at:
            raise _malformed(Rule.PHYSICAL_OFFSET, at)
        if _names(data, at, size, magic, sys_flag, topic) and sys_flag & TRANSACTION_MASK not in _UNSEEN:
            found.append(TailRecord(queue_id, queue_offset, at, size))
        at += size
    blank = HEAD.size <= end - at < SIZE_MIN and HEAD.unpack_from(data, at)[1] == BLANK_MAGIC
    return found, -1 if blank else at


def _names(data: bytes, at: int, size: int, magic: int, sys_flag: int, topic: bytes) -> bool:
    """Whether the record is of this topic."""
    body = at + (layout_of(sys_flag).size if sys_flag & _FAMILIES else LAYOUT.size)
    (body_size,) = _BODY_SIZE.unpack_from(data, body - _BODY_SIZE.size)
    length_at = body + body_size
    width = 2 if magic == MAGIC_V2 else 1
    topic_at = length_at + width
    if body_size < 0 or topic_at > at + size:
        raise _malformed(Rule.ENDS_INSIDE, at)
    length = int.from_bytes(data[length_at:topic_at], "big")
    return length == len(topic) and data[topic_at : topic_at + length] == topic


def _malformed(rule: Rule, at: int) -> MalformedRecord:
    return MalformedRecord(rule.name, rule.sentence, at)
