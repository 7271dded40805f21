"""Deriving queues and index anew from the log, into directories of their own: what reput does, for a whole store."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from towline.errors import IllegalTopic
from towline.format.consume_queue import ENTRY, FILLER, SIZE, hole
from towline.kernels.directory import QueueDirectory

from .commit_log import CommitLogReader
from .consume_queue import ConsumeQueueFiles, Entries, is_filler, places_of
from .dispatch import Batch, DispatchScan
from .errors import RepairRefused
from .index_service import IndexService
from .queue_entries import QueueEntries
from .recovery import RecoverySettings
from .segment_files import segment_base
from .verify_queues import GAP_MAX

_FILES_OPEN_MAX: Final = 256


class Rebuild:
    """`run` reads the log once and writes both; `queues` and `index` are empty directories, or None for what stays."""

    def __init__(
        self,
        log: CommitLogReader,
        settings: RecoverySettings,
        delays_ms: tuple[int, ...],
        queues: Path | None,
        index: Path | None,
        old: Path,
    ) -> None:
        """`old` is the directory of the queues as they stand."""
        self._log = log
        self._directory = QueueDirectory()
        self._scan = DispatchScan(log, self._directory, delays_ms)
        self._entries = QueueEntries(self._directory, np.zeros(0, np.int64), self._fill_gap)
        self._files, self._old = None, old
        if queues is not None:
            queues.mkdir(parents=True)
            self._files = ConsumeQueueFiles(queues, settings.queue_file_size, _FILES_OPEN_MAX)
        self._index = None
        if index is not None and settings.index_slots is not None:
            self._index = IndexService(index, settings.index_slots, settings.index_indexes, writable=True)

    def run(self, start: int, end: int, progress: Callable[[int], None]) -> int:
        """Everything of the log's [start, end), which is sound; synced. Returns how many records. Raises DiskFull."""
        count, log_min, log_end = 0, start, end
        ends: dict[int, tuple[int, int]] = {}
        if self._index is not None:
            self._index.load()
        while start < end:
            batch = self._scan.read(start, end)
            assert batch.end > start, f"no whole record stands at {start}: {batch.rule.name}"
            if self._files is not None:
                for run in self._entries.runs(batch):
                    topic, queue_id = self._name(run.number)
                    self._files.write(topic, queue_id, run.offset, run.entries)
                    ends[run.number] = (ends.get(run.number, (run.offset, 0))[0], run.offset + run.count)
            if self._index is not None:
                self._index.put(batch.log, batch.rows, batch.keys)
            count += len(batch.rows)
            progress(batch.end - start)
            start = batch.end
        self._carry_over(ends, log_min, log_end)
        self._sync(ends)
        return count

    def _carry_over(self, ends: dict[int, tuple[int, int]], log_min: int, log_end: int) -> None:
        """Queues of which the log holds no record any more: their last file alone says which number is the next."""
        if self._files is None:
            return
        stale = range(log_end, max(log_end, self._log.queue.end))
        for topic, queue_id in ConsumeQueueFiles(self._old, self._files.file_size, 1).list_queues():
            if self._directory.lookup(os.fsencode(topic), queue_id) in ends:
                continue
            first, entries = last_deleted(self._old / topic / str(queue_id), log_min, stale)
            if len(entries):
                self._files.write(topic, queue_id, first, entries)
                ends[self._directory.add(os.fsencode(topic), queue_id)] = (first, first + len(entries))

    def _sync(self, ends: dict[int, tuple[int, int]]) -> None:
        if self._files is not None:
            for number, (first, last) in ends.items():
                self._files.sync(*self._name(number), first, last)
            self._files.close()
        if self._index is not None:
            self._index.sync()
            self._index.close()

    def _fill_gap(self, batch: Batch, row: int, number: int, due: int) -> None:
        """Numbers that the log skips without a word get holes, so that later ones keep their places."""
        one = batch.rows[row]
        offset, at = int(one["queue_offset"]), int(one["phy"])
        topic, queue_id = self._name(number)
        if offset - due > GAP_MAX:
            path = str(self._log.queue.path_of(batch.base))
            raise RepairRefused(path, at - batch.base, f"number {offset} follows number {due - 1} in its queue")
        if self._files is not None:
            self._files.write(topic, queue_id, due, hole(at) * (offset - due))

    def _name(self, number: int) -> tuple[str, int]:
        topic = self._directory.topic(number).decode("utf-8", "replace")
        if topic in ("", ".", "..") or "/" in topic or "\0" in topic:
            raise IllegalTopic(topic, "the name cannot be a directory")
        return topic, self._directory.queue_id(number)


def last_deleted(queue: Path, log_min: int, stale: range) -> tuple[int, Entries]:
    """(number of the first, entries) of a queue's last file with an entry of a record before `log_min`; none without.

    The file may have any size. What is damaged between its entries becomes holes, so that no number is given again;
    entries that point to `stale` offsets of the log are left out: their records were cut off.
    """
    for path in sorted(queue.iterdir(), reverse=True):
        base = segment_base(path.name)
        if base is None or base % SIZE or not path.is_file():
            continue
        entries = np.fromfile(path, dtype=ENTRY, count=path.stat().st_size // SIZE)
        places = places_of(entries)
        written = (entries["record_size"] != 0) | (entries["physical_offset"] != 0)
        written &= (places < stale.start) | (places >= stale.stop)
        filler = is_filler(entries)
        good = (entries["record_size"] > 0) & (entries["physical_offset"] >= 0) & (places < log_min)
        good &= ~filler | (entries["physical_offset"] == 0)
        known = good & (places >= 0)
        newest = np.maximum.accumulate(np.where(known, places, -1))
        known[1:] &= places[1:] > newest[:-1]
        good &= known | (places < 0)
        if known.any():
            end = int(np.flatnonzero(written)[-1]) + 1
            for number in np.flatnonzero(~good[:end]):
                place = int(newest[number])
                entries[number] = np.frombuffer(hole(place) if place >= 0 else FILLER, dtype=ENTRY)[0]
            return base // SIZE, entries[:end]
    return 0, np.empty(0, dtype=ENTRY)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
