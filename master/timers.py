"""Messages with a time of their own: queue 0 of rmq_sys_wheel_timer holds them, queue 1 what cancels them.

Both queues are read from the ConsumeQueues; a wheel in memory sorts what waits, and is built again at each start. What
is through is said in numbers: all of queue 0 that stands before `up_to` and is not later than (due, offset) is through,
everything else waits; nothing that waits stands before `start`, nothing that still cancels before `cancels_start`.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.format.forms import CANCEL_QUEUE, TIMER_QUEUE, TIMER_TOPIC
from towline.format.rules import Rule
from towline.log.consume_queue import ConsumeQueueFiles, is_filler
from towline.runtime.queue_ends import QueueEnds

from .delivery import Due
from .restoring import Places, Restorer, Rows, Sizes
from .wheel import ROW, Blocks, Waiting, Wheel

SCAN_COUNT: Final = 4096  # entries looked at in one go
SCANS_PER_TURN: Final = 8
FAR_MS: Final = 1 << 40
_TOPIC: Final = TIMER_TOPIC.encode()


@dataclass(frozen=True, slots=True)
class Through:
    """What of the timer topic need not be looked at again."""

    due: int = 0
    offset: int = -1
    up_to: int = 0
    start: int = 0
    cancels_start: int = 0


class Timers:
    """The source of what has a time. `safe_ms`: every cancellation that put took before is known (epoch ms)."""

    def __init__(self, files: ConsumeQueueFiles, ends: QueueEnds, restorer: Restorer, through: Through) -> None:
        self.name = "the messages with a time"
        self._files, self._ends, self._restorer = files, ends, restorer
        self._wheel = Wheel()
        self._low = Blocks()
        self._delivered = (through.due, through.offset)
        self._known = through.up_to
        self._next = through.start
        self._next_cancel = through.cancels_start
        self._cancels: dict[int, dict[bytes, int]] = {}  # time -> key -> queue offset of the cancellation
        self._cancel_order: list[int] = []
        self._cancel_low = Blocks()
        self._head: Waiting = np.zeros(0, dtype=ROW)
        self.safe_ms = 0
        self.caught_up = False  # the last scan reached the ends that the queues had when it began
        self.end = 0
        self.cancelled = 0
        self.unreadable = 0

    def pending(self) -> int:
        return len(self._wheel) + len(self._head)

    def clamp(self) -> int:
        """After a start: what lies beyond a queue's end is forgotten (H15). By how much."""
        _, end = self._bounds(TIMER_QUEUE)
        _, cancel_end = self._bounds(CANCEL_QUEUE)
        beyond = max(0, self._known - end)
        self._known = min(self._known, end)
        self._next, self._next_cancel = min(self._next, end), min(self._next_cancel, cancel_end)
        return beyond

    def scan(self) -> int:
        """Looks at what came; how many entries. Cancellations first: they stand behind what they cancel in the log."""
        cancels_end, end = self._bounds(CANCEL_QUEUE)[1], self._bounds(TIMER_QUEUE)[1]
        done = 0
        for _ in range(SCANS_PER_TURN):
            found = self._scan_cancels() + self._scan_messages()
            if not found:
                break
            done += found
        self.caught_up = self._next_cancel >= cancels_end and self._next >= end
        return done

    def due(self, count: int, now_ms: int) -> Due | None:
        if self._next < self._known:  # what the process before had seen comes first, or it would count as through
            return None
        if not len(self._head):
            self._head = self._wheel.take(min(now_ms, self.safe_ms), count)
        head = self._head[:count]
        return Due(head["position"].copy(), head["size"].copy()) if len(head) else None

    def kept(self, due: Due, rows: Rows) -> npt.NDArray[np.bool_]:
        kept = np.ones(len(rows), dtype=np.bool_)
        if not self._cancels:
            return kept
        times = self._head["due"][: len(rows)]
        for time in np.unique(times).tolist():
            keys = self._cancels.get(time)
            if keys is None:
                continue
            for place in np.flatnonzero(times == time).tolist():
                row = rows[place]
                key = self._restorer.text(due.positions, place, int(row["key_start"]), int(row["key_length"]))
                kept[place] = key not in keys
        return kept

    def done(self, count: int, end: int) -> None:
        through = self._head[:count]
        self._low.remove(through["offset"])
        last = (int(through[-1]["due"]), int(through[-1]["offset"]))
        self._head = self._head[count:]
        self._delivered = max(self._delivered, last)
        self.end = max(self.end, end)
        self._forget_cancels()

    def due_ms(self, now_ms: int) -> int:
        """ms until something may be due; FAR_MS while nothing waits."""
        following = self._next_due()
        return FAR_MS if following is None else max(0, following - now_ms)

    def through(self) -> Through:
        """For the next start."""
        due, offset = self._delivered
        waiting = np.concatenate((self._head, self._wheel.near()))
        late = waiting["offset"][(waiting["due"] < due) | ((waiting["due"] == due) & (waiting["offset"] <= offset))]
        up_to = max(self._next, self._known)
        if len(late):  # they came when their time was over
            up_to = min(up_to, int(late.min()))
        low, cancel_low = self._low.lowest(), self._cancel_low.lowest()
        start = min(up_to if low is None else low, up_to, self._next)
        cancels_start = self._next_cancel if cancel_low is None else min(cancel_low, self._next_cancel)
        return Through(due, offset, up_to, start, cancels_start)

    def _next_due(self) -> int | None:
        return int(self._head["due"][0]) if len(self._head) else self._wheel.next_due()

    # --- the queues

    def _bounds(self, queue_id: int) -> tuple[int, int]:
        place = self._ends.find(_TOPIC, queue_id)
        return (0, 0) if place < 0 else self._ends.bounds(place)

    def _read(self, queue_id: int, offset: int) -> tuple[int, Places, Sizes, Rows]:
        """The offset of the first entry read, and the records of those that follow; none for a hole."""
        low, high = self._bounds(queue_id)
        offset = max(offset, low)
        entries = self._files.read(TIMER_TOPIC, queue_id, offset, min(SCAN_COUNT, max(0, high - offset)))
        positions, sizes = entries["physical_offset"].astype(np.int64), entries["record_size"].astype(np.int32)
        positions[is_filler(entries)] = 0
        sizes[is_filler(entries)] = 0
        return offset, positions, sizes, self._restorer.look(positions, sizes)

    def _scan_messages(self) -> int:
        if self._next >= self._bounds(TIMER_QUEUE)[1]:
            return 0
        first, positions, sizes, rows = self._read(TIMER_QUEUE, self._next)
        waiting = np.zeros(len(rows), dtype=ROW)
        waiting["due"], waiting["offset"] = rows["time"], first + np.arange(len(rows))
        waiting["position"], waiting["size"] = positions, sizes
        sound = (rows["rule"] == Rule.OK) & (rows["time"] >= 0)
        self.unreadable += int(np.count_nonzero(~sound))
        due, offset = self._delivered
        later = (waiting["due"] > due) | ((waiting["due"] == due) & (waiting["offset"] > offset))
        waiting = waiting[sound & ((waiting["offset"] >= self._known) | later)]
        self._wheel.add(waiting)
        self._low.add(waiting["offset"])
        self._next = first + len(rows)
        return len(rows)

    def _scan_cancels(self) -> int:
        if self._next_cancel >= self._bounds(CANCEL_QUEUE)[1]:
            return 0
        first, positions, _, rows = self._read(CANCEL_QUEUE, self._next_cancel)
        for place in np.flatnonzero((rows["rule"] == Rule.OK) & (rows["cancelled_length"] > 0)).tolist():
            row = rows[place]
            start, length = int(row["cancelled_start"]), int(row["cancelled_length"])
            self._cancel(int(row["time"]), self._restorer.text(positions, place, start, length), first + place)
        self._next_cancel = first + len(rows)
        return len(rows)

    def _cancel(self, time: int, key: bytes, offset: int) -> None:
        keys = self._cancels.get(time)
        if keys is None:
            keys = self._cancels[time] = {}
            heappush(self._cancel_order, time)
        if key not in keys:
            keys[key] = offset
            self._cancel_low.add(np.array([offset]))
            self.cancelled += 1

    def _forget_cancels(self) -> None:
        """Of times that are through: whatever they cancelled has been left out."""
        following = self._next_due()
        before = self._delivered[0] if following is None else min(self._delivered[0], following)
        while self._cancel_order and self._cancel_order[0] < before:
            offsets = self._cancels.pop(heappop(self._cancel_order)).values()
            self._cancel_low.remove(np.fromiter(offsets, dtype=np.int64, count=len(offsets)))
