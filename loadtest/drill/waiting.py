"""Waits for conditions, with deadlines."""

import select
import time
from collections.abc import Callable
from typing import Final, TypeVar

from .errors import DrillFailed

STEP_S: Final = 0.02
Value = TypeVar("Value")


def pause(seconds: float) -> None:
    """Waits; the load goes on meanwhile."""
    select.select([], [], [], seconds)


def await_(condition: Callable[[], Value], seconds: float, what: str) -> Value:
    """The first true value of `condition`. Raises DrillFailed, naming `what`, after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise DrillFailed(f"{what}: not within {seconds:.0f} s")
        pause(STEP_S)
    return value
