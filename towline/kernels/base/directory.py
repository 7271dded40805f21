"""Numbers for (topic, queue id) pairs, in arrays that kernels read."""

from typing import Final

import numpy as np

from towline.errors import TooManyQueues
from towline.kernels.jit.compiled import I64, QUEUES_READ, READ, WORDS_READ, Bytes, Rows, Words, helper, kernel
from towline.kernels.jit.rows import QUEUE
from towline.limits import QUEUES_MAX

from .shape import same_bytes
from .words import load_u8, raw_i64

NONE: Final = -1
_EMPTY: Final = -1  # in a slot
_MIX: Final = 0x1E37_79B9_7F4A_7C15
_QUEUES_AT_FIRST: Final = 64
_ARENA_AT_FIRST: Final = 2048
_SLOTS_PER_QUEUE: Final = 2  # at least, so that a walk over taken slots stays short


@helper
def queue_hash(buffer: Bytes, start: int, length: int, queue_id: int) -> int:
    """Any number that is the same for the same topic and queue id. Signed 64 bits."""
    hashed = (queue_id + length) * _MIX
    if length >= 8:
        last = start + length - 8
        for at in range(start, last, 8):
            hashed = (hashed ^ raw_i64(buffer, at)) * _MIX
            hashed ^= hashed >> 32
        word = raw_i64(buffer, last)
    else:
        word = 0
        for at in range(start, start + length):
            word = (word << 8) | load_u8(buffer, at)
    hashed = (hashed ^ word) * _MIX
    return hashed ^ (hashed >> 32)


@helper
def is_queue(queues: Rows, number: int, arena: Bytes, buffer: Bytes, start: int, length: int, queue_id: int) -> bool:
    """Whether the pair has this number."""
    queue = queues[number]
    if queue.queue_id != queue_id or queue.topic_length != length:
        return False
    return same_bytes(arena, queue.topic_start, buffer, start, length)


@helper
def find(
    slots: Words, queues: Rows, arena: Bytes, buffer: Bytes, start: int, length: int, queue_id: int
) -> tuple[int, int, int]:
    """The number of the pair or NONE, the slot where it stands or would stand, and its hash."""
    hashed = queue_hash(buffer, start, length, queue_id)
    mask = slots.size - 1
    slot = hashed & mask
    while slots[slot] != _EMPTY:
        number = int(slots[slot])
        if queues[number].hashed == hashed and is_queue(queues, number, arena, buffer, start, length, queue_id):
            return number, slot, hashed
        slot = (slot + 1) & mask
    return NONE, slot, hashed


@kernel(I64(WORDS_READ, QUEUES_READ, READ, READ, I64))
def find_queue(slots: Words, queues: Rows, arena: Bytes, topic: Bytes, queue_id: int) -> int:
    """The number of the pair, or NONE."""
    return find(slots, queues, arena, topic, 0, topic.size, queue_id)[0]


@kernel(I64(READ, I64))
def hash_queue(topic: Bytes, queue_id: int) -> int:
    return queue_hash(topic, 0, topic.size, queue_id)


class QueueDirectory:
    """Numbers the pairs 0, 1, 2 ... in the order in which they are added; none is ever taken out."""

    def __init__(self) -> None:
        self._count = 0
        self._arena_used = 0
        self._queues = np.zeros(_QUEUES_AT_FIRST, QUEUE)
        self._arena = np.zeros(_ARENA_AT_FIRST, np.uint8)
        self._slots = np.full(_SLOTS_PER_QUEUE * _QUEUES_AT_FIRST, _EMPTY, np.int32)

    def __len__(self) -> int:
        return self._count

    @property
    def arrays(self) -> tuple[Words, Rows, Bytes]:
        """Slots, queues, arena: what `scan_dispatch` takes. `add` may replace them, so ask for them at each call."""
        return self._slots, self._queues, self._arena

    def lookup(self, topic: bytes, queue_id: int) -> int:
        """The pair's number, or NONE (-1)."""
        name = np.frombuffer(topic, np.uint8)
        return find_queue(self._slots, self._queues, self._arena, name, queue_id)

    def add(self, topic: bytes, queue_id: int) -> int:
        """The pair's number, new if it had none. Raises TooManyQueues above QUEUES_MAX of them."""
        number = self.lookup(topic, queue_id)
        if number != NONE:
            return number
        number = self._count
        if number >= QUEUES_MAX:
            raise TooManyQueues(QUEUES_MAX)
        name = np.frombuffer(topic, np.uint8)
        start = self._reserve(len(topic))
        self._arena[start : start + len(topic)] = name
        hashed = hash_queue(name, queue_id)
        self._queues[number] = (hashed, start, len(topic), queue_id)
        self._place(hashed, number)
        self._count += 1
        return number

    def topic(self, number: int) -> bytes:
        """The topic of a number given by `add`."""
        start, length = self._row(number)[1:3]
        return self._arena[start : start + length].tobytes()

    def queue_id(self, number: int) -> int:
        """The queue id of a number given by `add`."""
        return self._row(number)[3]

    def _row(self, number: int) -> tuple[int, int, int, int]:
        assert 0 <= number < self._count, f"no queue has number {number}"
        row: tuple[int, int, int, int] = self._queues[number].item()
        return row

    def _reserve(self, size: int) -> int:
        """Makes room for one more pair whose topic has `size` bytes; the place of the topic in the arena."""
        start = self._arena_used
        self._arena_used += size
        while self._arena_used > self._arena.size:
            self._arena = np.concatenate((self._arena, np.zeros_like(self._arena)))
        if self._count == self._queues.size:
            self._queues = np.concatenate((self._queues, np.zeros_like(self._queues)))
            self._slots = np.full(_SLOTS_PER_QUEUE * self._queues.size, _EMPTY, np.int32)
            for number in range(self._count):
                self._place(self._row(number)[0], number)
        return start

    def _place(self, hashed: int, number: int) -> None:
        mask = self._slots.size - 1
        slot = hashed & mask
        while self._slots[slot] != _EMPTY:
            slot = (slot + 1) & mask
        self._slots[slot] = number
