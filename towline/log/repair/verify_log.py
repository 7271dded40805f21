"""Verification of the CommitLog: every record of every segment, damaged stretches and where the log goes on behind.

The walk is recovery's; batches of sound records go to the verifiers of queues and index.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from towline.errors import NotInLog
from towline.format.files.durable import Durable
from towline.format.record import blank, record
from towline.format.record.rules import Rule
from towline.format.record.torn import is_torn
from towline.kernels.base.directory import QueueDirectory
from towline.kernels.jit.rows import Stop
from towline.kernels.scan.verify import foreign_property_crcs
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import Batch, DispatchScan
from towline.log.commitlog.log_walk import Checks, LogWalk
from towline.log.files.segment_files import segment_base
from towline.log.files.sparse_file import written_end
from towline.log.queues.queue_entries import holes_of

from .verify_report import PER_RULE_MAX, START, Findings, Weight, restore_or_skip

_MAGICS: Final = tuple(magic.to_bytes(4, "big") for magic in (record.MAGIC_V1, record.MAGIC_V2, blank.MAGIC))
_MAGIC_AT: Final = record.LAYOUT.offset["magic"]
_SEARCH_STEP: Final = 1 << 20


class Sink(Protocol):
    """Takes the batches of sound records, in the log's order."""

    def take(self, batch: Batch) -> None: ...


Progress = Callable[[int], None]  # bytes done since the last call


@dataclass(frozen=True, slots=True)
class Damage:
    """Log offsets [start, end) that hold no whole record, though they were durable. `rule` is what the first breaks; OK
    for one that somebody named.

    `follows` says what stands at `end`: "record", "segment" (nothing more in this one), or "end" (nothing at all).
    `timestamp` is the store time of the record before, 0 without one.
    """

    start: int
    end: int
    rule: Rule
    follows: str
    timestamp: int


@dataclass(frozen=True, slots=True)
class SegmentVerdict:
    """`used` bytes of the segment are records and blank; the verdict is sound, torn, damaged, missing, unused."""

    base: int
    verdict: str
    records: int
    used: int


@dataclass(slots=True)
class SegmentPart:
    """What was found in one segment by itself. `end` is where the walk stopped, a log offset.

    `first` and `last` are store times of its first and last record, 0 without one; `first_at` where the first stands
    and ends. `torn` is the rule that the bytes at `end` break, `ended` that the log goes no further.
    """

    base: int
    records: int = 0
    end: int = 0
    first: int = 0
    first_at: tuple[int, int] = (0, 0)
    last: int = 0
    torn: Rule = Rule.OK
    ended: bool = False
    damages: list[Damage] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        return "damaged" if self.damages else "torn" if self.torn is not Rule.OK else "sound"


@dataclass(frozen=True, slots=True)
class LogFound:
    """The log is [log_min, end); `damages` lie in it."""

    log_min: int
    end: int
    last_store_timestamp: int
    records: int
    segments: list[SegmentVerdict]
    damages: list[Damage]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """`durable` is what the file said, None without one; `limit` the end to stop at while a node runs, else None.

    `named` are records to be stepped over though they keep every rule of their own.
    `surely` is the offset below which a bad record is damage. `dispatched` gives for a log offset to where the queues
    of a store that was closed point, None if none points to it; not asked of a store that was not closed.
    """

    durable: Durable | None
    limit: int | None
    log_min: int
    surely: int
    dispatched: Callable[[int], int | None] | None = None
    named: frozenset[int] = frozenset()


