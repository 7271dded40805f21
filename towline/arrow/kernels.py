"""Compiled kernels for long reads. They take 0.4 s to load and need numba.

Short reads, and processes without numba, are served by numpy with the same results. A process that has loaded the
kernels uses them from then on.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from towline.limits import MIB

LONG_READ: Final = 32 * MIB  # of log at once: a segment, not what a stream reads
_OURS: Final = "towline"


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels of `towline/kernels/scan/heads.py`, `scan/pairs.py` and `base/crc.py`."""

    walk_heads: Callable[..., int]
    read_heads: Callable[..., int]
    lay_out: Callable[..., int]
    copy_stretches: Callable[..., int]
    find_pairs: Callable[..., int]
    crc32_each: Callable[..., int]
    slack: int


_loaded: list[Kernels | None] = []  # empty until a long read; None where they cannot be loaded


def expect_read(size: int) -> None:
    """Loads the kernels before a read of `size` bytes of log, if that is a long one."""
    if size >= LONG_READ and not _loaded:
        _loaded.append(load())


def loaded() -> Kernels | None:
    """The kernels; None before the first long read, or where they cannot be loaded."""
    return _loaded[0] if _loaded else None


def load() -> Kernels | None:
    """The kernels; None without numba, which an executor need not have, or where numba finds no place for its cache."""
    try:
        names = ("scan.heads", "scan.pairs", "base.crc")
        heads, pairs, crc = (importlib.import_module(f"towline.kernels.{name}") for name in names)
    except (ImportError, OSError, RuntimeError) as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith(_OURS):
            raise  # a kernel that has moved is no missing library
        return None
    return Kernels(
        heads.walk_heads,
        heads.read_heads,
        pairs.lay_out,
        pairs.copy_stretches,
        pairs.find_pairs,
        crc.crc32_each,
        pairs.SLACK,
    )
