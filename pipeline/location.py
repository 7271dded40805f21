"""Where the results of jobs stand: a directory, or a prefix of an object store such as `s3://bucket/archive`.

Both take results the same way (docs/decisions/0078). Tasks write in the run's staging; the driver, which holds the
location's lock, moves what counts to its name and then publishes what says that it is there. Names are those below the
location, with slashes.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

from .directory import Directory
from .object_store import ObjectStore

_URI: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")


class Attempt(Protocol):
    """One attempt of a task to write its files."""

    @property
    def directory(self) -> Path:
        """On the machine of the task; empty at first."""
        ...

    def keep(self, path: Path, crc: int) -> str:
        """Keeps a file of the directory that was synced and checked, and has this CRC-32; its name in the location.

        Raises OtherBytes, ScratchNotSeen where the run is over, LocationFailed.
        """
        ...


class Staging(Protocol):
    """Of one run, as it is sent to tasks."""

    def attempt(self) -> AbstractContextManager[Attempt]:
        """Raises ScratchNotSeen where the run is over, or this machine does not see its directory."""
        ...


class Location(Protocol):
    """As the driver has it. Raises LocationFailed where the store does not answer as it should."""

    text: str  # as it is named in sentences, reports and to tasks

    def entries(self) -> list[str]:
        """What stands directly in it, sorted."""
        ...

    def files(self, below: str) -> list[str]:
        """Names of the files in a directory of it and in those below, sorted."""
        ...

    def read(self, name: str) -> bytes | None:
        """None where there is no such file."""
        ...

    def open(self, name: str) -> Any:
        """A file that Arrow reads. Raises OSError."""
        ...

    def remove(self, names: Iterable[str]) -> None: ...

    def held(self) -> AbstractContextManager[None]:
        """Holds its lock; makes a directory that is not there. Raises LocationTaken while another job writes there."""
        ...

    def staging(self) -> AbstractContextManager[Staging]:
        """A new one, whose rest is removed at the end; what killed runs left is removed now. The lock is held."""
        ...

    def move(self, moves: Sequence[tuple[str, str]]) -> None:
        """Moves kept files to their names, durably; what stood there is replaced. Raises LocationLost."""
        ...

    def publish(self, contents: Mapping[str, bytes]) -> None:
        """Makes each file appear whole, and all of them durable; one that is there is never replaced.

        The staging is there. Raises FileExistsError, DiskFull, StoreNotWritable, SyncFailed, LocationLost.
        """
        ...


def is_uri(text: str) -> bool:
    """Whether it names an object store, and not a path."""
    return _URI.match(text) is not None


def location(text: str) -> Location:
    """Of an object store Arrow may ask for the bucket's region. Raises IllegalLocation, LocationFailed."""
    return ObjectStore(text) if is_uri(text) else Directory(text)
