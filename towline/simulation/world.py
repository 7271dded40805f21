"""The simulated time: events in their order, one source of chance, and a trace of what happens."""

import heapq
from collections.abc import Callable
from random import Random
from typing import Any, Final

Action = Callable[[], Any]
US: Final = 1000  # microseconds of a millisecond


class World:
    """The time and the chance of one seed. Equal seeds give equal histories."""

    def __init__(self, seed: int, said: Callable[[int, str, str], None] | None = None) -> None:
        """`said` is told of everything that happens: the time in microseconds, who, and what."""
        self.random = Random(seed)
        self.now_us = 0
        self.steps = 0
        self.checks: list[Action] = []  # after each step
        self._said = said
        self._events: list[tuple[int, int, Action]] = []
        self._numbers = 0

    @property
    def now_ms(self) -> int:
        return self.now_us // US

    @property
    def traced(self) -> bool:
        """Whether anybody is told: sentences are not made for nobody."""
        return self._said is not None

    def say(self, who: str, what: str) -> None:
        if self._said is not None:
            self._said(self.now_us, who, what)

    def after(self, delay_us: float, action: Action) -> None:
        """Has `action` done so many microseconds later; of equal times in the order of the calls."""
        self._numbers += 1
        heapq.heappush(self._events, (self.now_us + int(delay_us), self._numbers, action))

    def between(self, low_ms: float, high_ms: float) -> float:
        """Microseconds drawn from a range of milliseconds."""
        return self.random.uniform(low_ms, high_ms) * US

    def chance(self, share: float) -> bool:
        return share > 0 and self.random.random() < share

    def run(self, until_ms: int) -> None:
        """Does event after event until that time."""
        events = self._events
        while events and events[0][0] <= until_ms * US:
            self.now_us, _, action = heapq.heappop(events)
            self.steps += 1
            action()
            for check in self.checks:
                check()
