"""The kernels, where a read is long enough to pay for them: they are loaded in half a second, and need numba.

Without them everything is done with numpy, and is the same. A process that has loaded them uses them from then on.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from towline.limits import MIB

WORTH: Final = 32 * MIB  # of log at once: a segment, not what a stream reads


@dataclass(frozen=True, slots=True)
class Quick:
    """Kernels of `towline/kernels/scan/heads.py`, `pairs.py` and `crc.py`."""

    walk_heads: Callable[..., int]
    read_heads: Callable[..., int]
    lay_out: Callable[..., int]
    copy_stretches: Callable[..., int]
    find_pairs: Callable[..., int]
    crc32_each: Callable[..., int]
    slack: int


_asked: list[Quick | None] = []  # empty until they are wanted; None where there is no numba


def want(size: int) -> None:
    """So many bytes of log are to be read."""
    if size >= WORTH and not _asked:
        _asked.append(load())


def quick() -> Quick | None:
    """None where nobody wanted them so far, or they cannot be had."""
    return _asked[0] if _asked else None


def load() -> Quick | None:
    """None without numba, which an executor need not have, or where numba finds no place for what it compiles."""
    try:
        heads, pairs, crc = (importlib.import_module(f"towline.kernels.{name}") for name in ("heads", "pairs", "crc"))
    except (ImportError, OSError, RuntimeError):
        return None
    return Quick(
        heads.walk_heads,
        heads.read_heads,
        pairs.lay_out,
        pairs.copy_stretches,
        pairs.find_pairs,
        crc.crc32_each,
        pairs.SLACK,
    )
