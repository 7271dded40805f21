"""A JSON file of `config/` with its previous generation as `.bak`, laid out as RocketMQ does (spec 1.3).

The member `towlineCheck` is a CRC-32 of the others, so that damage that is still JSON is no generation either. A real
broker ignores it and writes the file without.
"""

import os
import zlib
from pathlib import Path
from typing import Any, Final

from towline.errors import MalformedFile
from towline.format.files.fastjson import dumps_fastjson
from towline.format.files.topics import loads_fastjson

from .store_files import install, stage

CHECK: Final = "towlineCheck"
BACKUP: Final = ".bak"
STAGED: Final = ".tmp"
FILTERS: Final = "consumerFilter.json"  # damaged, it is not answered by `.bak`: reput may have gone by others since


def encode(content: dict[str, Any]) -> bytes:
    """The file's bytes: the content and the check."""
    plain = {name: value for name, value in content.items() if name != CHECK}
    return _dumps(plain | {CHECK: check_of(plain)})


def check_of(content: dict[str, Any]) -> str:
    """The check of a content without one: eight hexadecimal digits."""
    return f"{zlib.crc32(_dumps(content)):08x}"


def _dumps(content: dict[str, Any]) -> bytes:
    return dumps_fastjson(content).encode("utf-8", "surrogatepass")


class ConfigFile:
    """One file; only its owner saves, anybody may load."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backup = path.with_name(path.name + BACKUP)
        self.from_backup = False  # the last `load` took the generation before

    def load(self) -> dict[str, Any] | None:
        """The object in the file; from `.bak` when the file is missing, empty or unparsable; None if there is neither.

        Raises MalformedFile when something is there and none of it can be read.
        """
        damage: MalformedFile | None = None
        for path in (self.path, self.backup):
            try:
                found = read_undamaged(path)
            except MalformedFile:
                why = "it holds no JSON object, and there is no other generation of it"
                damage = damage or MalformedFile(str(path), why)
                continue
            self.from_backup = found is not None and path == self.backup
            if found is not None:
                return found
        if damage is not None:
            raise damage
        return None

    def save(self, content: dict[str, Any]) -> None:
        """Writes `content` durably; the generation before becomes `.bak`. At every moment the file can be read.

        After an error the file says what it said. Raises DiskFull, StoreNotWritable, SyncFailed; SaveInDoubt where
        nobody knows which of both it says after a crash.
        """
        self._write(content)

    def _write(self, content: dict[str, Any]) -> dict[str, Any] | None:
        """What the file held before; None if that could not be read."""
        staged = stage(self.path, encode(content))
        before = read_config(self.path)
        if before is not None:  # a torn file must not push the last good one out of `.bak`
            self._keep()
        install(staged, self.path)
        return before

    def _keep(self) -> None:
        """Links the file under the name of its backup too: readers find it at every moment."""
        second = self.path.with_name(f"{self.backup.name}.{os.getpid()}{STAGED}")
        second.unlink(missing_ok=True)
        try:
            second.hardlink_to(self.path)
        except OSError:  # a file system without links, or another user's file
            self.path.replace(self.backup)
            return
        second.replace(self.backup)
        second.unlink(missing_ok=True)  # still there if the backup was this very file, as a crash leaves it


def from_backups(directory: Path) -> list[str]:
    """Names of the files of which `.bak` is what is read now: they are missing, empty or damaged."""
    found = []
    for backup in sorted(directory.glob(f"*.json{BACKUP}")):
        file = backup.with_name(backup.name.removesuffix(BACKUP))
        if file.name == FILTERS and file.exists():
            continue
        if read_config(file) is None and read_config(backup) is not None:
            found.append(file.name)
    return found


def clear_staged(directory: Path) -> list[Path]:
    """Removes staged files of processes that have ended."""
    cleared = []
    for path in directory.glob(f"*{STAGED}"):
        pid = path.name.removesuffix(STAGED).rpartition(".")[2]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            path.unlink(missing_ok=True)
            cleared.append(path)
    return cleared


def read_config(path: Path) -> dict[str, Any] | None:
    """None for a file that is missing, empty, a directory, holds no JSON object, or does not fit its check."""
    try:
        return _parse(path.read_bytes(), path)
    except (FileNotFoundError, IsADirectoryError):
        return None


def read_undamaged(path: Path) -> dict[str, Any] | None:
    """None for a file that is missing, empty or a directory. Raises MalformedFile for one that is torn or damaged.

    One read tells: a file may come between two looks.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return None
    content = _parse(data, path)
    if content is None and data:
        raise MalformedFile(str(path), "it is torn or damaged")
    return content


def _parse(data: bytes, path: Path) -> dict[str, Any] | None:
    try:
        content = loads_fastjson(data.decode("utf-8"), str(path))
    except (UnicodeDecodeError, MalformedFile):
        return None
    found = content.pop(CHECK, None)
    return content if found is None or found == check_of(content) else None
