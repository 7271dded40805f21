"""Records that are not what was stored, as their readers came upon them: each is counted once and named in the log.

Serve sends records without a look at their bodies. A reader that finds one damaged asks for it by its place, and then
its own bytes are looked at here: what a reader says is never believed.
"""

import logging
from typing import Final

from towline.runtime.positions import Writer

KNOWN_MAX: Final = 65_536


class Damage:
    """A serve process that takes another's place goes on with its count, and may count what that one counted again."""

    def __init__(self, count: Writer, newest: Writer, log: logging.Logger) -> None:
        self._count, self._newest, self._log = count, newest, log
        self._known: set[int] = set()

    def met(self, offset: int, sentence: str) -> None:
        """A record of a queue, at this byte of the log."""
        if offset in self._known or len(self._known) >= KNOWN_MAX:
            return
        self._known.add(offset)
        self._newest.replace(offset + 1)
        self._count.advance(self._count.get() + 1)
        self._log.error(
            "the record at offset %d of the log is damaged: %s; run `towline store verify`", offset, sentence
        )
