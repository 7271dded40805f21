"""Results of jobs in a directory that the driver and every executor see under one path."""

import platform
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from towline.errors import StoreTaken
from towline.log.files.segment_files import sync_directory
from towline.log.files.store_files import write_new
from towline.runtime.locks import StoreLock

from .errors import LocationTaken, ScratchNotSeen
from .scratch import STAGING, Scratch, make_scratch

LOCK: Final = "lock"


@dataclass(frozen=True, slots=True)
class DirectoryAttempt:
    directory: Path

    def keep(self, path: Path, crc: int) -> str:
        """The name under which the driver finds it: its directory is synced when the attempt ends."""
        del crc  # was compared with what the disk gave back
        return f"{self.directory.parent.name}/{self.directory.name}/{path.name}"


@dataclass(frozen=True, slots=True)
class DirectoryStaging:
    scratch: Scratch

    @contextmanager
    def attempt(self) -> Iterator[DirectoryAttempt]:
        directory = self.scratch.path / uuid.uuid4().hex
        try:
            directory.mkdir()
            yield DirectoryAttempt(directory)
            sync_directory(directory)
        except FileNotFoundError:
            if directory.is_dir():
                raise
            raise ScratchNotSeen(self.scratch.root, self.scratch.machine) from None


class Directory:
    def __init__(self, path: str | Path) -> None:
        self.root = Path(path).resolve()
        self.text = str(self.root)
        self._scratch: Scratch | None = None

    def entries(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir())

    def files(self, below: str) -> list[str]:
        return sorted(
            path.relative_to(self.root).as_posix() for path in (self.root / below).rglob("*") if path.is_file()
        )

    def read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def open(self, name: str) -> pa.NativeFile:
        return pa.OSFile(str(self.root / name))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self.root / name).unlink()

    @contextmanager
    def held(self) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            lock = StoreLock(self.root / LOCK)
        except StoreTaken as taken:
            raise LocationTaken(self.text, platform.node(), taken.pid, 0) from None
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def staging(self) -> Iterator[DirectoryStaging]:
        self._scratch = make_scratch(self.root, STAGING)
        try:
            yield DirectoryStaging(self._scratch)
        finally:  # what is left of tasks that write yet, the next run removes
            shutil.rmtree(self._scratch.path, ignore_errors=True)

    def move(self, moves: Sequence[tuple[str, str]]) -> None:
        """Each directory is synced once."""
        changed: set[Path] = set()
        for staged, name in moves:
            target = self.root / name
            changed |= _with_parents(target)
            (self.root / staged).replace(target)
        for path in changed:
            sync_directory(path)

    def publish(self, contents: Mapping[str, bytes]) -> None:
        assert self._scratch is not None, "there is no staging"
        changed: set[Path] = set()
        for name, content in contents.items():
            target = self.root / name
            staged = self._scratch.path / f"{STAGING}-{target.name}"
            write_new(staged, content)
            changed |= _with_parents(target)
            target.hardlink_to(staged)
            staged.unlink()
        for path in changed:
            sync_directory(path)


def _with_parents(target: Path) -> set[Path]:
    """Makes the directories that are missing; those that are to be synced once the target is there."""
    changed = {target.parent}
    for parent in reversed([each for each in target.parents if not each.exists()]):
        parent.mkdir()
        changed.add(parent.parent)
    return changed
