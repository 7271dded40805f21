"""What a whole-node start does to a store before any process owns it (spec 8; hazards H1, H3, H5, H7, H13).

It finds the log's end, moves what follows it aside, zeroes and syncs; cuts queues and index back to the offset up to
which they are surely on the disk. Reput starts there and derives the rest again. Recovering twice changes nothing more.
"""

import os
import time
from dataclasses import astuple, dataclass, field, replace
from typing import Final

from towline.errors import CorruptLog, DiskFull, MalformedFile, StoreSyncFailed, SyncFailed
from towline.format.checkpoint import Checkpoint
from towline.format.durable import Durable
from towline.format.rules import Rule
from towline.places import Store

from .checkpoint_file import CheckpointFile
from .commit_log import CommitLogReader
from .consume_queue import ConsumeQueueFiles
from .diverged import Diverged
from .durable_file import DurableFile
from .extents import written_end
from .index_service import IndexService
from .known import Known
from .log_walk import Checks, LogEnd, LogWalk, first_timestamp
from .mapped_file_queue import MappedFileQueue
from .resume import verified_end
from .segment_files import reserve, sync_directory, sync_file, zero_range
from .store_files import AbortFile
from .store_time import store_time

_QUEUE_FILES_OPEN_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySettings:
    """Sizes in bytes. `index_slots` and `index_indexes` are the numbers of an IndexFile; None: there is no index."""

    segment_size: int
    queue_file_size: int
    index_slots: int | None
    index_indexes: int
    check_crc: bool = True
    force_property_crc: bool = False


@dataclass(frozen=True, slots=True)
class RecoveredQueue:
    """The queue holds offsets [min_offset, end_offset) of records in the log before `dispatched`.

    `physical_end` is the end of the newest of them, where that is known.
    """

    topic: str
    queue_id: int
    min_offset: int
    end_offset: int
    physical_end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """Log offsets. The log is [log_min, end), all of it synced; reput goes on at `dispatched`, the index at `indexed`.

    `resumed`: nothing was cut or synced, because what the node before left behind fits (`resume`); the log is synced up
    to `durable.flushed` alone then, and the index may hold more than `indexed`: reput cuts it there.

    `active_base` is the segment to append to, which may not exist yet; `allocated` is behind the last one that does.
    `durable` is the state as it was written. `last_store_timestamp` is in epoch ms, 0 for an empty log.
    """

    log_min: int
    end: int
    dispatched: int
    active_base: int
    allocated: int
    durable: Durable
    queues: list[RecoveredQueue]
    last_store_timestamp: int
    clean: bool
    cut_bytes: int
    notes: list[str]
    seconds: float
    stages: dict[str, float]  # seconds of each part, in their order
    indexed: int
    resumed: bool = False


def recover(store: Store, settings: RecoverySettings, known: Known | None = None) -> Recovered:
    """Recovers the store; missing directories are made. The caller holds the store's lock and no process runs on it.

    `known` is what the node before left behind; where it fits, recovery is short.

    Raises StoreSyncFailed, CorruptLog, SegmentSizeMismatch or ForeignFile before anything was changed; SyncFailed and
    DiskFull later. After any of them the next call starts afresh.
    """
    started = time.monotonic()
    for directory in (store.commitlog, store.consumequeue, store.index, store.config, store.run, store.staging):
        directory.mkdir(parents=True, exist_ok=True)
    notes: list[str] = []
    log = _LogRecovery(store, settings, notes)
    watch = _StopWatch()
    try:
        log.load()
        watch.lap("load")
        if known is not None and (resumed := _resume(log, known, watch)) is not None:
            return replace(resumed, seconds=time.monotonic() - started)
        end = log.find_end()
        watch.lap("walk")
        cut_bytes = log.cut(end.end)
        watch.lap("cut")
        log.sync(end.end)
        watch.lap("sync")
        derived = _DerivedRecovery(store, settings, log, notes)
        derived.choose_watermark(end.end)
        queues = derived.cut_queues()
        watch.lap("queues")
        derived.cut_index()
        watch.lap("index")
        durable = _save(store, log, end, derived.watermark)
        watch.lap("save")
    finally:
        log.close()
    active_base = end.end - end.end % settings.segment_size
    return Recovered(
        log_min=log.log_min,
        end=end.end,
        dispatched=derived.watermark,
        active_base=active_base,
        allocated=active_base + settings.segment_size if log.active_exists else active_base,
        durable=durable,
        queues=queues,
        last_store_timestamp=end.last_store_timestamp,
        clean=log.clean,
        cut_bytes=cut_bytes,
        notes=notes,
        seconds=time.monotonic() - started,
        stages=watch.stages,
        indexed=derived.watermark,
    )


