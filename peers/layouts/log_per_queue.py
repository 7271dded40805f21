"""A log per partition in Kafka's format: what a broker's append does with batches of its clients, in one process.

The CRCs of a group are compared by one call, its offsets assigned; then each partition gets its batches by one write.
Indexes are not written meanwhile (a broker writes two more files a partition): `recover` derives them.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Final

import numpy as np

from towline.errors import BenchFailed
from towline.kafka.format import batch
from towline.kafka.log.files import SegmentFiles
from towline.kernels.kafka.crc32c import crc32c_each
from towline.limits import GIB
from towline.loadtest.bench.shapes import TOPIC
from towline.log.files.segment_files import sync_file_system

from .load import Bytes, Load, Numbers, batches_of

SEGMENT: Final = GIB  # log.segment.bytes of a broker
THREADS: Final = 8  # num.io.threads of a broker: so many partitions are synced at a time


class LogPerQueue:
    """The log directory, from its making until the process ends. `whole`: a sync is one of the file system."""

    def __init__(self, directory: Path, load: Load, *, whole: bool = False) -> None:
        self._load, self._whole, self._root = load, whole, directory
        directory.mkdir(parents=True)
        self._files = [_made(directory, queue) for queue in range(load.queues)]
        self._ends = np.zeros(load.queues, np.int64)
        self._root_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        sync_file_system(self._root_fd, directory)
        self._dirty: set[int] = set()
        self._lock = Lock()  # of `_dirty`: the flush may be another thread
        self._threads = ThreadPoolExecutor(THREADS)
        self._pool = batches_of(load)
        size = self._pool.shape[1]
        self._batches: Bytes = np.zeros((load.group, size), np.uint8)
        self._starts = np.arange(load.group, dtype=np.int64) * size + batch.CHECKED_AT
        self._sizes = np.full(load.group, size - batch.CHECKED_AT, np.int64)

    @property
    def room(self) -> bool:
        """Whether another group fits, whichever queues it is for."""
        fullest = int(self._ends.max()) // self._load.together
        return bool(fullest * self._batches.shape[1] + self._batches.size < SEGMENT)

    def prepare(self, queues: Numbers, rows: Numbers) -> None:
        """The group that `append` takes: batches as they come from clients."""
        self._batches[: len(queues)] = self._pool[rows]
        self._queues = queues

    def append(self) -> None:
        """The group is in the partitions' files. Raises BenchFailed."""
        queues, batches = self._queues, self._batches
        count = len(queues)
        self._check(count)
        order = np.argsort(queues, kind="stable")
        ranked = queues[order]
        firsts = np.flatnonzero(np.diff(ranked, prepend=-1))
        place = np.arange(count) - np.repeat(firsts, np.diff(firsts, append=count))
        offsets = self._ends[ranked] + place * self._load.together
        batches[order, :8] = offsets.astype(">i8")[:, None].view(np.uint8)
        self._ends[ranked] = offsets + self._load.together  # of equal places the last one stays
        rows = [batches[row].data for row in order.tolist()]
        bounds = [*firsts.tolist(), count]
        for queue, first, end in zip(ranked[firsts].tolist(), bounds, bounds[1:], strict=False):
            if os.writev(self._files[queue], rows[first:end]) != (end - first) * batches.shape[1]:
                raise BenchFailed(f"a write to partition {queue} was short")
        with self._lock:
            self._dirty.update(ranked[firsts].tolist())

    def sync(self) -> int:
        """What was appended before is on the disk; how many syncs that took."""
        with self._lock:
            dirty, self._dirty = sorted(self._dirty), set()
        if self._whole:
            sync_file_system(self._root_fd, self._root)
            return 1
        parts = [dirty[at::THREADS] for at in range(THREADS) if dirty[at::THREADS]]
        if len(parts) == 1:
            self._sync(parts[0])
        else:
            list(self._threads.map(self._sync, parts))
        return len(dirty)

    def derive(self) -> None:
        """Nothing is derived from a partition while it is written."""

    def _sync(self, queues: list[int]) -> None:
        for queue in queues:
            os.fsync(self._files[queue])

    def _check(self, count: int) -> None:
        """CRC-32C of each batch, as the client sent it."""
        found = np.empty(count, np.int64)
        crc32c_each(self._batches.reshape(-1), self._starts[:count], self._sizes[:count], found)
        stored = np.ascontiguousarray(self._batches[:count, batch.CRC_AT : batch.CRC_AT + 4]).view(">u4")[:, 0]
        if (found != stored).any():
            raise BenchFailed("a batch has another CRC")


def _made(root: Path, queue: int) -> int:
    """The partition's directory and its first segment; a descriptor that appends."""
    directory = root / f"{TOPIC}-{queue}"
    directory.mkdir()
    return os.open(SegmentFiles(directory, 0).log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
