"""The topics of this node as config/topics.json names them: another process keeps the file, here it is only read."""

from pathlib import Path

from towline.format.topics import TopicConfig, read_topics
from towline.log.config_file import ConfigFile


class TopicsView:
    """Looks at the file again only when asked to, or when a topic is not known."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = ConfigFile(path)
        self._seen: tuple[int, int, int] | None = None  # of the content held: inode, length, time of change
        self._topics: dict[str, TopicConfig] = {}

    def get(self, name: str) -> TopicConfig | None:
        """Raises MalformedFile when the file had to be read and cannot be."""
        found = self._topics.get(name)
        if found is None:
            self.refresh()
            found = self._topics.get(name)
        return found

    def all(self) -> list[TopicConfig]:
        """By name, as of now. Raises MalformedFile."""
        self.refresh()
        return [self._topics[name] for name in sorted(self._topics)]

    def refresh(self) -> None:
        """Reads the file if it changed. Raises MalformedFile."""
        try:
            found = self._path.stat()
        except FileNotFoundError:  # none yet, or its owner is just replacing it: then the generation before is read
            stamp = None
        else:
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        if stamp is not None and stamp == self._seen:
            return
        content = self._file.load()
        self._topics = {} if content is None else dict(read_topics(content, str(self._path)).topics)
        self._seen = stamp
