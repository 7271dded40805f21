"""The request table of allocate: what is to be done for the log's writer, and in which order (spec 6.1)."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum


class Kind(IntEnum):
    """What is asked for. The lower number first: what does not exist stops the writer, what is cold only slows it."""

    SEGMENT = 0  # to be made and linked into the log
    WARM_UP = 1  # to be brought into memory


@dataclass(frozen=True, slots=True)
class Request:
    kind: Kind
    base: int
    size: int

    @property
    def end(self) -> int:
        return self.base + self.size

    @property
    def urgency(self) -> tuple[int, int, int]:
        """The least is done first: by kind, then the larger, then the lower offset, as the writer gets there first."""
        return self.kind, -self.size, self.base


class RequestTable:
    """Each request once, until it is done or nobody wants it any more. Times are ms of a clock that never goes back.

    `failing`: a segment could not be made, and none was since. Whoever needs one had better not wait for it.
    """

    def __init__(self) -> None:
        self.failing = False
        self._rests_until: dict[Request, int] = {}

    def __len__(self) -> int:
        return len(self._rests_until)

    def __contains__(self, request: Request) -> bool:
        return request in self._rests_until

    def want(self, request: Request) -> None:
        """Puts the request into the table if it is not there."""
        self._rests_until.setdefault(request, 0)

    def first(self, now_ms: int) -> Request | None:
        """The most urgent request that does not rest."""
        ready = [request for request, until in self._rests_until.items() if until <= now_ms]
        return min(ready, key=lambda request: request.urgency, default=None)

    def done(self, request: Request) -> None:
        self._rests_until.pop(request, None)
        if request.kind is Kind.SEGMENT:
            self.failing = False

    def failed(self, request: Request, again_ms: int) -> None:
        """It stays in the table and rests until then; others go on."""
        self.put_off(request, again_ms)
        self.failing = self.failing or request.kind is Kind.SEGMENT

    def put_off(self, request: Request, again_ms: int) -> None:
        """As after a failure, but nothing has failed."""
        if request in self._rests_until:
            self._rests_until[request] = again_ms

    def drop(self, unwanted: Callable[[Request], bool]) -> None:
        """Forgets what nobody waits for any more."""
        for request in [request for request in self._rests_until if unwanted(request)]:
            del self._rests_until[request]
