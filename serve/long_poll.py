"""Long polling: holds pulls until their queue's end passes their offset, or until their time-out.

Nothing is checked while nothing is dispatched. Then all held pulls are compared with the queue ends in two numpy
operations, however many they are.
"""

import heapq
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np

from towline.format.wire.frames import Pull
from towline.limits import QUEUES_MAX, TOPIC_QUEUES_MAX
from towline.runtime.queue_ends import QueueEnds

HELD_MAX: Final = QUEUES_MAX
HELD_PER_PEER_MAX: Final = TOPIC_QUEUES_MAX  # a consumer holds one pull per queue it reads
_NEVER: Final = np.iinfo(np.int64).max
_FAR_MS: Final = 1 << 30
_ROOM_FIRST: Final = 64
_STALE_MIN: Final = 1_024  # deadlines of pulls answered long ago, kept at least before they are swept


@dataclass(slots=True)
class HeldPull:
    """A held pull of a peer. `wanted` is the queue offset at which it continues; `due_ms` is monotonic."""

    peer: bytes
    pull: Pull
    wanted: int
    due_ms: int


class HeldPulls:
    """At most `held_max` pulls, and `per_peer_max` of one peer."""

    def __init__(self, ends: QueueEnds, *, held_max: int = HELD_MAX, per_peer_max: int = HELD_PER_PEER_MAX) -> None:
        self._ends = ends
        self._held_max = held_max
        self._per_peer_max = per_peer_max
        self._slots: dict[int, tuple[int, HeldPull]] = {}  # slot -> serial number, pull
        self._free: list[int] = []
        self._of_peer: dict[bytes, set[int]] = {}
        self._placeless: set[int] = set()  # slots of queues that have no end yet
        self._places = np.zeros(_ROOM_FIRST, dtype=np.int64)  # by slot: the queue's place in the table of ends
        self._wanted = np.full(_ROOM_FIRST, _NEVER, dtype=np.int64)
        self._due: list[tuple[int, int, int]] = []  # heap of (time, serial, slot); those answered are passed over
        self._serials = count()
        self._dispatched = -1
        self._queue_count = -1

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, held: HeldPull) -> bool:
        """Holds a pull; False when there is no room, so that it has to be answered at once."""
        of_peer = self._of_peer.get(held.peer, ())
        if len(self._slots) >= self._held_max or len(of_peer) >= self._per_peer_max:
            return False
        slot = self._free.pop() if self._free else len(self._slots)
        if slot == len(self._wanted):
            self._places = np.concatenate((self._places, np.zeros_like(self._places)))
            self._wanted = np.concatenate((self._wanted, np.full_like(self._wanted, _NEVER)))
        serial = next(self._serials)
        self._slots[slot] = (serial, held)
        self._of_peer.setdefault(held.peer, set()).add(slot)
        heapq.heappush(self._due, (held.due_ms, serial, slot))
        if not self._place(slot, held):
            self._placeless.add(slot)
        return True

    def woken(self, dispatched: int) -> list[HeldPull]:
        """Removes and returns pulls whose messages have arrived; checks only when `dispatched` has changed.

        Read DISPATCHED before pulls are tried and added: an end that moves later moves it again.
        """
        if dispatched == self._dispatched:
            return []
        self._dispatched = dispatched
        if not self._slots:
            return []
        self._place_new()
        ends = self._ends.max_offsets()
        if not len(ends):
            return []
        slots = np.flatnonzero(ends[self._places] > self._wanted)
        return [self._take(int(slot)) for slot in slots]

    def overdue(self, now_ms: int) -> list[HeldPull]:
        """Removes and returns the pulls that have timed out."""
        found = []
        while self._due and self._due[0][0] <= now_ms:
            _, serial, slot = heapq.heappop(self._due)
            if self._is_current(serial, slot):
                found.append(self._take(slot))
        return found

    def due_ms(self, now_ms: int) -> int:
        """Milliseconds until the next time-out; a large number when none is held."""
        while self._due and not self._is_current(*self._due[0][1:]):
            heapq.heappop(self._due)
        return max(0, self._due[0][0] - now_ms) if self._due else _FAR_MS

    def drop(self, peer: bytes) -> int:
        """Drops the pulls of a peer that left; returns how many."""
        slots = list(self._of_peer.get(peer, ()))
        for slot in slots:
            self._take(slot)
        return len(slots)

    def take_all(self) -> list[HeldPull]:
        return [self._take(slot) for slot in list(self._slots)]

    def _is_current(self, serial: int, slot: int) -> bool:
        return slot in self._slots and self._slots[slot][0] == serial

    def _place(self, slot: int, held: HeldPull) -> bool:
        place = self._ends.find(held.pull.topic, held.pull.queue_id)
        if place < 0:
            return False
        self._places[slot] = place
        self._wanted[slot] = held.wanted
        return True

    def _place_new(self) -> None:
        """Finds queues that have got their first message since a pull for them was held."""
        if self._placeless and self._ends.count != self._queue_count:
            self._queue_count = self._ends.count
            self._placeless = {slot for slot in self._placeless if not self._place(slot, self._slots[slot][1])}

    def _take(self, slot: int) -> HeldPull:
        _, held = self._slots.pop(slot)
        self._free.append(slot)
        self._wanted[slot] = _NEVER
        self._placeless.discard(slot)
        of_peer = self._of_peer[held.peer]
        of_peer.discard(slot)
        if not of_peer:
            del self._of_peer[held.peer]
        if len(self._due) > 2 * len(self._slots) + _STALE_MIN:
            self._due = [entry for entry in self._due if self._is_current(*entry[1:])]
            heapq.heapify(self._due)
        return held
