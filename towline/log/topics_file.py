"""config/topics.json: how it is kept, and as those read it who do not keep it, again only when it has changed."""

import contextlib
from pathlib import Path
from typing import Any, Final

from towline.errors import MalformedFile
from towline.format.topics import DELETED, TopicTable, read_topics
from towline.places import Store

from .config_file import ConfigFile

NAME: Final = "topics.json"


def read_table(store: Store) -> TopicTable:
    """The topics of a store; none where the file cannot be read, which its owner refuses by name."""
    file = TopicsFile(store.config / NAME)
    with contextlib.suppress(MalformedFile):
        file.refresh()
    return file.table


class TopicsConfig(ConfigFile):
    """For those who write the file.

    What `.bak` does not know of topics that were made, the queues show. What it does not know of deleted ones nobody
    could: their numbers would be given again. So a save that changes them goes into both generations.
    """

    def save(self, content: dict[str, Any]) -> None:
        """Raises DiskFull, StoreNotWritable, SyncFailed."""
        before = self._write(content)
        if (before or {}).get(DELETED) != content.get(DELETED):
            self._write(content)


class TopicsFile:
    """`table` is what was read last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = ConfigFile(path)
        self._seen: tuple[int, int, int] | None = None  # of the content held: inode, length, time of change
        self.table = TopicTable()
        self.exists = False

    def refresh(self) -> bool:
        """Reads the file if it changed; whether it did. Raises MalformedFile."""
        try:
            found = self._path.stat()
        except FileNotFoundError:  # none yet, or its owner is just replacing it: then the generation before is read
            stamp = None
        else:
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        if stamp is not None and stamp == self._seen:
            return False
        content = self._file.load()
        before, self._seen = self.table, stamp
        self.exists = content is not None
        self.table = TopicTable() if content is None else read_topics(content, str(self._path))
        return self.table != before
