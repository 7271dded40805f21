"""A JSON file of `config/` with its previous generation beside it as `.bak` (spec 1.3)."""

import json
import os
from pathlib import Path
from typing import Any

from towline.errors import MalformedFile
from towline.format.topics import loads_fastjson

from .segment_files import sync_directory
from .store_files import write_new


class ConfigFile:
    """One file; only its owner saves, anybody may load."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backup = path.with_name(path.name + ".bak")

    def load(self) -> dict[str, Any] | None:
        """The object in the file; from `.bak` when the file is missing, empty or unparsable; None if there is neither.

        Raises MalformedFile when something is there and none of it can be read.
        """
        for path in (self.path, self.backup):
            found = _read(path)
            if found is not None:
                return found
        for path in (self.path, self.backup):
            if path.exists() and path.stat().st_size:
                raise MalformedFile(str(path), "it holds no JSON object, and there is no other generation of it")
        return None

    def save(self, content: dict[str, Any]) -> None:
        """Writes `content` durably; the generation before becomes `.bak`. At every moment one of both can be read.

        Raises StoreNotWritable, SyncFailed.
        """
        staged = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        write_new(staged, (json.dumps(content, indent="\t", sort_keys=True, ensure_ascii=False) + "\n").encode())
        if _read(self.path) is not None:  # a torn file must not push the last good one out of `.bak`
            self.path.replace(self.backup)
        staged.replace(self.path)
        sync_directory(self.path.parent)


def _read(path: Path) -> dict[str, Any] | None:
    """None for a file that is missing, empty or holds no JSON object."""
    try:
        return loads_fastjson(path.read_text(encoding="utf-8"), str(path))
    except (FileNotFoundError, UnicodeDecodeError, MalformedFile):
        return None
