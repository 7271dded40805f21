"""System calls on mapped memory (`Pages` begin on a page), made without the GIL.

Through ctypes, because those of Python's mmap keep the interpreter to themselves while they last: a thread that answers
clients would stand still with the one that populates (H6). The array that is handed over keeps the mapping in place.
"""

import ctypes
import os
import resource
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.limits import PAGE

Pages = npt.NDArray[np.uint8]
POPULATE_WRITE: Final = 23  # Linux 5.14; Python 3.11 does not name it
_MS_SYNC: Final = 4

_libc = ctypes.CDLL(None, use_errno=True)
for _name, _types in {
    "madvise": [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int],
    "mincore": [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p],
    "msync": [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int],
    "mlock": [ctypes.c_void_p, ctypes.c_size_t],
    "munlock": [ctypes.c_void_p, ctypes.c_size_t],
}.items():
    getattr(_libc, _name).argtypes = _types
    getattr(_libc, _name).restype = ctypes.c_int


def madvise(pages: Pages, advice: int) -> None:
    """Raises OSError."""
    _checked(_libc.madvise(pages.ctypes.data, pages.size, advice))


def sync(pages: Pages) -> None:
    """Writes what is dirty of them, and returns when it is on the disk. Raises OSError."""
    _checked(_libc.msync(pages.ctypes.data, pages.size, _MS_SYNC))


def resident_pages(pages: Pages) -> int:
    """How many of them are in the page cache, mapped here or not. Raises OSError."""
    found = np.zeros(-(-pages.size // PAGE), dtype=np.uint8)
    _checked(_libc.mincore(pages.ctypes.data, pages.size, found.ctypes.data))
    return int(np.count_nonzero(found & 1))


def lock(pages: Pages) -> None:
    """Brings them into memory and keeps them there while the mapping lives. Raises OSError beyond the limit."""
    _checked(_libc.mlock(pages.ctypes.data, pages.size))


def raise_lock_limit() -> None:
    """As many bytes may be locked as this process may allow itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))


def unlock(pages: Pages) -> None:
    """Raises OSError."""
    _checked(_libc.munlock(pages.ctypes.data, pages.size))


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
