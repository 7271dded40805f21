"""Truncation of a slave's log to the point up to which its master has it (H17), before any process owns the store.

The ha receiver records the point in `ha/truncate.json`; the node's next start keeps the tail in `diverged/`, cuts log,
queues and epochs, and rolls offsets back with their queues. The record is removed last, so after a start that is killed
in the middle the next one does the same again. Index files, and entries of queues behind the durable mark, are cut by
the recovery that follows; it uses no snapshot of the node before.
"""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from towline.format.files.epochs import IMPLIED
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan
from towline.log.errors import TruncationLost, TruncationRefused
from towline.log.files.config_file import ConfigFile
from towline.log.files.mapped_file_queue import MappedFileQueue
from towline.log.files.segment_files import segment_name, sync_directory, sync_file, zero_range
from towline.log.files.sparse_file import written_end
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.state.durable_file import DurableFile, confirmed_durably
from towline.log.state.epoch_file import EpochFile
from towline.log.state.topics_file import read_table
from towline.log.state.truncation_file import KeptTail, Truncation, TruncationFile, read_kept
from towline.places import Store

from .offset_rollback import Shorter, clamp_offsets
from .quarantine import Quarantine
from .recover_derived import Queue, Tail
from .verdicts import Case, Decided, Observed

_FILES_OPEN_MAX: Final = 64
STEPS: Final = ("copy", "manifest", "durable", "queues", "offsets", "segment", "epochs", "removal")
Reached = Callable[[str], None]


def truncate(
    store: Store,
    segment_size: int,
    queue_file_size: int,
    reached: Reached = lambda _: None,
    decided: Decided | None = None,
) -> tuple[KeptTail, list[str]] | None:
    """Carries out `ha/truncate.json` and removes it; None without the file. The caller recovers afterwards.

    Returns what was kept, and sentences for the log; the row goes to `decided`. `reached` is called with each of STEPS
    before it is done. Raises TruncationRefused and TruncationLost before anything is changed; DiskFull, SyncFailed,
    StoreNotWritable later: the next start goes on.
    """
    file = TruncationFile(store)
    decided = Decided() if decided is None else decided
    wanted, broken = _observe_file(file)
    decided.apply(broken)
    if wanted is None:
        return None
    cutting = _Cutting(store, segment_size, queue_file_size, wanted, reached)
    try:
        decided.apply(cutting.observe())
        kept = cutting.keep()
        notes = [f"{kept.size} bytes from {wanted.point} on were cut off and kept ({kept.path}): {wanted.why}"]
        cutting.take_back()
        ends = cutting.cut_queues()
        notes += cutting.clamp(ends)
        cutting.cut_log()
        cutting.cut_epochs()
    finally:
        cutting.close()
    reached("removal")
    file.remove()
    return kept, notes


def _observe_file(file: TruncationFile) -> tuple[Truncation | None, Observed | None]:
    try:
        return file.load(), None
    except TruncationLost as error:
        return None, Observed(Case.TRUNCATION_BROKEN, error=error)


