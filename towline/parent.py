"""A process that ends with its parent, whatever ends that (H8)."""

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """SIGKILL when the parent goes. A parent that went before this line is seen by its pid."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
