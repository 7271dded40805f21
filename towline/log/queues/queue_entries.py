"""Queue entries of a part of the log, grouped by queue: reput writes them, verify and repair compare with them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.format.files.consume_queue import SIZE, hole
from towline.format.record import skipped
from towline.format.record.record import LAYOUT, TRANSACTION_ROLLBACK
from towline.kernels.base.directory import QueueDirectory
from towline.kernels.jit.rows import RUN
from towline.kernels.scan.queues import GAP, GROUP_STATE_SIZE, NEW_QUEUE, ROWS, group_entries
from towline.log.commitlog.dispatch import RECORDS_MAX, Batch

_QUEUES_AT_FIRST: Final = 64


@dataclass(frozen=True, slots=True)
class QueueRun:
    """`count` entries for queue `number` of the directory from `offset` on; `entries` is overwritten by the next run.

    `phy_end` is the end of the newest record among them.
    """

    number: int
    offset: int
    count: int
    entries: memoryview
    phy_end: int


@dataclass(frozen=True, slots=True)
class Hole:
    """Numbers [first, first + count) of a queue have no message: they were lost with a damaged stretch of the log, and
    stepped over, or (not `lost`) no message ever had them.

    `row` is the row of the record that says so, [at, end) where it stands.
    """

    row: int
    number: int
    first: int
    count: int
    at: int
    end: int
    lost: bool = True


@dataclass(frozen=True, slots=True)
class Round:
    """Entries of a batch, of all queues: rows of RUN, whose `start` counts in `entries`. The next overwrites both.

    `order` gives by row of the batch, from `first` on, the number of its run, or -1 for one without an entry.
    """

    runs: npt.NDArray[np.void]
    entries: npt.NDArray[np.uint8]
    first: int
    order: npt.NDArray[np.int32]


_NO_ROWS: Final = np.zeros(0, dtype=np.int32)
# Of batch, row, number of the queue, and the offset that is due there: raises, or says which offset is to be due. Where
# that is the row's, it is taken as it is; where it is above, the row gets no entry.
OnGap = Callable[[Batch, int, int, int], int]


class QueueEntries:
    """Knows the next queue offset of every queue of a directory; each batch follows the one before it."""

    def __init__(
        self,
        directory: QueueDirectory,
        on_gap: OnGap,
        expected: npt.NDArray[np.int64] | None = None,
        reached: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """`expected` by number of the queue, and to which log offset its entries have `reached`; one beyond is new.

        A record before the one, of a number below the other, is one that comes again: it has its entry.
        """
        self._directory = directory
        self._on_gap = on_gap
        self._expected = np.full(max(_QUEUES_AT_FIRST, len(directory)), NEW_QUEUE, dtype=np.int64)
        self._reached = np.zeros(len(self._expected), dtype=np.int64)
        if expected is not None and reached is not None:
            self._expected[: len(expected)] = expected
            self._reached[: len(reached)] = reached
        self._marks = np.zeros(len(self._expected), dtype=np.int32)
        self._runs = np.zeros(len(self._expected), dtype=RUN)
        self._entries = np.zeros(RECORDS_MAX * SIZE, dtype=np.uint8)
        self._order = np.zeros(RECORDS_MAX, dtype=np.int32)
        self._state = np.zeros(GROUP_STATE_SIZE, dtype=np.int64)
        self._kept: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None

    def keep(self) -> None:
        """What is expected now is come back to by `restore`, but for runs that `settle` was given meanwhile."""
        self._kept = self._expected.copy(), self._reached.copy()

    def settle(self, runs: npt.NDArray[np.void]) -> None:
        if self._kept is not None:
            _follow(*self._kept, runs)

    def restore(self) -> None:
        if self._kept is not None:
            self._expected[:], self._reached[:] = self._kept

    def expected(self, number: int) -> int:
        """The next offset of a queue; NEW_QUEUE (-1) for one that got no entry."""
        return int(self._expected[number]) if number < len(self._expected) else NEW_QUEUE

    def expect(self, number: int, offset: int) -> None:
        """The next offset of a queue, of whose entries before somebody else knows."""
        self._grow(0)
        self._expected[number] = offset

    def rounds(self, batch: Batch) -> Iterator[Round]:
        """The entries of a batch. The queues' next offsets move when the round after is asked for."""
        self._grow(len(batch.rows))
        first = 0
        for lost in holes_of(batch):
            yield from self._grouped(batch, first, lost.row)
            yield from self._hole(batch, lost)
            first = lost.row
        yield from self._grouped(batch, first, len(batch.rows))

    def runs(self, batch: Batch) -> Iterator[QueueRun]:
        """The same run by run, for who checks each queue by itself."""
        for one in self.rounds(batch):
            for run in one.runs:
                number, start, count, offset = (
                    int(run[name]) for name in ("queue_index", "start", "count", "queue_offset")
                )
                entries = one.entries[start : start + count * SIZE].data
                yield QueueRun(number, offset, count, entries, int(run["phy_end"]))

    def _grouped(self, batch: Batch, first: int, stop: int) -> Iterator[Round]:
        while first < stop:
            opened = group_entries(
                batch.rows,
                first,
                stop,
                self._expected,
                self._reached,
                self._runs,
                self._entries,
                self._marks,
                self._order,
                self._state,
            )
            done = int(self._state[ROWS])
            if opened:
                runs = self._runs[:opened]
                yield Round(runs, self._entries, first, self._order[: done - first])
                _follow(self._expected, self._reached, runs)
            first = done
            if first < stop and self._state[GAP] >= 0:
                number, offset = int(self._state[GAP]), int(batch.rows[first]["queue_offset"])
                due = self._on_gap(batch, first, number, int(self._expected[number]))
                assert due >= offset, "the row is taken, or passed over"
                self._expected[number] = due
                first += due > offset

    def _hole(self, batch: Batch, lost: Hole) -> Iterator[Round]:
        """Entries of numbers that were lost; those that were written already are left alone."""
        due = int(self._expected[lost.number])
        start = lost.first if due == NEW_QUEUE else due
        if lost.count and start < lost.first:
            start = self._on_gap(batch, lost.row, lost.number, due)
        count = lost.first + lost.count - start
        if count > 0:
            run = np.array([(0, start, lost.end, count, lost.number)], dtype=RUN)
            yield Round(run, np.frombuffer(hole(lost.at) * count, dtype=np.uint8), lost.row, _NO_ROWS)
            _follow(self._expected, self._reached, run)

    def _grow(self, records: int) -> None:
        if records > len(self._order):
            self._entries = np.zeros(records * SIZE, dtype=np.uint8)
            self._order = np.zeros(records, dtype=np.int32)
        missing = len(self._directory) - len(self._expected)
        if missing > 0:
            room = max(missing, len(self._expected))
            self._expected, self._reached = _longer(self._expected, self._reached, room)
            self._kept = None if self._kept is None else _longer(*self._kept, room)
            self._marks = np.zeros(len(self._expected), dtype=np.int32)
            self._runs = np.zeros(len(self._expected), dtype=RUN)