def _resume(log: "_LogRecovery", known: Known, watch: "_StopWatch") -> Recovered | None:
    """The short way; None where what is known does not fit, and the notes say why."""
    settings = log.settings
    files = ConsumeQueueFiles(log.store.consumequeue, settings.queue_file_size, 1)
    checks = Checks(crc=settings.check_crc, property_crc=settings.force_property_crc)
    end = verified_end(known, log.durable, log.reader, files, checks)
    files.close()
    watch.lap("resume")
    if isinstance(end, str):
        log.notes.append(f"everything is looked at, because {end}")
        return None
    assert log.durable is not None
    size = settings.segment_size
    base = allocated = end.end - end.end % size
    while (path := log.reader.queue.path_of(allocated)).exists():
        if allocated == base:
            with path.open("r+b") as file:
                reserve(file.fileno(), end.end - base, size)
        allocated += size
    watch.lap("reserve")
    return Recovered(
        log_min=log.log_min,
        end=end.end,
        dispatched=known.dispatched,
        indexed=known.indexed,
        active_base=base,
        allocated=allocated,
        durable=log.durable,
        queues=[RecoveredQueue(*astuple(queue)) for queue in known.queues],
        last_store_timestamp=end.last_store_timestamp,
        clean=log.clean,
        cut_bytes=0,
        notes=log.notes,
        seconds=0.0,
        stages=watch.stages,
        resumed=True,
    )


