"""A directory beside what it replaces, in which tasks of one run write, and the fence that keeps late ones out.

Spark may run a task twice, and one that it gave up may still write. So every attempt holds a shared lock while it
writes, and begins only while the run's token stands in the lock's file. Whoever takes the results away clears the token
and takes the lock for itself: after that nobody writes, and nobody begins.
"""

import fcntl
import os
import platform
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .errors import AttemptsGoOn, ScratchNotSeen

STAGING: Final = ".staging"  # how the scratch of a job in its location begins
_LOCK: Final = "attempts"
_TOKEN_MAX: Final = 64
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Scratch:
    """As it is sent to tasks. `machine` is the driver's, whose last sync covers what is written on it."""

    root: str
    token: str
    machine: str

    @property
    def path(self) -> Path:
        return Path(self.root)

    @contextmanager
    def attempt(self) -> Iterator[Path]:
        """An empty directory of a task's own, removed afterwards; nobody takes results away meanwhile.

        Raises ScratchNotSeen where the token does not stand: the run is over, or this machine sees another file system.
        """
        try:
            fd = os.open(self.path / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ScratchNotSeen(self.root, platform.node()) from None
        own = self.path / f"attempt-{uuid.uuid4().hex}"
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
            if os.pread(fd, _TOKEN_MAX, 0) != self.token.encode():
                raise ScratchNotSeen(self.root, platform.node())
            own.mkdir()
            yield own
        finally:
            shutil.rmtree(own, ignore_errors=True)
            os.close(fd)

    @property
    def elsewhere(self) -> bool:
        """Whether this is another machine than the driver's: then a task syncs what it wrote."""
        return platform.node() != self.machine


def make_scratch(parent: Path, name: str) -> Scratch:
    """`parent/name-<token>`. What runs that were killed left under this name is removed. The store's lock is held."""
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{name}-*"):
        shutil.rmtree(left, ignore_errors=True)
    token = uuid.uuid4().hex
    root = parent / f"{name}-{token}"
    root.mkdir()
    (root / _LOCK).write_text(token, encoding="ascii")
    return Scratch(str(root), token, platform.node())


def fence(scratch: Scratch, seconds: float) -> None:
    """Returns when no attempt writes any more; none begins after it. Raises AttemptsGoOn after so long a time."""
    fd = os.open(scratch.path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    deadline = time.monotonic() + seconds
    try:
        os.ftruncate(fd, 0)
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise AttemptsGoOn(scratch.root, seconds) from None
            time.sleep(_POLL_S)
    finally:
        os.close(fd)
