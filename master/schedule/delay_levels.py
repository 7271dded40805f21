"""Delay levels: queue level - 1 of SCHEDULE_TOPIC_XXXX holds the messages of that level, in the order of delivery.

An entry's tags code is the delivery time, wall clock (spec 3.1). An entry whose time is further away than its level's
delay was stored before a clock step back, or soon after it, because store times never decrease. It is due when its
delay has passed since this process saw it arrive; one that was there before this process is due at once, as in RocketMQ
(spec 5.2).
"""

from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from towline.format.record.forms import SCHEDULE_TOPIC
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.runtime.queue_ends import QueueEnds

from .delivery import DueRecords
from .restoring import Rows

FAR_MS = 1 << 40
MARKS_MAX = 1000  # times of arrival that are remembered, over a level's delay
_TOPIC = SCHEDULE_TOPIC.encode()


class DelayLevel:
    """One level as a source of deliveries. `offset` is the first of its queue that is not delivered."""

    def __init__(
        self,
        number: int,
        delay_ms: int | None,
        files: ConsumeQueueFiles,
        ends: QueueEnds,
        store_time: Callable[[int], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        """`delay_ms` is None for a level that is no longer in the settings: its messages keep their delivery times.

        `store_time` reads a record's store time from the log; it returns a value below 0 for an unreadable record.
        """
        self.number, self.delay_ms = number, delay_ms
        self.name = f"the messages of delay level {number}"
        self._files, self._ends, self._store_time = files, ends, store_time
        self._monotonic_ms = monotonic_ms
        self._marks: deque[tuple[int, int]] = deque()  # (offset from which on entries came, when), monotonic
        self._seen = -1  # end of the queue
        self._place = -1
        self._next_ms = 0  # nothing is due before, unless the clock is set back
        self._looked_ms = 0
        self._first_ms: int | None = None  # when the first that waits is due
        self.offset = 0
        self.end = 0  # of the log, after the newest delivery
        self.gone = self.doubtful = 0

    def bounds(self) -> tuple[int, int]:
        """The lowest offset and the end of the queue."""
        if self._place < 0:
            self._place = self._ends.find(_TOPIC, self.number - 1)
        return (0, 0) if self._place < 0 else self._ends.bounds(self._place)

    def clamp(self) -> int:
        """Clamps, after a start, an offset beyond the queue's end (H15); returns by how much."""
        beyond = max(0, self.offset - self.bounds()[1])
        self.offset -= beyond
        return beyond

    def pending(self) -> int:
        low, high = self.bounds()
        return high - max(low, self.offset)

    def due(self, count: int, now_ms: int) -> DueRecords | None:
        low, high = self.bounds()
        if self.offset < low:
            self.gone += low - self.offset
            self.offset = low
        self._mark(high)
        if self.offset >= high or self._looked_ms <= now_ms < self._next_ms:
            return None
        self._looked_ms = now_ms
        entries = self._files.read(SCHEDULE_TOPIC, self.number - 1, self.offset, min(count, high - self.offset))
        if not len(entries):
            return None
        positions = entries["physical_offset"].astype(np.int64)
        times = self._times(entries["tags_code"].astype(np.int64), positions)
        times = self._by_arrival(times, now_ms)
        self._first_ms = int(times[0])
        waits = times > now_ms
        ready = int(waits.argmax()) if waits.any() else len(entries)
        self._next_ms = 0 if ready else int(times[0])
        return DueRecords(positions[:ready], entries["record_size"][:ready].astype(np.int32)) if ready else None

    def due_ms(self, now_ms: int) -> int:
        """Milliseconds until something may be due; FAR_MS while nothing waits."""
        if not self.pending():
            return FAR_MS
        return max(0, self._next_ms - now_ms) if self._looked_ms <= now_ms else 0

    def next_due(self) -> int | None:
        return self._first_ms

    def kept(self, due: DueRecords, rows: Rows) -> npt.NDArray[np.bool_]:
        return np.ones(len(rows), dtype=np.bool_)

    def done(self, count: int, end: int) -> None:
        self.offset += count
        self.end = max(self.end, end)
        self._next_ms, self._first_ms = 0, None

    def _mark(self, end: int) -> None:
        """Notes when the newest entries arrived."""
        if self.delay_ms is None:
            return
        now = self._monotonic_ms()
        while self._marks and now - self._marks[0][1] >= self.delay_ms:
            self._marks.popleft()
        if end > self._seen:
            if self._seen >= 0 and (not self._marks or now - self._marks[-1][1] > self.delay_ms // MARKS_MAX):
                self._marks.append((self._seen, now))
            self._seen = end

    def _by_arrival(self, times: npt.NDArray[np.int64], now_ms: int) -> npt.NDArray[np.int64]:
        """Replaces delivery times that are further away than the delay: arrival time plus delay."""
        if self.delay_ms is None:
            return times
        far = np.flatnonzero(times > now_ms + self.delay_ms)
        if len(far):
            starts, came = (np.array(part, dtype=np.int64) for part in zip((-1, -FAR_MS), *self._marks, strict=True))
            came = came[np.searchsorted(starts, self.offset + far, side="right") - 1]
            times[far] = now_ms + np.maximum(0, came + self.delay_ms - self._monotonic_ms())
        return times

    def _times(self, codes: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The delivery times of entries. With ConsumeQueueExt a code below 0 is an address; then the record's store
        time counts.

        A level without a known delay is due at once: early is better than never.
        """
        for place in np.flatnonzero(codes < 0).tolist():
            codes[place] = max(0, self._store_time(int(positions[place]))) + (self.delay_ms or 0)
        return codes
