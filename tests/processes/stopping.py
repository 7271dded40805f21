"""Processes that stand still for a while."""

import contextlib
import os
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """SIGSTOP within the block; continued in any case, unless killed meanwhile."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
