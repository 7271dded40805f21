"""A JSON file of `ha/` in two copies: a promise to other nodes must survive damage of one copy.

Of a file of config/ `.bak` is the generation before. An older word would be a broken one, so here `.bak` is written
with each save, before the file, and says that it is a copy: a `.bak` without that is a generation before, no answer.
"""

from pathlib import Path
from typing import Any, Final

from towline.log.errors import WordLost

from .config_file import BACKUP, CHECK, ConfigFile, encode, read_config
from .segment_files import make_directory
from .store_files import write_atomically

COPY: Final = "isCopy"


class MirroredFile:
    """One process saves; anybody may load. `lost` is the refusal where neither copy can be read."""

    def __init__(self, path: Path, lost: type[WordLost] = WordLost) -> None:
        self.path, self.backup = path, path.with_name(path.name + BACKUP)
        self._lost = lost

    def load(self) -> dict[str, Any] | None:
        """None where nothing was ever saved. Raises WordLost.

        The copy is asked first: it is never older. Without the file a generation before counts, as a crash between two
        names may have left it.
        """
        copy = self._copy()
        found = read_mirrored(self.path) if copy is None else copy
        if found is not None or not any(path.exists() for path in (self.path, self.backup)):
            return found
        if self.path.exists():
            raise self._lost(str(self.path), "it is damaged, and so is its copy")
        before = ConfigFile(self.path)
        if read_mirrored(before.backup) is None:
            raise self._lost(str(self.backup), "it is damaged, and the file of which it is a copy is missing")
        return before.load()

    def save(self, content: dict[str, Any]) -> None:
        """Durably. Raises StoreNotWritable, SyncFailed, DiskFull."""
        make_directory(self.path.parent)
        write_atomically(self.backup, encode(content | {COPY: True}))
        write_atomically(self.path, encode(content))

    def heal(self) -> bool:
        """Writes anew what is not the same word in both copies; whether there was any. Raises WordLost, as `save`."""
        if (content := self.load()) is None or self.is_whole:
            return False
        self.save(content)
        return True

    @property
    def is_whole(self) -> bool:
        """Both copies say the same."""
        copy = self._copy()
        return copy is not None and copy == read_mirrored(self.path)

    def _copy(self) -> dict[str, Any] | None:
        found = read_mirrored(self.backup)
        return found if found is not None and found.pop(COPY, False) else None


def read_mirrored(path: Path) -> dict[str, Any] | None:
    """None for a file that is missing or damaged. No broker writes it, so one without a check is damaged too."""
    content = read_config(path)
    return content if content is not None and f'"{CHECK}"'.encode() in path.read_bytes() else None