def _follow(expected: npt.NDArray[np.int64], reached: npt.NDArray[np.int64], runs: npt.NDArray[np.void]) -> None:
    numbers = runs["queue_index"]
    expected[numbers] = runs["queue_offset"] + runs["count"]
    reached[numbers] = runs["phy_end"]


def _longer(
    expected: npt.NDArray[np.int64], reached: npt.NDArray[np.int64], more: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """By so many queues, which are new."""
    new = np.full(more, NEW_QUEUE, dtype=np.int64)
    return np.concatenate((expected, new)), np.concatenate((reached, np.zeros(more, dtype=np.int64)))


def holes_of(batch: Batch) -> list[Hole]:
    """The records of a batch that stand for numbers without a message, in order."""
    found = []
    for row in np.flatnonzero(batch.rows["transaction"] == TRANSACTION_ROLLBACK):
        one = batch.rows[row]
        at = int(one["phy"]) - batch.base
        head = batch.log[at : at + LAYOUT.size].tobytes()
        count = skipped.count_of(head)
        if count is not None:
            number, first, phy = (int(one[name]) for name in ("queue_index", "queue_offset", "phy"))
            end, lost = phy + int(one["size"]), not skipped.is_hole(head)
            found.append(Hole(int(row), number, first, max(count, 0), phy, end, lost))
    return found
