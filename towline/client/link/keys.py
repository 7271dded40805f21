"""Unique keys of messages: one at a time, or many at once without an interpreted loop."""

import itertools
import os
import random
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

import numpy as np

from towline.format.record.message_id import LAYOUT, UniqueKeyGenerator, month_bounds_ms

COUNTER_RANGE: Final = 1 << 16  # keys of one ms before the counter wraps
COUNTER_DIGITS: Final = 4
NS_PER_MS: Final = 1_000_000
_HEX: Final = [f"{byte:02X}" for byte in range(256)]  # formatting a number takes longer
_ROW: Final = np.dtype([(field.name, "V4" if field.letter == "4s" else f">u{field.size}") for field in LAYOUT.fields])
assert _ROW.itemsize == LAYOUT.size


def now_ms() -> int:
    """ms since 1970."""
    return time.time_ns() // NS_PER_MS


def bounds_ms(now: int) -> tuple[int, int]:
    """The month of `now` in local time: its beginning and the next one's, in epoch ms."""
    return month_bounds_ms(datetime.fromtimestamp(now / 1000))


class KeySource:
    """Keys that no other source makes: the constant inside is drawn anew for each. Any thread may call it."""

    def __init__(self, address: bytes) -> None:
        """`address` is the client's IPv4 address in network byte order."""
        draw = random.SystemRandom()
        self._stem_of = self._stems(address, draw.getrandbits(32))
        self._stem = (0, "")  # replaced as a pair: the ms, and what its keys begin with
        self._counter = itertools.count()  # one step of it is atomic under the interpreter's lock
        self._lock = threading.Lock()
        self._row = np.zeros(1, dtype=_ROW)
        self._row["address"] = np.frombuffer(address, dtype="V4")
        self._row["pid"] = os.getpid() & 0xFFFF
        self._row["constant"] = draw.getrandbits(32)
        self._ms = 0
        self._count = 0

    def next(self, now: int) -> str:
        """A key made at `now`, ms since 1970: 32 upper-case hex digits."""
        ms, stem = self._stem
        if ms != now:
            stem = self._stem_of(now)
            self._stem = (now, stem)
        count = next(self._counter)
        return f"{stem}{_HEX[count >> 8 & 0xFF]}{_HEX[count & 0xFF]}"

    def next_many(self, count: int) -> bytes:
        """`count` keys (at most 65,536) as ASCII, back to back, 32 digits each."""
        assert 0 < count <= COUNTER_RANGE
        now, first = self._reserve(count)
        rows = np.repeat(self._row, count)
        rows["month_ms"] = (now - bounds_ms(now)[0]) & 0xFFFF_FFFF
        rows["counter"] = np.arange(first, first + count)
        return rows.tobytes().hex().upper().encode()

    def _stems(self, address: bytes, constant: int) -> Callable[[int], str]:
        def stem(now: int) -> str:
            return UniqueKeyGenerator(address, os.getpid(), constant, lambda: now, bounds_ms).next()[:-COUNTER_DIGITS]

        return stem

    def _reserve(self, count: int) -> tuple[int, int]:
        """The ms and the counter of the first key. A ms whose counters are used up is followed by the next one."""
        with self._lock:
            now = now_ms()
            if now > self._ms:
                self._ms, self._count = now, 0
            elif self._count + count > COUNTER_RANGE:
                self._ms, self._count = self._ms + 1, 0
            first = self._count
            self._count += count
            return self._ms, first
