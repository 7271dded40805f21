"""Loads every kernel of a node, so that processes forked afterwards find them in memory (H10)."""

from importlib import import_module
from typing import Final

from .compiled import keep, ready

MODULES: Final = (
    "hashing",
    "crc",
    "stamp",
    "first_word",
    "scan",
    "directory",
    "dispatch",
    "queues",
    "queue_files",
    "index",
    "restore",
    "gather",
    "units",
    "put_ring",
    "put_rows",
    "resting",
)
TOOLS: Final = ("verify", "ring_load", "heads", "pairs")  # no process of a node calls these


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
