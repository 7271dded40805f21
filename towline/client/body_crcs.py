"""CRCs of the bodies that come in one answer: zlib's and numpy's, or the kernel's for who reads much."""

import time
from importlib import import_module
from typing import Final

from towline.format.record.columns import Bytes, Integers
from towline.format.record.crcs import Crcs, Kernel, crcs

WORTH_S: Final = 0.5  # of a window spent on CRCs are worth the kernel: it takes as long to load, once for a process
WINDOW_S: Final = 10.0


class _Spent:
    """What CRCs cost this process in the window that began at `since`; without numba the kernel stays None."""

    kernel: Kernel | None = None
    asked = False
    seconds = 0.0
    since = 0.0


def body_crcs(data: Bytes, starts: Integers, sizes: Integers) -> Crcs:
    """Of data[start : start + size] for each pair."""
    if _Spent.asked:
        return crcs(data, starts, sizes, _Spent.kernel)
    began = time.monotonic()
    found = crcs(data, starts, sizes)
    _spend(began, time.monotonic())
    return found


def prepare() -> None:
    """Loads the kernel now: for a program that is going to read much."""
    if not _Spent.asked:
        _Spent.asked, _Spent.kernel = True, load_kernel()


def _spend(began: float, ended: float) -> None:
    if ended - _Spent.since > WINDOW_S:
        _Spent.since, _Spent.seconds = began, 0.0
    _Spent.seconds += ended - began
    if _Spent.seconds >= WORTH_S:
        prepare()


def load_kernel() -> Kernel | None:
    """None without numba, which a client need not have, or where numba finds no place for what it compiles."""
    try:
        kernel: Kernel = import_module("towline.kernels.base.crc").crc32_each
    except (ImportError, OSError, RuntimeError):
        return None
    return kernel
