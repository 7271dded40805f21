"""Verification of the ConsumeQueues: every entry is that of a record, and nothing else stands in their files."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.format.files.consume_queue import ENTRY, SIZE
from towline.kernels.base.directory import NONE, QueueDirectory
from towline.kernels.scan.queues import NEW_QUEUE
from towline.log.commitlog.dispatch import Batch
from towline.log.files.segment_files import segment_base, segment_name
from towline.log.files.sparse_file import written, written_end
from towline.log.queues.consume_queue import ConsumeQueueFiles, Entries, is_filler, is_queue_id, places_of
from towline.log.queues.consume_queue_ext import is_address, opened
from towline.log.queues.queue_entries import QueueEntries, QueueRun

from .verify_report import START, Findings, Weight, length_of

_FILES_OPEN_MAX: Final = 256
_BLOCK: Final = 65_536  # entries of one read
GAP_MAX: Final = 1_000_000  # numbers of a queue that may be filled with holes; more is no gap, but a damaged number


Bases = dict[tuple[str, int], set[int]]


@dataclass(frozen=True, slots=True)
class Gap:
    """The record at `at` is number `offset` of its queue, where number `due` is due; `twice` when it is below.

    `filled` when the queue has holes for the numbers between: a repair put them there. `alone` when the record behind
    it in its queue goes on as if this one had the number that was due: nothing is missing, this number is damaged.
    """

    at: int
    topic: bytes
    queue_id: int
    offset: int
    due: int
    filled: bool = False
    alone: bool = False

    @property
    def twice(self) -> bool:
        return self.offset < self.due

    @property
    def fillable(self) -> bool:
        """Whether a repair puts holes in the place of what is missing."""
        return not self.twice and not self.alone and self.offset - self.due <= GAP_MAX


@dataclass
class _Range:
    """Numbers [first, end) of a queue; `place` is the log offset of the first's record."""

    first: int
    end: int
    place: int


@dataclass
class _Seen:
    """Of one queue: the first number that the log holds, and the numbers whose entries are wrong.

    `hole`: the last number that the log holds was lost and stepped over.
    """

    first: int
    hole: bool = False
    missing: list[_Range] = field(default_factory=list)
    differs: list[_Range] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class QueuePart:
    """What a stretch of the log says of the queues, by topic and id: what was seen, and which number is next."""

    seen: dict[tuple[bytes, int], tuple[_Seen, int]]
    gaps: list[Gap]


