"""How many messages came to each topic, and went to each group, in the last minute, hour and day.

Put counts what comes, by queue, in shared memory. What groups pull is counted here, of RocketMQ's clients alone. Sums
of the past are kept since this process began.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.errors import PositionsUnusable
from towline.runtime.store_stats import StoreStats

LOOK_MS: Final = 1_000
GROUPS_MAX: Final = 16_384  # groups of topics that are counted; further ones are not
PULLED_MAX: Final = 65_536  # queues of groups whose pulls are known
MINUTE: Final = "minute"
HOUR: Final = "hour"
DAY: Final = "day"
# A sum is kept each so many ms, so many of them.
SPANS: Final = {MINUTE: (10_000, 6), HOUR: (600_000, 6), DAY: (3_600_000, 24)}

Sums = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages of one span of time, and how many that is a second."""

    messages: int = 0
    per_second: float = 0.0


class Past:
    """Sums of a table as they were: places are only ever added to it, and numbers only grow."""

    def __init__(self, read: Callable[[], Sums], now_ms: int) -> None:
        self._read = read
        self._kept = {span: deque([(now_ms, read())], maxlen=keep + 1) for span, (_, keep) in SPANS.items()}

    def cycle(self, now_ms: int) -> None:
        for span, (every_ms, _) in SPANS.items():
            if now_ms - self._kept[span][-1][0] >= every_ms:
                self._kept[span].append((now_ms, self._read()))

    def rates(self, places: list[int], now_ms: int) -> dict[str, Rate]:
        """Of these places together, by span."""
        now = _sum(self._read(), places)
        found = {}
        for span, kept in self._kept.items():
            began_ms, before = kept[0]
            messages = now - _sum(before, places)
            found[span] = Rate(messages, messages * 1_000 / max(1, now_ms - began_ms))
        return found


class Traffic:
    """What comes and goes. `pulled` is told of each answer with messages."""

    def __init__(self, put_stats: Path) -> None:
        self._path = put_stats
        self._look_at = 0
        self._now_ms = 0
        self._puts: StoreStats | None = None
        self._put_past: Past | None = None
        self._places: dict[str, list[int]] = defaultdict(list)  # of topics in put's table
        self._placed = 0
        self._groups: dict[tuple[str, str], int] = {}  # places by topic and group
        self._gets: Sums = np.zeros(64, dtype=np.int64)
        self._get_past: Past | None = None
        self._pulled: dict[tuple[str, str, int], int] = {}

    def cycle(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if now_ms < self._look_at:
            return
        self._look_at = now_ms + LOOK_MS
        if self._puts is None:
            self._open(now_ms)
        if self._get_past is None:
            self._get_past = Past(self._gets.copy, now_ms)
        for past in (self._put_past, self._get_past):
            if past is not None:
                past.cycle(now_ms)

    def pulled(self, group: str, topic: str, queue_id: int, count: int, following: int) -> None:
        """Counts an answer of so many messages; `following`: the offset behind them."""
        queue = (group, topic, queue_id)
        self._pulled.pop(queue, None)
        self._pulled[queue] = following
        if len(self._pulled) > PULLED_MAX:
            del self._pulled[next(iter(self._pulled))]
        place = self._groups.get((topic, group))
        if place is None:
            if len(self._groups) >= GROUPS_MAX:
                return
            place = self._groups[topic, group] = len(self._groups)
            if place == len(self._gets):
                self._gets = np.concatenate((self._gets, np.zeros_like(self._gets)))
        self._gets[place] += count

    def next_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Behind what a group was sent last of a queue; 0 where that is not known."""
        return self._pulled.get((group, topic, queue_id), 0)

    def came(self, topic: str) -> dict[str, Rate] | None:
        """Messages put to a topic, by span; None where none came since the node's start."""
        self._learn()
        if self._put_past is None or topic not in self._places:
            return None
        return self._put_past.rates(self._places[topic], self._now_ms)

    def went(self, topic: str, group: str) -> dict[str, Rate] | None:
        """Messages of a topic that a group was sent, by span; None where there were none."""
        place = self._groups.get((topic, group))
        if place is None or self._get_past is None:
            return None
        return self._get_past.rates([place], self._now_ms)

    def close(self) -> None:
        if self._puts is not None:
            self._puts.close()

    def _open(self, now_ms: int) -> None:
        try:
            self._puts = StoreStats.open(self._path)
        except PositionsUnusable:  # put has not begun yet
            return
        self._put_past = Past(self._messages, now_ms)

    def _messages(self) -> Sums:
        assert self._puts is not None
        found: Sums = self._puts.table()[:, 0]
        return found

    def _learn(self) -> None:
        """Learns of topics that are new in put's table."""
        if self._puts is None or self._placed == self._puts.queue_count:
            return
        for row in islice(self._puts, self._placed, None):
            self._places[row.topic.decode("utf-8", "replace")].append(self._placed)
            self._placed += 1


def _sum(sums: Sums, places: list[int]) -> int:
    return int(sum(int(sums[place]) for place in places if place < len(sums)))
