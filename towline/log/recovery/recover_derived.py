"""Recovery of ConsumeQueues and IndexFiles: both are cut to the mark up to which they were synced; reput goes on there.

Everything below the mark should be there. Each start searches for damage that is cheap to find (`towline store verify`
compares every entry): a missing file or a hole, garbage at a queue's end, and queues of the newest records that end too
early. Then the mark goes back to before the damage.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from towline.errors import DiskFull, ForeignFile
from towline.format.files.consume_queue import SIZE
from towline.format.files.index_file import HEADER_SIZE, decode_header, file_size
from towline.format.record.record import SIZE_MIN, TRANSACTION_PREPARED
from towline.kernels.base.directory import QueueDirectory
from towline.limits import MIB
from towline.log.commitlog.commit_log import CommitLogReader, store_time
from towline.log.commitlog.dispatch import DispatchScan
from towline.log.errors import DerivedFileSize
from towline.log.files.segment_files import segment_name
from towline.log.queues.consume_queue import ConsumeQueueFiles, places_of
from towline.log.queues.index_service import IndexService
from towline.log.state.queue_minima import read_minima
from towline.log.state.topics_file import read_table
from towline.places import Store

from .shutdown_snapshot import Known
from .verdicts import Case, Decided, Observed, Verdict

_TOGETHER: Final = 64  # more queues than this are synced all at once
_FILES_OPEN_MAX: Final = 64
_UNKNOWN: Final = 1 << 62
_LOOK: Final = 256  # entries behind a queue's end among which a hole is searched for
TAIL: Final = 64 * MIB  # of the log before the mark: the queues of its records are compared with it
Queue = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Tail:
    """The newest records below the mark: the end that their queues must have, and the last record with keys.

    `last_keyed` is a log offset, -1 if none has. Looked at are TAIL bytes, rounded to where recovery's walk paused.
    """

    ends: dict[Queue, int]
    last_keyed: int

    @classmethod
    def of(cls, log: CommitLogReader, start: int, end: int) -> "Tail":
        """`start` is a record's start. Raises CorruptLog where a record in between is bad."""
        directory = QueueDirectory()
        ends = np.zeros(0, dtype=np.int64)
        last_keyed = -1
        for batch in DispatchScan(log, directory).whole(start, end):
            ends = np.concatenate((ends, np.zeros(len(directory) - len(ends), dtype=np.int64)))
            counted = batch.rows[(batch.rows["transaction"] & TRANSACTION_PREPARED) == 0]
            np.maximum.at(ends, counted["queue_index"], counted["queue_offset"] + 1)
            if len(batch.keys):
                last_keyed = int(batch.rows[batch.keys["record"][-1]]["phy"])
        names = [(directory.topic(n).decode("utf-8", "replace"), directory.queue_id(n)) for n in range(len(ends))]
        return cls({name: int(end) for name, end in zip(names, ends, strict=True) if end}, last_keyed)


def first_numbers(log: CommitLogReader, start: int, end: int) -> dict[Queue, int]:
    """The least number of each queue among the records of [start, end). `start` is a record's start."""
    directory = QueueDirectory()
    least = np.zeros(0, dtype=np.int64)
    for batch in DispatchScan(log, directory).whole(start, end):
        least = np.concatenate((least, np.full(len(directory) - len(least), _UNKNOWN)))
        counted = batch.rows[(batch.rows["transaction"] & TRANSACTION_PREPARED) == 0]
        np.minimum.at(least, counted["queue_index"], counted["queue_offset"])
    names = [(directory.topic(n).decode("utf-8", "replace"), directory.queue_id(n)) for n in range(len(least))]
    return dict(zip(names, least.tolist(), strict=True))


