"""Compilation of kernels: ahead of the first call, without the GIL, into a cache on disk; and their array types.

Signatures are explicit, so nothing is compiled at first use in a forked child. A signature with a read-only array
takes a writable one too, at the same cost; the other way round is refused with TypeError. Where machine code was loaded
(`machine_code`) numba is not even imported.
"""

import hashlib
import os
import stat
import tempfile
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt

from . import machine_code, rows

Compiled = TypeVar("Compiled", bound=Callable[..., Any])
Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.int32]
Rows = npt.NDArray[np.void]

_PACKAGE: Final = Path(__file__).parents[1]
_WITHOUT_CODE: Final = ("__init__", "__main__", "beside", "load", "machine_code")  # no kernel depends on these modules
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
# Modules whose numbers kernels contain.
_LAYOUTS: Final = (
    "record/blank",
    "files/consume_queue",
    "files/consume_queue_ext",
    "record/forms",
    "wire/frames",
    "files/index_file",
    "wire/put_ring",
    "record/properties",
    "record/property_crc",
    "record/record",
    "record/rules",
    "record/sequence",
    "remoting/batch",
    "remoting/codes",
    "remoting/wire_message",
    "remoting/command",
)


def _sources() -> dict[str, bytes]:
    """By path in the package: the files of kernels, and those whose numbers they contain; from a zip as well."""
    layouts = [f"format/{name}.py" for name in _LAYOUTS]
    if _PACKAGE.is_dir():
        kernels = sorted(
            path.relative_to(_PACKAGE.parent).as_posix() for path in _PACKAGE.glob("*/*.py") if _is_code(path)
        )
        names = [*kernels, *layouts]
        return {name: (_PACKAGE.parent / name).read_bytes() for name in names}
    with zipfile.ZipFile(_archive()) as packed:
        inside = _PACKAGE.parent.relative_to(_archive()).as_posix()
        found = [PurePath(name) for name in packed.namelist() if PurePath(name).match(f"{inside}/kernels/*/*.py")]
        kernels = [path.relative_to(inside).as_posix() for path in found if _is_code(path)]
        names = [*sorted(kernels), *layouts]
        return {name: packed.read(f"{inside}/{name}") for name in names}


def _is_code(path: PurePath) -> bool:
    return path.stem not in _WITHOUT_CODE


def _archive() -> Path:
    """The zip that the package is imported from."""
    return next(path for path in _PACKAGE.parents if path.is_file())


def _cache_folder(sources: dict[str, bytes]) -> Path | None:
    """A folder named by the sources: numba checks a kernel's own file only, not at what was inlined from others.

    None where there is nowhere to write that no other user could have filled: what is cached is executed.
    """
    digest = hashlib.sha256(b"".join(sources.values())).hexdigest()[:16]
    chosen = os.environ.get("NUMBA_CACHE_DIR", "")
    if chosen:
        return Path(chosen) / f"kernels-{digest}"
    if _PACKAGE.is_dir():
        folder = _PACKAGE / "__pycache__" / f"kernels-{digest}"
        if machine_code.is_kept(folder) or _is_writable(folder):
            return folder
        caches = Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache")
        folder = caches / f"towline-kernels-{digest}"  # the installation is somebody else's
    else:
        folder = Path(tempfile.gettempdir()) / f"towline-kernels-{os.getuid()}-{digest}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
    except OSError:
        return None
    mine = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & _WRITABLE_BY_OTHERS
    return folder if mine else None


def _is_writable(folder: Path) -> bool:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return os.access(there, os.W_OK)


def _unpacked(sources: dict[str, bytes], folder: Path | None) -> Path | None:
    """Where files of kernels stand that were imported from a zip; numba caches nothing of a file that does not exist.

    None for a package that is no zip, or without a folder. Any number of processes do this at once.
    """
    if folder is None or _PACKAGE.is_dir():
        return None
    target = folder / "sources"
    target.mkdir(parents=True, exist_ok=True)
    for name, data in sources.items():
        path = target / PurePath(name).name
        if name.startswith("kernels/") and not path.exists():
            made = target / f"{path.name}.{os.getpid()}"
            made.write_bytes(data)
            made.replace(path)
    return target


_SOURCES: Final = _sources()
_CACHE: Final = _cache_folder(_SOURCES)


def _loaded() -> dict[str, machine_code.Entry] | None:
    """The machine code of all kernels; None where this process compiles them."""
    found = machine_code.load(_CACHE)
    if found is None and _CACHE is not None and machine_code.is_wanted():
        machine_code.await_other(_CACHE)
        found = machine_code.load(_CACHE)
        if found is not None:
            machine_code.release()
    return found