class _StopWatch:
    """Seconds from one lap to the next, by name."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._since = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.stages[name] = now - self._since
        self._since = now


@dataclass
class _LogRecovery:
    """The CommitLog's part. `durable` is what the file said, None without one: a new store, or a real broker's."""

    store: Store
    settings: RecoverySettings
    notes: list[str]
    durable: Durable | None = None
    checkpoint: Checkpoint | None = None
    clean: bool = True
    log_min: int = 0
    start: int = 0  # base of the segment at which the walk begins
    active_exists: bool = False
    reader: CommitLogReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = CommitLogReader(self.store.commitlog, self.settings.segment_size)

    def load(self) -> None:
        """Reads state files and the directory, and refuses a store that cannot be recovered."""
        durable_file = DurableFile(self.store.root)
        self.durable = durable_file.load()
        if self.durable is not None and self.durable.sync_failed:
            raise StoreSyncFailed(str(durable_file.path), self.durable.flushed)
        self.clean = not AbortFile(self.store.root).exists()
        try:
            self.checkpoint = CheckpointFile(self.store.root).load()
        except MalformedFile as error:
            self.notes.append(f"{error.describe()}; it is written anew")
        self.reader.load()
        self._find_min()
        self.start = self._find_start()

    def find_end(self) -> LogEnd:
        durable = self.start if self.durable is None else self.durable.flushed
        # A real broker's clean store is whole; its records may hold properties that no client of ours would send.
        form = self.durable is not None or not self.clean
        checks = Checks(crc=self.settings.check_crc, form=form, property_crc=self.settings.force_property_crc)
        end = LogWalk(self.reader, durable, checks).run(self.start)
        while not end.last_store_timestamp and self.start > self.log_min:
            self.start -= self.settings.segment_size  # for the time of the last record: the clock must not go back
            end = LogWalk(self.reader, durable, checks).run(self.start)
        if end.rule is not Rule.OK:
            self.notes.append(f"the log ends at {end.end}: the bytes there are no whole record ({end.rule.name})")
        return end

    def cut(self, end: int) -> int:
        """Moves aside and zeroes what follows the end (H1), reserves the rest of its segment (H7). Bytes moved."""
        size = self.settings.segment_size
        queue = MappedFileQueue(self.store.commitlog, size, writable=True)
        queue.load()
        active = end - end % size
        moved = 0
        for base in reversed(queue.bases):
            if base < active:
                break
            start = max(end, base)
            path = queue.path_of(base)
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                stale_end = base + written_end(fd, start - base, size)
                if stale_end > start:
                    moved += stale_end - start
                    kept = Diverged(self.store.root).keep(path, base, start, stale_end, time.time_ns() // 1_000_000)
                    self.notes.append(f"{stale_end - start} bytes from {start} on were cut off and kept in {kept}")
                if base == active:
                    self.active_exists = True
                    if stale_end > start:
                        zero_range(fd, start - base, stale_end - base)
                    self._reserve(fd, start - base, base)
            finally:
                os.close(fd)
            if base != active:
                queue.remove(base)
        self.reader.refresh()
        return moved

    def _reserve(self, fd: int, start: int, base: int) -> None:
        """On a full disk the node starts all the same, and serves; the writer reserves before it appends (H7)."""
        try:
            reserve(fd, start, self.settings.segment_size)
        except DiskFull as error:
            self.notes.append(f"segment {base} cannot be appended to, puts are refused until there is room: {error}")

    def sync(self, end: int) -> None:
        """Makes every byte durable that was not surely so, before it is called flushed (H5)."""
        surely = self.log_min if self.durable is None else self.durable.flushed
        try:
            for base in self.reader.queue.bases:
                if base + self.settings.segment_size > surely:
                    sync_file(self.reader.queue.path_of(base))
            sync_directory(self.store.commitlog)
        except SyncFailed:
            known = self.durable or Durable(flushed=self.start, segment_base=self.start, log_min=self.log_min)
            DurableFile(self.store.root).save(replace(known, sync_failed=True))
            raise

    def close(self) -> None:
        self.reader.close()

    def _find_min(self) -> None:
        """Where the log begins. A deletion may have been published but not finished, or finished but not recorded."""
        queue, durable = self.reader.queue, self.durable
        if not queue.bases:
            self.log_min = durable.log_min if durable is not None else 0
            if durable is not None and durable.flushed > durable.log_min:
                raise self._missing(durable.flushed - 1)
            return
        self.log_min = queue.min_offset
        if durable is not None and durable.log_min in queue.bases:
            self.log_min = durable.log_min
        gap = next((at for at in self._ends() if at > self.log_min and queue.base_of(at) is None), None)
        if gap is not None and gap < queue.end and (durable is None or gap < durable.flushed):
            raise self._missing(gap)

    def _ends(self) -> list[int]:
        return [base + self.settings.segment_size for base in self.reader.queue.bases]

    def _missing(self, offset: int) -> CorruptLog:
        path = self.reader.queue.path_of(self.reader.segment_of(offset))
        return CorruptLog(str(path), 0, "MISSING", "the segment does not exist")

    def _find_start(self) -> int:
        """The segment of the last durable byte; without a durable offset the one that spec 8.4 chooses."""
        if self.durable is not None:
            return self.reader.segment_of(max(self.log_min, self.durable.flushed - 1))
        if self.checkpoint is None:
            return self.log_min
        safe = self.checkpoint.min_timestamp
        if not self.clean and any(self.store.index.iterdir()):
            safe = self.checkpoint.min_timestamp_index  # a broker syncs an index file when it is full
        for base in reversed(self.reader.queue.bases):
            if 0 < first_timestamp(self.reader, base) <= safe:
                return base
        return self.log_min


@dataclass
class _DerivedRecovery:
    """ConsumeQueues and IndexFiles: cut back to the watermark, below which they are surely on the disk."""

    store: Store
    settings: RecoverySettings
    log: _LogRecovery
    notes: list[str]
    watermark: int = 0

    def choose_watermark(self, end: int) -> None:
        log, durable = self.log, self.log.durable
        chosen = log.start if durable is None else durable.queues_durable
        self.watermark = max(log.log_min, min(chosen, end))
        if self.watermark > log.log_min and not self._queues().list_queues():
            self.notes.append(f"there are no queues: all are derived again from {log.log_min} on")
            self.watermark = log.log_min

    def cut_queues(self) -> list[RecoveredQueue]:
        files = self._queues()
        empty = not self.log.reader.queue.bases
        below = 0 if empty else self.watermark
        found: list[RecoveredQueue] = []
        for topic, queue_id in files.list_queues():
            first, end = files.end_of(topic, queue_id, below)
            files.cut(topic, queue_id, end)
            if files.bases(topic, queue_id):
                first = files.min_offset_after(topic, queue_id, self.log.log_min, first, end)
                found.append(RecoveredQueue(topic, queue_id, first, end))
        files.close()
        return found

    def cut_index(self) -> None:
        if self.settings.index_slots is None:
            return
        reader, log = self.log.reader, self.log
        index = IndexService(self.store.index, self.settings.index_slots, self.settings.index_indexes, writable=True)
        try:
            index.load()
            if log.durable is None and not log.clean:
                index.drop_after(log.checkpoint.index_msg_timestamp if log.checkpoint else 0)
            index.cut(
                self.watermark if reader.queue.bases else 0, lambda physical_offset: store_time(reader, physical_offset)
            )
            index.sync()
        except DiskFull as error:  # a sparse file of another broker: reput cuts it before it indexes anything
            self.notes.append(f"the index waits for room: {error}")
        finally:
            index.close()

    def _queues(self) -> ConsumeQueueFiles:
        return ConsumeQueueFiles(self.store.consumequeue, self.settings.queue_file_size, _QUEUE_FILES_OPEN_MAX)


def _save(store: Store, log: _LogRecovery, end: LogEnd, watermark: int) -> Durable:
    """The new state: everything up to the end is synced, queues and index up to the watermark."""
    segment_base = end.end - end.end % log.settings.segment_size
    state = Durable(flushed=end.end, segment_base=segment_base, queues_durable=watermark, log_min=log.log_min)
    durable_file = DurableFile(store.root)
    durable_file.save(state)
    durable_file.close()
    old = log.checkpoint or Checkpoint()
    last = end.last_store_timestamp
    rebuilt = watermark == log.log_min
    checkpoint = Checkpoint(
        physic_msg_timestamp=last or old.physic_msg_timestamp,
        logics_msg_timestamp=0 if rebuilt else min(old.logics_msg_timestamp, last),
        index_msg_timestamp=0 if rebuilt else min(old.index_msg_timestamp, last),
        confirm_phy_offset=watermark,
    )
    if checkpoint != log.checkpoint:
        CheckpointFile(store.root).save(checkpoint)
    return state
