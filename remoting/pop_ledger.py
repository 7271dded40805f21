"""What a group has popped from one queue: which messages are out, until when, and how far everything is done.

A message is out from its pop until it is acknowledged, or stands in the group's retry topic. The group's offset is that
of the first message that is out; it never passes one. Nothing of this is on the disk: who loses it begins again at the
group's offset, and what was out comes again.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

TIMES_KEPT: Final = 1_024  # messages of an ordered pop, of which it is known how often they were popped


@dataclass(slots=True, eq=False)
class Popped:
    """One message that is out, until `until_ms` (monotonic). `place` is its record's, in the log; `pop_time` of the
    wall clock."""

    pop_time: int
    until_ms: int
    place: int
    ordered: bool
    returns: bool = False  # it is on its way to the retry topic


class PopLedger:
    """The messages of one queue that are out."""

    def __init__(self, offset: int) -> None:
        """Everything before `offset` is done."""
        self.next = offset  # the first message that was not popped
        self.committed = -1  # what serve was told last
        self._out: dict[int, Popped] = {}
        self._ascending: deque[int] = deque()  # offsets in the order of their pops; those that are done are passed over
        self._overdue: list[tuple[int, int]] = []  # heap of (until, offset), of which some hold no more
        self._is_ordered = False
        self._attempt = ""  # of the last ordered pop
        self._times: dict[int, int] = {}  # how often messages of the last ordered pop were popped before

    def __len__(self) -> int:
        return len(self._out)

    @property
    def done(self) -> int:
        """The offset of the group: of the first message that is out, or was not popped."""
        while self._ascending and self._ascending[0] not in self._out:
            self._ascending.popleft()
        return self._ascending[0] if self._ascending else self.next

    # --- pops

    def add(
        self,
        offsets: Sequence[int],
        places: Sequence[int],
        following: int,
        pop_time: int,
        until_ms: int,
        *,
        ordered: bool,
    ) -> None:
        """Messages were popped; the next pop begins at `following`."""
        for offset, place in zip(offsets, places, strict=True):
            self._out[offset] = Popped(pop_time, until_ms, place, ordered)
            if not ordered:
                heapq.heappush(self._overdue, (until_ms, offset))
        self._ascending.extend(offsets)
        self._is_ordered = ordered
        self.next = following

    def skip(self, following: int) -> None:
        """The messages up to there are not for the group: filtered, or no longer in the log."""
        self.next = following

    def ack(self, offset: int, pop_time: int) -> bool:
        """A message is done. False where it is not out by this pop: it may have been popped again since."""
        if not self._is_out(offset, pop_time):
            return False
        del self._out[offset]
        return True

    def extend(self, offset: int, pop_time: int, new_pop_time: int, until_ms: int) -> bool:
        """A message stays out until then. False where it is not out by this pop."""
        if not self._is_out(offset, pop_time):
            return False
        popped = self._out[offset]
        popped.pop_time, popped.until_ms = new_pop_time, until_ms
        if not popped.ordered:
            heapq.heappush(self._overdue, (until_ms, offset))
        return True

    def _is_out(self, offset: int, pop_time: int) -> bool:
        popped = self._out.get(offset)
        return popped is not None and popped.pop_time == pop_time

    # --- what is overdue

    def take_overdue(self, now_ms: int, most: int) -> list[tuple[int, Popped]]:
        """Messages that were not acknowledged in time, with their offsets: the caller puts them into the retry
        topic."""
        found: list[tuple[int, Popped]] = []
        while len(found) < most and self._overdue and self._overdue[0][0] <= now_ms:
            until_ms, offset = heapq.heappop(self._overdue)
            popped = self._out.get(offset)
            if popped is not None and popped.until_ms == until_ms and not (popped.returns or popped.ordered):
                popped.returns = True
                found.append((offset, popped))
        return found

    def returned(self, offset: int, popped: Popped) -> bool:
        """A message stands in the retry topic, or is gone with the segment that it stood in. False where it was done
        meanwhile."""
        if self._out.get(offset) is not popped:
            return False
        del self._out[offset]
        return True

    def not_returned(self, offset: int, popped: Popped, again_ms: int) -> None:
        """It could not be put into the retry topic: it is overdue again at that time."""
        popped.returns, popped.until_ms = False, again_ms
        heapq.heappush(self._overdue, (again_ms, offset))

    # --- order

    @property
    def is_ordered(self) -> bool:
        """Whether its last pop was one in order."""
        return self._is_ordered

    def is_blocked(self, attempt: str, now_ms: int) -> bool:
        """Whether an ordered pop has to wait: for acks of the pop before it, or until that one's time is over. The same
        attempt gets the same messages again."""
        if attempt and attempt == self._attempt:
            return False
        return any(popped.until_ms > now_ms for popped in self._out.values())

    def rewind(self, attempt: str) -> None:
        """Begins an ordered pop: what is still out is popped again, from the first such message on."""
        more = int(not attempt or attempt != self._attempt)
        again = {offset: self._times.get(offset, 0) + more for offset in self._out}
        self.next = self.done
        self._out.clear()
        self._ascending.clear()
        self._times = dict(list(again.items())[:TIMES_KEPT])
        self._attempt = attempt

    def times(self, offsets: Sequence[int]) -> dict[int, int]:
        """How often these messages were popped before; without those that never were."""
        return {offset: self._times[offset] for offset in offsets if self._times.get(offset)}
