"""Reads the files of a master's groups."""

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from towline.errors import MalformedFile
from towline.log.files.config_file import ConfigFile, read_undamaged
from towline.node.roles.role_commands import read_json_file

OFFSETS: Final = "consumerOffset.json"
GROUPS: Final = "subscriptionGroup.json"
FILTERS: Final = "consumerFilter.json"
NAMED_MAX: Final = 100

Content = TypeVar("Content")


def load(file: ConfigFile, read: Callable[[dict[str, Any], str], Content], log: logging.Logger) -> Content | None:
    """The file's content, else that of the generation before, which is logged; None if there is neither.

    Raises MalformedFile when a file exists and none can be read.
    """
    problem = None
    for path in (file.path, file.backup):
        try:
            found = _read(path, read)
        except MalformedFile as error:
            problem = problem or error
            continue
        file.from_backup = found is not None and path is file.backup
        if found is not None:
            if file.from_backup:
                log.warning("%s is used: %s", path, problem.describe() if problem else f"there is no {file.path.name}")
            return found
    if problem is not None:
        raise problem
    return None


def backups_of(files: Iterable[ConfigFile], recovery: Path | None = None) -> list[str]:
    """Names of files of which `.bak` was used, also by the start that wrote run/recovery.json."""
    at_start = (read_json_file(recovery) or {}).get("backups", []) if recovery is not None else []
    return sorted(file.path.name for file in files if file.from_backup or file.path.name in at_start)


def clamped_at_start(recovery: Path) -> int:
    """How many group offsets the start clamped to the ends of their queues, from its run/recovery.json (H15)."""
    facts = read_json_file(recovery) or {}
    return int(facts.get("clamped", {}).get(OFFSETS, 0))


def log_left_out(file: ConfigFile, left_out: Sequence[str], log: logging.Logger) -> None:
    """Logs unreadable entries: the next save drops them, so the log is where they can be found."""
    if left_out:
        named = "; ".join(left_out[:NAMED_MAX]) + ("; ..." if len(left_out) > NAMED_MAX else "")
        log.warning("%s: %d entries are left out, and of the next save too: %s", file.path, len(left_out), named)


def _read(path: Path, read: Callable[[dict[str, Any], str], Content]) -> Content | None:
    """None for a file that is missing or empty. Raises MalformedFile."""
    content = read_undamaged(path)
    return None if content is None else read(content, str(path))
