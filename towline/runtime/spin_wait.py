"""Whether a process looks for a moment longer before it sleeps."""

from typing import Final

RISE: Final = 0.3  # one that finds something serves many requests
FALL: Final = 0.1
WORTH_MIN: Final = 0.25  # share of those that found something, lately
TRIED_EVERY: Final = 8


class SpinWait:
    """Decides whether to spin for what comes next: only where spinning has lately paid off.

    Spinners that find nothing use up what the scheduler gives them, and wait for a core when something has come.
    """

    def __init__(self, spins: int, rise: float = RISE) -> None:
        """`spins`: how many times to look; `rise`: what one that finds something weighs, beside FALL."""
        self._spins, self._rise = spins, rise
        self._share = 0.0
        self._checks = 0

    def spins(self) -> int:
        """How many times to look where nothing is."""
        self._checks += 1
        return self._spins if self.is_worth or self._checks % TRIED_EVERY == 0 else 0

    @property
    def is_worth(self) -> bool:
        """Whether spinning has paid off lately."""
        return self._share >= WORTH_MIN

    def found(self, found: bool) -> None:
        """Notes whether a spin found a request."""
        self._share += (1 - self._share) * self._rise if found else -self._share * FALL