class QueueRecovery:
    """Recovery of the queues: `check` first, which changes nothing; then `cut`."""

    def __init__(self, store: Store, file_size: int, log: CommitLogReader, log_min: int, decided: Decided) -> None:
        self._files = ConsumeQueueFiles(store.consumequeue, file_size, _FILES_OPEN_MAX)
        self._root, self._log, self._log_min, self._decided = store.consumequeue, log, log_min, decided
        self._topics = read_table(store)
        self._minima = read_minima(store)
        self._ends: dict[Queue, tuple[int, int]] = {}
        self._nameless: set[Queue] = set()  # whose first files have lost their names
        self.watermark = log_min

    def check(self, watermark: int, tail: "Tail", end: int) -> None:
        """Lowers the watermark to where all queues are whole. `tail` is of the log before it, which ends at `end`.

        Raises DerivedFileSize, ForeignFile, CorruptLog.
        """
        queues = self._files.list_queues()
        self.watermark = watermark
        for topic, queue_id in queues:
            self._apply(self._observe_files(topic, queue_id))
        if watermark > self._log_min and not queues:
            text = f"there are no queues: all are derived again from {self._log_min} on"
            self._apply([self._rebuilt(Case.QUEUES_ABSENT, self._log_min, text)])
            return
        for topic, queue_id in queues:
            self._ends[topic, queue_id] = self._files.end_of(topic, queue_id, watermark)
            if self._ends[topic, queue_id][1] < tail.ends.get((topic, queue_id), _UNKNOWN):
                self._apply(self._observe_end(topic, queue_id, watermark))
        self._apply(self._observe_names(watermark, end))
        if self.watermark == watermark:
            self._apply(self._observe_tail(tail))
        if self.watermark < watermark:
            self._ends.clear()

    def _apply(self, found: Iterable[Observed]) -> None:
        for one in found:
            if self._decided.apply(one) is Verdict.REBUILD:
                self.watermark = max(self._log_min, min(self.watermark, one.start))

    def cut(self, below: int) -> list[tuple[str, int, int, int]]:
        """Cuts every queue to records before `below`: (topic, queue id, first number, end).

        Queues of which leading files were removed are removed as a whole where that is safe.
        """
        found = []
        self._files.watch()
        queues = self._files.list_queues()
        together, changed = len(queues) > _TOGETHER, False
        for topic, queue_id in queues:
            known = self._ends.get((topic, queue_id)) if below == self.watermark else None
            first, end = known or self._files.end_of(topic, queue_id, below)
            if (topic, queue_id) in self._nameless or self._goes(topic, queue_id, below, holds=end > first):
                self._files.delete(topic, queue_id)
                continue
            if self._files.cut(topic, queue_id, end, synced=not together):
                self._decided.apply(Observed(Case.QUEUE_AHEAD))
                changed = True
            if self._files.bases(topic, queue_id):
                first = self._files.min_offset_after(topic, queue_id, self._log_min, first, end)
                found.append((topic, queue_id, first, end))
        if together and changed:
            self._files.sync_all()
        self._files.close()
        return found

    def _goes(self, topic: str, queue_id: int, below: int, *, holds: bool) -> bool:
        """Whether a queue goes. `holds`: it has entries of records before `below`.

        Either its topic is deleted, and the log has nothing of it any more. Or its leading files were removed, since
        the topic was deleted or by its retention, and what is left is all of records that are dispatched again: then it
        begins anew, with whatever record comes first.
        """
        minimum = self._minima.get((topic, queue_id))
        if minimum is not None and below < minimum.log_offset and not holds:
            return True
        deleted = self._topics.deleted.get(topic)
        if deleted is None or queue_id not in deleted.floors:
            return False
        if self._log_min >= deleted.log_offset:
            return topic not in self._topics.topics
        return below < deleted.log_offset and not holds

    # --- what is cheap to notice

    def _observe_files(self, topic: str, queue_id: int) -> Iterator[Observed]:
        """Names and sizes, and that no file is missing between others."""
        directory = self._root / topic / str(queue_id)
        try:
            bases = self._files.bases(topic, queue_id)
        except ForeignFile as error:
            yield Observed(Case.QUEUE_MISNAMED, error=error)
            return
        with os.scandir(directory) as entries:
            lengths = {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
        size, names = self._files.file_size, [f"{base:020d}" for base in bases]
        for base, name in zip(bases, names, strict=True):
            length = lengths.pop(name, 0)
            if length not in (0, size):
                yield Observed(Case.QUEUE_SIZE, error=DerivedFileSize(str(directory / name), length, size))
            elif length == 0 and base != bases[-1]:
                text, start = f"{directory / name} has no length", self._behind(topic, queue_id, base // SIZE)
                yield self._rebuilt(Case.QUEUE_FILE_MISSING, start, text)
            elif length == 0:
                yield Observed(Case.QUEUE_EMPTY_FILE)
        if lengths:
            yield Observed(Case.QUEUE_FOREIGN)
        for base, following in pairwise(bases):
            if following != base + size:
                text = f"{directory} has no file {base + size:020d}"
                start = self._behind(topic, queue_id, (base + size) // SIZE)
                yield self._rebuilt(Case.QUEUE_FILE_MISSING, start, text)

    def _observe_end(self, topic: str, queue_id: int, below: int) -> Iterator[Observed]:
        """What follows a queue's end is empty, or of records at `below` and later; anything else is damage."""
        first, end = self._ends[topic, queue_id]
        if not self._files.bases(topic, queue_id):
            return
        found = self._files.raw(topic, queue_id, end, _LOOK)
        written = np.flatnonzero((found["record_size"] != 0) | (found["physical_offset"] != 0))
        if not len(written):
            return
        at = int(written[0])
        place, size = int(places_of(found)[at]), int(found["record_size"][at])
        inside = self._log_min <= place < below
        if at == 0 and size > 0 and below <= place < self._log.queue.end:
            return  # the queue is ahead of the mark, as after any crash
        if at > 0 and not inside:
            return  # entries behind the mark came to the disk in any order
        start = self._behind(topic, queue_id, end) if end > first else self._log_min
        text = f"queue {queue_id} of {topic} is damaged at entry {end}"
        yield self._rebuilt(Case.QUEUE_HOLE if at else Case.QUEUE_GARBAGE, start, text)

    def _observe_names(self, watermark: int, log_end: int) -> Iterator[Observed]:
        """A queue without any entry before the mark begins where its first file's name says, unless a record behind the
        mark has a lower number: then files before that one have lost their names, which no sync had kept."""
        empty = {
            queue: end
            for queue, (first, end) in self._ends.items()
            if first == end > 0 and not self._goes(*queue, watermark, holds=False)
        }
        numbers = first_numbers(self._log, watermark, log_end) if empty else {}
        for (topic, queue_id), end in empty.items():
            number = numbers.get((topic, queue_id), end)
            if number < end:
                self._nameless.add((topic, queue_id))
                text = f"queue {queue_id} of {topic} has no file before number {end}, though the log holds {number}"
                yield self._rebuilt(Case.QUEUE_FILE_MISSING, watermark if number == 0 else self._log_min, text)

    def _observe_tail(self, tail: "Tail") -> Iterator[Observed]:
        """The queues of the newest records below the mark reach to them."""
        for (topic, queue_id), expected in tail.ends.items():
            _, end = self._ends.get((topic, queue_id), (0, 0))
            if end < expected:
                text = f"queue {queue_id} of {topic} ends at {end}, though the log holds number {expected - 1}"
                yield self._rebuilt(Case.QUEUE_END_MISSING, self._behind(topic, queue_id, end), text)

    @staticmethod
    def _rebuilt(case: Case, start: int, text: str) -> Observed:
        return Observed(case, f"{text}; queues are derived again from {start} on", start=start)

    def _behind(self, topic: str, queue_id: int, number: int) -> int:
        """The log offset behind the record before entry `number`; the log's minimum where that is not known."""
        if number <= 0 or not self._files.bases(topic, queue_id):
            return self._log_min
        before = self._files.raw(topic, queue_id, number - 1, 1)
        place, size = int(places_of(before)[0]), int(before["record_size"][0])
        known = place >= self._log_min and SIZE_MIN <= size <= self._log.segment_size - place % self._log.segment_size
        return place + size if known else self._log_min


class IndexRecovery:
    """Recovery of the index: `check` first, which changes nothing; then `cut`. Reput goes on indexing at `end`."""

    def __init__(
        self, store: Store, slots: int, indexes: int, log: CommitLogReader, log_min: int, decided: Decided
    ) -> None:
        self._service = IndexService(store.index, slots, indexes, writable=True)
        self._directory, self._size = store.index, file_size(slots, indexes)
        self._indexes = indexes
        self._log, self._log_min, self._decided = log, log_min, decided
        self._broken: list[Path] = []
        self.end = log_min

    def check(self) -> None:
        """Every file before the last that holds anything is full. Raises DerivedFileSize."""
        counts: list[tuple[Path, int]] = []
        for path in sorted(self._directory.iterdir()):
            found = self._observe_name(path)
            self._decided.apply(found)
            if found is None:
                counts.append((path, self._count(path)))
        used = [number for number, (_, count) in enumerate(counts) if count > 1]
        broken = next((number for number in used[:-1] if counts[number][1] != self._indexes), None)
        gaps = [number for number in range(used[-1]) if counts[number][1] <= 1] if used else []
        first = min([*gaps[:1], *([broken] if broken is not None else [])], default=None)
        self._broken = [path for path, _ in counts[first:]] if first is not None else []

    def _observe_name(self, path: Path) -> Observed | None:
        if path.name.endswith(".new"):
            return Observed(Case.INDEX_UNFINISHED)
        if not (path.name.isascii() and path.name.isdecimal()):
            return Observed(Case.INDEX_FOREIGN)
        length = path.stat().st_size
        if length != self._size:
            return Observed(Case.INDEX_SIZE, error=DerivedFileSize(str(path), length, self._size))
        return None

    def _observe_headers(self) -> Observed | None:
        if not self._broken:
            return None
        text = f"index file {self._broken[0].name} is not full, though others follow: they are derived again"
        return Observed(Case.INDEX_HEADER, text)

    def _count(self, path: Path) -> int:
        with path.open("rb") as file:
            return decode_header(file.read(HEADER_SIZE)).index_count

    def cut(self, below: int, watermark: int, tail: Tail, *, unsafe_after: int | None) -> None:
        """Cuts to records before `below`; files that end later than `unsafe_after` (ms) go whole, None keeps all."""
        if self._decided.apply(self._observe_headers()) is Verdict.REBUILD:
            for path in self._broken:
                path.unlink()
        try:
            self._service.load()
            if unsafe_after is not None:
                self._service.drop_after(unsafe_after)
            before = self._newest()
            self._service.cut(below, lambda physical_offset: store_time(self._log, physical_offset))
            if self._newest() < before:
                self._decided.apply(Observed(Case.INDEX_AHEAD))
            found = self._observe_end(watermark, tail)
            rebuilt = self._decided.apply(found) is Verdict.REBUILD
            self.end = found.start if found is not None and rebuilt else watermark
            self._service.sync()
        except DiskFull as error:  # a sparse file of another broker: reput cuts it before it indexes anything
            self._decided.notes.append(f"the index waits for room: {error}")
            self.end = watermark
        finally:
            self._service.close()

    def _newest(self) -> tuple[str, int]:
        """The last file and its count."""
        name = next(reversed(self._service.names), "")
        return name, self._service.file(name).header.index_count if name else 0

    def _observe_end(self, watermark: int, tail: Tail) -> Observed | None:
        """Whether keys are missing before the watermark: indexing goes on where the newest indexed record ends."""
        at = next(
            (
                header.end_physical_offset
                for name in reversed(self._service.names)
                if (header := self._service.file(name).header).index_count > 1
            ),
            -1,
        )
        if not self._broken and tail.last_keyed <= at:
            return None
        if at < self._log_min:
            start = self._log_min
            return Observed(Case.INDEX_ABSENT, f"there is no index: it is derived again from {start} on", start=start)
        start = min(at + int.from_bytes(bytes(self._log.slice(at, at + 4)), "big"), watermark)
        text = f"the index ends early: it is derived again from {start} on"
        return Observed(Case.INDEX_END_MISSING, text, start=start)


def missing(store: Store, queue_file_size: int, known: Known, *, index_file_size: int | None) -> Path | None:
    """A file of a queue or of the index that should be there and is not, or has another size; None if all fit.

    The index, if it has no file. `index_file_size` in bytes, None where there is to be no index.
    """
    if index_file_size is not None:
        files = [path for path in store.index.iterdir() if path.name.isdecimal()]
        if known.indexed and not files:
            return store.index
        if (strange := next((path for path in files if path.stat().st_size != index_file_size), None)) is not None:
            return strange
    size = queue_file_size
    for queue in known.queues:
        directory = store.consumequeue / queue.topic / str(queue.queue_id)
        start, end = queue.min_offset * SIZE, queue.end_offset * SIZE
        for base in range(start - start % size, end, size) if end > start else ():
            path = directory / segment_name(base)
            try:
                if path.stat().st_size != size:
                    return path
            except OSError:
                return path
    return None
