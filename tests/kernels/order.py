"""In which order a kernel stores to two blocks of memory: the store to the second ends the process that makes it."""

import ctypes
import faulthandler
import mmap
import os
import signal
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

_LIBC = ctypes.CDLL(None, use_errno=True)


def shared(size: int) -> npt.NDArray[np.uint8]:
    """Zeroes that a forked process stores to as well."""
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


def dies_of_a_store_to(array: npt.NDArray[np.uint8], work: Callable[[], object]) -> bool:
    """Whether `work`, done by another process, ended it by a store to `array`, which begins a page."""
    pid = os.fork()
    if pid == 0:
        faulthandler.disable()
        if _LIBC.mprotect(ctypes.c_void_p(array.ctypes.data), mmap.PAGESIZE, mmap.PROT_READ) == 0:
            work()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV
