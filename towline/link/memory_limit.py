"""The memory of a process with sockets: libzmq buffers unfinished messages without limit (H21).

libzmq allocates each message that it receives, and glibc returns freed memory to the system almost at once: a process
that receives frames of a megabyte then pays for a page fault, and a zeroed page, with every 4 KiB.
"""

import ctypes
import errno
import os
from functools import cache
from typing import ClassVar, Final

from towline.limits import MIB

# Of accept(): the machine, or this process, has no descriptor or memory for who waits.
NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_STATUS: Final = "/proc/self/status"
_STATUS_MAX: Final = 16_384  # bytes; it has some 1,500
_LIBC: Final = ctypes.CDLL(None)
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_KEPT: Final = 64 * MIB  # twice what may be on its way to a slave
_FROM_HEAP: Final = 32 * MIB  # the most that glibc takes for this


def anonymous_bytes() -> int:
    """Anonymous memory of this process: buffers of libzmq count, mapped files do not."""
    for line in os.pread(_status_of(os.getpid()), _STATUS_MAX, 0).splitlines():
        if line.startswith(b"RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} names no RssAnon")


@cache
def _status_of(pid: int) -> int:
    """The file of the process `pid`, which is this one and not the one that it was forked from. It stays open: who may
    open no file any more goes on looking."""
    return os.open(_STATUS, os.O_RDONLY | os.O_CLOEXEC)


def trim_memory() -> None:
    """Returns freed memory to the system; glibc alone keeps most of a flood of small frames in its arenas."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


class FreedMemory:
    """The policy of freed memory. A process of a node calls `keep` once; a client's process is not ours to change."""

    _kept: ClassVar[bool] = False

    @classmethod
    def keep(cls) -> None:
        """Keeps freed memory for reuse until a `Poller` is idle. Before the first thread starts."""
        if hasattr(_LIBC, "mallopt"):
            _LIBC.mallopt(_M_ARENA_MAX, 1)  # malloc_trim gives back the end of the first one alone
            _LIBC.mallopt(_M_MMAP_THRESHOLD, _FROM_HEAP)
            _LIBC.mallopt(_M_TRIM_THRESHOLD, _KEPT)
            cls._kept = True

    @classmethod
    def release(cls) -> None:
        if cls._kept:
            trim_memory()
