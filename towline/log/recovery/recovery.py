"""Recovery of a store by a node's start, before any process owns it (spec 8; hazards H1, H3, H5, H7, H13).

Recovery finds the log's end, copies the bytes behind it to `diverged/`, zeroes and syncs, and cuts queues and index to
the offset up to which they are synced. Reput starts there and derives the rest again. What is done about each finding
is the verdict of its row in the recovery table (`verdicts`). A second recovery changes nothing more.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from towline.errors import CorruptLog, DiskFull, SyncFailed
from towline.format.files.checkpoint import Checkpoint, logics_physical_offset
from towline.format.files.durable import Durable
from towline.format.files.epochs import IMPLIED, Epochs
from towline.format.files.index_file import file_size
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.log_walk import Checks, LogEnd, LogWalk, first_timestamp
from towline.log.files.mapped_file_queue import MappedFileQueue
from towline.log.files.segment_files import reserve, segment_name, sync_directory, sync_file, zero_range
from towline.log.files.sparse_file import written_end
from towline.log.files.store_files import AbortFile
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.durable_file import DurableFile, confirmed_durably, confirmed_within
from towline.log.state.epoch_file import EpochFile
from towline.places import Store

from .observe_log import (
    observe_beginning,
    observe_behind,
    observe_corrupt,
    observe_empty_last,
    observe_end,
    observe_names,
    observe_promised,
)
from .quarantine import Quarantine
from .recover_derived import TAIL, IndexRecovery, QueueRecovery, Tail, missing
from .resume import verified_end
from .shutdown_snapshot import Known
from .state_files import (
    observe_abort,
    observe_checkpoint,
    observe_durable,
    observe_epochs,
    observe_newest_epoch,
)
from .verdicts import Case, Decided, Verdict


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

    `confirmed`: up to there the log was shown or acknowledged before, as far as anybody knows, and not less than up to
    `dispatched`. A recovery forgets none of that, whatever it derives again.

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
    cases: list[Case]  # rows of the recovery table that applied
    seconds: float
    stages: dict[str, float]  # seconds of each part, in their order
    indexed: int
    confirmed: int
    epochs: Epochs = IMPLIED
    resumed: bool = False


def recover(store: Store, settings: RecoverySettings, known: Known | None = None, *, sole: bool = False) -> Recovered:
    """Recovers the store; missing directories are made. The caller holds the store's lock and no process runs on it.

    `known`: left by the node before; where it fits, recovery is short. Without it a `sole` master confirmed it all.

    Raises StoreSyncFailed, CorruptLog, SegmentSizeMismatch or ForeignFile before anything was changed; SyncFailed and
    DiskFull later. After any of them the next call starts afresh.
    """
    started = time.monotonic()
    for directory in (store.commitlog, store.consumequeue, store.index, store.config, store.run, store.staging):
        directory.mkdir(parents=True, exist_ok=True)
    decided = Decided()
    log = _LogRecovery(store, settings, decided)
    watch = _StopWatch()
    try:
        decided.apply(observe_epochs(store))
        log.load()
        watch.lap("load")
        if known is not None and not log.foreign and (resumed := _resume(log, known, watch)) is not None:
            epochs = _cut_epochs(store, resumed.end, resumed.log_min, decided)
            return replace(resumed, epochs=epochs, seconds=time.monotonic() - started)
        end = log.find_end()
        watch.lap("walk")
        derived = _DerivedRecovery(store, settings, log, decided)
        derived.check(end.end)
        watch.lap("look")
        cut_bytes = log.cut(end.end)
        watch.lap("cut")
        log.sync(end.end)
        watch.lap("sync")
        queues = derived.cut_queues()
        watch.lap("queues")
        derived.cut_index()
        watch.lap("index")
        confirmed = end.end if sole and known is None else _confirmed(log, known, derived.watermark, end.end)
        durable = _save(store, log, end, derived.watermark, confirmed)
        epochs = _cut_epochs(store, end.end, log.log_min, decided)
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
        notes=decided.notes,
        cases=decided.cases,
        seconds=time.monotonic() - started,
        stages=watch.stages,
        indexed=derived.indexed,
        confirmed=confirmed,
        epochs=epochs,
    )


@dataclass(frozen=True, slots=True)
class FoundLog:
    """The log of a store on which no process runs is [log_min, end), as a start would have it."""

    log_min: int
    end: int
    durable: Durable | None
    last_store_timestamp: int = 0  # ms since 1970, 0 for an empty log


def sync_rest(store: Store, segment_size: int, start: int, end: int) -> None:
    """Makes [start, end) of a recovered log durable, which a resumed start leaves to flush.

    Raises SyncFailed; then the durable file says so, and the next start refuses (H5).
    """
    try:
        for base in range(start - start % segment_size, end, segment_size):
            sync_file(store.commitlog / segment_name(base))
        sync_directory(store.commitlog)
    except SyncFailed:
        file = DurableFile(store.root)
        known = file.load()
        if known is not None:
            file.save(replace(known, sync_failed=True))
        file.close()
        raise


def find_log(store: Store, settings: RecoverySettings) -> FoundLog:
    """The log as a start would find it; nothing is changed. Raises what `recover` raises before it changes anything.

    The caller holds the store's lock.
    """
    log = _LogRecovery(store, settings, Decided())
    try:
        log.load()
        end = log.find_end()
        return FoundLog(log.log_min, end.end, log.durable, end.last_store_timestamp)
    finally:
        log.close()


def _cut_epochs(store: Store, end: int, log_min: int, decided: Decided) -> Epochs:
    decided.apply(observe_newest_epoch(store, end))
    return EpochFile(store).cut(end, log_min)


def _resume(log: "_LogRecovery", known: Known, watch: "_StopWatch") -> Recovered | None:
    """The short recovery; None where the snapshot does not fit the files, and the notes say why."""
    settings = log.settings
    files = ConsumeQueueFiles(log.store.consumequeue, settings.queue_file_size, 1)
    checks = Checks(crc=settings.check_crc, property_crc=settings.force_property_crc)
    end = verified_end(known, log.durable, log.reader, files, checks)
    files.close()
    watch.lap("resume")
    if isinstance(end, str):
        log.decided.notes.append(f"everything is looked at, because {end}")
        return None
    slots = settings.index_slots
    if known.indexing != (slots is not None):
        log.decided.notes.append("everything is looked at, because the index was switched on or off since")
        return None
    index_file_size = None if slots is None else file_size(slots, settings.index_indexes)
    gone = missing(log.store, settings.queue_file_size, known, index_file_size=index_file_size)
    if gone is not None:
        log.decided.notes.append(f"everything is looked at, because {gone} is missing or of another size")
        return None
    assert log.durable is not None
    size = settings.segment_size
    base = allocated = end.end - end.end % size
    while (path := log.reader.queue.path_of(allocated)).exists():
        with path.open("r+b") as file:  # the spare ones too: they may be sparse copies
            log.reserve_rest(file.fileno(), max(end.end - allocated, 0), allocated)
        allocated += size
    watch.lap("reserve")
    return Recovered(
        log_min=log.log_min,
        end=end.end,
        dispatched=known.dispatched,
        indexed=known.indexed,
        confirmed=_confirmed(log, known, known.dispatched, end.end),
        active_base=base,
        allocated=allocated,
        durable=log.durable,
        queues=[RecoveredQueue(*queue) for queue in known.queues],
        last_store_timestamp=end.last_store_timestamp,
        clean=log.clean,
        cut_bytes=0,
        notes=log.decided.notes,
        cases=log.decided.cases,
        seconds=0.0,
        stages=watch.stages,
        resumed=True,
    )


def _confirmed(log: "_LogRecovery", known: Known | None, dispatched: int, end: int) -> int:
    published = known.confirmed if known is not None and not log.foreign else 0
    return confirmed_within(end, dispatched, published, confirmed_durably(log.store))


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
    decided: Decided
    durable: Durable | None = None
    checkpoint: Checkpoint | None = None
    clean: bool = True
    foreign: bool = False  # another store may have run on these files since ours: its checkpoint does not fit our check
    log_min: int = 0
    start: int = 0  # base of the segment at which the walk begins
    active_exists: bool = False
    reader: CommitLogReader = field(init=False)
    walk: LogWalk = field(init=False)

    def __post_init__(self) -> None:
        self.reader = CommitLogReader(self.store.commitlog, self.settings.segment_size)

    def load(self) -> None:
        """Reads state files and the directory, and refuses a store that cannot be recovered."""
        self.durable, found = observe_durable(self.store)
        self.decided.apply(found)
        self.clean = not AbortFile(self.store.root).exists()
        self.decided.apply(observe_abort(clean=self.clean))
        self.checkpoint, found = observe_checkpoint(self.store)
        self.decided.apply(found)
        self.foreign = found is not None and found.case is Case.CHECKPOINT_BROKEN
        self.decided.apply(observe_names(self.reader))
        self.log_min = self._find_min()
        for found in observe_beginning(self.reader, self.store, self.durable, self.log_min):
            self.decided.apply(found)
        self.start = self._find_start()

    def find_end(self) -> LogEnd:
        """The walk's end, which is that of the log unless the table refuses what stands there."""
        durable = self.start if self.durable is None else self.durable.flushed
        # A real broker's clean store is whole; its records may hold properties that no client of ours would send.
        form = self.durable is not None or not self.clean
        checks = Checks(crc=self.settings.check_crc, form=form, property_crc=self.settings.force_property_crc)
        self.walk = LogWalk(self.reader, durable, checks)
        with self.refusing():
            end = self.walk.run(self.start)
            while not end.last_store_timestamp and self.start > self.log_min:
                self.start -= self.settings.segment_size  # for the time of the last record: the clock must not go back
                end = self.walk.run(self.start)
        if self.clean:
            queue_file_size = self.settings.queue_file_size
            self.decided.apply(observe_promised(self.reader, self.store, queue_file_size, self.durable, end))
        for found in observe_end(self.reader, self.durable, end):
            self.decided.apply(found)
        return end

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Damage that a walk or a scan reports below the durable offset is looked up in the table."""
        try:
            yield
        except CorruptLog as error:
            self.decided.apply(observe_corrupt(self.reader, error))
            raise

    def cut(self, end: int) -> int:
        """Moves aside and zeroes what follows the end (H1), reserves the rest of its segment (H7). Bytes moved."""
        size = self.settings.segment_size
        queue = MappedFileQueue(self.store.commitlog, size, writable=True)
        self.decided.apply(observe_empty_last(queue))
        queue.load()  # deletes an empty last file
        active = end - end % size
        self.active_exists = active in queue.bases
        moved = sum(self._cut_segment(queue, base, end) for base in reversed(queue.bases) if base >= active)
        self.reader.refresh()
        return moved

    def _cut_segment(self, queue: MappedFileQueue, base: int, end: int) -> int:
        """Carries out the verdict on what one segment holds behind the log's end; the bytes that were moved aside."""
        start, path, active = max(end, base), queue.path_of(base), base <= end < base + queue.size
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            stale_end = base + written_end(fd, start - base, queue.size)
            verdict = self.decided.apply(observe_behind(stale_end - start, active=active))
            if verdict is Verdict.CUT:
                kept = Quarantine(self.store.root).keep(path, base, start, stale_end, time.time_ns() // 1_000_000)
                self.decided.notes.append(f"{stale_end - start} bytes from {start} on were cut off and kept in {kept}")
            if active:
                if verdict is Verdict.CUT:
                    zero_range(fd, start - base, stale_end - base)
                self.reserve_rest(fd, start - base, base)
        finally:
            os.close(fd)
        if not active and verdict in (Verdict.CUT, Verdict.DELETE):
            queue.remove(base)
        return stale_end - start if verdict is Verdict.CUT else 0

    def reserve_rest(self, fd: int, start: int, base: int) -> None:
        """On a full disk the node starts all the same, and serves; the writer reserves before it appends (H7)."""
        try:
            reserve(fd, start, self.settings.segment_size)
        except DiskFull as error:
            self.decided.notes.append(
                f"segment {base} cannot be appended to, puts are refused until there is room: {error}"
            )

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

    def _find_min(self) -> int:
        """Where the log begins: at the minimum that was published, if its segment is there."""
        queue, durable = self.reader.queue, self.durable
        if durable is not None and (not queue.bases or durable.log_min in queue.bases):
            return durable.log_min
        return queue.min_offset

    def _find_start(self) -> int:
        """The segment of the last durable byte; without a durable offset the one that spec 8.4 chooses."""
        if self.durable is not None:
            return self.reader.segment_of(max(self.log_min, self.durable.flushed - 1))
        if self.checkpoint is None:
            return self.log_min
        safe = self.checkpoint.min_timestamp
        if not self.clean and self.store.index.is_dir() and any(self.store.index.iterdir()):
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
    decided: Decided
    watermark: int = 0
    indexed: int = 0
    _queues: QueueRecovery = field(init=False)
    _index: IndexRecovery | None = None
    _tail: Tail = field(init=False)

    def check(self, end: int) -> None:
        """Chooses the watermark. Refuses files of another size; nothing is changed."""
        log, durable, settings = self.log, self.log.durable, self.settings
        chosen = log.start if durable is None else durable.queues_durable
        watermark = max(log.log_min, min(chosen, end))
        with log.refusing():
            self._tail = Tail.of(log.reader, log.walk.boundary(max(log.log_min, watermark - TAIL)), watermark)
        self._queues = QueueRecovery(self.store, settings.queue_file_size, log.reader, log.log_min, self.decided)
        self._queues.check(watermark, self._tail, end)
        self.watermark = self.indexed = self._queues.watermark
        if settings.index_slots is not None:
            slots, indexes = settings.index_slots, settings.index_indexes
            self._index = IndexRecovery(self.store, slots, indexes, log.reader, log.log_min, self.decided)
            self._index.check()

    def cut_queues(self) -> list[RecoveredQueue]:
        return [RecoveredQueue(*found) for found in self._queues.cut(self._below())]

    def cut_index(self) -> None:
        if self._index is None:
            return
        log, unsafe_after = self.log, None
        if log.durable is None and not log.clean:
            unsafe_after = log.checkpoint.index_msg_timestamp if log.checkpoint else 0
        self._index.cut(self._below(), self.watermark, self._tail, unsafe_after=unsafe_after)
        self.indexed = self._index.end

    def _below(self) -> int:
        return self.watermark if self.log.reader.queue.bases else 0


def _save(store: Store, log: _LogRecovery, end: LogEnd, watermark: int, confirmed: int) -> Durable:
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
        confirm_phy_offset=confirmed,
        logics_physical_offset=0 if rebuilt else logics_physical_offset(watermark),
    )
    if checkpoint != log.checkpoint:
        CheckpointFile(store.root).save(checkpoint)
    return state
