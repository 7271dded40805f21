"""Objects below a prefix of an object store, by their names: what tasks and the driver ask of it."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from towline.limits import MIB

from .errors import IllegalLocation, LocationFailed

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
    """The file system, and the path in it. Raises IllegalLocation, LocationFailed."""
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
