"""Rebuilding queues and index from the log: what reput does, for a whole store.

They are built in directories of their own, which then replace the old ones, and `durable` says so.
"""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import numpy as np

from towline.format.files import durable_slots
from towline.format.files.consume_queue import ENTRY, FILLER, SIZE, hole
from towline.format.files.durable import Durable
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import Batch
from towline.log.errors import RepairRefused
from towline.log.files.segment_files import exchange, segment_base, sync_directory, sync_file
from towline.log.files.store_files import write_atomically
from towline.log.queues.consume_queue import ConsumeQueueFiles, Entries, is_filler, places_of
from towline.log.queues.index_service import IndexService
from towline.log.queues.queue_build import QueueBuild, Stretch, build_queues
from towline.log.recovery.recovery import RecoverySettings
from towline.places import Store

from .verify_queues import GAP_MAX

FILES_OPEN_MAX: Final = 256


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
        self._build = QueueBuild(log, delays_ms, self._fill_gap)
        self._files, self._old = None, old
        if queues is not None:
            queues.mkdir(parents=True)
            self._files = ConsumeQueueFiles(queues, settings.queue_file_size, FILES_OPEN_MAX)
        self._index = None
        if index is not None and settings.index_slots is not None:
            self._index = IndexService(index, settings.index_slots, settings.index_indexes, writable=True)

    def run(self, start: int, end: int, progress: Callable[[int], None]) -> int:
        """Everything of the log's [start, end), which is sound; synced. Returns how many records. Raises DiskFull."""
        build, files = self._build, self._files
        if self._index is not None:
            self._index.load()
        for batch in build.batches(start, end) if files is None else build_queues(build, files, start, end):
            if self._index is not None:
                self._index.put(batch.log, batch.rows, batch.keys)
            progress(batch.end - batch.start)
        if files is not None:
            kept = carry_over(self._old, files, build.stretches(), start, range(end, max(end, self._log.queue.end)))
            for stretch in (*build.stretches(), *kept):
                files.sync(stretch.name, stretch.queue_id, stretch.first, stretch.end)
            files.close()
        if self._index is not None:
            self._index.sync()
            self._index.close()
        return build.records

    def _fill_gap(self, batch: Batch, row: int, number: int, due: int) -> int:
        """Numbers that the log skips without a word get holes, so that later ones keep their places."""
        one = batch.rows[row]
        offset, at = int(one["queue_offset"]), int(one["phy"])
        if not 0 < offset - due <= GAP_MAX:
            path = str(self._log.queue.path_of(batch.base))
            raise RepairRefused(path, at - batch.base, f"number {offset} follows number {due - 1} in its queue")
        if self._files is not None:
            directory = self._build.directory
            topic = directory.topic(number).decode("utf-8", "replace")
            self._files.write(topic, directory.queue_id(number), due, hole(at) * (offset - due))
        return offset


def carry_over(
    old: Path, files: ConsumeQueueFiles, built: Iterable[Stretch], log_min: int, stale: range
) -> list[Stretch]:
    """Queues of which the log holds no record any more: their last file alone says which number is the next.

    It is written for those of the directory `old` that were not `built`, without entries that point to `stale` offsets
    of the log. Returns what was written.
    """
    kept = []
    known = {(stretch.topic, stretch.queue_id) for stretch in built}
    for topic, queue_id in ConsumeQueueFiles(old, files.file_size, 1).list_queues():
        if (os.fsencode(topic), queue_id) in known:
            continue
        first, entries = last_deleted(old / topic / str(queue_id), log_min, stale)
        if len(entries):
            files.write(topic, queue_id, first, entries)
            kept.append(Stretch(os.fsencode(topic), queue_id, 0, first, first + len(entries)))
    return kept


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


def replace_directory(
    made: Path, target: Path, take: Callable[[Path], object], note: Callable[[str], None] = lambda _: None
) -> None:
    """`made` becomes `target`; `take` is called with the old directory, under the name it has by then.

    The exchange is atomic where the file system can do it: queues of deleted records stand nowhere else. `note` is
    called with each step.
    """
    note(f"swap {target.name}")
    if target.exists() and exchange(made, target):
        sync_directory(target.parent)
        note(f"swapped out {target.name}")
        take(made)
        return
    if target.exists():
        take(target)
    note(f"swapped out {target.name}")
    made.rename(target)
    sync_directory(target.parent)


def sync_files(*directories: Path) -> None:
    """Makes everything in these directories durable, names included. Raises SyncFailed."""
    for directory in directories:
        for path in sorted(directory.rglob("*")) if directory.is_dir() else ():
            sync_directory(path) if path.is_dir() else sync_file(path)


def save_derived(store: Store, segment_size: int, log_min: int, end: int) -> None:
    """Log, queues and index were read or built to `end`, and all of it was synced: `durable` says so."""
    state = Durable(flushed=end, segment_base=end - end % segment_size, queues_durable=end, log_min=log_min)
    write_atomically(store.durable, durable_slots.first(state))
