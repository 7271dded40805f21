"""CRC-32 of many ranges of bytes.

zlib takes one stretch at a time, which costs a quarter of a microsecond at least. Short ones go in lock-step: a word of
four bytes of each, then the next of those that are longer, by two tables of all 16-bit values.
"""

import zlib
from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .columns import Bytes, Integers

LOCK_STEP_MAX: Final = 128  # bytes of a stretch; longer ones cost zlib less
_POLYNOMIAL: Final = 0xEDB8_8320  # reflected, as zlib's
_ALL: Final = np.uint32(0xFFFF_FFFF)
_LOW: Final = np.uint32(0xFFFF)
_BYTE: Final = np.uint32(0xFF)
_WORD: Final = 4

Crcs = NDArray[np.uint32]
Kernel = Callable[[Bytes, Integers, Integers, Integers], int]


def crcs(data: Bytes, starts: Integers, sizes: Integers, kernel: Kernel | None = None) -> Crcs:
    """Of data[start : start + size] for each pair; by `crc32_each` of the kernels, for who has loaded them."""
    if kernel is not None:
        wide = np.empty(len(starts), np.int64)
        kernel(data, np.ascontiguousarray(starts), np.ascontiguousarray(sizes), wide)
        return wide.astype(np.uint32)
    found = np.empty(len(starts), np.uint32)
    short = sizes <= LOCK_STEP_MAX
    if len(data) < _WORD:
        short[:] = False
    rows = np.flatnonzero(short)
    if len(rows):
        found[rows] = _in_lock_step(data, starts[rows], sizes[rows])
    rows = np.flatnonzero(~short)
    if len(rows):
        stretches = map(slice, starts[rows].tolist(), (starts[rows] + sizes[rows]).tolist())
        found[rows] = np.fromiter(map(zlib.crc32, map(data.data.__getitem__, stretches)), np.uint32, len(rows))
    return found


def _in_lock_step(data: Bytes, starts: Integers, sizes: Integers) -> Crcs:
    bytes_, low, high = _tables()
    order = np.argsort(-sizes, kind="stable")
    at, left = starts[order], sizes[order]
    words = np.ndarray(len(data) - _WORD + 1, "<u4", data, 0, (1,))
    crc = np.full(len(at), _ALL, np.uint32)
    for step in range(int(left[0]) // _WORD):
        going = int(np.searchsorted(-left, -_WORD * (step + 1), side="right"))  # those with a whole word more
        mixed = crc[:going] ^ words[at[:going] + _WORD * step]
        crc[:going] = low[mixed & _LOW] ^ high[mixed >> np.uint32(16)]
    at = at + left // _WORD * _WORD
    rest = left % _WORD
    for step in range(_WORD - 1):
        rows = np.flatnonzero(rest > step)
        mixed = crc[rows]
        crc[rows] = bytes_[(mixed ^ data[at[rows] + step]) & _BYTE] ^ (mixed >> np.uint32(8))
    found = np.empty(len(at), np.uint32)
    found[order] = crc ^ _ALL
    return found


@cache
def _tables() -> tuple[Crcs, Crcs, Crcs]:
    """What one byte, the first 16 bits of a word and its last 16 bits do to a CRC of 0."""
    bytes_ = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        bytes_ = np.where(
            bytes_ & np.uint32(1), (bytes_ >> np.uint32(1)) ^ np.uint32(_POLYNOMIAL), bytes_ >> np.uint32(1)
        )

    def behind(crc: Crcs) -> Crcs:
        """One byte of zeros later."""
        moved: Crcs = bytes_[crc & _BYTE] ^ (crc >> np.uint32(8))
        return moved

    second = behind(behind(np.arange(1 << 16, dtype=np.uint32)))
    return bytes_, behind(behind(second)), second
