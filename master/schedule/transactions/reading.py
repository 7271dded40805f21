"""The system topics of transactions, read from this node's own files: queue 0 of each, up to what reput published."""

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


class Run(NamedTuple):
    """Records of a queue, the offset to go on at, and the end of the log behind them (0 without any)."""

    records: list[Record]
    following: int
    end: int


class Reader:
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

    def turn(self, now_ms: int) -> None:
        """Lets go of what was deleted and of segments that are not read any more."""
        self._releaser.release(self._get(Position.LOG_MIN), now_ms)

    def bounds(self, topic: bytes) -> tuple[int, int]:
        """Lowest offset and end of the queue; (0, 0) when nothing was ever dispatched to it."""
        place = self._ends.find(topic, 0)
        return (0, 0) if place < 0 else self._ends.bounds(place)

    def records(self, topic: bytes, offset: int, count: int) -> Run:
        """Up to so many records from `offset` on, those that left the log passed over."""
        low, high = self.bounds(topic)
        offset = max(offset, low)
        if offset >= high:
            return Run([], offset, 0)
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
        return Run(found, offset + len(entries), end)

    def record(self, topic: bytes, offset: int) -> Record | None:
        """None when it is not there, or not any more; one that the log begins behind may be there for a while."""
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
