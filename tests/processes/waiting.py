"""Waiting for conditions and for processes to go, with deadlines; nothing here sleeps for a guessed time."""

import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

STEP_S: Final = 0.005
Value = TypeVar("Value")


def await_(condition: Callable[[], Value], deadline_s: float, what: str) -> Value:
    """The first true value of `condition`; fails naming `what` after `deadline_s`."""
    end = time.monotonic() + deadline_s
    never = threading.Event()
    while not (value := condition()):
        assert time.monotonic() < end, f"{what}: not within {deadline_s} s"
        never.wait(STEP_S)
    return value


def read_saved(path: Path) -> bytes:
    """A file of `config/`, nothing while it is not there: between two renames of a save only `.bak` is."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


class Watch:
    """Processes by pidfd: a pid that is used again is never taken for the one that was watched."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._open: dict[int, int] = {}
        for pid in pids:
            try:
                self._open[os.pidfd_open(pid)] = pid
            except ProcessLookupError:  # gone before we looked
                continue

    def await_gone(self, deadline_s: float) -> float:
        """Until the last has gone; how long that took, in seconds. Fails naming those that are left."""
        started = time.monotonic()
        poll = select.poll()
        for fd in self._open:
            poll.register(fd, select.POLLIN)
        left = dict(self._open)
        while left and (remaining := started + deadline_s - time.monotonic()) > 0:
            for fd, _ in poll.poll(1000 * remaining):
                poll.unregister(fd)
                del left[fd]
        took = time.monotonic() - started
        for fd in self._open:
            os.close(fd)
        self._open = {}
        assert not left, f"still there after {deadline_s} s: {sorted(left.values())}"
        return took
