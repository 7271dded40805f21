"""Timed messages: queue 0 of rmq_sys_wheel_timer holds them, queue 1 their cancellations.

Both queues are read from the ConsumeQueues; a wheel in memory sorts what waits, and is built again at each start.
Progress is kept as numbers: a message of queue 0 that stands before `up_to` and is not later than (due, offset) is
delivered, every other one waits; no waiting message stands before `start`, no effective cancellation before
`cancels_start`.

A clock that goes back behind the newest delivery would make all that arrives afterwards look late, and `up_to` stop. So
what was delivered until then is kept as a mark of its own (`earlier`), and (due, offset) begins anew; the mark is
dropped when (due, offset) has passed it.

The wheel holds all messages that are due before the horizon. Where more wait than fit in memory, the latest half is
evicted and the horizon moves nearer; when few are left before it, the queues are read again from the first waiting
message.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.format.record.forms import CANCEL_QUEUE, TIMER_QUEUE, TIMER_TOPIC
from towline.format.record.rules import Rule
from towline.log.queues.consume_queue import ConsumeQueueFiles, is_filler
from towline.runtime.queue_ends import QueueEnds

from .delivery import DueRecords
from .restoring import Places, Restorer, Rows, Sizes
from .wheel import ROW, Blocks, Waiting, Wheel, begin_of_block, lowest_until, until

SCAN_COUNT: Final = 4096  # entries looked at in one go
SCANS_PER_TURN: Final = 8
FAR_MS: Final = 1 << 40
ROWS_MAX: Final = 1 << 19  # in memory: 16 MiB
_NEVER: Final = 1 << 62
_NOWHERE: Final = np.zeros(0, dtype=np.int64)
MARKS_MAX: Final = 8  # that are noted; what further ones say comes twice after a crash
_TOPIC: Final = TIMER_TOPIC.encode()


@dataclass(frozen=True, slots=True)
class DeliveredMark:
    """Every message that stands before `up_to` and is not later than (due, offset) is delivered."""

    due: int = 0
    offset: int = -1
    up_to: int = 0


@dataclass(frozen=True, slots=True)
class TimerState(DeliveredMark):
    """Which part of the timer topic need not be read again. `earlier`: marks from before the clock went back."""

    start: int = 0
    cancels_start: int = 0
    earlier: tuple[DeliveredMark, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """Rows of a queue from offset `first` on; a hole has no record."""

    first: int
    positions: Places
    sizes: Sizes
    rows: Rows

    @property
    def end(self) -> int:
        return self.first + len(self.rows)

    @property
    def offsets(self) -> Places:
        return self.first + np.arange(len(self.rows))

    @property
    def sound(self) -> npt.NDArray[np.bool_]:
        sound: npt.NDArray[np.bool_] = (self.rows["rule"] == Rule.OK) & (self.rows["time"] >= 0)
        return sound

    def waiting(self) -> Waiting:
        waiting = np.zeros(len(self.rows), dtype=ROW)
        waiting["due"], waiting["offset"] = self.rows["time"], self.offsets
        waiting["position"], waiting["size"] = self.positions, self.sizes
        return waiting[self.sound]


@dataclass(slots=True)
class ClockEra:
    """The deliveries before a clock step back: messages before `end`, not later than (due, offset), except `waits`."""

    due: int
    offset: int
    end: int
    waits: Places

    def mark(self) -> DeliveredMark:
        return DeliveredMark(self.due, self.offset, min(self.end, int(self.waits.min(initial=_NEVER))))

    def was_delivered(self, waiting: Waiting) -> npt.NDArray[np.bool_]:
        """Which of these messages were delivered in this era: a mask."""
        message: npt.NDArray[np.bool_] = until(waiting, self.due, self.offset) & (waiting["offset"] < self.end)
        return message & ~np.isin(waiting["offset"], self.waits)


@dataclass(slots=True)
class Rescan:
    """A pass that reads evicted messages again: the next offset and the end, for either queue."""

    cancels_start: int
    cancel: int
    cancels_end: int
    next: int
    end: int


class Timers:
    """The source of timed messages. Every cancellation that put accepted before `safe_ms` (epoch ms) is known."""

    def __init__(
        self,
        files: ConsumeQueueFiles,
        ends: QueueEnds,
        restorer: Restorer,
        through: TimerState,
        rows_max: int = ROWS_MAX,
    ) -> None:
        self.name = "the messages with a time"
        self._files, self._ends, self._restorer = files, ends, restorer
        self._rows_max = rows_max
        self._wheel = Wheel()
        self._waiting = Blocks()  # of all that waits, in memory or not
        self._horizon = _NEVER  # all that is due before is in memory
        self._limit = _NEVER  # what is due before is taken into memory; beyond the horizon while it is read again
        self._again: Rescan | None = None
        self._delivered = (through.due, through.offset)
        self._eras = [ClockEra(mark.due, mark.offset, mark.up_to, _NOWHERE) for mark in through.earlier]
        self._known = through.up_to
        self._next = through.start
        self._next_cancel = through.cancels_start
        self._cancels: dict[int, set[bytes]] = {}  # time -> keys
        self._cancel_places: dict[int, list[int]] = {}  # time -> queue offsets
        self._cancel_order: list[int] = []
        self._cancelling = Blocks()  # of those in memory
        self._cancels_left = _NEVER  # the first that is not, of those that may cancel something
        self._head: Waiting = np.zeros(0, dtype=ROW)
        self._low = 0
        self.safe_ms = 0
        self.caught_up = False  # the last scan reached the ends that the queues had when it began
        self.end = 0
        self.gone = 0
        self.doubtful = 0

    @property
    def in_memory(self) -> int:
        """The number of rows in memory."""
        return len(self._wheel) + len(self._head)

    def pending(self) -> int:
        return self._waiting.total

    def clamp(self) -> int:
        """Clamps, after a start, progress beyond a queue's end (H15); returns by how much."""
        low, end = self._bounds(TIMER_QUEUE)
        cancel_end = self._bounds(CANCEL_QUEUE)[1]
        beyond = max(0, self._known - end)
        self._known = min(self._known, end)
        for era in self._eras:
            era.end = min(era.end, end)
        self.doubtful = max(0, min(low, self._known) - self._next)
        self._next, self._next_cancel = min(self._next, end), min(self._next_cancel, cancel_end)
        return beyond

    def scan(self) -> int:
        """Reads new entries, cancellations first, as they follow in the log what they cancel; returns how many."""
        self._drop_cleaned()
        cancels_end, end = self._bounds(CANCEL_QUEUE)[1], self._bounds(TIMER_QUEUE)[1]
        done = 0
        for _ in range(SCANS_PER_TURN):
            found = self._scan_cancels() + self._scan_messages() + self._rescan_step()
            if not found:
                break
            done += found
        self.caught_up = self._next_cancel >= cancels_end and self._next >= end
        return done

    def due(self, count: int, now_ms: int) -> DueRecords | None:
        if self._next < self._known:  # what the process before had seen comes first, or it would count as through
            return None
        self._handle_clock_step(now_ms)
        if not len(self._head):
            self._head = self._wheel.pop(min(now_ms, self.safe_ms, self._horizon - 1), count)
        head = self._head[:count]
        return DueRecords(head["position"].copy(), head["size"].copy()) if len(head) else None

    def kept(self, due: DueRecords, rows: Rows) -> npt.NDArray[np.bool_]:
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
        self._waiting.remove(through["offset"])
        last = (int(through[-1]["due"]), int(through[-1]["offset"]))
        self._head = self._head[count:]
        for era in self._eras:
            era.waits = era.waits[~np.isin(era.waits, through["offset"])]
        self._delivered = max(self._delivered, last)
        self.end = max(self.end, end)
        self._drop_cancels()

    def due_ms(self, now_ms: int) -> int:
        """Milliseconds until something may be due; FAR_MS while nothing waits."""
        following = self.next_due()
        return FAR_MS if following is None else max(0, following - now_ms)

    def through(self) -> TimerState:
        """The state to be written for the next start."""
        due, offset = self._delivered
        late = lowest_until(self._head, due, offset), self._wheel.lowest_until(due, offset)  # they came too late
        up_to = min((place for place in late if place is not None), default=_NEVER)
        up_to = min(up_to, max(self._next, self._known))
        self._eras = [era for era in self._eras if (era.due, era.offset) > self._delivered or era.end > up_to]
        earlier = tuple(era.mark() for era in self._eras[-MARKS_MAX:])
        return TimerState(due, offset, up_to, min(up_to, self._start), self._cancels_start, earlier)

    @property
    def _start(self) -> int:
        """The offset before which no message that was read still waits."""
        low = self._waiting.lowest()
        return self._next if low is None else min(low, self._next)

    @property
    def _cancels_start(self) -> int:
        low = self._cancelling.lowest()
        low = self._next_cancel if low is None else min(low, self._next_cancel)
        return min(low, self._cancels_left, self._again.cancels_start if self._again is not None else low)

    def _handle_clock_step(self, now_ms: int) -> None:
        """Begins a new era when the clock went back: messages taken from the wheel are not due yet and return to it."""
        if len(self._head) and self._head["due"][-1] > now_ms:
            self._wheel.put_back(self._head)
            self._head = np.zeros(0, dtype=ROW)
        if self._delivered[0] > now_ms:
            due, offset = self._delivered
            waits = np.concatenate((self._wheel.until(due, offset), self._head[until(self._head, due, offset)]))
            self._eras.append(ClockEra(due, offset, max(self._next, self._known), waits["offset"]))
            self._delivered = (0, -1)

    def next_due(self) -> int | None:
        return int(self._head["due"][0]) if len(self._head) else self._wheel.next_due()

    # --- what is in memory

    def _keep(self, waiting: Waiting) -> None:
        """Adds messages that are due before the limit, and evicts the latest half when that is too much."""
        self._wheel.add(waiting[waiting["due"] < self._limit])
        if len(self._wheel) <= self._rows_max:
            return
        after = max(self._delivered[0], int(self._head["due"].max(initial=0)))
        since = self._wheel.keep(self._rows_max // 2, after)
        if since is not None:
            self._limit, self._horizon = min(self._limit, since), min(self._horizon, since)
            for time in [time for time in self._cancels if time >= since]:
                del self._cancels[time]
                self._evict_cancels(np.array(self._cancel_places.pop(time)))
            self._cancel_order = sorted(self._cancels)

    def _rescan_step(self) -> int:
        """Reads the next part of what was evicted, once few messages are left before the horizon; returns how many
        entries."""
        again = self._again
        if again is None:
            if self._horizon == _NEVER or self.in_memory > self._rows_max // 4:
                return 0
            start = self._cancels_start
            again = self._again = Rescan(start, start, self._next_cancel, self._start, self._next)
            self._limit = self._cancels_left = _NEVER
        if again.cancel < again.cancels_end:
            found = self._read(CANCEL_QUEUE, again.cancel)
            again.cancel = found.end
            self._add_cancels(found, until=again.cancels_end, anew=False)
            return len(found.rows)
        if again.next < again.end:
            found = self._read(TIMER_QUEUE, again.next)
            again.next = found.end
            waiting = found.waiting()
            waiting = waiting[(waiting["due"] >= self._horizon) & (waiting["offset"] < again.end)]
            self._keep(self._not_delivered_before(waiting))
            return len(found.rows)
        self._horizon, self._again = self._limit, None
        return 1

    def _evict_cancels(self, cancels: Places) -> None:
        """Evicts these cancellations from memory."""
        self._cancelling.remove(cancels)
        self._cancels_left = min(self._cancels_left, int(cancels.min()))

    def _drop_cleaned(self) -> None:
        """Counts and drops messages that left the log before their time, block by block of the queue."""
        low, end = self._bounds(TIMER_QUEUE)
        if low <= self._low:
            return
        self._low = low
        below = low if low >= end else begin_of_block(low)
        under_way = int(np.count_nonzero(self._head["offset"] < below))  # its delivery fails, and is counted then
        self.gone += max(0, self._waiting.cut(below) - under_way)
        self._wheel.drop_below(below)
        for era in self._eras:
            era.waits = era.waits[era.waits >= below]

    # --- the queues

    def _bounds(self, queue_id: int) -> tuple[int, int]:
        place = self._ends.find(_TOPIC, queue_id)
        return (0, 0) if place < 0 else self._ends.bounds(place)

    def _read(self, queue_id: int, offset: int) -> QueueSlice:
        low, high = self._bounds(queue_id)
        offset = max(offset, low)
        entries = self._files.read(TIMER_TOPIC, queue_id, offset, min(SCAN_COUNT, max(0, high - offset)))
        positions, sizes = entries["physical_offset"].astype(np.int64), entries["record_size"].astype(np.int32)
        holes = is_filler(entries)
        positions[holes] = sizes[holes] = 0
        return QueueSlice(offset, positions, sizes, self._restorer.read(positions, sizes))

    def _scan_messages(self) -> int:
        if self._next >= self._bounds(TIMER_QUEUE)[1]:
            return 0
        found = self._read(TIMER_QUEUE, self._next)
        self.gone += max(0, found.first - max(self._next, self._known))
        self.gone += int(np.count_nonzero(~found.sound & (found.sizes > 0) & (found.offsets >= self._known)))
        waiting = found.waiting()
        due, offset = self._delivered
        later = ~until(waiting, due, offset)
        waiting = self._not_delivered_before(waiting[(waiting["offset"] >= self._known) | later])
        self._waiting.add(waiting["offset"])
        self._keep(waiting)
        self._next = found.end
        return len(found.rows)

    def _not_delivered_before(self, waiting: Waiting) -> Waiting:
        """The messages that were not delivered before a clock step back."""
        for era in self._eras:
            waiting = waiting[~era.was_delivered(waiting)]
        return waiting

    def _scan_cancels(self) -> int:
        if self._next_cancel >= self._bounds(CANCEL_QUEUE)[1]:
            return 0
        found = self._read(CANCEL_QUEUE, self._next_cancel)
        self._add_cancels(found, until=found.end, anew=True)
        self._next_cancel = found.end
        return len(found.rows)

    def _add_cancels(self, found: QueueSlice, *, until: int, anew: bool) -> None:
        """Adds cancellations before offset `until`; where not `anew`, only those due from the horizon on."""
        rows = found.rows
        able = (rows["rule"] == Rule.OK) & (rows["cancelled_length"] > 0) & (found.offsets < until)
        if not anew:
            able &= rows["time"] >= self._horizon
        taken = able & (rows["time"] < self._limit)
        self._cancels_left = min(self._cancels_left, int(found.offsets[able & ~taken].min(initial=_NEVER)))
        self._cancelling.add(found.offsets[taken])
        for place in np.flatnonzero(taken).tolist():
            row = rows[place]
            time, start, length = int(row["time"]), int(row["cancelled_start"]), int(row["cancelled_length"])
            if time not in self._cancels:
                self._cancels[time], self._cancel_places[time] = set(), []
                heappush(self._cancel_order, time)
            self._cancels[time].add(self._restorer.text(found.positions, place, start, length))
            self._cancel_places[time].append(found.first + place)

    def _drop_cancels(self) -> None:
        """Drops cancellations of times that have passed: what they cancelled was left out."""
        following = self.next_due()
        before = self._delivered[0] if following is None else min(self._delivered[0], following)
        while self._cancel_order and self._cancel_order[0] < before:
            time = heappop(self._cancel_order)
            del self._cancels[time]
            self._cancelling.remove(np.array(self._cancel_places.pop(time)))
