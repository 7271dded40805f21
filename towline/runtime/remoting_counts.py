"""What the port for RocketMQ's clients counts since the node was started: connections, why they ended, refusals.

    line 0   one word each of `Total`
    then     two words per `Ending`: how many, and when the last one was
    then     two words per code of a refused request (`ResponseCode`, in their order; the first pair: other codes)

Written by remoting, read by everybody. Times are CLOCK_MONOTONIC ns, 0 for never.
"""

import time
from enum import IntEnum
from typing import Final

from towline.format.remoting.codes import ResponseCode

from .positions import LINE, REMOTING_AT, REMOTING_LINES, Counter, Duty, DutyLine, Positions


class Total(IntEnum):
    """Words of the first line. Those marked as now go up and down."""

    OPEN = 0  # connections, now
    HELD = 1  # bytes of unfinished frames and of answers that were not taken, now
    OWN_CLIENTS = 2  # clients of ours among the connections, now
    ACCEPTED = 3  # connections
    LEFT = 4  # connections that their clients have ended
    CLIENTS = 5  # that heartbeats named, now
    KEPT = 6  # bytes that is kept of their heartbeats, now
    OWN_REFUSED = 7  # greetings and questions of clients of ours


_NOW: Final = (Total.OPEN, Total.HELD, Total.OWN_CLIENTS, Total.CLIENTS, Total.KEPT)


class Ending(IntEnum):
    """Why a connection was ended from this side (place of its counter, what an operator can do about it)."""

    remedy: str

    MALFORMED = 0, "something that is no client of RocketMQ's speaks to the port: the log names its address"
    TLS = 1, "a client begins without what tls_server_mode asks for, or does not trust the certificate: see the log"
    UNREAD = 2, "a client does not read the answers that it asks for: the log names it"
    SILENT = 3, "a client's heartbeats have stopped, or somebody opens connections for nothing: the log names it"
    MEMORY = 4, "unfinished frames and unread answers of all clients took too much: the log names who held most"
    FULL = 5, "more clients came than the limit of descriptors (`ulimit -n`) or the port allows"
    AWAY = 6, "put, serve or schedule had ended, or did not keep up: look at their state; clients come again"
    RESTART = 7, "the process of the port had ended: the node's log says why; clients come again"
    REVOKED = 8, "a client's key was revoked while it was connected: `towline keys list --dir DIR` shows the ring"

    def __new__(cls, number: int, remedy: str) -> "Ending":
        member = int.__new__(cls, number)
        member._value_ = number
        member.remedy = remedy
        return member

    @property
    def label(self) -> str:
        return self.name.lower()


# Answers that are not what was hoped for, and no refusals: what was asked for was done, or there is nothing yet.
OUTCOMES: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.POLLING_TIMEOUT,
    }
)
CODES: Final = (None, *(code for code in ResponseCode if code not in OUTCOMES))  # None: any other
_ENDINGS_AT: Final = REMOTING_AT * LINE + LINE
_CODES_AT: Final = _ENDINGS_AT + 2 * len(Ending)
_PLACES: Final[dict[int, int]] = {code: _CODES_AT + 2 * place for place, code in enumerate(CODES) if code is not None}
assert len(Total) <= LINE
assert _CODES_AT + 2 * len(CODES) <= (REMOTING_AT + REMOTING_LINES) * LINE


class RemotingCounts:
    """The counts of a running node."""

    def __init__(self, positions: Positions) -> None:
        self._words = positions.words
        self._line: DutyLine = positions.duty(Duty.REMOTING)

    # --- by remoting

    def begin(self) -> None:
        """Notes that remoting has started: connections of one before it have ended with it."""
        if lost := self.total(Total.OPEN):
            self.ended(Ending.RESTART, lost)
        for total in _NOW:
            self.set(total, 0)

    def set(self, total: Total, value: int) -> None:
        self._words[REMOTING_AT * LINE + total] = value

    def add(self, total: Total) -> None:
        self._words[REMOTING_AT * LINE + total] += 1

    def ended(self, ending: Ending, amount: int = 1) -> None:
        self._add_at(_ENDINGS_AT + 2 * ending, amount)

    def refused(self, code: int) -> None:
        """Counts an answer, where it is a refusal."""
        if code not in OUTCOMES:
            self._add_at(_PLACES.get(code, _CODES_AT), 1)
            self._line.count(Counter.REFUSED)

    def _add_at(self, word: int, amount: int) -> None:
        self._words[word] += amount
        self._words[word + 1] = time.monotonic_ns()

    # --- by anybody

    def total(self, total: Total) -> int:
        return int(self._words[REMOTING_AT * LINE + total])

    def endings(self) -> dict[Ending, tuple[int, int]]:
        """How many, and when the last one was."""
        return {ending: self._pair(_ENDINGS_AT + 2 * ending) for ending in Ending}

    def refusals(self) -> dict[ResponseCode | None, tuple[int, int]]:
        """How many requests, and when the last one was; None: by codes that have no place."""
        return {code: self._pair(_CODES_AT + 2 * place) for place, code in enumerate(CODES)}

    def _pair(self, word: int) -> tuple[int, int]:
        return int(self._words[word]), int(self._words[word + 1])
