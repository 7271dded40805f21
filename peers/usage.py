"""What processes and directories take: CPU time, memory, disk."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from towline.limits import KIB, MIB

BLOCK: Final = 512  # bytes of st_blocks
STEP: Final = MIB
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_MAPPING: Final = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ +(?P<path>.*)$")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes, pages that several processes share counted once (PSS). `store`: of files below the store's directory,
    which are page cache; `own`: all others."""

    own: int
    store: int


def memory_of(pids: Iterable[int], store: Path) -> Memory:
    own = of_store = 0
    below = str(store.resolve()).encode() + b"/"
    for pid in pids:
        inside = False
        for line in _read(pid, "smaps").splitlines():
            found = _MAPPING.match(line)
            if found:
                inside = found["path"].startswith(below)
            elif line.startswith(b"Pss:"):
                size = int(line.split()[1]) * KIB
                own, of_store = (own, of_store + size) if inside else (own + size, of_store)
    return Memory(own, of_store)


def cpu_s(pids: Iterable[int]) -> dict[str, float]:
    """CPU seconds so far, user and system, by the name of the process."""
    found: dict[str, float] = {}
    for pid in pids:
        stat = _read(pid, "stat")
        if stat:
            name, rest = stat[stat.index(b"(") + 1 :].rsplit(b") ", 1)
            user, system = rest.split()[11:13]
            found[name.decode()] = found.get(name.decode(), 0.0) + (int(user) + int(system)) * _TICK_S
    return found


def disk_bytes(directory: Path) -> int:
    """Of all files below it: what is really taken, and of a file that was made ahead only up to its last byte that is
    not zero."""
    return sum(_written(path) for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def _written(path: Path) -> int:
    try:
        with path.open("rb", buffering=0) as file:
            found = os.fstat(file.fileno())
            at = found.st_size
            while at > 0:
                first = max(0, at - STEP)
                used = np.flatnonzero(np.frombuffer(os.pread(file.fileno(), at - first, first), dtype=np.uint8))
                if len(used):
                    return min(found.st_blocks * BLOCK, first + int(used[-1]) + 1)
                at = first
    except FileNotFoundError:  # the server has removed it meanwhile
        return 0
    return 0


def _read(pid: int, name: str) -> bytes:
    """Empty where the process has gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
