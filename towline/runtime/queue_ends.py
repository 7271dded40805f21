"""The end of every ConsumeQueue, in shared memory: written by reput, read by serve, flush, and put at its restart.

    word 0 of the file    magic and layout version
    word 8                count of slots in use, stored after the slot it counts
    slot i                320 bytes from byte 128 + 320 * i:
        word 0  min queue offset      word 1  max queue offset (next to be written)
        word 2  end of the newest dispatched record (physical)
        word 3  queue id              word 4  bytes of the topic     then the topic, at most 255 bytes

A min above the max is the least number that may be read of a topic that was deleted, while older records of it are
derived again: readers see such a queue as empty at its max.

A sparse file in memory, whose pages are reserved as slots are added: those never used cost nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.errors import PositionsUnusable, TooManyQueues
from towline.limits import QUEUES_MAX, RETRY_TOPIC_SIZE_MAX

from .shared import STEP, SharedWords

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
        self.floors: Mapping[tuple[bytes, int], int] = {}  # of deleted topics, for `add`
        self.minima: Mapping[tuple[bytes, int], int] = {}  # to which queues were cut by their topics' retention, for it

    @classmethod
    def create(cls, path: Path) -> "QueueEnds":
        shared = SharedWords.create(path, _SIZE, reserved=STEP)
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
        """The place of a new queue, whose min is at least its floor. Raises TooManyQueues, RuntimeDirectoryFull."""
        queue = (topic, queue_id)
        min_offset = max(min_offset, self.floors.get(queue, 0), self.minima.get(queue, 0))
        place = self.count
        if place == QUEUES_MAX:
            raise TooManyQueues(QUEUES_MAX)
        at = _HEAD_WORDS + place * _SLOT_WORDS
        self._shared.reserve((at + _SLOT_WORDS) * 8)
        start = at * 8 + _TOPIC_BYTE
        self._shared.view[start : start + len(topic)] = topic
        for word, value in enumerate((min_offset, max_offset, physical_end, queue_id, len(topic))):
            self._words[at + word] = value
        self._words[8] = place + 1
        return place

    def move_all(
        self, places: npt.NDArray[np.int64], max_offsets: npt.NDArray[np.int64], physical_ends: npt.NDArray[np.int64]
    ) -> None:
        """Many queues, each once: first all physical ends, then all max offsets."""
        table = self._table()
        table[places, 2] = physical_ends
        table[places, 1] = max_offsets

    def move_min(self, place: int, min_offset: int) -> None:
        self._words[_HEAD_WORDS + place * _SLOT_WORDS] = min_offset

    def raise_min(self, place: int, floor: int) -> bool:
        """Nothing below `floor` is read from now on, even if the queue has not reached it yet. Whether that is new."""
        word = _HEAD_WORDS + place * _SLOT_WORDS
        if self._words[word] >= floor:
            return False
        self._words[word] = floor
        return True

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
        high = int(self._words[at + 1])
        return min(int(self._words[at]), high), high

    def max_offset(self, place: int) -> int:
        return int(self._words[_HEAD_WORDS + place * _SLOT_WORDS + 1])

    def max_offsets(self) -> npt.NDArray[np.int64]:
        """A copy of every queue's max offset, by place."""
        return self._table()[:, 1].copy()

    def columns(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Copies by place: min offsets, max offsets, physical ends."""
        low, high, physical_end = self._table()[:, :3].T.copy()
        return np.minimum(low, high), high, physical_end

    def _table(self) -> npt.NDArray[np.int64]:
        count = self.count
        table = np.frombuffer(self._words, dtype=np.int64, count=count * _SLOT_WORDS, offset=_HEAD_WORDS * 8)
        return table.reshape(count, _SLOT_WORDS)

    def read(self, place: int) -> QueueEnd:
        at = _HEAD_WORDS + place * _SLOT_WORDS
        topic, queue_id = self._key(place)
        end = int(self._words[at + 2])
        return QueueEnd(topic, queue_id, *self.bounds(place), end)

    def __iter__(self) -> Iterator[QueueEnd]:
        return (self.read(place) for place in range(self.count))

    def _key(self, place: int) -> tuple[bytes, int]:
        at = _HEAD_WORDS + place * _SLOT_WORDS
        start = at * 8 + _TOPIC_BYTE
        return bytes(self._shared.view[start : start + self._words[at + 4]]), int(self._words[at + 3])

    def close(self) -> None:
        self._shared.close()
