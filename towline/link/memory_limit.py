"""The memory of a process with sockets: libzmq buffers unfinished messages without limit (H21).

libzmq allocates each message that it receives, and glibc returns freed memory to the system almost at once: a process
that receives frames of a megabyte then pays for a page fault, and a zeroed page, with every 4 KiB.
"""

import ctypes
from pathlib import Path
from typing import ClassVar, Final

from towline.limits import MIB

_STATUS: Final = Path("/proc/self/status")
_LIBC: Final = ctypes.CDLL(None)
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_KEPT: Final = 64 * MIB  # twice what may be on its way to a slave
_FROM_HEAP: Final = 32 * MIB  # the most that glibc takes for this


def anonymous_bytes() -> int:
    """Anonymous memory of this process: buffers of libzmq count, mapped files do not."""
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} names no RssAnon")


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
