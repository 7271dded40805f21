"""When the processes of a node get to which failpoint: events in a file of each process."""

import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .shared import SharedWords

EVENTS_MAX: Final = 1 << 20  # of one process; what comes after is not written down
_EVENT: Final = struct.Struct("@qq")  # monotonic ns; the name's number from 1, 0 behind the last event


class Trace:
    """The trace of one process: when it got to which of `names`. Whatever ends the process, its events stay."""

    def __init__(self, directory: str, names: Sequence[str]) -> None:
        self._directory = Path(directory)
        self._numbers = {name: number for number, name in enumerate(names, 1)}
        self._pid = self._next = 0  # a fork has a file of its own

    def reach(self, name: str) -> None:
        if os.getpid() != self._pid:
            self._open()
        at = self._next
        if at < len(self._words):
            self._words[at], self._words[at + 1] = time.monotonic_ns(), self._numbers[name]
            self._next = at + 2

    def _open(self) -> None:
        self._pid, self._next = os.getpid(), 0
        size = EVENTS_MAX * _EVENT.size
        self._words = SharedWords.create(self._directory / str(self._pid), size, size).words


def read_trace(directory: Path, names: Sequence[str]) -> dict[str, list[int]]:
    """By name the monotonic times (ns) at which any process got there, in their order."""
    found: dict[str, list[int]] = {name: [] for name in names}
    for path in directory.iterdir():
        for ns, number in _EVENT.iter_unpack(path.read_bytes()):
            if not number:
                break
            found[names[number - 1]].append(ns)
    return {name: sorted(times) for name, times in found.items()}
