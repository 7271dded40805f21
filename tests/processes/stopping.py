"""Processes that stand still for a while."""

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Final

import psutil

from .waiting import await_

STANDS_S: Final = 60.0


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """SIGSTOP within the block; continued in any case, unless killed meanwhile."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:  # one that is at work on another core goes on for a moment
            await_(lambda pid=pid: psutil.Process(pid).status() == psutil.STATUS_STOPPED, STANDS_S, "it stands still")
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
