"""Questions of the node's own to clients, on their connections, and the answers to them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command

from .connections import Connection, Connections

ANSWER_MS: Final = 10_000  # a client has so long
CALLS_MAX: Final = 1_024  # without an answer

# Gets the answer; None where none came, or the client has gone.
Answered = Callable[[Command | None], None]


@dataclass(frozen=True, slots=True)
class _Call:
    connection: Connection
    late_ms: int
    answered: Answered


class ClientCalls:
    """All that wait for an answer."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._waiting: dict[int, _Call] = {}  # by opaque, in the order of asking
        self._now_ms = 0

    def ask(
        self, connection: Connection, code: int, fields: Mapping[str, str], body: bytes, answered: Answered
    ) -> None:
        """Asks a client. Raises RequestRefused where too many are asked already."""
        if len(self._waiting) >= CALLS_MAX:
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, "too many clients are asked at once; try again")
        opaque = self._connections.ask(connection, code, fields, body)
        self._waiting[opaque] = _Call(connection, self._now_ms + ANSWER_MS, answered)

    def answered(self, connection: Connection, answer: Command) -> None:
        """Takes an answer, if it is one of the client that was asked."""
        found = self._waiting.get(answer.opaque)
        if found is not None and found.connection is connection:
            del self._waiting[answer.opaque]
            found.answered(answer)

    def cycle(self, now_ms: int) -> None:
        """Gives up what is late, and clients that have gone."""
        self._now_ms = now_ms
        over = [
            opaque for opaque, call in self._waiting.items() if call.late_ms <= now_ms or not call.connection.is_open
        ]
        for opaque in over:
            self._waiting.pop(opaque).answered(None)
