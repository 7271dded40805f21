"""What every process of a node does first: die with its parent, ignore Ctrl-C, turn SIGTERM into a flag."""

import ctypes
import os
import signal
from types import FrameType
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """SIGKILL when the parent goes (H8). A parent that went before this line is seen by its pid."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def set_name(name: str) -> None:
    """The name that ps and top show, 15 bytes at most."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15])


class StopFlag:
    """True after SIGTERM. SIGINT is ignored: Ctrl-C is for the supervisor, which stops its pieces in order (H10)."""

    def __init__(self) -> None:
        self._stopped = False
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        self._stopped = True

    def __call__(self) -> bool:
        return self._stopped


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
