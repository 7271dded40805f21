"""Ranges of a sparse file that hold anything but zeros; holes are not read."""

import errno
import os
from collections.abc import Iterator
from typing import Final

import numpy as np

from towline.limits import MIB

_STEP: Final = MIB


def written(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """(first, end) of stretches of [start, end), one per step read, that begin and end with a byte that is not zero."""
    at = start
    while at < end:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole follows
                return
            raise
        stop = min(os.lseek(fd, at, os.SEEK_HOLE), end)
        while at < stop:
            data = os.pread(fd, min(_STEP, stop - at), at)
            if not data:
                return
            used = np.flatnonzero(np.frombuffer(data, dtype=np.uint8))
            if len(used):
                yield at + int(used[0]), at + int(used[-1]) + 1
            at += len(data)


def written_end(fd: int, start: int, end: int) -> int:
    """The end of the last byte of [start, end) that is not zero; `start` if all are."""
    return max((last for _, last in written(fd, start, end)), default=start)
