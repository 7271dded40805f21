"""The walk over a log's records that finds its end and distinguishes a torn end from corruption (H3).

After a power cut, pages behind the last sync are on the disk in any order. So below the durable offset a bad record is
corruption and refused; from it on the first bad record ends the log, even if good ones follow.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.errors import CorruptLog
from towline.format.record.rules import Rule
from towline.format.record.torn import is_torn
from towline.kernels.jit.rows import Stop
from towline.kernels.scan.scan import (
    CHECK_CRC,
    CHECK_FORM,
    CHECK_PLACE,
    CHECK_PROPERTY_CRC,
    COUNT,
    REACHED,
    TIMESTAMP,
    WALK_STATE_SIZE,
    walk,
)
from towline.limits import KERNEL_BYTES_MAX

from .commit_log import CommitLogReader

_ANY_COUNT: Final = 2**62


@dataclass(frozen=True, slots=True)
class LogEnd:
    """`end` is behind the last whole record, or the border behind its blank; `rule` what the bytes there break.

    `rule` is OK where a TOTALSIZE of 0 or no segment follows. `last_store_timestamp` is 0 if no record was walked.
    """

    end: int
    rule: Rule
    last_store_timestamp: int


@dataclass(frozen=True, slots=True)
class Checks:
    """`form` is asked of records behind the durable offset: BODYCRC does not cover topic and properties.

    `crc` is of BODYCRC. `property_crc` is of an operator who insists: every record ends with its property CRC.
    """

    crc: bool = True
    form: bool = True
    property_crc: bool = False


class LogWalk:
    """One walk from a record's start to the log's end. `durable` is the log offset below which nothing may be bad."""

    def __init__(self, log: CommitLogReader, durable: int, checks: Checks) -> None:
        self._log = log
        self._durable = durable
        self._below = CHECK_PLACE | (CHECK_CRC if checks.crc else 0)
        self._below |= CHECK_PROPERTY_CRC if checks.property_crc else 0
        self._behind = self._below | (CHECK_FORM if checks.form else 0)
        self._state = np.zeros(WALK_STATE_SIZE, dtype=np.int64)
        self._timestamp = 0
        self._borders: list[int] = []  # starts of records, one for each step

    def boundary(self, below: int) -> int:
        """A start of a record at or before `below`, at most one step before it.

        In a segment that this walk did not come through, the heads of its records lead there, or to a bad one.
        """
        base = self._log.segment_of(below)
        if base not in self._borders and self._log.queue.base_of(base) is not None:
            heads = LogWalk(self._log, 0, Checks(crc=False, form=False))
            for _ in heads.steps(base, 0, below - base):
                pass
            self._borders += heads._borders
        return max((border for border in self._borders if base <= border <= below), default=base)

    def run(self, start: int) -> LogEnd:
        """Walks from `start`, a record's or a segment's. Raises CorruptLog, which names file, byte and rule."""
        size = self._log.segment_size
        base = self._log.segment_of(start)
        first = start - base
        while self._log.queue.base_of(base) is not None:
            *_, (_, at, reason) = self.steps(base, first)
            first = 0
            if reason not in (Stop.DONE, Stop.BLANK):
                return self._judged(base, at, reason)
            base += size
        if base < self._durable:
            raise CorruptLog(str(self._log.queue.path_of(base)), 0, "MISSING", "the segment does not exist")
        return LogEnd(base, Rule.OK, self._timestamp)

    def steps(self, base: int, at: int = 0, end: int | None = None) -> Iterator[tuple[int, int, int]]:
        """Walks a segment from byte `at` to byte `end` of it, one call of the kernel at a time.

        Yields (first byte, byte reached, why it stopped there): DONE while it goes on and at the end, then a Stop or
        the Rule that the record there breaks.
        """
        log, size = self._log.array(base), self._log.segment_size if end is None else end
        durable = min(max(0, self._durable - base), size)
        while at < size:
            below = at < durable
            stop = min(at + KERNEL_BYTES_MAX, durable if below else size)
            reason = self._step(log, base, at, stop, self._below if below else self._behind, _ANY_COUNT)
            if reason == Rule.ENDS_INSIDE and self._reached == at and stop < size:
                # The record is larger than the step, or reaches behind the durable offset.
                reason = self._step(log, base, at, size, self._behind, 1)
            going_on = reason in (Stop.DONE, Stop.FULL) or (reason == Rule.ENDS_INSIDE and self._reached > at)
            first, at = at, self._reached
            self._borders.append(base + first)
            yield first, at, int(Stop.DONE) if going_on else reason
            if not going_on:
                return

    def _step(self, log: npt.NDArray[np.uint8], base: int, at: int, stop: int, flags: int, limit: int) -> int:
        reason = walk(log, at, stop, base, flags, limit, self._state)
        if self._state[COUNT]:
            self._timestamp = int(self._state[TIMESTAMP])
        return reason

    @property
    def _reached(self) -> int:
        return int(self._state[REACHED])

    def _judged(self, base: int, at: int, reason: int) -> LogEnd:
        """The end of the log at a bad record, unless that was durable."""
        rule = Rule(reason) if reason > 0 else Rule.OK
        if rule is Rule.ENDS_INSIDE:
            rule = Rule.SIZE_PAST_END
        limit = self._durable - base
        inside = limit < self._log.segment_size  # a record is never split over segments
        if at < limit and not (inside and is_torn(self._log.array(base)[:limit].data, at)):
            shown = rule if rule is not Rule.OK else Rule.SIZE_TOO_SMALL
            raise CorruptLog(str(self._log.queue.path_of(base)), at, shown.name, shown.sentence)
        return LogEnd(base + at, rule, self._timestamp)


def first_timestamp(log: CommitLogReader, base: int) -> int:
    """STORETIMESTAMP of the first record of a segment, its CRC checked; -1 if there is none that is whole."""
    state = np.zeros(WALK_STATE_SIZE, dtype=np.int64)
    walk(log.array(base), 0, log.segment_size, base, CHECK_CRC | CHECK_PLACE, 1, state)
    return int(state[TIMESTAMP])