class QueueVerifier:
    """`take` the batches of the log, then `finish`. `gaps` are what the numbers in the log themselves say.

    Or others take stretches of the log, each of which becomes a `part`, and `absorb` puts the parts together.
    """

    def __init__(
        self,
        root: Path,
        file_size: int,
        findings: Findings,
        directory: QueueDirectory,
        *,
        log_min: int,
        surely: int,
        running: bool = False,
        floors: Callable[[], Mapping[tuple[bytes, int], int]] = dict,
        bases: Bases | None = None,
    ) -> None:
        """`surely`: log offset up to which queues were synced, so that what is missing there no start derives again.

        `floors`: nobody reads what a queue of a deleted topic, or one that retention has cut, holds below it, and its
        files go; asked for when something is missing, as a running node may have removed files meanwhile.
        A `running` node may be making a queue's last file. `bases`: of a verifier that listed the directory before.
        """
        self._running = running
        self._read_floors = floors
        self._floors: Mapping[tuple[bytes, int], int] | None = None
        self._root = root
        self._files = ConsumeQueueFiles(root, file_size, _FILES_OPEN_MAX)
        self._findings, self._directory = findings, directory
        self._log_min, self._surely = log_min, surely
        self._entries = QueueEntries(directory, self._gap)
        self._extensions = opened(root.parent / "consumequeue_ext", _FILES_OPEN_MAX)
        self._seen: dict[int, _Seen] = {}
        self.bases: Bases = {} if bases is None else bases  # of files that can be read
        self.gaps: list[Gap] = []
        self._newest: dict[tuple[bytes, int], int] = {}  # of `gaps`, by queue
        if bases is None:
            self._list()

    # --- against the log

    def take(self, batch: Batch) -> None:
        for run in self._entries.runs(batch):
            expected = np.frombuffer(run.entries, dtype=ENTRY)
            self._compare(run, expected)
            self._seen[run.number].hole = bool(is_filler(expected[-1:])[0])

    def _compare(self, run: QueueRun, expected: Entries) -> None:
        seen = self._seen.setdefault(run.number, _Seen(run.offset))
        at = 0
        for stored in self._raw(run.number, run.offset, run.count):
            found = self._resolved(run.number, stored)
            part = expected[at : at + len(found)]
            if found.tobytes() != part.tobytes():
                self._note(seen, run.offset + at, found, part)
            at += len(found)

    def _resolved(self, number: int, entries: Entries) -> Entries:
        """The entries with the hashes of tags in the place of addresses of extension units, where those can be read."""
        codes = entries["tags_code"].astype(np.int64)
        addressed = np.flatnonzero(is_address(codes) & ~is_filler(entries))
        if not len(addressed) or self._extensions is None:
            return entries
        units = self._extensions.read(*self._name(number), codes[addressed], 0)
        made = entries.copy()
        made["tags_code"][addressed[units.found]] = units.tags_codes[units.found]
        return made

    def _raw(self, number: int, offset: int, count: int) -> Iterator[Entries]:
        """The entries as they stand in the files, one array for each; empty ones where there is none."""
        topic, queue_id = self._name(number)
        bases, per_file = self.bases.get((topic, queue_id), set()), self._files.file_size // SIZE
        while count:
            size = min(count, per_file - offset % per_file)
            readable = (offset - offset % per_file) * SIZE in bases
            yield self._files.raw(topic, queue_id, offset, size) if readable else np.zeros(size, dtype=ENTRY)
            offset += size
            count -= size

    def _note(self, seen: _Seen, offset: int, found: Entries, expected: Entries) -> None:
        wrong, empty, places = found != expected, _is_empty(found), places_of(expected)
        for chosen, ranges in ((wrong & empty, seen.missing), (wrong & ~empty, seen.differs)):
            for first, end in _stretches(chosen):
                if ranges and ranges[-1].end == offset + first:
                    ranges[-1].end = offset + end
                else:
                    ranges.append(_Range(offset + first, offset + end, int(places[first])))

    def _gap(self, batch: Batch, row: int, number: int, due: int) -> int:
        """Slow, and only for a log that is wrong."""
        at, offset = int(batch.rows[row]["phy"]), int(batch.rows[row]["queue_offset"])
        queue, filled = (self._directory.topic(number), self._directory.queue_id(number)), offset > due
        if offset < due and self._is_next_but(queue, offset, due):
            return offset
        for found in self._raw(number, due, min(offset - due, GAP_MAX)) if filled else ():
            filled = filled and bool((is_filler(found) & (found["tags_code"] > 0)).all())
        self._add_gaps([Gap(at, *queue, offset, due, filled)])
        return max(offset, due)

    def _is_next_but(self, queue: tuple[bytes, int], offset: int, due: int) -> bool:
        """Whether only the number of the record before it was wrong: that is noted."""
        place = self._newest.get(queue)
        before = self.gaps[place] if place is not None else None
        if place is None or before is None or (due, offset) != (before.offset + 1, before.due + 1):
            return False
        self.gaps[place] = replace(before, alone=True)
        return True

    def _add_gaps(self, gaps: list[Gap]) -> None:
        for gap in gaps:
            self._newest[gap.topic, gap.queue_id] = len(self.gaps)
            self.gaps.append(gap)

    # --- in parts

    def part(self) -> QueuePart:
        """What was taken so far, for whoever puts it together with the parts of other stretches."""
        seen = {
            (self._directory.topic(number), self._directory.queue_id(number)): (one, self._entries.expected(number))
            for number, one in self._seen.items()
        }
        self._files.close()
        return QueuePart(seen, self.gaps)

    def absorb(self, part: QueuePart) -> bool:
        """Takes the stretch behind what was taken. False, and nothing is taken, where a number does not follow.

        Then its batches are to be taken themselves: each row of them may be a gap or come twice.
        """
        numbered = [(self._directory.add(*queue), seen, end) for queue, (seen, end) in part.seen.items()]
        for number, seen, _ in numbered:
            if self._entries.expected(number) not in (NEW_QUEUE, seen.first):
                return False
        for number, seen, end in numbered:
            known = self._seen.setdefault(number, _Seen(seen.first))
            known.hole = seen.hole
            for ranges, more in ((known.missing, seen.missing), (known.differs, seen.differs)):
                if ranges and more and ranges[-1].end == more[0].first:
                    ranges[-1].end = more.pop(0).end
                ranges += more
            self._entries.expect(number, end)
        self._add_gaps(part.gaps)
        return True

    # --- what else the files hold

    def finish(self, *, whole: bool) -> None:
        """Reports; `whole` when the batches reached the log's end, so that nothing may stand behind it."""
        for number, seen in sorted(self._seen.items()):
            end = self._entries.expected(number)
            for missing in seen.missing:
                behind = missing.end == end and missing.place >= self._surely
                self._report(number, missing, "QUEUE_BEHIND" if behind else "QUEUE_MISSING")
            for differs in seen.differs:
                self._report(number, differs, "QUEUE_ENTRY")
        for (topic, queue_id), bases in sorted(self.bases.items()):
            number = self._directory.lookup(topic.encode(), queue_id)
            known = None if number == NONE else self._seen.get(number)
            end = self._entries.expected(number) if known is not None else NEW_QUEUE
            for base in sorted(bases):
                self._before(topic, queue_id, base, known.first if known is not None else None)
                if whole and end != NEW_QUEUE:
                    self._behind(topic, queue_id, base, end, extra=base > min(bases))
            if bases:
                self._end(topic, queue_id, known)
        self._files.close()

    def _end(self, topic: str, queue_id: int, seen: _Seen | None) -> None:
        """A real broker takes a filler's size for the end of the log's records that are dispatched (spec 3.2, 8.2)."""
        if seen is not None and not seen.hole:
            return
        path = self._path(topic, queue_id, max(self.bases[topic, queue_id]))
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            end = written_end(fd, 0, self._files.file_size)
            at = (end - 1) // SIZE * SIZE
            last = np.frombuffer(os.pread(fd, SIZE, at) if end else b"", dtype=ENTRY)
        finally:
            os.close(fd)
        if is_filler(last).any():
            self._findings.add(path, at, at + SIZE, "QUEUE_ENDS_IN_HOLE")

    def end_of(self, topic: bytes, queue_id: int) -> int:
        """Behind the last number that the log holds; NEW_QUEUE (-1) if it holds none."""
        number = self._directory.lookup(topic, queue_id)
        return NEW_QUEUE if number == NONE else self._entries.expected(number)

    def _report(self, number: int, wrong: _Range, rule: str) -> None:
        topic, queue_id = self._name(number)
        directory, per_file = self._root / topic / str(queue_id), self._files.file_size // SIZE
        if self._floors is None:
            self._floors = self._read_floors()
        first = max(wrong.first, self._floors.get((topic.encode(), queue_id), 0))  # before: files may have gone
        while first < wrong.end:
            start = first - first % per_file
            end = min(wrong.end, start + per_file)
            said = f"entries {first} to {end - 1} are not what the log says"
            if rule != "QUEUE_ENTRY":
                said = f"entries {first} to {end - 1} are missing, though the log holds their records"
            path = directory / segment_name(start * SIZE)
            self._findings.add(path, (first - start) * SIZE, (end - start) * SIZE, rule, said)
            first = end

    def _before(self, topic: str, queue_id: int, base: int, first: int | None) -> None:
        """Entries before the first that the log holds: fillers, or of records deleted before."""
        start, end = base // SIZE, (base + self._files.file_size) // SIZE
        end = end if first is None else min(end, first)
        while start < end:
            found = self._files.raw(topic, queue_id, start, min(_BLOCK, end - start))
            places = places_of(found)
            good = (found["record_size"] > 0) & (places < self._log_min) & (found["physical_offset"] >= 0)
            good &= ~is_filler(found) | (found["physical_offset"] == 0)
            good &= ~is_filler(found) | (places >= 0) | (found["tags_code"] == 0)
            if first is None:
                written = np.flatnonzero(~_is_empty(found))
                good[written[-1] + 1 if len(written) else 0 :] = True  # behind the queue's end
            for begin, stop in _stretches(~good):
                at = start * SIZE - base
                path = self._path(topic, queue_id, base)
                self._findings.add(path, at + begin * SIZE, at + stop * SIZE, "QUEUE_FILLER")
            start += len(found)

    def _behind(self, topic: str, queue_id: int, base: int, end: int, *, extra: bool) -> None:
        start, path = max(0, end * SIZE - base), self._path(topic, queue_id, base)
        if start >= self._files.file_size:
            return
        if extra and start == 0:
            self._findings.add(path, 0, self._files.file_size, "QUEUE_EXTRA", "the file is behind the queue's end")
            return
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for first, stop in written(fd, start, self._files.file_size):
                self._findings.add(path, first - first % SIZE, stop + -stop % SIZE, "QUEUE_EXTRA")
        finally:
            os.close(fd)

    # --- the directory

    @property
    def topics(self) -> set[str]:
        """Those that have queues."""
        return {topic for topic, _ in self.bases}

    def _list(self) -> None:
        for topic in sorted(self._root.iterdir()) if self._root.is_dir() else ():
            if not topic.is_dir():
                self._findings.add(topic, 0, length_of(topic), "FOREIGN")
                continue
            for queue in sorted(topic.iterdir()):
                name = queue.name
                if not queue.is_dir():
                    self._findings.add(queue, 0, length_of(queue), "FOREIGN")
                elif not is_queue_id(name):
                    said = "the name is no queue id: every reader skips it"
                    self._findings.add(queue, 0, 0, "FOREIGN", said, weight=Weight.NOTE)
                else:
                    self.bases[topic.name, int(name)] = self._readable(queue)

    def _readable(self, queue: Path) -> set[int]:
        bases, size = set(), self._files.file_size
        paths = sorted(queue.iterdir())
        for path in paths:
            base, length = segment_base(path.name), length_of(path)
            if base is None or base % size or path.is_dir():
                self._findings.add(path, 0, length, "FOREIGN", "the name is no offset of a queue file")
            elif length == 0 and self._running and path == paths[-1]:
                continue
            elif length == 0:
                said = "the file has no length: a crash came between its name and its bytes"
                self._findings.add(path, 0, 0, "QUEUE_FILE_SIZE", said, remedy=START)
            elif length != size:
                said = f"the file has {length} bytes, a queue file {size}"
                self._findings.add(path, 0, length, "QUEUE_FILE_SIZE", said)
            else:
                bases.add(base)
        return bases

    def _name(self, number: int) -> tuple[str, int]:
        return self._directory.topic(number).decode("utf-8", "replace"), self._directory.queue_id(number)

    def _path(self, topic: str, queue_id: int, base: int) -> Path:
        return self._root / topic / str(queue_id) / segment_name(base)


def _is_empty(entries: Entries) -> npt.NDArray[np.bool_]:
    empty: npt.NDArray[np.bool_] = (entries["record_size"] == 0) & (entries["physical_offset"] == 0)
    empty &= entries["tags_code"] == 0
    return empty


def _stretches(chosen: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """(first, end) of each run of True."""
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
