"""Whether queues that a start derives anew are as long again as they were; reput is still at work until then.

What exists is served at once. That something does not exist is believed only when the queues cover the log of the
start: until then no reader is sent back to an offset that was read before, or told of an end that is none.
"""

from collections.abc import Callable
from typing import Final

from towline.clock import Clock
from towline.errors import Remedy, TowlineError
from towline.runtime.positions import Position

CATCH_UP_MAX_MS: Final = 5_000  # questions about ends wait so long at most: a log may hold what nobody may see yet


class StillStarting(TowlineError, remedy=Remedy.RETRY):
    dispatched: int
    wanted: int
    template = "the queues are dispatched to {dispatched} of the log, and were to {wanted} before the start"
    advice = "ask again in a moment"


class CatchUp:
    """Compares DISPATCHED with `target`, the end of the log at the start of this process."""

    def __init__(self, get: Callable[[Position], int], clock: Clock) -> None:
        self._get, self._clock = get, clock
        self.target = get(Position.APPENDED)
        self._until_ms = clock.monotonic_ms() + CATCH_UP_MAX_MS
        self._settled = False

    def settled(self) -> bool:
        """Whether no offset beyond the end of its queue was ever visible."""
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
