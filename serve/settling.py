"""After a start that derives queues anew they are shorter than they were, until reput has caught up.

What is there is served at once. That something is not there is believed only when the queues are as long as the log was
at the start: until then nobody is sent back to an offset that was read before, or told of an end that is none.
"""

from collections.abc import Callable
from typing import Final

from towline.errors import Remedy, TowlineError
from towline.runtime.clock import Clock
from towline.runtime.positions import Position

SETTLE_MAX_MS: Final = 5_000  # questions about ends wait so long at most: a log may hold what nobody may see yet


class StillStarting(TowlineError, remedy=Remedy.RETRY):
    dispatched: int
    wanted: int
    template = "the queues are dispatched to {dispatched} of the log, and were to {wanted} before the start"
    advice = "ask again in a moment"


class Settling:
    """`target` is the end of the log at the start of this process."""

    def __init__(self, get: Callable[[Position], int], clock: Clock) -> None:
        self._get, self._clock = get, clock
        self.target = get(Position.APPENDED)
        self._until_ms = clock.monotonic_ms() + SETTLE_MAX_MS
        self._settled = False

    def settled(self) -> bool:
        """Whether every offset beyond the end of its queue is one that nothing was ever visible at."""
        self._settled = self._settled or self._get(Position.DISPATCHED) >= self.target
        return self._settled

    def check_ends(self) -> None:
        """Raises StillStarting while ends may be too low, but not for ever: what is not confirmed is not dispatched."""
        late = self._clock.monotonic_ms() >= self._until_ms or self._get(Position.DISPATCH_STOPPED) > 0
        if not (self.settled() or late):
            raise StillStarting(self._get(Position.DISPATCHED), self.target)

    def check_passed(self, place: int) -> None:
        """Raises StillStarting while the log is not dispatched to that offset."""
        dispatched = self._get(Position.DISPATCHED)
        if dispatched < place:
            raise StillStarting(dispatched, place)
