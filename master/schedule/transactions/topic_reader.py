"""Reads the system topics of transactions from this node's own files: queue 0 of each, up to what reput published."""

from contextlib import suppress
from typing import Final, NamedTuple

from towline.errors import MalformedRecord, NotInLog
from towline.format.record.record import Record, decode
from towline.limits import MIB
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.release_files import FileReleaser
from towline.node.process.context import Node
from towline.runtime.positions import Position

QUEUE_FILES_OPEN_MAX: Final = 8
IN_MEMORY: Final = 64 * MIB


class RecordRun(NamedTuple):
    """Records of a queue, the offset that follows, and the end of the log behind them (0 without any)."""

    records: list[Record]
    following: int
    end: int


class TopicReader:
    """Reader of HALF, OP and TRANS_CHECK topics."""

    def __init__(self, node: Node) -> None:
        settings = node.settings
        self._get = node.positions.get
        self._ends = node.queue_ends()
        self._queues = ConsumeQueueFiles(
            node.store.consumequeue, settings.mapped_file_size_consume_queue, QUEUE_FILES_OPEN_MAX
        )
        self._log = CommitLogReader(
            node.store.commitlog, settings.mapped_file_size_commit_log, in_memory_bytes=IN_MEMORY
        )
        self._log.load()
        self._releaser = FileReleaser(self._log, self._queues)

    def cycle(self, now_ms: int) -> None:
        """Closes deleted files, and segments that are not read any more."""
        self._releaser.release(self._get(Position.LOG_MIN), now_ms)

    def bounds(self, topic: bytes) -> tuple[int, int]:
        """Lowest offset and end of the queue; (0, 0) when nothing was ever dispatched to it."""
        place = self._ends.find(topic, 0)
        return (0, 0) if place < 0 else self._ends.bounds(place)

    def records(self, topic: bytes, offset: int, count: int) -> RecordRun:
        """Up to `count` records from `offset` on; records that left the log are skipped."""
        low, high = self.bounds(topic)
        offset = max(offset, low)
        if offset >= high:
            return RecordRun([], offset, 0)
        entries = self._queues.read(topic.decode(), 0, offset, min(count, high - offset))
        floor = self._get(Position.LOG_MIN)
        found = []
        end = 0
        for physical, size in zip(entries["physical_offset"].tolist(), entries["record_size"].tolist(), strict=True):
            if physical < floor:
                continue
            try:
                found.append(decode(self._log.slice(physical, physical + size), check_crc=False))
            except NotInLog:  # deleted since the floor was read
                continue
            end = physical + size
        return RecordRun(found, offset + len(entries), end)

    def record(self, topic: bytes, offset: int) -> Record | None:
        """The record, or None where it does not exist or has left the log; a cleaned one may be readable for a
        while."""
        if not 0 <= offset < self.bounds(topic)[1]:
            return None
        entries = self._queues.read(topic.decode(), 0, offset, 1)
        for physical, size in zip(entries["physical_offset"].tolist(), entries["record_size"].tolist(), strict=True):
            with suppress(NotInLog, MalformedRecord):
                return decode(self._log.slice(physical, physical + size))
        return None

    def close(self) -> None:
        self._log.close()
        self._ends.close()
