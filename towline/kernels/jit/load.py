"""Loads every kernel of a node, so that processes forked afterwards find them in memory (H10)."""

from collections.abc import Callable
from importlib import import_module
from typing import Final, TypeAlias

from . import beside, machine_code

# Gets how many modules are compiled, and how many there are.
Compiling: TypeAlias = Callable[[int, int], None]

_COMPILED: Final = "towline.kernels.jit.compiled"

MODULES: Final = (
    "base.hashing",
    "base.crc",
    "base.first_word",
    "scan.scan",
    "base.directory",
    "scan.dispatch",
    "scan.queues",
    "scan.queue_files",
    "scan.index",
    "put.restore",
    "scan.gather",
    "scan.units",
    "put.append",
    "put.socket_rows",
    "put.put_ring",
    "base.resting",
    "remoting.sends",
    "remoting.puts",
    "remoting.turns",
)
TOOLS: Final = (  # no process of a node calls these
    "scan.verify",
    "put.ring_load",
    "scan.heads",
    "scan.pairs",
    "kafka.crc32c",
    "kafka.records",
    "kafka.exports",
    "kafka.message_encode",
    "kafka.message_compare",
)


def load_all(compiling: Compiling = lambda done, of: None) -> int:
    """Imports the kernels, compiling what the cache does not have; returns how many are ready.

    `compiling` is told of each module where machine code has to be made, which takes a minute of CPU, of two CPUs where
    there are two: before the first too, and before another process is waited for, that makes it.
    """
    return _load(MODULES, compiling)


def load_tools(compiling: Compiling = lambda done, of: None) -> int:
    """The kernels of the tools as well; returns how many are ready."""
    return _load((*TOOLS, *MODULES), compiling)


def _load(names: tuple[str, ...], compiling: Compiling) -> int:
    machine_code.when_missing(lambda: compiling(0, len(names)))
    compiled = import_module(_COMPILED)
    other = beside.begin() if compiled.is_cold() else None
    if other is not None:
        names = (*beside.THERE, *(name for name in names if name not in beside.THERE))
    for number, name in enumerate(names, 1):
        if other is not None and name not in beside.THERE:
            other.wait()
        import_module(f"towline.kernels.{name}")
        if not compiled.are_loaded():
            compiling(number, len(names))
    compiled.keep()
    return int(compiled.ready())
