"""The sleep of an idle process: several waits in a row, without the interpreter between them."""

import ctypes
import struct
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from towline.kernels.base.resting import TIME_SIZE, sleep_on
from towline.limits import REST_MAX_MS, SLEEP_MAX_MS

from .positions import DutyLine

_READABLE: Final = 1
_ITEM: Final = struct.Struct("@Pihh")  # zmq_pollitem_t: socket or 0, descriptor, events asked for, events found
_CLOCK: Final = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0


class IdleSleep:
    """Sleeps until something comes, a signal arrives, a position of the node moves, or as many sleeps as `fits` found
    room for are over.

    `poll` is the address of zmq_poll: ZeroMQ's sockets are never polled by their descriptors (H12). No sleep is longer
    than SLEEP_MAX_MS: what got lost shows in the positions after it.
    """

    def __init__(self, line: DutyLine, poll: int) -> None:
        self._line = line
        self._poll = poll
        self._seen = line.positions()
        self._sleeps = 1
        self._words = int(np.frombuffer(line.words, np.int64).ctypes.data)  # the line holds the mapping
        self._now = np.zeros(TIME_SIZE, np.uint8)

    def read_positions(self) -> None:
        """Before the check for work: from here on a position that moves ends the rest."""
        self._seen = self._line.positions()

    def fits(self, due_ms: int) -> bool:
        """Whether several sleeps are over before something is due; at most REST_MAX_MS of them follow each other."""
        self._sleeps = min(due_ms, REST_MAX_MS) // SLEEP_MAX_MS
        return self._sleeps > 1

    def __call__(self, sources: Iterable[Any]) -> int:
        """On descriptors and ZeroMQ sockets. Milliseconds of the sleeps that nothing ended."""
        items = [
            _ITEM.pack(0, source, _READABLE, 0)
            if isinstance(source, int)
            else _ITEM.pack(source.underlying, 0, _READABLE, 0)
            for source in sources
        ]
        slept = sleep_on(
            self._poll,
            np.frombuffer(bytearray(b"".join(items)), np.uint8),
            len(items),
            _CLOCK,
            self._now,
            self._words,
            np.frombuffer(self._seen, np.uint8),
            self._line.beat_at,
            self._sleeps,
            SLEEP_MAX_MS,
        )
        return int(slept) * SLEEP_MAX_MS
