"""Measures limits of the machine several times in the same run; they stand beside what the systems reach."""

import os
import platform
import time
from pathlib import Path
from typing import Any, Final

from towline.limits import KIB, MIB
from towline.loadtest.bench.limits import Copies
from towline.loadtest.bench.raw import RawPair
from towline.loadtest.bench.shapes import Load, Shape, load_of

TOGETHER: Final = 64
COPY: Final = 64 * MIB
WRITE: Final = MIB
WRITE_MAX: Final = 2048 * MIB
BODIES: Final = (100, KIB)
RAW_BODIES: Final = (100, KIB, 16 * KIB)
RAW_REQUESTS: Final = 500


class Limits:
    """Each `take` measures all of them for `seconds` each, in a directory of its own below `root`."""

    def __init__(self, root: Path, seconds: float) -> None:
        self._root, self._seconds = root, seconds
        self._loads = {body: load_of(Shape(TOGETHER, body)) for body in RAW_BODIES}

    def measure(self) -> dict[str, float]:
        """GB/s, messages/s."""
        found = {"copy_gb_s": Copies(COPY).measure(self._seconds) / 1e9, "write_gb_s": self._write()}
        for body in BODIES:
            records = self._loads[body].records
            found[f"synced_64_x_{body}_per_s"] = TOGETHER * self._synced(records)
        found["synced_1_x_1024_per_s"] = self._synced(self._loads[KIB].records[: self._loads[KIB].record_size])
        pair = RawPair()
        try:
            for body, load in self._loads.items():
                found[f"raw_zmq_64_x_{body}_per_s"] = self._raw(pair, load)
        finally:
            pair.close()
        return found

    def _raw(self, pair: RawPair, load: Load) -> float:
        done, taken = 0, 0.0
        while taken < self._seconds:
            taken += pair.measure("ipc", load, RAW_REQUESTS)
            done += RAW_REQUESTS
        return TOGETHER * done / taken

    def _write(self) -> float:
        """GB/s of blocks of 1 MiB into a new file that is synced at the end."""
        block, path = os.urandom(WRITE), self._root / "written"
        with path.open("wb", buffering=0) as file:
            began, done = time.perf_counter(), 0
            while time.perf_counter() - began < self._seconds and done < WRITE_MAX:
                done += file.write(block)
            os.fdatasync(file.fileno())
            taken = time.perf_counter() - began
        path.unlink()
        return done / taken / 1e9

    def _synced(self, block: bytes) -> float:
        """Times a second that the block is appended to a file and synced."""
        path = self._root / "synced"
        with path.open("wb", buffering=0) as file:
            began, done = time.perf_counter(), 0
            while time.perf_counter() - began < self._seconds:
                file.write(block)
                os.fdatasync(file.fileno())
                done += 1
            taken = time.perf_counter() - began
        path.unlink()
        return done / taken


def machine_facts() -> dict[str, Any]:
    """What a reader has to know about where the figures come from."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpus": os.cpu_count(),
        "cpu": models[0] if models else platform.machine(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "load": os.getloadavg()[0],
    }
