"""The node's log files, read directly by another process on the same machine: only the records' places cross the
socket.

The node names places of records that it would have sent, so no reader sees unconfirmed bytes (H24), and those bytes
never change. A file that is deleted meanwhile is read to its end. Device and inode show that a file is the node's.
"""

import ctypes
import logging
import os
import socket
import weakref
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from towline.clock import boot_id
from towline.errors import MalformedFrame
from towline.format.wire.frames import STRETCH, Buffer, expect
from towline.limits import FRAME_SIZE_MAX, KIB

from .endpoints import parse
from .unclosed import on_drop

OPEN_MAX: Final = 4
STRETCH_MIN: Final = 64 * KIB  # fewer bytes are sent sooner than their reader has read them by itself

log = logging.getLogger(__name__)
_CACHESTAT: Final = 451  # Linux 6.5: number of the system call on every processor


class FileRegion:
    """Bytes of a log file that a socket sends straight from the page cache. It has a descriptor of its own, until it is
    sent or closed."""

    def __init__(self, descriptor: int, at: int, size: int) -> None:
        self._descriptor, self._at, self._size = os.dup(descriptor), at, size
        self.close = weakref.finalize(self, os.close, self._descriptor)

    def __len__(self) -> int:
        return self._size

    def send(self, sock: socket.socket) -> int:
        """Sends what the socket takes; how many bytes that is. Raises OSError, BlockingIOError where it takes none."""
        sent = os.sendfile(sock.fileno(), self._descriptor, self._at, self._size)
        if not sent:
            raise OSError("the log's file ends within what is to be sent")
        self._at += sent
        self._size -= sent
        return sent

    def read(self) -> Buffer:
        """All of it, for a socket that sends something else. Raises OSError."""
        found = _read(self._descriptor, self._at, self._size, 0)
        if found is None:
            raise OSError("the log's file ends within what is to be sent")
        return found


_Open = dict[int, tuple[int, tuple[int, int]]]  # by base: descriptor, device and inode


class LogFiles:
    """Log files that are kept open until `close`, which holds their disk space. Used by one thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: _Open = {}
        on_drop(self, _close_all, self._open)

    @classmethod
    def of(cls, endpoint: str, welcome: Mapping[str, Any]) -> Self | None:
        """The files of the node behind `endpoint`; None for another machine, or a node that names no files. What
        answers at a local port may be the end of a tunnel: the machine's boot tells it."""
        directory, to = welcome.get("commitlog"), parse(endpoint)
        if not isinstance(directory, str) or not directory or not to.is_local:
            return None
        return cls(Path(directory)) if to.scheme == "ipc" or _is_of_this_boot(welcome) else None

    def read(self, place: Buffer, *, waits: bool = True) -> Buffer | None:
        """The bytes of a STRETCH, copied; None where they cannot be read, so that the node has to send them, and
        where they are not in memory and this must not wait for the disk.

        Raises MalformedFrame.
        """
        try:
            found = self._find(place)
            return None if found is None else _read(*found, 0 if waits else os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            log.info("the log's files are not read here: %s", error)
            return None

    def region(self, place: Buffer) -> FileRegion | None:
        """The same bytes, for a socket to send them; None where they are not all in memory, or the system does not
        tell. Raises MalformedFrame."""
        try:
            found = self._find(place)
            return FileRegion(*found) if found is not None and _is_cached(*found) else None
        except OSError as error:
            log.info("the log's files are not read here: %s", error)
            return None

    def close(self) -> None:
        """Closes the files; the next `read` opens them again."""
        _close_all(self._open)

    def _find(self, place: Buffer) -> tuple[int, int, int] | None:
        """Descriptor, position, size of a STRETCH; None where its file is not there. Raises MalformedFrame, OSError."""
        device, inode, base, start, size = expect(STRETCH, place)
        if not 0 <= base <= start or not 0 < size <= FRAME_SIZE_MAX:
            raise MalformedFrame(f"{size} bytes at {start} cannot stand in a file that begins at {base}")
        descriptor = self._descriptor(base, (device, inode))
        return None if descriptor is None else (descriptor, start - base, size)

    def _descriptor(self, base: int, identity: tuple[int, int]) -> int | None:
        known = self._open.get(base)
        if known is not None and known[1] == identity:
            return known[0]
        self._close(base)
        path = self._directory / f"{base:020d}"
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != identity:
            os.close(descriptor)
            log.info("the log's files are not read here: %s is not the node's", path)
            return None
        while len(self._open) >= OPEN_MAX:
            self._close(next(iter(self._open)))
        self._open[base] = descriptor, identity
        return descriptor

    def _close(self, base: int) -> None:
        known = self._open.pop(base, None)
        if known is not None:
            os.close(known[0])


def _is_cached(descriptor: int, at: int, size: int) -> bool:
    """Whether all pages of these bytes are in memory; False where the system does not tell."""
    system, page = _system()
    found = (ctypes.c_uint64 * 5)()
    asked = (ctypes.c_uint64 * 2)(at, size)
    if system.syscall(_CACHESTAT, descriptor, ctypes.byref(asked), ctypes.byref(found), 0) != 0:
        return False
    return found[0] == (at + size - 1) // page - at // page + 1


@cache
def _system() -> tuple[ctypes.CDLL, int]:
    """The C library, and bytes of a page: of a node, since a client may run where neither is."""
    return ctypes.CDLL(None), os.sysconf("SC_PAGESIZE")


def _is_of_this_boot(welcome: Mapping[str, Any]) -> bool:
    try:
        return bool(welcome.get("boot") == boot_id())
    except OSError:  # no Linux, where no node is either
        return False


def _close_all(files: _Open) -> None:
    while files:
        os.close(files.popitem()[1][0])


def _read(descriptor: int, at: int, size: int, flags: int) -> Buffer | None:
    target = np.empty(size, dtype=np.uint8).data
    done = 0
    while done < size:
        count = os.preadv(descriptor, [target[done:]], at + done, flags)
        if not count:
            return None
        done += count
    return target
