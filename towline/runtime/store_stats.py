"""Statistics of puts and gets per queue and of put times: RocketMQ's StoreStatsService, in shared memory.

One file per writer: put writes what came in, serve what went out. A restarted process goes on in its file; a new start
of the node, which has another generation, begins at zero.

    word 0       magic and layout version       word 1  generation of the node
    word 2       when it began, ms since 1970   word 3  count of slots in use, stored after the slot it counts
    words 8..    the numbers of `Total`
    words 32..   requests by how long they took: one word per bucket of BUCKETS_MS, the last for all others
    slot i       320 bytes from byte 512 + 320 * i:
        word 0   messages      word 1  bytes of records      word 2  requests, or answers
        word 3   queue id      word 4  bytes of the topic    then the topic, at most 255 bytes

A sparse file in memory, whose pages are reserved as slots are added: those never used cost nothing. All numbers only
grow.
"""

from bisect import bisect_right
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from towline.errors import PositionsUnusable, RuntimeDirectoryFull
from towline.limits import QUEUES_MAX, RETRY_TOPIC_SIZE_MAX

from .shared import STEP, SharedWords

MAGIC: Final = 0x3154_4154_5351_5754
# RocketMQ's buckets of the time of a put end before so many ms: 0, 1 to 9, 10 to 49 ...
BUCKETS_MS: Final = (1, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
SLOW_PUT_MS: Final = 500
SLOW_SEGMENT_MS: Final = 10
_GENERATION, _BEGAN, _COUNT = 1, 2, 3
_TOTALS_AT: Final = 8
_BUCKETS_AT: Final = 32
_HEAD_WORDS: Final = 64
_SLOT_WORDS: Final = 40
_TOPIC_BYTE: Final = 5 * 8
_SIZE: Final = (_HEAD_WORDS + QUEUES_MAX * _SLOT_WORDS) * 8
assert _TOPIC_BYTE + RETRY_TOPIC_SIZE_MAX <= _SLOT_WORDS * 8
assert _BUCKETS_AT + len(BUCKETS_MS) < _HEAD_WORDS


class Total(IntEnum):
    """Numbers of a whole file beside the sums of its queues. Times are of requests that were stored, from their arrival
    to their answer."""

    TIME_MS = 0  # of all requests together
    TIME_MAX_MS = 1
    SLOW = 2  # requests above SLOW_PUT_MS
    EMPTY = 3  # on the reading side: answers without messages
    UNCOUNTED = 4  # messages of queues for which there was no slot, or no room in memory for it


_TIME: Final = _TOTALS_AT + Total.TIME_MS
_TIME_MAX: Final = _TOTALS_AT + Total.TIME_MAX_MS


class QueueStats(NamedTuple):
    topic: bytes
    queue_id: int
    messages: int
    bytes: int
    requests: int


class StoreStats:
    """The mapped table. One process adds; any number of them read."""

    def __init__(self, shared: SharedWords) -> None:
        self._shared = shared
        self._words = shared.words
        self._at = {(row.topic, row.queue_id): _at(place) for place, row in enumerate(self)}  # its first word

    @classmethod
    def own(cls, path: Path, generation: int, now_ms: int) -> "StoreStats":
        """For its writer: what was begun in this generation goes on, anything else begins at zero."""
        try:
            found = cls.open(path, writable=True)
        except PositionsUnusable:
            found = None
        if found is not None and found._words[_GENERATION] == generation:
            return found
        shared = SharedWords.create(path, _SIZE, reserved=STEP)
        shared.words[_GENERATION] = generation
        shared.words[_BEGAN] = now_ms
        shared.words[0] = MAGIC
        return cls(shared)

    @classmethod
    def open(cls, path: Path, *, writable: bool = False) -> "StoreStats":
        """Raises PositionsUnusable when there is no file, or one of another layout."""
        try:
            shared = SharedWords.open(path, writable=writable)
        except (OSError, ValueError) as error:
            raise PositionsUnusable(str(path), f"cannot be mapped ({error})") from None
        if len(shared.words) * 8 != _SIZE or shared.words[0] != MAGIC:
            raise PositionsUnusable(str(path), "is not a table of statistics of this version")
        return cls(shared)

    # --- the writer

    def add(self, topic: bytes, queue_id: int, messages: int, size: int, requests: int = 1) -> None:
        """One group of a request, or one answer, or several of them, of `size` record bytes together."""
        at = self._at.get((topic, queue_id)) or self._new(topic, queue_id)
        if not at:
            self.count(Total.UNCOUNTED, messages)
            return
        words = self._words
        words[at] += messages
        words[at + 1] += size
        words[at + 2] += requests

    def took(self, ms: int, count: int = 1) -> bool:
        """`count` requests were answered so long after they came. Whether that is slow."""
        words = self._words
        words[_BUCKETS_AT + bisect_right(BUCKETS_MS, ms)] += count
        words[_TIME] += ms * count
        if ms > words[_TIME_MAX]:
            words[_TIME_MAX] = ms
        if ms <= SLOW_PUT_MS:
            return False
        self.count(Total.SLOW, count)
        return True

    def count(self, total: Total, amount: int = 1) -> None:
        self._words[_TOTALS_AT + total] += amount

    def _new(self, topic: bytes, queue_id: int) -> int:
        """The first word of a new slot; 0 when there is none left, or no room for it now."""
        place = int(self._words[_COUNT])
        if place == QUEUES_MAX:
            return 0
        at = _at(place)
        try:
            self._shared.reserve((at + _SLOT_WORDS) * 8)
        except RuntimeDirectoryFull:
            return 0
        start = at * 8 + _TOPIC_BYTE
        self._shared.view[start : start + len(topic)] = topic
        self._words[at + 3], self._words[at + 4] = queue_id, len(topic)
        self._words[_COUNT] = place + 1
        self._at[topic, queue_id] = at
        return at

    # --- readers

    @property
    def began_ms(self) -> int:
        """When it was at zero, ms since 1970."""
        return int(self._words[_BEGAN])

    @property
    def generation(self) -> int:
        """Of the node whose numbers it holds."""
        return int(self._words[_GENERATION])

    @property
    def queue_count(self) -> int:
        return int(self._words[_COUNT])

    def total(self, total: Total) -> int:
        return int(self._words[_TOTALS_AT + total])

    def totals(self) -> dict[str, int]:
        """By name in small letters."""
        return {total.name.lower(): self.total(total) for total in Total}

    def buckets(self) -> list[int]:
        """Requests by how long they took: below each of BUCKETS_MS, and all others."""
        return [int(self._words[_BUCKETS_AT + number]) for number in range(len(BUCKETS_MS) + 1)]

    def table(self) -> npt.NDArray[np.int64]:
        """A copy, a row for each queue by its place: messages, bytes, requests."""
        count = self.queue_count
        found = np.frombuffer(self._words, dtype=np.int64, count=count * _SLOT_WORDS, offset=_HEAD_WORDS * 8)
        return found.reshape(count, _SLOT_WORDS)[:, :3].copy()

    def __iter__(self) -> Iterator[QueueStats]:
        return self.rows()

    def rows(self, first: int = 0) -> Iterator[QueueStats]:
        """Those from the place `first` on; a place keeps its queue."""
        for place in range(first, self.queue_count):
            at = _at(place)
            start = at * 8 + _TOPIC_BYTE
            topic = bytes(self._shared.view[start : start + self._words[at + 4]])
            messages, size, requests, queue_id = self._words[at : at + 4].tolist()
            yield QueueStats(topic, queue_id, messages, size, requests)

    def close(self) -> None:
        self._shared.close()


def _at(place: int) -> int:
    """The first word of a slot; never 0."""
    return _HEAD_WORDS + place * _SLOT_WORDS