@dataclass
class _Cutting:
    store: Store
    segment_size: int
    queue_file_size: int
    wanted: Truncation
    reached: Reached

    def __post_init__(self) -> None:
        self.reader = CommitLogReader(self.store.commitlog, self.segment_size)
        self.queues = ConsumeQueueFiles(self.store.consumequeue, self.queue_file_size, _FILES_OPEN_MAX)
        self.reader.load()

    def close(self) -> None:
        self.queues.close()
        self.reader.close()

    @property
    def _manifest(self) -> Path:
        return self.store.diverged / f"{segment_name(self.wanted.point)}-{self.wanted.time}.json"

    def observe(self) -> Observed:
        """Confirmed bytes are cut off only with the operator's consent, or where a start before had begun to."""
        wanted, confirmed = self.wanted, confirmed_durably(self.store)
        accepted = wanted.accept_loss or self.store.accept_loss.exists()
        if wanted.point < confirmed and not accepted and not self._manifest.exists():
            error = TruncationRefused(str(self.store.truncate), wanted.point, confirmed)
            return Observed(Case.TRUNCATION_REFUSED, error=error)
        return Observed(Case.TRUNCATED)

    def keep(self) -> KeptTail:
        """Copies of what is cut off. Where the manifest stands they are whole, and the originals may have gone."""
        wanted, path = self.wanted, self._manifest
        if path.exists():
            return read_kept(path)
        diverged = Quarantine(self.store.root)
        files = []
        for base in self.reader.queue.bases:
            start, end = max(base, wanted.point), self._written_end(base)
            if start < end:
                self.reached("copy")
                kept = diverged.keep_again(self.reader.queue.path_of(base), base, start, end, wanted.time)
                files.append((kept.name, start, end))
        epochs = tuple(one for one in EpochFile(self.store).load() if one.start < wanted.end) or IMPLIED
        self.reached("manifest")
        diverged.directory.mkdir(exist_ok=True)
        ConfigFile(path).save(asdict(wanted) | {"epochs": epochs, "files": files})
        sync_directory(self.store.root)
        return read_kept(path)

    def take_back(self) -> None:
        """Nothing behind the point is promised any more (H3)."""
        self.reached("durable")
        point, size = self.wanted.point, self.segment_size
        file = DurableFile(self.store.root)
        state = file.load()
        if state is not None and state.flushed > point:
            queues = min(state.queues_durable, point)
            file.save(replace(state, flushed=point, segment_base=point - point % size, queues_durable=queues))
        file.close()

    def cut_queues(self) -> dict[Queue, int]:
        """The ends that queues have at the point, once they are derived up to it."""
        self.reached("queues")
        point, ends, changed = self.wanted.point, {}, False
        self.queues.watch()
        for topic, queue_id in self.queues.list_queues():
            _, end = self.queues.end_of(topic, queue_id, point)
            changed = self.queues.cut(topic, queue_id, end, synced=False) or changed
            ends[topic, queue_id] = end
        if changed:
            self.queues.sync_all()
        state = DurableFile(self.store.root).load()
        watermark = state.queues_durable if state is not None else 0
        for (name, queue_id), floor in read_table(self.store).floors().items():
            ends[name.decode(), queue_id] = max(floor, ends.get((name.decode(), queue_id), 0))
        if self.reader.queue.bases:
            tail = Tail.of(self.reader, max(watermark, self.reader.queue.min_offset), point)
            for queue, end in tail.ends.items():
                ends[queue] = max(end, ends.get(queue, 0))
        return ends

    def clamp(self, ends: dict[Queue, int]) -> list[str]:
        self.reached("offsets")
        return clamp_offsets(self.store, ends, Shorter(self.wanted.point, self._first_cut_ms()), self.queues).notes

    def _first_cut_ms(self) -> int:
        """Store time of the first record that goes; 0 if there is none, as when a start before went so far."""
        scan, at = DispatchScan(self.reader, QueueDirectory()), self.wanted.point
        while self.reader.queue.bases and at < self.reader.queue.bases[-1] + self.segment_size:
            batch = scan.read(at, self.reader.queue.bases[-1] + self.segment_size, records_max=1)
            if len(batch.rows) or batch.end == at:
                return int(batch.rows["store_timestamp"][0]) if len(batch.rows) else 0
            at = batch.end
        return 0

    def cut_log(self) -> None:
        """Later segments go, the newest first; what is left of the last one is zeroed to its end (H1)."""
        point = self.wanted.point
        queue = MappedFileQueue(self.store.commitlog, self.segment_size, writable=True)
        queue.load()
        for base in reversed(queue.bases):
            if base + self.segment_size <= point:
                break
            self.reached("segment")
            if base > point or (base == point and base != queue.bases[0]):
                queue.remove(base)
                continue
            path, start = queue.path_of(base), point - base
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                end = written_end(fd, start, self.segment_size)
                if end > start:
                    zero_range(fd, start, end)
            finally:
                os.close(fd)
            sync_file(path)
        sync_directory(self.store.commitlog)

    def cut_epochs(self) -> None:
        self.reached("epochs")
        EpochFile(self.store).cut(self.wanted.point)

    def _written_end(self, base: int) -> int:
        start = max(self.wanted.point - base, 0)
        if start >= self.segment_size:
            return base
        fd = os.open(self.reader.queue.path_of(base), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return base + written_end(fd, start, self.segment_size)
        finally:
            os.close(fd)
