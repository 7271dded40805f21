"""Kernels without the compiler: numba makes their machine code once, LLVM's linker alone loads it from then on.

Importing numba and all that it registers takes longer than anything else in a node's start, and much of its memory, to
run what is compiled already. What is kept beside numba's own cache is the same machine code, with the names of each
kernel's entry for Python. Who wants it says so before the first kernel is imported (`prefer`): a node's processes.

An entry takes what it is given for what the signature says. numba's dispatcher, which checks every argument, stands
before it wherever nobody preferred this: in tests, commands and Spark.
"""

import builtins
import ctypes
import fcntl
import hashlib
import logging
import os
import pickle
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final, NamedTuple

from llvmlite import binding  # type: ignore[import-untyped]

Entry = Callable[..., Any]

LAYOUT: Final = 1  # of the file
_HELPERS: Final = ("_helperlib", "_dynfunc")  # of numba, in C: they need nothing of the rest
_DIGEST: Final = hashlib.sha256().digest_size
_HARMLESS: Final = ("NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS")  # settings of numba that no machine code depends on
_MISFITS: Final = (AttributeError, EOFError, KeyError, OSError, RuntimeError, TypeError, ValueError, pickle.PickleError)

log = logging.getLogger(__name__)


class Code(NamedTuple):
    """An object file, and the symbols in it: of the entry for Python, and of the pointer to its environment."""

    name: str
    data: bytes
    entry: str
    environment: str


class _Preference:
    wanted = False
    engine: Any = None  # holds the code
    lock: int = -1
    missing: Callable[[], None] = staticmethod(lambda: None)


def prefer() -> None:
    """From here on `load` looks for machine code. Before the first kernel is imported."""
    _Preference.wanted = True


def is_wanted() -> bool:
    return _Preference.wanted


def when_missing(told: Callable[[], None]) -> None:
    """`told` is called where machine code is wanted and not there, before anything that takes long."""
    _Preference.missing = told


def await_other(folder: Path) -> None:
    """Waits for another process that makes machine code here: `load` may find it then. Until `release` nobody else
    makes any.

    Where nothing can be locked everybody makes their own.
    """
    _Preference.missing()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _Preference.lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(_Preference.lock, fcntl.LOCK_EX)
    except OSError as error:
        log.info("kernels may be compiled by several processes at once: %s", error)


def release() -> None:
    """Lets the next one in."""
    if _Preference.lock >= 0:
        os.close(_Preference.lock)
        _Preference.lock = -1


def load(folder: Path | None) -> dict[str, Entry] | None:
    """The entry of each kernel by name; None where it is not wanted, or there is none that fits this machine."""
    if not _Preference.wanted or folder is None or _is_set_up_otherwise():
        return None
    try:
        data = _file_in(folder).read_bytes()
        rest = data[_DIGEST:]
        if hashlib.sha256(rest).digest() != data[:_DIGEST]:
            raise ValueError("the file is damaged")
        return _linked([Code(*each) for each in pickle.loads(rest)])
    except FileNotFoundError:
        return None
    except _MISFITS as error:
        log.warning("kernels are loaded by numba: %s", error)
        return None


def save(folder: Path, codes: Iterable[Code]) -> None:
    """For later processes. Nothing depends on it."""
    if _is_set_up_otherwise():
        return
    try:
        path = _file_in(folder)
        rest = pickle.dumps([tuple(code) for code in codes])
        staged = path.with_suffix(f".{os.getpid()}")
        staged.write_bytes(hashlib.sha256(rest).digest() + rest)
        staged.replace(path)
    except _MISFITS as error:
        log.info("machine code of kernels is not kept: %s", error)


def is_kept(folder: Path) -> bool:
    return _is_set_up_otherwise() or _file_in(folder).exists()


def _is_set_up_otherwise() -> bool:
    """The environment makes numba compile in another way than ours."""
    return any(name.startswith("NUMBA_") and name not in _HARMLESS for name in os.environ)


def _file_in(folder: Path) -> Path:
    """Named by what the code depends on beside its sources: interpreter, numba, processor; and by what is in it."""
    helpers = [(path.name, found.st_size, found.st_mtime_ns) for path in _helpers() for found in (path.stat(),)]
    processor = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    loaded = Path(__file__).with_name("load.py").read_bytes()
    facts = repr((LAYOUT, sys.implementation.cache_tag, helpers, processor, loaded))
    return folder / f"machine-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"


def _helpers() -> list[Path]:
    """The extension modules of numba that machine code calls. Raises FileNotFoundError."""
    spec = find_spec("numba")
    roots = [Path(place) for place in (spec.submodule_search_locations or ())] if spec is not None else []
    found = [next(iter(sorted(root.glob(f"{name}.*so"))), None) for root in roots[:1] for name in _HELPERS]
    if len(found) != len(_HELPERS) or None in found:
        raise FileNotFoundError("numba's extension modules")
    return [path for path in found if path is not None]


def _linked(codes: list[Code]) -> dict[str, Entry]:
    library, functions = (_extension(path) for path in _helpers())
    for helpers in (library.c_helpers, functions.c_helpers):
        for name, address in helpers.items():
            binding.add_symbol(f"numba_{name}", address)
    # As numba has it, these names stand for the objects themselves.
    binding.add_symbol("_Py_NoneStruct", id(None))
    for name, found in vars(builtins).items():
        if isinstance(found, type) and issubclass(found, BaseException):
            binding.add_symbol(f"PyExc_{name}", id(found))
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly("")
    module.triple = binding.get_process_triple()
    machine = binding.Target.from_default_triple().create_target_machine(jit=True)
    _Preference.engine = engine = binding.create_mcjit_compiler(module, machine)
    for code in codes:
        engine.add_object_file(binding.object_file.ObjectFileRef.from_data(code.data))
    engine.finalize_object()
    return {code.name: _entry(engine, functions, code) for code in codes}


def _entry(engine: Any, functions: Any, code: Code) -> Entry:
    """What numba would hand out: a function of Python's whose body is the kernel's entry."""
    address, pointer = engine.get_function_address(code.entry), engine.get_global_value_address(code.environment)
    if not address or not pointer:
        raise KeyError(code.name)
    environment = functions.Environment({})
    ctypes.c_void_p.from_address(pointer).value = id(environment)  # as long as the function lives, which keeps it
    name = code.name.rpartition(".")[2]
    made: Entry = functions.make_function(sys.modules[__name__], name, "", address, environment, (environment,))
    return made


def _extension(path: Path) -> Any:
    spec = spec_from_file_location(f"numba.{path.name.partition('.')[0]}", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(str(path))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
