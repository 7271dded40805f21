"""A JSON file of `config/` with its previous generation beside it as `.bak` (spec 1.3)."""

import json
import os
import re
from pathlib import Path
from typing import Any, Final

from towline.errors import MalformedFile

from .segment_files import sync_directory
from .store_files import write_new

# A string literal, or an integer key that fastjson wrote without quotes. Looking for both leaves text in strings alone.
_STRING_OR_BARE_KEY: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=[{,\s])(-?\d+)(?=\s*:)')


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


def parse_fastjson(text: str) -> Any:
    """JSON in which integer keys may stand without quotes, as RocketMQ writes it. Raises ValueError."""
    return json.loads(_STRING_OR_BARE_KEY.sub(lambda found: f'"{found[1]}"' if found[1] else found[0], text))


def _read(path: Path) -> dict[str, Any] | None:
    """None for a file that is missing, empty or holds no JSON object."""
    try:
        found = parse_fastjson(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None
