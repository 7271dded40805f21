"""How kernels are compiled: ahead of the first call, without the GIL, into a cache on disk; and their array types.

Signatures are explicit, so nothing is compiled at first use in a forked child. A signature with a read-only array
takes a writable one too, at the same cost; the other way round is refused with TypeError.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from numba import config, types
from numba.extending import intrinsic

from . import rows

Compiled = TypeVar("Compiled", bound=Callable[..., Any])
Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.int32]
Rows = npt.NDArray[np.void]

I32: Final = types.int32
I64: Final = types.int64
FLAG: Final = types.boolean
READ: Final = types.Array(types.uint8, 1, "C", readonly=True)
WRITE: Final = types.Array(types.uint8, 1, "C")
NUMBERS: Final = types.Array(types.int64, 1, "C")
NUMBERS_READ: Final = types.Array(types.int64, 1, "C", readonly=True)
WORDS: Final = types.Array(types.int32, 1, "C")
WORDS_READ: Final = types.Array(types.int32, 1, "C", readonly=True)


def rows_of(dtype: np.dtype[np.void], *, readonly: bool = False) -> Any:
    """The type of an array of these rows."""
    return types.Array(numba.from_dtype(dtype), 1, "C", readonly=readonly)


GROUPS: Final = rows_of(rows.GROUP)
DISPATCHES: Final = rows_of(rows.DISPATCH)
DISPATCHES_READ: Final = rows_of(rows.DISPATCH, readonly=True)
KEYS: Final = rows_of(rows.KEY)
KEYS_READ: Final = rows_of(rows.KEY, readonly=True)
QUEUES_READ: Final = rows_of(rows.QUEUE, readonly=True)
RUNS: Final = rows_of(rows.RUN)
RUNS_READ: Final = rows_of(rows.RUN, readonly=True)

_settings: Any = config  # numba sets its names at run time
_PACKAGE: Final = Path(__file__).parent
# Modules whose numbers kernels contain.
_LAYOUTS: Final = ("blank", "consume_queue", "forms", "index_file", "properties", "property_crc", "record", "rules")


def _cache_folder() -> str:
    """A folder named by the sources: numba looks at a kernel's own file only, not at what was inlined from others."""
    sources = [*sorted(_PACKAGE.glob("*.py")), *(_PACKAGE.parent / "format" / f"{name}.py" for name in _LAYOUTS)]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    chosen = Path(_settings.CACHE_DIR) if _settings.CACHE_DIR else _PACKAGE / "__pycache__"
    return str(chosen / f"kernels-{digest}")


_CACHE: Final = _cache_folder()
_READY: Final[list[str]] = []
# Without numba's reference counts (`_nrt`) a kernel cannot allocate, and need not: the counts are atomic, and they cost
# up to ten times the work itself, since every inlined helper that takes an array counts. The caller keeps the arrays.
_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "boundscheck": False, "error_model": "numpy", "_nrt": False}


def kernel(signature: Any) -> Callable[[Compiled], Compiled]:
    """Compiles for this one signature, or takes the machine code from the cache. Callable from Python."""

    def compile_now(function: Compiled) -> Compiled:
        before = _settings.CACHE_DIR
        _settings.CACHE_DIR = _CACHE
        try:
            compiled: Any = numba.njit(signature, cache=True, **_OPTIONS)(function)
        finally:
            _settings.CACHE_DIR = before
        _READY.append(function.__qualname__)
        return cast(Compiled, compiled)

    return compile_now


def helper(function: Compiled) -> Compiled:
    """A part of kernels: inlined into them by LLVM, never compiled alone, not to be called from Python."""
    compiled: Any = numba.njit(forceinline=True, **_OPTIONS)(function)
    return cast(Compiled, compiled)


def instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that is written in LLVM's own terms."""
    compiled: Any = intrinsic(function)
    return cast(Callable[..., Any], compiled)


def ready() -> int:
    """How many kernels this process has loaded."""
    return len(_READY)
