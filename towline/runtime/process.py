"""What a process of a node checks and sets up first: the machine, its name, Ctrl-C and SIGTERM."""

import ctypes
import platform
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final

from towline.errors import UnsupportedMachine

NODE: Final = "towline:"  # names of a node's processes begin with it
_PR_SET_NAME: Final = 15
_libc = ctypes.CDLL(None, use_errno=True)


def check_machine() -> None:
    """Raises UnsupportedMachine unless stores become visible in the order they were made (x86-64 on Linux).

    "Bytes, then position" is two plain stores; an arm64 reader may see the second first. Whoever adds a release store
    for another machine removes this refusal.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise UnsupportedMachine(sys.platform, platform.machine())


def set_name(name: str) -> None:
    """The name that ps and top show, 15 bytes at most."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15])


def is_of_node(pid: int) -> bool:
    """Whether a process of a node has that id, as far as it can be seen from here."""
    try:
        return Path("/proc", str(pid), "comm").read_text(encoding="utf-8").startswith(NODE)
    except OSError:
        return False


class StopFlag:
    """True after SIGTERM. SIGINT is ignored: Ctrl-C is for the supervisor, which stops its processes in order (H10)."""

    def __init__(self) -> None:
        self._stopped = False
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        self._stopped = True

    def __call__(self) -> bool:
        return self._stopped
