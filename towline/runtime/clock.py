"""Time as an argument: agents are handed a clock, tests hand them one that they move."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970: for what is stored and for deadlines that cross machines."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never jump: for intervals and time-outs."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
