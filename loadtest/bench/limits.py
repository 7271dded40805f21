"""Measures limits of the machine, in turns with the figures that stand beside them."""

import time
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.format.record.record import LAYOUT
from towline.kernels.base.crc import crc32_each

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


class Checksums:
    """The CRC kernel alone, over the bodies of one request where they stand in it: 88 bytes into each record."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._records = np.frombuffer(load.records, dtype=np.uint8)
        count = load.shape.records
        self._starts = np.arange(count, dtype=np.int64) * load.record_size + LAYOUT.size
        self._sizes = np.full(count, load.shape.body, dtype=np.int64)
        self._result = np.zeros(count, dtype=np.int64)

    def measure(self, seconds: float) -> float:
        """Records per second."""
        done = 0
        started = busy_seconds()
        while (taken := busy_seconds() - started) < seconds or not done:
            crc32_each(self._records, self._starts, self._sizes, self._result)
            done += self._load.shape.records
        return done / taken
