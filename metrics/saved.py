"""A file of config/ that another process writes: read again when it was replaced."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from towline.errors import MalformedFile
from towline.format.files.topics import loads_fastjson

Content = TypeVar("Content")


class SavedFile(Generic[Content]):
    """`read` makes the content of its JSON object; what cannot be read leaves what was read before.

    The file's check is left to its owner: it was replaced whole, and to check it takes as long as to write it.
    """

    def __init__(self, path: Path, read: Callable[[dict[str, Any], str], Content], empty: Content) -> None:
        self._path, self._read = path, read
        self._seen: tuple[int, int, int] | None = None
        self.content = empty

    def refresh(self) -> bool:
        """Whether there is another content than before."""
        try:
            found = self._path.stat()
            seen = found.st_ino, found.st_mtime_ns, found.st_size
            if seen == self._seen:
                return False
            data = self._path.read_bytes()
        except FileNotFoundError:  # between two renames of a save
            return False
        self._seen = seen
        try:
            self.content = self._read(self._parse(data.decode("utf-8", "replace")), str(self._path))
        except MalformedFile:
            return False
        return True

    def _parse(self, text: str) -> dict[str, Any]:
        """Raises MalformedFile. What a real broker left behind may be in fastjson's dialect, which takes longer."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = None
        return content if isinstance(content, dict) else loads_fastjson(text, str(self._path))