_LOADED: Final = _loaded()
_UNPACKED: Final = _unpacked(_SOURCES, _CACHE) if _LOADED is None else None
_READY: Final[dict[str, Any]] = {}
_SIGNATURES: Final[dict[str, Any]] = {}


class _Unneeded:
    """Stands for everything of a library that only a compiler needs."""

    def __getattr__(self, name: str) -> "_Unneeded":
        return self

    def __call__(self, *arguments: object, **named: object) -> "_Unneeded":
        return self


def library(name: str) -> Any:
    """A module of numba or llvmlite."""
    return import_module(name) if _LOADED is None else _Unneeded()


numba: Final = library("numba")
types: Final = library("numba.core.types")
_settings: Final = library("numba.core.config")

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
REQUESTS: Final = rows_of(rows.REQUEST)
REQUESTS_READ: Final = rows_of(rows.REQUEST, readonly=True)
APPENDS: Final = rows_of(rows.APPEND)
PUT_QUEUES: Final = rows_of(rows.PUT_QUEUE)
DISPATCHES: Final = rows_of(rows.DISPATCH)
DISPATCHES_READ: Final = rows_of(rows.DISPATCH, readonly=True)
KEYS: Final = rows_of(rows.KEY)
KEYS_READ: Final = rows_of(rows.KEY, readonly=True)
QUEUES_READ: Final = rows_of(rows.QUEUE, readonly=True)
RUNS: Final = rows_of(rows.RUN)
RUNS_READ: Final = rows_of(rows.RUN, readonly=True)

# Without numba's reference counts (`_nrt`) a kernel cannot allocate, and need not: the counts are atomic, and they cost
# up to ten times the work itself, since every inlined helper that takes an array counts. The caller keeps the arrays.
_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "boundscheck": False, "error_model": "numpy", "_nrt": False}


def kernel(signature: Any) -> Callable[[Compiled], Compiled]:
    """Compiles for this one signature, or takes the machine code from the cache. Callable from Python."""

    def compile_now(function: Compiled) -> Compiled:
        name = f"{function.__module__}.{function.__qualname__}"
        if _LOADED is not None:
            _READY[name] = _LOADED[name]
            return cast(Compiled, _LOADED[name])
        before = _settings.CACHE_DIR
        _settings.CACHE_DIR = str(_CACHE or "")
        if _UNPACKED is not None:
            code = function.__code__
            function.__code__ = code.replace(co_filename=str(_UNPACKED / PurePath(code.co_filename).name))
        try:
            compiled: Any = numba.njit(signature, cache=_CACHE is not None, **_OPTIONS)(function)
        finally:
            _settings.CACHE_DIR = before
        _READY[name] = compiled
        _SIGNATURES[name] = signature
        return cast(Compiled, compiled)

    return compile_now


def helper(function: Compiled) -> Compiled:
    """A part of kernels: inlined into them by LLVM, never compiled alone, not to be called from Python."""
    compiled: Any = function if _LOADED is not None else numba.njit(forceinline=True, **_OPTIONS)(function)
    return cast(Compiled, compiled)


def instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that is written in LLVM's own terms."""
    compiled: Any = library("numba.extending").intrinsic(function)
    return cast(Callable[..., Any], compiled)


def ready() -> int:
    """How many kernels this process has loaded."""
    return len(_READY)


def keep() -> None:
    """Leaves the machine code of all kernels that are loaded for `machine_code`, unless it is there."""
    try:
        _keep()
    finally:
        machine_code.release()


def are_loaded() -> bool:
    """Whether machine code was there, so that nothing is compiled."""
    return _LOADED is not None


def is_cold() -> bool:
    """Whether all kernels are to be compiled, and other processes would find them in the cache."""
    return _LOADED is None and _CACHE is not None and _PACKAGE.is_dir() and not any(_CACHE.rglob("*.nbi"))


def _keep() -> None:
    if _LOADED is None and _CACHE is not None and not machine_code.is_kept(_CACHE):
        found = [_code_of(name, compiled) for name, compiled in _READY.items()]
        codes = [code for code in found if code is not None]
        if len(codes) == len(found):
            machine_code.save(_CACHE, codes)


def _code_of(name: str, compiled: Any) -> machine_code.Code | None:
    """As numba's cache has it, which keeps it for its own later processes; None where it is not there."""
    cache, codegen = compiled._cache, compiled.targetctx.codegen()
    found = cache._cache_file.load(cache._index_key(_SIGNATURES[name], codegen))
    if found is None:
        return None
    (_, kind, (data, _)), described = found[0], found[1]
    assert kind == "object"
    return machine_code.Code(name, data, described.llvm_cpython_wrapper_name, described.env_name)
