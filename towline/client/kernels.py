"""Compiled kernels, for a client that reads or sends much.

A client need not have numba, and where it has, loading them takes half a second, once for a process. Without them numpy
does the same.
"""

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

WORTH_S: Final = 0.5  # of a window spent on what kernels do are worth them: they take as long to load
WINDOW_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels of `towline/kernels/base/crc.py` and `scan/heads.py`."""

    crc32_each: Callable[..., int]
    read_heads: Callable[..., int]


class _Cost:
    """Seconds that were spent without kernels since `since`; and the kernels, which stay None without numba."""

    kernels: Kernels | None = None
    asked = False
    seconds = 0.0
    since = 0.0


def loaded() -> Kernels | None:
    """The kernels, in a process that has loaded them."""
    return _Cost.kernels


def load_kernels() -> None:
    """Loads the kernels now, for a program that is going to read much."""
    if not _Cost.asked:
        _Cost.asked, _Cost.kernels = True, _import()


def spent(began: float) -> None:
    """Notes that until now numpy did, since `began` by the monotonic clock, what a kernel could have done."""
    if _Cost.asked:
        return
    if (now := time.monotonic()) - _Cost.since > WINDOW_S:
        _Cost.since, _Cost.seconds = began, 0.0
    _Cost.seconds += now - began
    if _Cost.seconds >= WORTH_S:
        load_kernels()


def _import() -> Kernels | None:
    """None without numba, or where numba finds no place for its cache."""
    try:
        crc, heads = (importlib.import_module(f"towline.kernels.{name}") for name in ("base.crc", "scan.heads"))
    except (ImportError, OSError, RuntimeError) as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("towline"):
            raise  # a kernel that has moved is no missing library
        return None
    return Kernels(crc.crc32_each, heads.read_heads)
