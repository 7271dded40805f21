"""The end of every ConsumeQueue, in shared memory: written by reput, read by serve, flush, and put at its restart.

    word 0 of the file    magic and layout version
    word 8                count of slots in use, stored after the slot it counts
    slot i                320 bytes from byte 128 + 320 * i:
        word 0  min queue offset      word 1  max queue offset (next to be written)
        word 2  end of the newest dispatched record (physical)
        word 3  queue id              word 4  bytes of the topic     then the topic, at most 255 bytes

A sparse file in memory: slots never used cost nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.errors import PositionsUnusable, TooManyQueues
from towline.limits import QUEUES_MAX, RETRY_TOPIC_SIZE_MAX

from .shared import SharedWords

MAGIC: Final = 0x3153444E45515754
_HEAD_WORDS: Final = 16
_SLOT_WORDS: Final = 40
_TOPIC_BYTE: Final = 5 * 8
_SIZE: Final = (_HEAD_WORDS + QUEUES_MAX * _SLOT_WORDS) * 8
assert _TOPIC_BYTE + RETRY_TOPIC_SIZE_MAX <= _SLOT_WORDS * 8


@dataclass(frozen=True, slots=True)
class QueueEnd:
    """A moment's view of one slot."""

    topic: bytes
    queue_id: int
    min_offset: int
    max_offset: int
    physical_end: int


class QueueEnds:
    """The mapped table. Only reput (and recovery before it) calls `add`, `move` and `move_min`."""

    def __init__(self, shared: SharedWords) -> None:
        self._shared = shared
        self._words = shared.words
        self._places: dict[tuple[bytes, int], int] = {}

    @classmethod
    def create(cls, path: Path) -> "QueueEnds":
        shared = SharedWords.create(path, _SIZE)
        shared.words[0] = MAGIC
        return cls(shared)

    @classmethod
    def open(cls, path: Path, *, writable: bool = False) -> "QueueEnds":
        try:
            shared = SharedWords.open(path, writable=writable)
        except (OSError, ValueError) as error:
            raise PositionsUnusable(str(path), f"cannot be mapped ({error})") from None
        if len(shared.words) * 8 != _SIZE or shared.words[0] != MAGIC:
            raise PositionsUnusable(str(path), "is not a table of queue ends of this version")
        return cls(shared)

    @property
    def count(self) -> int:
        return int(self._words[8])

    def add(self, topic: bytes, queue_id: int, min_offset: int, max_offset: int, physical_end: int) -> int:
        """The place of a new queue. Raises TooManyQueues."""
        place = self.count
        if place == QUEUES_MAX:
            raise TooManyQueues(QUEUES_MAX)
        at = _HEAD_WORDS + place * _SLOT_WORDS
        start = at * 8 + _TOPIC_BYTE
        self._shared.view[start : start + len(topic)] = topic
        for word, value in enumerate((min_offset, max_offset, physical_end, queue_id, len(topic))):
            self._words[at + word] = value
        self._words[8] = place + 1
        return place

    def move(self, place: int, max_offset: int, physical_end: int) -> None:
        at = _HEAD_WORDS + place * _SLOT_WORDS
        self._words[at + 2] = physical_end
        self._words[at + 1] = max_offset

    def move_min(self, place: int, min_offset: int) -> None:
        self._words[_HEAD_WORDS + place * _SLOT_WORDS] = min_offset

    def find(self, topic: bytes, queue_id: int) -> int:
        """The place of a queue, -1 when nothing was ever dispatched to it."""
        key = (topic, queue_id)
        place = self._places.get(key, -1)
        if place < 0 and len(self._places) < self.count:
            for new in range(len(self._places), self.count):
                self._places[self._key(new)] = new
            place = self._places.get(key, -1)
        return place

    def bounds(self, place: int) -> tuple[int, int]:
        """(min, max) queue offset."""
        at = _HEAD_WORDS + place * _SLOT_WORDS
        return int(self._words[at]), int(self._words[at + 1])

    def max_offset(self, place: int) -> int:
        return int(self._words[_HEAD_WORDS + place * _SLOT_WORDS + 1])

    def max_offsets(self) -> npt.NDArray[np.int64]:
        """A copy of every queue's max offset, by place."""
        return self._table()[:, 1].copy()

    def columns(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Copies by place: min offsets, max offsets, physical ends."""
        low, high, physical_end = self._table()[:, :3].T.copy()
        return low, high, physical_end

    def _table(self) -> npt.NDArray[np.int64]:
        count = self.count
        table = np.frombuffer(self._words, dtype=np.int64, count=count * _SLOT_WORDS, offset=_HEAD_WORDS * 8)
        return table.reshape(count, _SLOT_WORDS)

    def read(self, place: int) -> QueueEnd:
        at = _HEAD_WORDS + place * _SLOT_WORDS
        topic, queue_id = self._key(place)
        low, high, end = self._words[at], self._words[at + 1], self._words[at + 2]
        return QueueEnd(topic, queue_id, int(low), int(high), int(end))

    def __iter__(self) -> Iterator[QueueEnd]:
        return (self.read(place) for place in range(self.count))

    def _key(self, place: int) -> tuple[bytes, int]:
        at = _HEAD_WORDS + place * _SLOT_WORDS
        start = at * 8 + _TOPIC_BYTE
        return bytes(self._shared.view[start : start + self._words[at + 4]]), int(self._words[at + 3])

    def close(self) -> None:
        self._shared.close()
