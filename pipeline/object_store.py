"""Results of jobs below a prefix of an object store: S3, GCS, HDFS and Azure by Arrow's file systems, others by fsspec.

An object appears whole, and is there for good, once its write has ended; nothing can be appended to, and nothing is
locked. So a task writes on its own disk, sends what it has checked to the run's staging and reads it back; a move is a
copy within the store. The lock is a `Lease`.
"""

import os
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from towline.limits import MIB

from .errors import IllegalLocation, LocationFailed, LocationLost, NotVerified, ScratchNotSeen
from .lease import Lease
from .scratch import STAGING

AT_ONCE: Final = 8  # requests to the store
_PIECE: Final = 4 * MIB
_SAID_MAX: Final = 300  # characters of what a library says
# File systems in which a directory has to be made before anything is written to it; elsewhere it is a part of a name.
_WITH_DIRECTORIES: Final = ("hdfs", "local", "py::fsspec+local", "py::fsspec+file")


@contextmanager
def _asked(text: str) -> Iterator[None]:
    """Gives what the store or its library says a name. FileNotFoundError passes."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except (OSError, pa.ArrowException, ValueError) as error:
        raise LocationFailed(text, _first_line(error)) from None


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0][:_SAID_MAX] or type(error).__name__


@lru_cache
def file_system(text: str) -> tuple[pafs.FileSystem, str]:
    """The file system, and the path in it. Raises IllegalLocation."""
    if urlsplit(text).password is not None:
        raise IllegalLocation(
            text.replace(str(urlsplit(text).password), "..."), "it has a password, which others would see"
        )
    try:
        found, path = pafs.FileSystem.from_uri(text)
    except pa.ArrowInvalid as error:
        if "Unrecognized filesystem type" not in str(error):
            raise IllegalLocation(text, _first_line(error)) from None
        found, path = _by_fsspec(text)
    except OSError as error:
        raise LocationFailed(text, _first_line(error)) from None
    return found, path.rstrip("/")


def _by_fsspec(text: str) -> tuple[pafs.FileSystem, str]:
    scheme = urlsplit(text).scheme
    try:
        found, path = import_module("fsspec.core").url_to_fs(text)
    except ImportError as error:
        problem = f"Arrow knows no {scheme}://, and fsspec, or what it needs for it, is not installed: {error}"
        raise IllegalLocation(text, problem) from None
    except ValueError as error:
        raise IllegalLocation(text, f"neither Arrow nor fsspec knows {scheme}://: {_first_line(error)}") from None
    return pafs.PyFileSystem(pafs.FSSpecHandler(found)), path


@dataclass(frozen=True, slots=True)
class Prefix:
    """Objects by their names below a prefix: what tasks and the driver ask of a store."""

    text: str

    @property
    def files(self) -> pafs.FileSystem:
        return file_system(self.text)[0]

    def path(self, name: str) -> str:
        return f"{file_system(self.text)[1]}/{name}"

    def read(self, name: str) -> bytes | None:
        with _asked(f"{self.text}/{name}"):
            try:
                with self.files.open_input_stream(self.path(name)) as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        with _asked(f"{self.text}/{name}"):
            self._make_parents(name)
            with self.files.open_output_stream(self.path(name)) as file:
                file.write(content)

    def send(self, path: Path, name: str) -> None:
        """The bytes of a file of this machine."""
        with _asked(f"{self.text}/{name}"):
            self._make_parents(name)
            with path.open("rb") as source, self.files.open_output_stream(self.path(name)) as file:
                while piece := source.read(_PIECE):
                    file.write(piece)

    def crc(self, name: str) -> int:
        """CRC-32 of an object, as the store gives it back. Raises FileNotFoundError."""
        crc = 0
        with _asked(f"{self.text}/{name}"), self.files.open_input_stream(self.path(name)) as file:
            while piece := file.read(_PIECE):
                crc = zlib.crc32(piece, crc)
        return crc

    def move(self, name: str, to: str) -> None:
        """Raises FileNotFoundError."""
        with _asked(f"{self.text}/{to}"):
            self._make_parents(to)
            self.files.move(self.path(name), self.path(to))

    def remove(self, name: str) -> None:
        """One that has gone is no error."""
        with _asked(f"{self.text}/{name}"), suppress(FileNotFoundError):
            self.files.delete_file(self.path(name))

    def is_there(self, name: str) -> bool:
        with _asked(f"{self.text}/{name}"):
            return bool(self.files.get_file_info(self.path(name)).type == pafs.FileType.File)

    def infos(self, below: str, *, recursive: bool) -> list[tuple[str, pafs.FileInfo]]:
        """(name, facts) of what stands there, sorted."""
        root = file_system(self.text)[1]
        chosen = pafs.FileSelector(f"{root}/{below}".rstrip("/"), allow_not_found=True, recursive=recursive)
        with _asked(self.text):
            found = self.files.get_file_info(chosen)
        return sorted(((each.path.removeprefix(root).lstrip("/"), each) for each in found), key=lambda each: each[0])

    def remove_directory(self, name: str) -> None:
        with _asked(f"{self.text}/{name}"), suppress(FileNotFoundError):
            self.files.delete_dir(self.path(name))

    def _make_parents(self, name: str) -> None:
        if self.files.type_name in _WITH_DIRECTORIES:
            self.files.create_dir(self.path(str(PurePosixPath(name).parent)), recursive=True)


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
            raise NotVerified(f"{staging.text}/{name}", path.stat().st_size, -1)
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
