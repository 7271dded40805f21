"""The dispatch scan: batches of dispatch rows over [start, end) of the log, found by one kernel call each.

Used by reput, by put when it is restarted alone (its queue offsets beyond what was dispatched), and by whoever
rebuilds queues from a log.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.errors import CorruptLog, TooManyQueues
from towline.format.files.topics import is_directory_name
from towline.format.record.record import LAYOUT
from towline.format.record.rules import Rule
from towline.kernels.base.directory import QueueDirectory
from towline.kernels.jit.rows import DISPATCH, KEY, Stop
from towline.kernels.scan.dispatch import KEY_COUNT, KEYS_OF_A_RECORD_MAX, STATE_SIZE, scan_dispatch
from towline.kernels.scan.scan import COUNT, REACHED
from towline.limits import KERNEL_BYTES_MAX

from .commit_log import CommitLogReader

RECORDS_MAX: Final = 65_536
KEYS_MAX: Final = 4 * RECORDS_MAX
assert KEYS_MAX >= KEYS_OF_A_RECORD_MAX
RECORDS_PER_QUEUE: Final = 64  # in a batch, so that a write to each queue costs little beside them
BATCH_RECORDS_MAX: Final = 655_360


def records_for(queues: int) -> int:
    """Of a batch: the more queues there are, the more records share what a write to each of them costs."""
    return max(RECORDS_MAX, min(RECORDS_PER_QUEUE * queues, BATCH_RECORDS_MAX))


@dataclass(slots=True)
class Batch:
    """Records of one stretch of one segment. `rows` and `keys` are views that the next read overwrites.

    `start` and `end` are physical; positions in the rows count in `log`, whose first byte is `base`. `rule` is not OK
    when the record at `end` is bad; `waits` when it is not whole yet. `bitmaps`, where somebody computed them: a row of
    bytes for each of `rows` (spec 7.3); `filtered` says of which rows they count.
    """

    start: int
    end: int
    base: int
    log: npt.NDArray[np.uint8]
    rows: npt.NDArray[np.void]
    keys: npt.NDArray[np.void]
    rule: Rule
    waits: bool
    bitmaps: npt.NDArray[np.uint8] | None = None
    filtered: npt.NDArray[np.bool_] | None = None


class DispatchScan:
    """Scans a log from any record's start; new queues are registered in `directory` as they are met."""

    def __init__(self, log: CommitLogReader, directory: QueueDirectory, delays_ms: tuple[int, ...] = ()) -> None:
        self._log = log
        self._directory = directory
        self._delays = np.array(delays_ms, dtype=np.int64)
        self._rows = np.zeros(RECORDS_MAX, dtype=DISPATCH)
        self._keys = np.zeros(KEYS_MAX, dtype=KEY)
        self._state = np.zeros(STATE_SIZE, dtype=np.int64)

    def read(self, start: int, end: int, records_max: int = RECORDS_MAX) -> Batch:
        """The batch that begins at `start`: as much as one kernel call walks, and never past `end` or the segment.

        With more than RECORDS_MAX records: of as many calls as it takes. Raises TooManyQueues when the first record is
        of one more queue than the directory takes; a batch ends before a later one.
        """
        self._grow(records_max)
        size = self._log.segment_size
        base = start - start % size
        log = self._log.array(base)
        limit = min(end, base + size)
        at, count, key_count = start - base, 0, 0
        while True:
            stop = min(limit, base + at + KERNEL_BYTES_MAX)
            reason = self._scan(log, at, stop - base, base, records_max, count, key_count)
            at, more = int(self._state[REACHED]), int(self._state[COUNT])
            if count:  # what a call says counts from its own first row
                self._rows["key_start"][count : count + more] += key_count
                self._keys["record"][key_count : key_count + int(self._state[KEY_COUNT])] += count
            count += more
            key_count += int(self._state[KEY_COUNT])
            if reason == Stop.UNKNOWN_QUEUE:
                if (reason := self._register(log, at, count)) != Rule.OK:
                    break
            elif not more or base + at >= limit or records_max <= RECORDS_MAX or count == records_max:
                break
        found, rule, waits = self._verdict(reason, base + at, stop, end)
        return Batch(start, found, base, log, self._rows[:count], self._keys[:key_count], rule, waits)

    def whole(self, start: int, end: int) -> Iterator[Batch]:
        """The batches of [start, end), all of whose records are whole. Raises CorruptLog where one is not."""
        while start < end:
            batch = self.read(start, end, records_for(len(self._directory)))
            if batch.end == start:
                rule = Rule.SIZE_PAST_END if batch.waits else batch.rule
                path = self._log.queue.path_of(batch.base)
                raise CorruptLog(str(path), start - batch.base, rule.name, rule.sentence)
            yield batch
            start = batch.end

    def _scan(
        self, log: npt.NDArray[np.uint8], at: int, stop: int, base: int, records_max: int, count: int, key_count: int
    ) -> int:
        """Into the rows from `count` on and the keys from `key_count` on, counted from there."""
        slots, queues, arena = self._directory.arrays
        rows, keys = self._rows[count:records_max], self._keys[key_count:]
        return scan_dispatch(log, at, stop, base, slots, queues, arena, self._delays, rows, keys, self._state)

    def _grow(self, records: int) -> None:
        if records > len(self._rows):
            self._rows = np.zeros(records, dtype=DISPATCH)
            self._keys = np.zeros(KEYS_MAX // RECORDS_MAX * records, dtype=KEY)

    def _register(self, log: npt.NDArray[np.uint8], at: int, row: int) -> int:
        """The rule that the queue of the record at `at` breaks, or UNKNOWN_QUEUE where there is no room for it."""
        begin, length = int(self._rows[row]["topic_start"]), int(self._rows[row]["topic_length"])
        queue_at = at + LAYOUT.offset["queue_id"]
        queue_id = int.from_bytes(log[queue_at : queue_at + 4].tobytes(), "big", signed=True)
        topic = log[begin : begin + length].tobytes()
        if queue_id < 0:
            return Rule.QUEUE_ID
        if not is_directory_name(topic):
            return Rule.TOPIC_FORM
        try:
            self._directory.add(topic, queue_id)
        except TooManyQueues:
            if not row:
                raise
            return Stop.UNKNOWN_QUEUE
        return Rule.OK

    def claimed(self, offset: int) -> int:
        """TOTALSIZE as it stands there, not checked; a slice of the log may end inside it, then only zeros follow."""
        return int.from_bytes(bytes(self._log.slice(offset, offset + 4)), "big")

    def _verdict(self, reason: int, reached: int, stop: int, limit: int) -> tuple[int, Rule, bool]:
        """(end of the batch, rule broken there, whether the record there is not whole yet)."""
        border = reached - reached % self._log.segment_size + self._log.segment_size
        if reason == Stop.BLANK:
            return (border, Rule.OK, False) if border <= limit else (reached, Rule.OK, True)
        if reason == Stop.END:
            return reached, Rule.SIZE_TOO_SMALL, False
        if reason == Rule.ENDS_INSIDE:
            claimed = self.claimed(reached)
            if stop == border or reached + claimed > border:
                return reached, Rule.SIZE_PAST_END, False
            if claimed > KERNEL_BYTES_MAX:
                return reached, Rule.RECORD_TOO_LARGE, False
            return reached, Rule.OK, stop == limit
        if reason > 0:
            return reached, Rule(reason), False
        return reached, Rule.OK, False
