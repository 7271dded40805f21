"""The clock of what somebody else counts on meanwhile: leases, queue locks, who is silent.

CLOCK_BOOTTIME: nobody sets it, and unlike CLOCK_MONOTONIC it goes on while the machine is suspended (H19).
"""

import time


def boottime_ns() -> int:
    """Nanoseconds since the machine was started, suspended ones included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def boottime_s() -> float:
    """The same in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
