"""A buffer of queue entries over several batches, flushed when writes to each queue are large enough."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from towline.format.files.consume_queue import SIZE
from towline.kernels.jit.rows import RUN
from towline.kernels.scan.gather import (
    BYTES_USED,
    GATHER_STATE_SIZE,
    NEXT_RUN,
    NONE,
    PLACE,
    QUEUE_COUNT,
    gather_runs,
    merge_runs,
)

from .queue_entries import Round

_TARGET: Final = 4 * 1024 * 1024  # bytes merged at a time: still in the cache when they are written
_MERGED: Final = 65_536  # runs


class Gather:
    """At most `entries_max` entries of queues that are numbered below `queues`."""

    def __init__(self, entries_max: int, queues: int) -> None:
        self.entries_max, self.queues = entries_max, queues
        self._runs = np.zeros(entries_max, dtype=RUN)
        self._entries = np.zeros(entries_max * SIZE, dtype=np.uint8)
        self._links = np.zeros(entries_max, dtype=np.int32)
        self._heads = np.full(queues, NONE, dtype=np.int32)
        self._tails = np.zeros(queues, dtype=np.int32)
        self._order = np.zeros(queues, dtype=np.int32)
        self._state = np.zeros(GATHER_STATE_SIZE, dtype=np.int64)
        self._merged = np.zeros(min(entries_max, _MERGED), dtype=RUN)
        self._target = np.zeros(_TARGET, dtype=np.uint8)

    @property
    def room(self) -> int:
        """For so many more entries."""
        return self.entries_max - int(self._state[BYTES_USED]) // SIZE

    def add(self, one: Round) -> None:
        """Copies the entries of a round, none of whose runs is larger than 4 MiB; there must be room."""
        assert int(one.runs["count"].sum()) <= self.room
        gather_runs(
            one.runs,
            one.entries,
            self._runs,
            self._entries,
            self._heads,
            self._tails,
            self._links,
            self._order,
            self._state,
        )

    def rounds(self) -> Iterator[Round]:
        """Everything, each queue's entries together as far as 4 MiB hold them; a round overwrites the one before.

        Afterwards nothing is here.
        """
        self._state[PLACE], self._state[NEXT_RUN] = 0, NONE
        while opened := merge_runs(
            self._runs,
            self._entries,
            self._heads,
            self._links,
            self._order,
            self._merged,
            self._target,
            self._state,
        ):
            yield Round(self._merged[:opened], self._target, 0, self._order[:0])
        self.clear()

    def clear(self) -> None:
        self._heads[self._order[: self._state[QUEUE_COUNT]]] = NONE
        self._state[:] = 0
