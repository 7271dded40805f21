"""The limits of the machine that a figure stands beside. All of them are taken in the same run, in turns with it."""

import time
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.format.record import LAYOUT
from towline.kernels.compiled import I64, NUMBERS_READ, READ, Bytes, Numbers, kernel
from towline.kernels.crc import crc_of

from .shapes import Load

NS: Final = 1_000_000_000


def busy_seconds() -> float:
    """CPU time of this thread: other work on the machine does not count."""
    return time.thread_time_ns() / NS


class Copies:
    """Memory copy bandwidth: numpy copies one block of `size` bytes over another; both are warm and beyond caches."""

    def __init__(self, size: int) -> None:
        self._source: npt.NDArray[np.uint8] = np.ones(size, dtype=np.uint8)
        self._target: npt.NDArray[np.uint8] = np.zeros(size, dtype=np.uint8)

    def measure(self, seconds: float) -> float:
        """Bytes per second, each byte counted once."""
        copied = 0
        started = busy_seconds()
        while (taken := busy_seconds() - started) < seconds or not copied:
            self._target[:] = self._source
            copied += len(self._source)
        return copied / taken


@kernel(I64(READ, NUMBERS_READ, NUMBERS_READ))
def crc_of_bodies(records: Bytes, starts: Numbers, sizes: Numbers) -> int:
    """The exclusive or of the CRCs, so that none can be left out."""
    folded = 0
    for number in range(starts.size):
        folded ^= crc_of(records, starts[number], sizes[number])
    return folded


class Checksums:
    """The CRC kernel alone, over the bodies of one request where they stand in it: 88 bytes into each record."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._records = np.frombuffer(load.records, dtype=np.uint8)
        count = load.shape.records
        self._starts = np.arange(count, dtype=np.int64) * load.record_size + LAYOUT.size
        self._sizes = np.full(count, load.shape.body, dtype=np.int64)

    def measure(self, seconds: float) -> float:
        """Records per second."""
        done = 0
        started = busy_seconds()
        while (taken := busy_seconds() - started) < seconds or not done:
            crc_of_bodies(self._records, self._starts, self._sizes)
            done += self._load.shape.records
        return done / taken
