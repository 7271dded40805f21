"""Locks of owners: the store's POSIX lock and one lock per duty (H8).

The store lock is what a real RocketMQ broker takes (spec 1.2): a record lock on byte 0 of `lock`. Such a lock is freed
when the process closes *any* descriptor of the file, and a forked child does not inherit it, so `lock` is opened here
and nowhere else. A duty's lock is an flock held until its process has gone.
"""

import fcntl
import os
import struct
from pathlib import Path

from towline.errors import DutyTaken, StoreNotWritable, StoreTaken

from .process import is_of_node


class StoreLock:
    """Held by the supervisor for the life of a node."""

    def __init__(self, path: Path) -> None:
        """Raises StoreTaken with the holder's pid, StoreNotWritable."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreNotWritable(str(path.parent), error.strerror or str(error)) from None
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError:
            holder = _record_lock_holder(self._fd)
            os.close(self._fd)
            raise StoreTaken(str(path.parent), holder, is_of_node(holder)) from None
        os.pwrite(self._fd, b"lock", 0)
        os.fsync(self._fd)

    def release(self) -> None:
        os.close(self._fd)


def store_holder(path: Path) -> int:
    """Pid of the process that holds a store's `lock`, 0 when nobody does, or nobody who can be seen from here.

    Never call it in the holder: see above.
    """
    return _looked_at(path)[1]


def store_is_held(path: Path) -> bool:
    """Whether anybody holds it, in another container too, where its pid means nothing. Never call it in the holder."""
    return _looked_at(path)[0]


def _looked_at(path: Path) -> tuple[bool, int]:
    if not path.exists():
        return False, 0
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _record_lock(fd)
    finally:
        os.close(fd)


def _record_lock_holder(fd: int) -> int:
    """The pid that F_GETLK names, 0 when the lock has gone meanwhile."""
    return _record_lock(fd)[1]


def _record_lock(fd: int) -> tuple[bool, int]:
    """Whether somebody holds it, and whose pid F_GETLK names: 0 for one outside of our namespace."""
    form = "hhqqi4x"
    wanted = struct.pack(form, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    kind, _, _, _, pid = struct.unpack(form, fcntl.fcntl(fd, fcntl.F_GETLK, wanted))
    held = kind != fcntl.F_UNLCK
    return held, max(0, int(pid)) if held else 0


class DutyLock:
    """One process per duty; the file holds the owner's pid. Kept until the process ends, whatever ends it."""

    def __init__(self, path: Path, duty: str) -> None:
        """Raises DutyTaken naming the owner's pid."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = int(os.pread(self._fd, 20, 0).strip() or b"0")
            os.close(self._fd)
            raise DutyTaken(duty, pid, str(path)) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)


def holder_of(path: Path) -> int:
    """Pid of the process that holds a duty lock, 0 when it is free."""
    if not path.exists():
        return 0
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return int(os.pread(fd, 20, 0).strip() or b"0")
    finally:
        os.close(fd)
    return 0
