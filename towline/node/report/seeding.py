"""How far a slave is behind its master, and how long it will take: read from its positions, from the outside."""

import select
import time
from typing import Any, Final

from towline.runtime.positions import Position, Positions

LOOK_S: Final = 0.25  # between the two looks that the rate is taken from
NEAR: Final = 1 << 20  # bytes behind that are no backlog, only the way there


def progress_of(positions: Positions, *, followed: bool = True) -> dict[str, Any]:
    """Log offsets and bytes. `end` is the master's confirmed end as the slave knows it; None: not known.

    A slave that follows nobody knows what its master had confirmed when it last said so, not what it has.
    """
    start, at, end = _look(positions)
    if end == at and not followed:
        return {"from": start, "at": at, "end": end, "left": None, "bytes_per_second": 0, "left_s": None}
    found = {"from": start, "at": at, "end": end, "left": end - at, "bytes_per_second": 0, "left_s": None}
    if end - at < NEAR:
        return found | {"left_s": 0.0 if end == at else None}
    began = time.monotonic()
    select.select([], [], [], LOOK_S)
    _, later, end = _look(positions)
    rate = (later - at) / (time.monotonic() - began)
    gained = found | {"at": later, "end": end, "left": end - later, "bytes_per_second": round(rate)}
    return gained | {"left_s": round((end - later) / rate, 1) if rate else None}


def _look(positions: Positions) -> tuple[int, int, int]:
    at = positions.get(Position.APPENDED)
    return min(positions.get(Position.LOG_MIN), at), at, max(at, positions.get(Position.CONFIRMED))
