"""The end of the log as its one writer holds it: put on a master, the ha receiver on a slave.

Both resume at the published APPENDED and take their next segment from allocate, or make it themselves by the same
function when allocate is late or dead (H4). With a transient pool they write to a buffer in the segment's place.
"""

import select
from typing import Final

from towline.kernels.directory import QueueDirectory
from towline.log.commit_log import CommitLogReader, LogTail
from towline.log.dispatch import DispatchScan
from towline.log.errors import PoolEmpty
from towline.log.mapped_file import MappedFile
from towline.log.next_segment import ensure_segment
from towline.log.segment_files import segment_name
from towline.log.transient_pool import AppendedScan, TransientPool, buffered
from towline.runtime.positions import Counter, Duty, Position

from .context import Node
from .transient import pool_of

BUFFER_WAIT_MS: Final = 5_000  # as long as RocketMQ waits for a segment (spec 6.1)
_BUFFER_STEP_S: Final = 0.001


def open_tail(node: Node, unpublished_max: int) -> LogTail:
    """A LogTail at APPENDED. `unpublished_max` bytes behind it, which a killed writer may have left, are zeroed (H1).

    A log without a segment begins wherever APPENDED is set to, which is how an empty slave joins in the middle.
    """
    size = node.settings.mapped_file_size_commit_log
    wanted = node.writer(Position.WANTED)
    ringer = node.ringer(Duty.ALLOCATE)
    line = node.line
    pool = pool_of(node)
    buffers = None if pool is None else _Buffers(node, pool)

    def next_segment(base: int) -> MappedFile:
        path = node.store.commitlog / segment_name(base)
        # What allocate has published is durable by name too; anything else is made, or synced, here (H4).
        late = node.positions.get(Position.ALLOCATED) < base + size
        if late and ensure_segment(node.store.commitlog, node.store.staging, base, size):
            line.count(Counter.FALLBACKS)
        segment = MappedFile.open(path, size, writable=True) if buffers is None else buffers.take(base)
        if base > wanted.get():
            wanted.advance(base)
            ringer.ring()
        return segment

    position = node.positions.get(Position.APPENDED)
    if buffers is not None and position % size:
        buffers.take(position - position % size).release()
    directory = node.store.commitlog if pool is None else pool.taken
    ahead = node.settings.populate_ahead_bytes
    tail = LogTail.open(directory, size, position, next_segment, populate_ahead=ahead)
    tail.zero_after(position, unpublished_max)
    return tail


def appended_scan(node: Node, directory: QueueDirectory) -> DispatchScan | AppendedScan:
    """Reads the log up to APPENDED, of which the segment files hold less when there is a transient pool (H11)."""
    size = node.settings.mapped_file_size_commit_log
    files = DispatchScan(CommitLogReader(node.store.commitlog, size), directory)
    pool = pool_of(node)
    if pool is None:
        return files
    buffers = DispatchScan(buffered(pool), directory)
    return AppendedScan(files, buffers, size, lambda: node.positions.get(Position.COMMITTED))


class _Buffers:
    """Takes the buffers that the writer appends to, and waits for one as long as the settings allow."""

    def __init__(self, node: Node, pool: TransientPool) -> None:
        settings = node.settings
        self._pool, self._clock = pool, node.clock
        self._count = settings.transient_store_pool_size
        self._wait_ms = 0 if settings.fast_fail_if_no_buffer_in_store_pool else BUFFER_WAIT_MS
        self._ringer = node.ringer(Duty.FLUSH, Duty.ALLOCATE)

    def take(self, base: int) -> MappedFile:
        """Raises PoolEmpty. Whoever waits here has published all that it appended, so that flush can free a buffer."""
        if not self._pool.take(base):
            self._ringer.ring()
            deadline = self._clock.monotonic_ms() + self._wait_ms
            while not self._pool.take(base):
                if self._clock.monotonic_ms() >= deadline:
                    raise PoolEmpty(self._wait_ms, self._count, self._pool.size)
                select.select([], [], [], _BUFFER_STEP_S)
        return self._pool.open(base, writable=True)
