"""What the log of the node says of connections that were ended: once a minute for each host and rule."""

import logging
from typing import Final

from .reports import Refusal, Rule

AGAIN_MS: Final = 60_000
KNOWN_MAX: Final = 256


class RefusalLog:
    """Who comes again every 5 s, or 10,000 at once, does not fill the log; a line says how many there were before."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._known: dict[tuple[str, Rule], tuple[int, int]] = {}  # when it was said, and how often it happened since

    def say(self, host: str, who: str, refusal: Refusal, now_ms: int) -> None:
        key = (host, refusal.rule)
        said_ms, more = self._known.get(key, (0, 0))
        if key in self._known and now_ms - said_ms < AGAIN_MS:
            self._known[key] = said_ms, more + 1
            return
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[key] = now_ms, 0
        since = f" ({more} more of {host} for this reason since the line before)" if more else ""
        self._log.warning("%s is cut off: %s%s", who, refusal, since)
