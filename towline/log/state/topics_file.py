"""config/topics.json: written by its owner, and read by other processes again only when it has changed."""

import contextlib
from pathlib import Path
from typing import Any, Final

from towline.errors import MalformedFile, SyncFailed, TowlineError
from towline.format.files.topics import DELETED, TopicTable, read_topics
from towline.log.files.config_file import ConfigFile, encode, read_config
from towline.log.files.segment_files import sync_directory
from towline.log.files.store_files import bytes_of, restore_previous, stage
from towline.places import Store

NAME: Final = "topics.json"


def read_table(store: Store) -> TopicTable:
    """The topics of a store; none where the file cannot be read, which its owner refuses by name."""
    file = TopicsFile(store.config / NAME)
    with contextlib.suppress(MalformedFile):
        file.refresh()
    return file.table


class TopicsConfig(ConfigFile):
    """The file for its writers.

    Topics that `.bak` lacks can be found by their queues. Deleted topics that it lacks cannot: their queue offsets
    would be assigned again. So a save that changes deleted topics goes into both generations, one after the other, and
    a topic counts as deleted when both hold the deletion; a deletion in one generation alone may still be reverted.
    """

    def save(self, content: dict[str, Any]) -> None:
        """Writes `content`, into both generations where deleted topics change. Raises like `ConfigFile.save`."""
        there = bytes_of(self.path)
        before = self._write(content)
        if (before or {}).get(DELETED) != content.get(DELETED):
            self._save_both(content, there)

    def settle(self, content: dict[str, Any]) -> None:
        """Makes `content`, which was loaded, durable: its writer may have been killed before it was.

        Raises like `save`.
        """
        sync_directory(self.path.parent)
        if content.get(DELETED) and (read_config(self.backup) or {}).get(DELETED) != content[DELETED]:
            self._save_both(content, bytes_of(self.path))

    def _save_both(self, content: dict[str, Any], before: bytes | None) -> None:
        """Writes `.bak` too; the file holds `content` durably. A full disk shows while the file can be reverted."""
        try:
            staged = stage(self.path, encode(content))
            self._keep()
        except (TowlineError, OSError) as error:
            restore_previous(self.path, before, error)
            raise
        staged.replace(self.path)
        with contextlib.suppress(SyncFailed):  # of the name of `.bak`; the file itself holds
            sync_directory(self.path.parent)


class TopicsFile:
    """The file for its readers. `table` is the content that was read last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = ConfigFile(path)
        self._seen: tuple[int, int, int] | None = None  # of the content held: inode, length, time of change
        self.table = TopicTable()
        self.exists = False

    def floors(self) -> dict[tuple[bytes, int], int]:
        """(topic, queue id) -> offset at which a deleted queue goes on, where both generations hold the deletion."""
        found = self.table.floors()
        kept = read_config(self._file.backup) if found else None
        settled = {} if kept is None else read_topics(kept, str(self._file.backup)).floors()
        return {queue: min(floor, settled[queue]) for queue, floor in found.items() if queue in settled}

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
