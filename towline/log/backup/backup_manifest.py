"""`backup.json` of a backup: what it holds, of which log, and a CRC-32 of every file.

A backup directory holds `commitlog/` as a store does, of the last segment the bytes before `end`, and `meta-N/`, the
small files as they were at the backup of number N. The manifest is written last, so at any moment what it names is
whole; `unfinished.json` is one of the segments that a backup which was broken off has copied behind that.
"""

import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from towline.errors import MalformedFile
from towline.format.files.epochs import Epochs, checked
from towline.log.errors import ManifestLost
from towline.log.files.config_file import ConfigFile
from towline.log.files.segment_files import segment_name

FORMAT: Final = 1
COMMITLOG: Final = "commitlog"
META: Final = "meta-"


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A file below the backup's directory. `crc` covers its first `size` bytes; behind them nothing counts.

    `mtime_ns` is when the backup wrote it: as long as that stands it is not read again by the next one.
    """

    name: str
    size: int
    crc: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Log offsets: the backup holds [start, end) of the log. `number` counts the backups into this directory."""

    number: int
    node: int
    broker_name: str
    role: str
    store_id: str
    cluster: str
    epochs: Epochs
    segment_size: int
    start: int
    end: int
    time_ms: int
    version: str
    segments: tuple[BackupFile, ...] = ()
    small: tuple[BackupFile, ...] = ()  # below meta-N/, named with it
    format: int = FORMAT

    @property
    def meta(self) -> str:
        return f"{META}{self.number}"

    @property
    def bytes(self) -> int:
        return sum(kept.size for kept in self.segments)

    def segment(self, base: int) -> BackupFile | None:
        name = f"{COMMITLOG}/{segment_name(base)}"
        return next((kept for kept in self.segments if kept.name == name), None)

    @classmethod
    def of(cls, content: dict[str, Any], path: str) -> Self:
        """Raises ManifestLost."""
        try:
            if content["format"] != FORMAT:
                raise ManifestLost(path, f"its format is {content['format']}, this program reads {FORMAT}")
            files = {part: tuple(BackupFile(**row) for row in content[part]) for part in ("segments", "small")}
            return cls(**(content | files | {"epochs": checked(content["epochs"])}))
        except (KeyError, TypeError, ValueError) as error:
            raise ManifestLost(path, f"it is no manifest of a backup: {error!r}") from None


class BackupDirectory:
    """Where a backup stands, and its two manifests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.manifest = root / "backup.json"
        self.unfinished = root / "unfinished.json"

    @property
    def commitlog(self) -> Path:
        return self.root / COMMITLOG

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    def path_of(self, kept: BackupFile) -> Path:
        return self.root / kept.name

    def load(self) -> Manifest | None:
        """None where no backup was ever finished. Raises ManifestLost."""
        return _load(self.manifest)

    def load_unfinished(self) -> Manifest | None:
        """Raises ManifestLost."""
        return _load(self.unfinished)

    def save(self, manifest: Manifest) -> None:
        """The backup is done: from now on it is this one. Raises DiskFull, SyncFailed, StoreNotWritable."""
        ConfigFile(self.manifest).save(asdict(manifest))
        self.forget_unfinished()
        for path in self.root.glob(f"{META}*"):
            if path.name != manifest.meta:
                shutil.rmtree(path)

    def save_unfinished(self, manifest: Manifest) -> None:
        """The segments so far need not be copied again."""
        ConfigFile(self.unfinished).save(asdict(manifest))

    def forget_unfinished(self) -> None:
        self.unfinished.unlink(missing_ok=True)
        ConfigFile(self.unfinished).backup.unlink(missing_ok=True)


def stamped(path: Path, kept: BackupFile) -> BackupFile:
    """With the time of change that the file has now."""
    return replace(kept, mtime_ns=path.stat().st_mtime_ns)


def is_untouched(path: Path, kept: BackupFile, length: int) -> bool:
    """Whether the file is there, `length` bytes long, and was not written since."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return (found.st_size, found.st_mtime_ns) == (length, kept.mtime_ns)


def base_of(kept: BackupFile) -> int:
    """Of a segment: the log offset of its first byte."""
    return int(Path(kept.name).name)


def total(files: Iterable[BackupFile]) -> int:
    return sum(kept.size for kept in files)


def _load(path: Path) -> Manifest | None:
    try:
        content = ConfigFile(path).load()
    except MalformedFile as error:
        raise ManifestLost(error.path, error.problem) from error
    return None if content is None else Manifest.of(content, str(path))
