"""When messages were stored, by their places: asked of serve, so many at a time that it is not held up."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from towline.format.wire.frames import Buffer
from towline.limits import STORE_TIMES_MAX

from .questions import Facts, Questions, refusal_in
from .readers import SERVE_AWAY

Place: TypeAlias = tuple[str, int, int]  # topic, queue, offset
# Gets the times in ms of messages that are there, and why that is not known, or "".
Found: TypeAlias = Callable[[Mapping[Place, int], str], None]
_NONE: Final = -1


class StoreTimes:
    """Store times of messages."""

    def __init__(self, serve: Questions) -> None:
        self._serve = serve

    def of(self, places: Sequence[Place], then: Found) -> None:
        """Asks for the times of the messages at these places; `then` is called once, maybe before this returns."""
        self._ask(list(places), 0, {}, then)

    def _ask(self, places: list[Place], begin: int, times: dict[Place, int], then: Found) -> None:
        wanted = places[begin : begin + STORE_TIMES_MAX]
        if not wanted:
            then(times, "")
            return

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(facts, "serve")
            if facts is None or problem:
                then({}, problem)
                return
            found = zip(wanted, facts["times"], strict=True)
            times.update((place, int(time)) for place, time in found if time != _NONE)
            self._ask(places, begin + len(wanted), times, then)

        if not self._serve.ask("store_times", {"places": wanted}, told):
            then({}, SERVE_AWAY)
