"""Clocks: one that is an argument of agents, so that tests can move it, and CLOCK_BOOTTIME for leases and locks.

Leases, queue locks and silence are measured with CLOCK_BOOTTIME: nobody sets it, and unlike CLOCK_MONOTONIC it goes on
while the machine is suspended (H19).
"""

import os
import time
from pathlib import Path
from typing import Final, Protocol

# Of tests: a file that says by how many ms the wall clock of every process that finds this is ahead, at each moment.
ENVIRONMENT: Final = "TOWLINE_CLOCK"
# Clients run on macOS too, where CLOCK_MONOTONIC goes on while the machine is suspended.
_BOOTTIME: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_AHEAD: Final = os.environ.get(ENVIRONMENT, "")


def boottime_ns() -> int:
    """Nanoseconds since the machine was started, suspended ones included."""
    return time.clock_gettime_ns(_BOOTTIME)


def boottime_s() -> float:
    """The same in seconds."""
    return time.clock_gettime(_BOOTTIME)


def boot_id() -> str:
    """Changes with every boot of the machine: positions of another boot are of no worth. Raises OSError where the
    system is not Linux."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970: for what is stored and for deadlines that cross machines."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never jump: for intervals and time-outs."""
        ...

    def ahead_ms(self) -> int:
        """Milliseconds by which `now_ms` is ahead of the system's wall clock, for kernels that read that."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms()

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def ahead_ms(self) -> int:
        return int(Path(_AHEAD).read_text(encoding="ascii")) if _AHEAD else 0
