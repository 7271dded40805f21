"""How much memory a process with sockets holds: libzmq buffers unfinished messages without limit (H21).

libzmq allocates each message that it receives, and glibc hands what is freed back to the system almost at once: a
process that takes frames of a megabyte then pays for a page fault, and a zeroed page, with every 4 KiB that it gets.
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
    """Memory of this process that stands for no file: buffers of libzmq are in it, mapped segments are not."""
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} names no RssAnon")


def give_back() -> None:
    """What was freed goes back to the system; glibc alone keeps most of a flood of small frames in its arenas."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


class Freed:
    """What becomes of freed memory. A process of a node says `keep` once; a client's is not ours to change."""

    _kept: ClassVar[bool] = False

    @classmethod
    def keep(cls) -> None:
        """It is used again for what comes next, until a `Poller` is at `rest`. Before the first thread begins."""
        if hasattr(_LIBC, "mallopt"):
            _LIBC.mallopt(_M_ARENA_MAX, 1)  # malloc_trim gives back the end of the first one alone
            _LIBC.mallopt(_M_MMAP_THRESHOLD, _FROM_HEAP)
            _LIBC.mallopt(_M_TRIM_THRESHOLD, _KEPT)
            cls._kept = True

    @classmethod
    def rest(cls) -> None:
        if cls._kept:
            give_back()
