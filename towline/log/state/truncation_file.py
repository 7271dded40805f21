"""Truncations of a log: the one to do in `ha/truncate.json`, those done as manifests in `diverged/` (H17)."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from towline.errors import MalformedFile
from towline.format.files.epochs import Epochs, checked, end_of
from towline.log.errors import TruncationLost
from towline.log.files.config_file import ConfigFile
from towline.log.files.segment_files import make_directory, sync_directory
from towline.places import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """The log [point, end) of `node`, written in `epoch` and later, is not that of the node `master`.

    `time` is when that was found out, in epoch ms; `accept_loss` the operator's consent to lose confirmed bytes.
    """

    point: int
    end: int
    epoch: int
    node: int
    master: int
    why: str
    time: int
    accept_loss: bool = False


@dataclass(frozen=True, slots=True)
class KeptTail:
    """A tail that was cut off, as its manifest in diverged/ says. `files` are the copies: (name, start, end)."""

    path: Path
    cut: Truncation
    epochs: Epochs
    files: tuple[tuple[str, int, int], ...]

    @property
    def size(self) -> int:
        return sum(end - start for _, start, end in self.files)


class TruncationFile:
    """`ha/truncate.json`: the receiver saves it, recovery removes it."""

    def __init__(self, store: Store) -> None:
        self.path = store.truncate
        self._file = ConfigFile(self.path)
        self._store = store

    def load(self) -> Truncation | None:
        """Raises TruncationLost."""
        try:
            return _truncation(self._file.load() or {}, self.path) if self.path.exists() else None
        except MalformedFile as error:
            raise TruncationLost(error.path, error.problem) from error

    def save(self, wanted: Truncation) -> None:
        """Writes the file durably. Raises StoreNotWritable, SyncFailed, DiskFull."""
        make_directory(self.path.parent)
        self._file.save(asdict(wanted))

    def remove(self) -> None:
        """Removes the file once the truncation is done, and the operator's consent with it."""
        take_back_word(self._store)
        for path in (self._file.backup, self.path):
            path.unlink(missing_ok=True)
        sync_directory(self.path.parent)


def take_back_word(store: Store) -> bool:
    """Removes the operator's consent to lose confirmed bytes: it covers no later truncation. Whether there was one.

    Raises SyncFailed.
    """
    if not store.accept_loss.exists():
        return False
    store.accept_loss.unlink(missing_ok=True)
    sync_directory(store.ha)
    return True


def read_kept(path: Path) -> KeptTail:
    """The tail of the manifest at `path`. Raises MalformedFile."""
    content = ConfigFile(path).load() or {}
    wanted = _truncation(content, path)
    try:
        epochs = checked(content["epochs"])
        files = tuple((str(name), int(start), int(end)) for name, start, end in content["files"])
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedFile(str(path), f"it does not say what was kept: {error}") from None
    return KeptTail(path, wanted, epochs, files)


def kept_tails(store: Store) -> list[KeptTail]:
    """Every tail that was cut off and is still in diverged/, in the order of time. Raises MalformedFile."""
    found = [read_kept(path) for path in store.diverged.glob("*.json")] if store.diverged.is_dir() else []
    return sorted(found, key=lambda kept: (kept.cut.time, kept.cut.point))


def epochs_of(kept: KeptTail) -> list[tuple[int, int, int]]:
    """(epoch, start, end) of the parts of a tail."""
    point, end = kept.cut.point, kept.cut.end
    parts = [(one.number, max(one.start, point), end_of(kept.epochs, one.number, end)) for one in kept.epochs]
    return [part for part in parts if part[1] < part[2]]


def _truncation(content: dict[str, Any], path: Path) -> Truncation:
    try:
        found = Truncation(**{field.name: content[field.name] for field in fields(Truncation)})
    except KeyError as error:
        raise MalformedFile(str(path), f"it has no member {error}") from None
    numbers = (found.point, found.end, found.epoch, found.node, found.master, found.time)
    if any(type(number) is not int for number in numbers) or not 0 <= found.point <= found.end:
        raise MalformedFile(str(path), "it names no part of the log")
    return found
