"""The topics of this node, read from config/topics.json, which another process writes."""

import contextlib
from pathlib import Path
from typing import Final

from towline.errors import MalformedFile
from towline.format.files.topics import TopicConfig, TopicTable, is_system_topic
from towline.format.record.transactions import HALF
from towline.log.state.topics_file import TopicsFile

CHECK_EVERY_MS: Final = 100  # a change is known this late at most


class TopicsView:
    """Reads the file again at intervals, on request, or when a topic is unknown."""

    def __init__(self, path: Path) -> None:
        self._file = TopicsFile(path)
        self._checked_ms = 0
        self._readable: dict[bytes, tuple[int, bool]] = {}  # topic -> read queues, whether it may be read

    @property
    def table(self) -> TopicTable:
        """The table that was read last: another object after each change."""
        return self._file.table

    def check(self, now_ms: int) -> bool:
        """Whether the file had changed. An unreadable file changes nothing; a question about topics reports it."""
        if now_ms - self._checked_ms < CHECK_EVERY_MS:
            return False
        self._checked_ms = now_ms
        with contextlib.suppress(MalformedFile):
            return self.refresh()
        return False

    def get(self, name: str) -> TopicConfig | None:
        """The topic. Raises MalformedFile when the file had to be read and cannot be."""
        found = self._file.table.topics.get(name)
        if found is None:
            self.refresh()
            found = self._file.table.topics.get(name)
        return found

    def all(self) -> list[TopicConfig]:
        """All topics by name, as of now. Raises MalformedFile."""
        self.refresh()
        topics = self._file.table.topics
        return [topics[name] for name in sorted(topics)]

    def floor(self, topic: str, queue_id: int) -> int:
        """The lowest readable offset of a topic that was deleted before; 0 for any other.

        A group's committed offset below it belongs to messages that are gone.
        """
        deleted = self._file.table.deleted.get(topic)
        return 0 if deleted is None else deleted.floors.get(queue_id, 0)

    def allows(self, topic: bytes, queue_id: int) -> bool | None:
        """Whether clients may read from a queue: None if there is no such queue, False if its topic is not readable.

        Topics of the broker itself need not stand in the file. Without a file, as on a slave that has just begun,
        everything may be read, except halves: before it is committed nobody sees a message. Raises MalformedFile when
        the file had to be read and cannot be.
        """
        if topic == HALF:
            return False
        found = self._readable.get(topic)
        if found is None and self.refresh():
            found = self._readable.get(topic)
        if found is not None:
            queues, readable = found
            return readable if 0 <= queue_id < queues else None
        if not self._file.exists or is_system_topic(topic.decode("utf-8", "replace")):
            return True
        return None

    def refresh(self) -> bool:
        """Reads the file if it changed; returns whether it did. Raises MalformedFile."""
        changed = self._file.refresh()
        if changed:
            self._readable = {
                name.encode(): (topic.read_queue_nums, topic.readable)
                for name, topic in self._file.table.topics.items()
            }
        return changed
