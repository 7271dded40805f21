"""Loads every kernel, so that processes forked afterwards find them in memory (H10)."""

from importlib import import_module
from typing import Final

from .compiled import ready

MODULES: Final = ("hashing", "crc", "stamp", "first_word", "scan", "directory", "dispatch", "queues", "index")


def load_all() -> int:
    """Imports the kernels, compiling what the cache does not have; returns how many are ready."""
    for name in MODULES:
        import_module(f"towline.kernels.{name}")
    return ready()
