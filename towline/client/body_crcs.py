"""CRCs of the bodies that come in one answer: zlib's and numpy's, or the kernel's for who reads much."""

import time
from importlib import import_module
from typing import Final

from towline.format.columns import Bytes, Integers
from towline.format.crcs import Crcs, Kernel, crcs
from towline.limits import MIB

WORTH: Final = 32 * MIB  # of records within PACE_S are worth the kernel: it takes half a second, once for a process
PACE_S: Final = 1.0


class _Pace:
    """How much this process reads; without numba the kernel stays None."""

    kernel: Kernel | None = None
    asked = False
    size = 0
    since = 0.0


def body_crcs(data: Bytes, starts: Integers, sizes: Integers) -> Crcs:
    """Of data[start : start + size] for each pair."""
    if not _Pace.asked:
        _keep_pace(len(data))
    return crcs(data, starts, sizes, _Pace.kernel)


def _keep_pace(size: int) -> None:
    now = time.monotonic()
    if now - _Pace.since > PACE_S:
        _Pace.since, _Pace.size = now, 0
    _Pace.size += size
    if _Pace.size >= WORTH:
        _Pace.asked, _Pace.kernel = True, load_kernel()


def load_kernel() -> Kernel | None:
    """None without numba, which a client need not have, or where numba finds no place for what it compiles."""
    try:
        kernel: Kernel = import_module("towline.kernels.crc").crc32_each
    except (ImportError, OSError, RuntimeError):
        return None
    return kernel
