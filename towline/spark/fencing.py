"""Fences attempts at the same rows: the newest writes, the others stop.

Two may run at once: by speculation, or where an executor that was given up lives on. A put has no condition, so no node
can refuse the older one's. Instead whoever may not be the first leaves a fence in the topic FENCES, which is above all
that are there, and every attempt looks there before a request leaves, unless it has looked within LOOK_S: one that sees
a fence above its own stops. A look is worth VALID_S at most, and a request is taken TAKE_TIMEOUT_MS after it left at
the latest. So much later than its fence was promised nothing of an older attempt can come any more, and the newer one
looks at what is there.

The first attempt pays nothing unless it lives longer than LOOK_S. Two that raise fences at once may take the same
number: then what they drew at random decides.
"""

import secrets
import time
from typing import Any, Final

import pyarrow as pa

from towline.errors import NoAnswer

from .errors import Fenced, NotWritten
from .idempotent_producer import CLOCKS_APART_MS, CLOCKS_MS, TAKE_TIMEOUT_MS, Chunk, IdempotentProducer

FENCES: Final = "SPARK_FENCES"
LOOK_S: Final = 1.0
VALID_S: Final = 2.0  # Spark's killTimeout of tasks, too: as long a task that it stops may go on
FENCE_WAIT_MS: Final = round(VALID_S * 1000) + TAKE_TIMEOUT_MS + CLOCKS_MS
_DIGITS: Final = 8


class FencedProducer(IdempotentProducer):
    """An IdempotentProducer for the rows whose unique keys begin with `stem`; with "" nobody is looked for."""

    def __init__(self, endpoint: str, *, stem: str, **how: Any) -> None:
        super().__init__(endpoint, **how)
        self._stem, self._own = stem.encode(), b""
        self._made: dict[str, Any] = {"endpoint": endpoint, **how}
        self._since_ms = max(0, time.time_ns() // 1_000_000 - CLOCKS_APART_MS)
        self._seen_at = time.monotonic()

    @property
    def is_fencing(self) -> bool:
        return bool(self._own)

    def fence_off(self, wait_ms: int) -> None:
        """Returns when no attempt that began before can have a request under way, `wait_ms` after the fence stands.

        Once for each attempt. Raises Fenced when another one did the same meanwhile, and what `there` and `send` raise.
        """
        if self.is_fencing:
            return
        if not self.has_topic(FENCES):
            self._producer.make_topic(FENCES)
        above = self.there(FENCES, self._stem).last[len(self._stem) :]
        number = 1 + int(above[:_DIGITS] or b"0", 16)
        self._own = self._stem + f"{number:0{_DIGITS}X}{secrets.token_hex(_DIGITS // 2).upper()}".encode()
        with IdempotentProducer(**self._made) as producer:
            producer.send(FENCES, pa.RecordBatch.from_pydict({"body": [b""]}), pa.array([self._own], pa.binary()))
            producer.finish()
        time.sleep(wait_ms / 1000)
        self._look()

    def _launch(self, chunk: Chunk) -> None:
        if self._stem and time.monotonic() - self._seen_at >= LOOK_S:
            self._look()
        super()._launch(chunk)

    def _look(self) -> None:
        """Again while nobody answers, or the answer comes too late to be worth anything. Raises Fenced, NotWritten."""
        began = time.monotonic()
        while True:
            seen_at, trouble = time.monotonic(), f"a look at {FENCES} takes more than {VALID_S:.0f} s"
            try:
                last = self.there(FENCES, self._stem, self._since_ms).last
            except NoAnswer as error:
                trouble = error.describe()
            else:
                if last > self._own:
                    raise Fenced(self._stem.decode())
                if time.monotonic() - seen_at < VALID_S:
                    self._seen_at = seen_at
                    return
            if time.monotonic() - began > self._timeout_ms / 1000:
                raise NotWritten(0, self._timeout_ms, trouble)
