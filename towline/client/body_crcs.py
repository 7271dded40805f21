"""CRCs of many bodies: by zlib and numpy, or by the compiled kernel in a process that computes many.

A client need not have numba, and where it has, loading the kernel takes half a second, once for a process.
"""

import importlib
import time
from collections.abc import Sequence
from typing import Final
from zlib import crc32

import numpy as np

from towline.format.record.columns import Bytes, Integers
from towline.format.record.crcs import Crcs, Kernel, crcs

WORTH_S: Final = 0.5  # of a window spent on CRCs are worth the kernel: it takes as long to load
WINDOW_S: Final = 10.0


class _CrcCost:
    """Seconds that CRCs took this process since `since`, and the kernel, which stays None without numba."""

    kernel: Kernel | None = None
    asked = False
    seconds = 0.0
    since = 0.0


def body_crcs(data: Bytes, starts: Integers, sizes: Integers, items: Sequence[bytes] | None = None) -> Crcs:
    """The CRC of data[start : start + size] for each pair, by the compiled kernel where this process computes many.

    `items`: the same stretches as objects, where the caller has them; zlib takes those faster.
    """
    kernel = _CrcCost.kernel
    if kernel is not None:
        return crcs(data, starts, sizes, kernel)
    began = time.monotonic()
    found = crcs(data, starts, sizes) if items is None else np.fromiter(map(crc32, items), np.uint32, len(items))
    if _CrcCost.asked:
        return found
    _spend(began, time.monotonic())
    return found


def load_crc_kernel() -> None:
    """Loads the compiled CRC kernel now, for a program that is going to read much."""
    if not _CrcCost.asked:
        _CrcCost.asked, _CrcCost.kernel = True, _import_crc_kernel()


def _spend(began: float, ended: float) -> None:
    if ended - _CrcCost.since > WINDOW_S:
        _CrcCost.since, _CrcCost.seconds = began, 0.0
    _CrcCost.seconds += ended - began
    if _CrcCost.seconds >= WORTH_S:
        load_crc_kernel()


def _import_crc_kernel() -> Kernel | None:
    """The kernel; None without numba, which a client need not have, or where numba finds no place for its cache."""
    try:
        kernel: Kernel = importlib.import_module("towline.kernels.base.crc").crc32_each
    except (ImportError, OSError, RuntimeError) as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("towline"):
            raise  # a kernel that has moved is no missing library
        return None
    return kernel
