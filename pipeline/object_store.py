"""Results of jobs below a prefix of an object store: S3, GCS, HDFS and Azure by Arrow's file systems, others by fsspec.

An object appears whole, and is there for good, once its write has ended; nothing can be appended to, and nothing is
locked. So a task writes on its own disk, sends what it has checked to the run's staging and reads it back; a move is a
copy within the store. The lock is a `Lease`.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.fs as pafs

from .errors import IllegalLocation, LocationLost, OtherBytes, ScratchNotSeen
from .lease import Lease
from .objects import Prefix, file_system
from .scratch import STAGING

AT_ONCE: Final = 8  # requests to the store


@dataclass(frozen=True, slots=True)
class ObjectAttempt:
    directory: Path
    staging: "ObjectStaging"

    def keep(self, path: Path, crc: int) -> str:
        """Sends it, reads it back, and removes it here."""
        staging = self.staging
        prefix, name = Prefix(staging.text), f"{staging.name}/{uuid.uuid4().hex}"
        if not prefix.is_there(staging.mark):
            raise ScratchNotSeen(staging.text, os.uname().nodename)
        prefix.send(path, name)
        if prefix.crc(name) != crc:
            raise OtherBytes(f"{staging.text}/{name}")
        path.unlink()
        return name


@dataclass(frozen=True, slots=True)
class ObjectStaging:
    text: str
    name: str

    @property
    def mark(self) -> str:
        """An object that is there as long as the run is."""
        return f"{self.name}/run"

    @contextmanager
    def attempt(self) -> Iterator[ObjectAttempt]:
        directory = Path(tempfile.mkdtemp(prefix="towline-"))
        try:
            yield ObjectAttempt(directory, self)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


class ObjectStore:
    def __init__(self, text: str) -> None:
        self.text = text.rstrip("/")
        if not file_system(self.text)[1]:
            raise IllegalLocation(text, "it names no bucket")
        self._prefix = Prefix(self.text)
        self._lease: Lease | None = None
        self._staging: ObjectStaging | None = None

    def entries(self) -> list[str]:
        return [name for name, _ in self._prefix.infos("", recursive=False) if not self._is_lease(name)]

    def files(self, below: str) -> list[str]:
        found = self._prefix.infos(below, recursive=True)
        return [name for name, facts in found if facts.type == pafs.FileType.File]

    def read(self, name: str) -> bytes | None:
        return self._prefix.read(name)

    def open(self, name: str) -> Any:
        return self._prefix.files.open_input_file(self._prefix.path(name))

    def remove(self, names: Iterable[str]) -> None:
        self._each(self._prefix.remove, [(name,) for name in names])

    @contextmanager
    def held(self) -> Iterator[None]:
        with Lease.held(self._prefix) as self._lease:
            yield

    @contextmanager
    def staging(self) -> Iterator[ObjectStaging]:
        for name in self.entries():
            if name.startswith(STAGING):
                self._prefix.remove_directory(name)
        staging = self._staging = ObjectStaging(self.text, f"{STAGING}-{uuid.uuid4().hex}")
        self._prefix.write(staging.mark, b"")
        try:
            yield staging
        finally:
            self._prefix.remove(staging.mark)
            self._prefix.remove_directory(staging.name)

    def move(self, moves: Sequence[tuple[str, str]]) -> None:
        self._check_lease()
        self._each(self._prefix.move, moves)

    def publish(self, contents: Mapping[str, bytes]) -> None:
        assert self._staging is not None, "there is no staging"
        staging = self._staging
        self._check_lease()
        for name in contents:
            if self._prefix.is_there(name):
                raise FileExistsError(f"{self.text}/{name}")

        def publish(name: str, content: bytes) -> None:
            staged = f"{staging.name}/{uuid.uuid4().hex}"
            self._prefix.write(staged, content)
            self._prefix.move(staged, name)

        self._each(publish, list(contents.items()))

    def _check_lease(self) -> None:
        if self._lease is None or not self._lease.stands():
            raise LocationLost(self.text)

    @staticmethod
    def _each(work: Any, rows: Sequence[tuple[Any, ...]]) -> None:
        """Some at once: each is a few round trips."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(lambda row: work(*row), rows):
                pass

    @staticmethod
    def _is_lease(name: str) -> bool:
        return name.startswith(Lease.NAME)
