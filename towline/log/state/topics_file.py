"""config/topics.json: how it is kept, and as those read it who do not keep it, again only when it has changed."""

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
    """For those who write the file.

    What `.bak` does not know of topics that were made, the queues show. What it does not know of deleted ones nobody
    could: their numbers would be given again. So a save that changes them goes into both generations, one after the
    other, and a topic counts as deleted when both say so: what one says alone may still be put back.
    """

    def save(self, content: dict[str, Any]) -> None:
        """Raises what `ConfigFile.save` raises."""
        there = bytes_of(self.path)
        before = self._write(content)
        if (before or {}).get(DELETED) != content.get(DELETED):
            self._save_both(content, there)

    def settle(self, content: dict[str, Any]) -> None:
        """For who is about to go by `content`, which was loaded: a writer may have been killed before it was durable.

        Raises what `save` raises.
        """
        sync_directory(self.path.parent)
        if content.get(DELETED) and (read_config(self.backup) or {}).get(DELETED) != content[DELETED]:
            self._save_both(content, bytes_of(self.path))

    def _save_both(self, content: dict[str, Any], before: bytes | None) -> None:
        """The file says `content`, durably: now `.bak` too. A full disk is found while it can still be taken back."""
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
    """`table` is what was read last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = ConfigFile(path)
        self._seen: tuple[int, int, int] | None = None  # of the content held: inode, length, time of change
        self.table = TopicTable()
        self.exists = False

    def floors(self) -> dict[tuple[bytes, int], int]:
        """Of `table`, as far as the generation before agrees: (topic, queue id) -> where a deleted queue goes on."""
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