class LogVerifier:
    """One pass over the log: `run` once. Or a `part` of each segment, by whomever, which `together` puts in order."""

    def __init__(
        self,
        log: CommitLogReader,
        findings: Findings,
        bounds: LogBounds,
        checks: Checks,
        directory: QueueDirectory,
        delays_ms: tuple[int, ...] = (),
    ) -> None:
        self._log, self._findings, self._bounds = log, findings, bounds
        self._walk = LogWalk(log, 0, checks)
        self._insists = checks.property_crc
        self._scan = DispatchScan(log, directory, delays_ms)
        self._segments: list[SegmentVerdict] = []
        self._damages: list[Damage] = []
        self._records = 0
        self._timestamp = 0
        self._torn = Rule.OK
        self._ended = False  # nothing of the log stands behind `_end`
        self._end = bounds.log_min

    def run(self, sinks: Sequence[Sink], progress: Progress) -> LogFound:
        """Walks from the minimum to the end, or to the limit."""
        return self.together(lambda base: self.part(base, sinks, progress), progress)

    @property
    def bases(self) -> range:
        """Of the segments that are to be checked, whether their files exist or not."""
        size, bounds = self._log.segment_size, self._bounds
        last = max((*self._log.queue.bases, bounds.surely - 1))
        stop = last + 1 if bounds.limit is None else min(last + 1, bounds.limit)
        return range(bounds.log_min - bounds.log_min % size, stop, size)

    def together(self, part_of: Callable[[int], SegmentPart | None], progress: Progress) -> LogFound:
        """`part_of` a segment, by its base; None for one that is gone by now. Asked in the log's order, to its end."""
        bounds = self._bounds
        for base in self.bases:
            if self._ended:
                break
            if self._log.queue.base_of(base) is None:
                self._missing(base)
            elif (part := part_of(base)) is not None:
                self._take(part)
        if bounds.limit is None:
            self._behind(progress)
        return LogFound(bounds.log_min, self._end, self._timestamp, self._records, self._segments, self._damages)

    def _take(self, part: SegmentPart) -> None:
        if part.records and part.first < self._timestamp:
            self._row(*part.first_at, "TIME_ORDER")
        for damage in part.damages:
            self._damages.append(damage if damage.timestamp else replace(damage, timestamp=self._timestamp))
        self._timestamp = part.last or self._timestamp
        self._records += part.records
        self._end, self._ended, self._torn = part.end, part.ended, part.torn
        self._segments.append(SegmentVerdict(part.base, part.verdict, part.records, part.end - part.base))

    # --- one segment

    def part(self, base: int, sinks: Sequence[Sink], progress: Progress) -> SegmentPart | None:
        """A segment by itself. A running node may delete it meanwhile: then None, and nothing is said of it."""
        try:
            return self._segment(SegmentPart(base), sinks, progress)
        except NotInLog:
            if self._bounds.limit is None:
                raise
            return None

    def _segment(self, part: SegmentPart, sinks: Sequence[Sink], progress: Progress) -> SegmentPart:
        base, size, limit = part.base, self._log.segment_size, self._bounds.limit
        stop = size if limit is None else min(size, limit - base)
        at = 0
        named = sorted(offset - base for offset in self._bounds.named if base <= offset < base + stop)
        while at < stop and not part.ended:
            if at in named:
                at = self._damaged(part, at, Rule.OK, self._bounds.surely - base)
                continue
            reason, before = int(Stop.DONE), next((place for place in named if place > at), stop)
            for first, reached, stopped in self._walk.steps(base, at, before):
                self._note_foreign(base, first, reached)
                self._feed(part, base + first, base + reached, sinks)
                progress(reached - first)
                at, reason = reached, stopped
            if reason == Stop.BLANK:
                progress(stop - at)
                self._check_blank(base, at)
                at = stop
            elif reason != Stop.DONE:
                at = self._bad(part, at, reason)
        part.end = base + at
        return part

    def _feed(self, part: SegmentPart, start: int, end: int, sinks: Sequence[Sink]) -> None:
        while start < end:
            batch = self._scan.read(start, end)
            assert batch.end > start, f"the walk found a whole record at {start}, the scan {batch.rule.name}"
            if len(batch.rows):
                self._check_times(part, batch)
                part.records += len(batch.rows)
                for lost in filter(attrgetter("lost"), holes_of(batch)):
                    said = f"a damaged stretch was stepped over here; {lost.count} messages of its queue are lost"
                    self._row(lost.at, lost.end, "SKIPPED", said)
                for sink in sinks:
                    sink.take(batch)
            start = batch.end

    def _note_foreign(self, base: int, first: int, reached: int) -> None:
        """Property CRCs of other records, which are damage only where the operator insists."""
        if self._insists:
            return
        log, found = self._log.array(base), np.zeros(PER_RULE_MAX, dtype=np.int64)
        count = foreign_property_crcs(log, first, reached, found)
        for at in found[:count].tolist():
            size = int.from_bytes(log[at : at + blank.SIZE // 2].tobytes(), "big")
            self._row(base + at, base + at + size, "PROPERTY_CRC_FOREIGN")
        if count > len(found):
            self._findings.drop(self._log.queue.path_of(base), "PROPERTY_CRC_FOREIGN", count - len(found))

    def _check_times(self, part: SegmentPart, batch: Batch) -> None:
        times = batch.rows["store_timestamp"]
        if not part.records:
            at = int(batch.rows[0]["phy"])
            part.first, part.first_at = int(times[0]), (at, at + int(batch.rows[0]["size"]))
        for row in np.flatnonzero(np.diff(times, prepend=part.last) < 0):
            at = int(batch.rows[row]["phy"])
            self._row(at, at + int(batch.rows[row]["size"]), "TIME_ORDER")
        part.last = int(times[-1])

    def _check_blank(self, base: int, at: int) -> None:
        remaining = int.from_bytes(self._log.array(base)[at : at + 4].tobytes(), "big")
        if remaining != self._log.segment_size - at:
            self._row(base + at, base + at + blank.SIZE, "BLANK_REMAINING")

    def _bad(self, part: SegmentPart, at: int, reason: int) -> int:
        """Judges the bytes at `at`: the log ends there, or they are damage. Where to go on in the segment."""
        base = part.base
        rule = Rule(reason) if reason > 0 else Rule.OK
        rule = Rule.SIZE_PAST_END if rule is Rule.ENDS_INSIDE else rule
        limit = self._bounds.surely - base
        inside = limit < self._log.segment_size
        if at >= limit:
            limit = self._promised(base, at)
        if at >= limit or (inside and is_torn(self._log.array(base)[:limit].data, at)):
            part.torn, part.ended = rule, True
            return at
        return self._damaged(part, at, rule if rule is not Rule.OK else Rule.SIZE_TOO_SMALL, limit)

    def _damaged(self, part: SegmentPart, at: int, rule: Rule, limit: int) -> int:
        """Notes the stretch that begins at `at`; durable bytes are before `limit`. Where to go on in the segment."""
        base = part.base
        end = self.next_whole(base, at)
        follows = "record"
        if end is None:
            end, follows = self._log.segment_size, "segment"
            if self._is_last(base):
                end = max(limit, written_end_of(self._log, base, at))
                follows, part.ended = "end", True
        said = f"{rule.sentence}; what is whole again begins at {base + end}"
        if follows == "end":
            said = f"{rule.sentence}; nothing whole follows"
        if rule is not Rule.OK:
            self._row(base + at, base + end, rule.name, said, remedy=restore_or_skip(base + at))
        part.damages.append(Damage(base + at, base + end, rule, follows, part.last))
        return at if follows == "end" else end

    def _promised(self, base: int, at: int) -> int:
        """Behind `surely`: the end in this segment of what queues of a closed store point to, if they point there."""
        bounds = self._bounds
        surely = min(max(0, bounds.surely - base), at)
        if bounds.dispatched is None or (bounds.durable is not None and bounds.durable.flushed == base + at):
            return surely
        end = bounds.dispatched(base + at)
        if end is None and (following := self.next_whole(base, at)) is not None:
            end = bounds.dispatched(base + following)
        return surely if end is None else min(end - base, self._log.segment_size)

    def next_whole(self, base: int, at: int) -> int | None:
        """Where in the segment the next whole record stands behind a damaged one at `at`, or its blank; else None.

        The damaged record's own size is asked first, so that a record inside of its body is not taken for the next.
        """
        log, size = self._log.array(base), self._log.segment_size
        named = at + int.from_bytes(log[at : at + 4].tobytes(), "big")
        if at + record.SIZE_MIN <= named < size and self._is_whole(base, named):
            return named
        start = at + record.SIZE_MIN if size - at > record.SIZE_MIN else at + blank.SIZE
        while start < size:
            stop = min(start + _SEARCH_STEP, size)
            window = log[start : min(stop + 8, size)].tobytes()
            for place in sorted(_found(window)):
                candidate = start + place - _MAGIC_AT
                if candidate >= start and candidate < stop and self._is_whole(base, candidate):
                    return candidate
            start = stop
        return None

    def _is_whole(self, base: int, at: int) -> bool:
        """Whether a whole record stands there, or the blank that ends the segment."""
        if self._log.segment_size - at < blank.SIZE:
            return False
        head = self._log.array(base)[at : at + blank.SIZE].tobytes()
        if head == blank.encode(self._log.segment_size - at):
            return True
        *_, (_, reached, _) = self._walk.steps(base, at, min(at + _size_of(head), self._log.segment_size))
        return reached > at

    def _is_last(self, base: int) -> bool:
        """Whether no segment behind holds a record."""
        return not any(self._is_whole(later, 0) for later in self._log.queue.bases if later > base)

    # --- what is not there, and what stands behind

    def _missing(self, base: int) -> None:
        size = self._log.segment_size
        if base >= self._bounds.surely:
            self._ended = True
            return
        self._segments.append(SegmentVerdict(base, "missing", 0, 0))
        self._findings.add(self._log.queue.path_of(base), 0, size, "MISSING")
        self._end = base + size

    def _behind(self, progress: Progress) -> None:
        """Everything behind the log's end is zero, up to the end of the last file."""
        damaged = bool(self._damages) and self._damages[-1].follows == "end"
        known = {verdict.base for verdict in self._segments}
        for base in self._log.queue.bases:
            if base + self._log.segment_size <= self._end:
                continue
            start = max(self._end - base, 0)
            end = written_end_of(self._log, base, start)
            if base not in known:
                self._segments.append(SegmentVerdict(base, "unused", 0, 0))
                progress(self._log.segment_size)
            if end <= start or (damaged and base + start == self._damages[-1].start):
                continue
            torn = self._torn is not Rule.OK and base + start == self._end
            said = f"the log ends here: {self._torn.name}, {self._torn.sentence}" if torn else ""
            self._row(base + start, base + end, "TORN_TAIL" if torn else "BEHIND_THE_END", said, remedy=START)

    def _row(self, start: int, end: int, rule: str, sentence: str = "", **other: object) -> None:
        """A finding at log offsets [start, end) of one segment."""
        base = self._log.segment_of(start)
        self._findings.add(self._log.queue.path_of(base), start - base, end - base, rule, sentence, **other)


def _found(window: bytes) -> list[int]:
    """Where one of the magic numbers stands."""
    places = []
    for magic in _MAGICS:
        place = window.find(magic)
        while place >= 0:
            places.append(place)
            place = window.find(magic, place + 1)
    return places


def _size_of(head: bytes) -> int:
    return max(int.from_bytes(head[:4], "big", signed=True), record.SIZE_MIN)


def written_end_of(log: CommitLogReader, base: int, start: int) -> int:
    """The end of the last byte of a segment that is not zero, from byte `start` of it on; `start` if all are."""
    fd = os.open(log.queue.path_of(base), os.O_RDONLY | os.O_CLOEXEC)
    try:
        return written_end(fd, start, log.segment_size)
    finally:
        os.close(fd)


def list_log(directory: Path, size: int, findings: Findings, *, running: bool = False) -> list[int]:
    """Bases of the segments that can be read; everything else that stands in `commitlog/` is a finding.

    A `running` node may be making the last one.
    """
    bases = []
    paths = sorted(directory.iterdir()) if directory.is_dir() else []
    files = [path for path in paths if path.is_file()]
    for path in files:
        base, length = segment_base(path.name), path.stat().st_size
        if base is None or base % size:
            said = "the name is no offset of a segment; a node refuses to start"
            findings.add(path, 0, length, "FOREIGN", said, weight=Weight.HEALS)
        elif length == 0 and path == files[-1]:
            if not running:
                findings.add(path, 0, 0, "EMPTY_FILE")
        elif length != size:
            said = f"the file has {length} bytes, a segment {size}"
            findings.add(path, 0, length, "SEGMENT_SIZE", said)
        else:
            bases.append(base)
    return bases


def limits_of(bases: Sequence[int], size: int, durable: Durable | None) -> tuple[int, int]:
    """(minimum of the log, the offset below which a bad record is damage), as recovery would have them.

    A store without a durable offset is a real broker's: of it every segment before the last is whole.
    """
    if durable is None:
        return (bases[0], bases[-1]) if bases else (0, 0)
    low = bases[0] if bases else durable.log_min
    if durable.log_min in bases:
        low = durable.log_min
    return low, max(durable.flushed, low)
