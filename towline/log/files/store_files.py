"""Small files of the store: atomic replacement, the `abort` file, and what `run/settings.json` says."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from towline.errors import DiskFull, StoreNotWritable, SyncFailed, TowlineError
from towline.format.files import index_file
from towline.log.errors import SaveInDoubt
from towline.places import Store

from .segment_files import FULL_ERRNOS, sync_directory, sync_file

ABORT_NAME: Final = "abort"


def write_new(path: Path, data: bytes) -> None:
    """Writes and syncs a file, not its directory. Raises DiskFull, StoreNotWritable, SyncFailed."""
    try:
        path.write_bytes(data)
    except OSError as error:
        if error.errno in FULL_ERRNOS:
            raise DiskFull(str(path), len(data)) from error
        raise StoreNotWritable(str(path), error.strerror or str(error)) from error
    sync_file(path)


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the file at `path` by one that holds `data`: after a crash it is the old file or the new one, whole.

    Not for a file that somebody has mapped or keeps open. Raises what `stage` and `install` raise.
    """
    install(stage(path, data), path)


def stage(path: Path, data: bytes) -> Path:
    """What is to stand at `path`, written and synced beside it. Raises DiskFull, StoreNotWritable, SyncFailed."""
    staged = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        write_new(staged, data)
    except (DiskFull, StoreNotWritable, SyncFailed):
        staged.unlink(missing_ok=True)  # half a file on a full disk
        raise
    return staged


def install(staged: Path, path: Path) -> None:
    """`staged` becomes `path`, durably, or after an error `path` is what it was.

    Raises SyncFailed, and SaveInDoubt where that cannot be had either.
    """
    before = bytes_of(path)
    staged.replace(path)
    try:
        sync_directory(path.parent)
    except SyncFailed as error:
        restore_previous(path, before, error)
        raise


def restore_previous(path: Path, before: bytes | None, error: Exception) -> None:
    """Writes the previous content of `path` again (None: no file), durably, after an `error`. Raises SaveInDoubt."""
    try:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            stage(path, before).replace(path)
        sync_directory(path.parent)
    except (TowlineError, OSError) as second:
        raise SaveInDoubt(str(path), str(error), str(second)) from error


def bytes_of(path: Path) -> bytes | None:
    """None where there is no file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


class AbortFile:
    """`abort` stands in the store root while a node runs: a start that finds it follows an unclean stop (spec 1.2)."""

    def __init__(self, store: Path) -> None:
        self.path = store / ABORT_NAME

    def create(self, pid: int) -> None:
        """Writes `pid` in decimal digits, durably. Raises DiskFull, StoreNotWritable, SyncFailed."""
        write_new(self.path, str(pid).encode())
        sync_directory(self.path.parent)

    def exists(self) -> bool:
        return self.path.exists()

    def remove(self) -> None:
        """The stop was clean: every record is in its queue (spec 8.3) and everything is synced."""
        self.path.unlink(missing_ok=True)
        sync_directory(self.path.parent)


def last_settings(store: Store) -> dict[str, Any]:
    """Empty without the file, or where a crash or damage left no JSON object in it."""
    try:
        found = json.loads(store.settings.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class IndexShape:
    """The numbers of slots and entries, which no index file holds."""

    slots: int
    indexes: int

    @classmethod
    def of(cls, store: Store) -> "IndexShape":
        """From the settings of the node that last ran on the store, else the defaults."""
        known = last_settings(store)
        slots = int(known.get("max_hash_slot_num", index_file.SLOTS_DEFAULT))
        return cls(slots, int(known.get("max_index_num", index_file.INDEXES_DEFAULT)))
