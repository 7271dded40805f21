"""Times as reports show them."""

import time
from typing import Final

_NS_PER_MS: Final = 1_000_000


def ms_since(began_ns: int) -> int:
    """Milliseconds since a moment of CLOCK_MONOTONIC; 0 for one that has not come, or never was (0)."""
    return max(0, time.monotonic_ns() - began_ns) // _NS_PER_MS if began_ns else 0
