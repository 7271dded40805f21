"""Loads every kernel of a node, so that processes forked afterwards find them in memory (H10)."""

from importlib import import_module
from typing import Final

from .compiled import keep, ready

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
)
TOOLS: Final = ("scan.verify", "put.ring_load", "scan.heads", "scan.pairs")  # no process of a node calls these


def load_all() -> int:
    """Imports the kernels, compiling what the cache does not have; returns how many are ready."""
    for name in MODULES:
        import_module(f"towline.kernels.{name}")
    keep()
    return ready()


def load_tools() -> int:
    """The kernels of the tools as well; returns how many are ready."""
    for name in TOOLS:
        import_module(f"towline.kernels.{name}")
    return load_all()
