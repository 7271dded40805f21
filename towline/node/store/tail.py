"""The tail of the log for its one writer: put on a master, the receiver on a slave.

Both resume at the published APPENDED and take their next segment from allocate, or make it themselves by the same
function when allocate is late or dead (H4). With a transient pool they write to a buffer in the segment's place.
"""

import os
import select
from collections.abc import Callable
from pathlib import Path
from typing import Final

from towline.errors import NotInLog, SyncFailed
from towline.kernels.base.directory import QueueDirectory
from towline.limits import LARGE_PAGE, POPULATE_STEP
from towline.log.commitlog.commit_log import CommitLogReader, LogTail
from towline.log.commitlog.dispatch import Batch, DispatchScan
from towline.log.errors import PoolEmpty, SegmentNotMade
from towline.log.files.mapped_file import MappedFile
from towline.log.files.segment_files import ensure_segment, reserve, segment_name
from towline.node.process.context import Node
from towline.runtime.positions import Counter, Duty, Flag, Position, State
from towline.runtime.settings_model import FlushDiskType
from towline.runtime.store_stats import SLOW_SEGMENT_MS

from .transient_pool import TransientPool, pool_of

SEGMENT_WAIT_MS: Final = 5_000  # the longest wait for allocate (spec 6.1)
BUFFER_WAIT_MS: Final = SEGMENT_WAIT_MS
AGAIN_MS: Final = 500  # after a segment could not be made, puts are refused so long before it is tried again
_SEGMENT_STEP_S: Final = 0.0002
_BUFFER_STEP_S: Final = 0.001


def open_tail(node: Node, unpublished_max: int) -> LogTail:
    """A LogTail at APPENDED. `unpublished_max` bytes behind it, which a killed writer may have left, are zeroed (H1).

    A log without a segment begins wherever APPENDED is set to, which is how an empty slave joins in the middle. Raises
    DiskFull where the blocks of the segment that holds APPENDED cannot be reserved: it came sparse from elsewhere, and
    to write to it would be SIGBUS (H7).
    """
    size = node.settings.mapped_file_size_commit_log
    wanted = node.writer(Position.WANTED)
    ringer = node.ringer(Duty.ALLOCATE)
    segments = NextSegment(node)
    pool = pool_of(node)
    buffers = None if pool is None else _Buffers(node, pool)

    def next_segment(base: int) -> MappedFile:
        segments.ensure(base)
        segment = segments.open(base) if buffers is None else buffers.borrow(base)
        if base > wanted.get():
            wanted.advance(base)
            if not segments.is_published(base + size):  # else it finds out by itself: it has time
                ringer.ring()
        return segment

    position = node.positions.get(Position.APPENDED)
    if buffers is not None and position % size:
        buffers.borrow(position - position % size).release()
    if position % size:
        _reserve(node.store.commitlog / segment_name(position - position % size), position % size, size)
    directory = node.store.commitlog if pool is None else pool.taken
    ahead = node.settings.populate_ahead_bytes
    foresee = segments.foresee if buffers is None else None  # a buffer is taken when it is needed
    # A sync writes out a large page as a whole: where each request waits for one, small steps write less.
    step = POPULATE_STEP if node.settings.flush_disk_type is FlushDiskType.SYNC_FLUSH else LARGE_PAGE
    tail = LogTail.open(directory, size, position, next_segment, populate_ahead=ahead, step=step, foresee=foresee)
    tail.zero_after(position, unpublished_max)
    return tail


def _reserve(path: Path, start: int, end: int) -> None:
    """Next to no work where it was done before."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        reserve(fd, start, end)
    finally:
        os.close(fd)


class AppendedScan:
    """Reads the log up to APPENDED as its resuming writer must (H11): files up to COMMITTED, buffers from there on.

    `read` is that of DispatchScan. COMMITTED is always behind a whole record, or at the end of a segment.
    """

    def __init__(self, files: DispatchScan, buffers: DispatchScan, size: int, committed: Callable[[], int]) -> None:
        self._files, self._buffers, self._size, self._committed = files, buffers, size, committed

    def read(self, start: int, end: int) -> Batch:
        """Raises NotInLog when neither a file nor a buffer holds `start`."""
        border = start - start % self._size + self._size
        while True:
            committed = self._committed()
            if start < committed:
                return self._files.read(start, min(end, committed))
            try:
                batch = self._buffers.read(start, end)
            except (NotInLog, FileNotFoundError):
                if self._committed() < border:
                    raise
                continue
            if self._committed() < border:  # else the buffer went back meanwhile, and may have been zeroed under us
                return batch


def buffer_reader(pool: TransientPool) -> CommitLogReader:
    """The taken buffers as a log of their own: each byte at its offset, those that were committed before it missing."""
    return CommitLogReader(pool.taken, pool.size)


def appended_scan(node: Node, directory: QueueDirectory) -> DispatchScan | AppendedScan:
    """Reads the log up to APPENDED, of which the segment files hold less when there is a transient pool (H11)."""
    size = node.settings.mapped_file_size_commit_log
    files = DispatchScan(CommitLogReader(node.store.commitlog, size), directory)
    pool = pool_of(node)
    if pool is None:
        return files
    buffers = DispatchScan(buffer_reader(pool), directory)
    return AppendedScan(files, buffers, size, lambda: node.positions.get(Position.COMMITTED))


class NextSegment:
    """Sees to it that the writer's next segment exists.

    Allocate makes it long before. When it is just at it the writer waits, for that takes less time than to do the same
    once more beside it; otherwise the writer makes it. Segments are warmed after they are linked, so neither of the two
    ways is the colder one (docs/decisions/0012).
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._size = node.settings.mapped_file_size_commit_log
        self._again_ms = 0
        self._why = ""
        self._foreseen: tuple[int, MappedFile] | None = None

    def is_published(self, base: int) -> bool:
        """Whether allocate has made the segment of `base`: durable by name too (H4)."""
        return self._node.positions.get(Position.ALLOCATED) >= base + self._size

    def foresee(self, base: int) -> MappedFile | None:
        """What `open` will hand over. None where allocate has not made it, or it cannot be mapped."""
        if self._foreseen is None or self._foreseen[0] != base:
            if not self.is_published(base):
                return None
            try:
                self._foreseen = base, self.open(base)
            except SegmentNotMade:
                return None
        return self._foreseen[1]

    def ensure(self, base: int) -> None:
        """Raises DiskFull; SegmentNotMade, and then at once for AGAIN_MS unless allocate has made it by then."""
        node, end = self._node, base + self._size
        if self.is_published(base):
            return
        if node.clock.monotonic_ms() < self._again_ms:
            raise SegmentNotMade(base, self._why)
        if self._comes_from_allocate(end):
            return
        began_ms = node.clock.monotonic_ms()
        try:
            if ensure_segment(node.store.commitlog, node.store.staging, base, self._size):
                node.line.count(Counter.FALLBACKS)
                self._tell_slow(base, node.clock.monotonic_ms() - began_ms)
        except (SyncFailed, OSError) as error:
            raise self._not_made(base, error) from error

    def open(self, base: int) -> MappedFile:
        """Raises SegmentNotMade when it cannot be mapped."""
        if self._foreseen is not None:
            (foreseen, mapped), self._foreseen = self._foreseen, None
            if foreseen == base and mapped.is_open:
                return mapped
        path = self._node.store.commitlog / segment_name(base)
        try:
            return MappedFile.open(path, self._size, writable=True)
        except OSError as error:
            raise self._not_made(base, error) from error

    def _not_made(self, base: int, error: SyncFailed | OSError) -> SegmentNotMade:
        self._again_ms, self._why = self._node.clock.monotonic_ms() + AGAIN_MS, str(error)
        return SegmentNotMade(base, self._why)

    def _tell_slow(self, base: int, took_ms: int) -> None:
        """RocketMQ's bound. Whoever puts has waited for this one."""
        if took_ms > SLOW_SEGMENT_MS:
            text = "making segment %s took %d ms, for which the log's writer waited: allocate had not begun it"
            self._node.log.warning(text, segment_name(base), took_ms)

    def _comes_from_allocate(self, end: int) -> bool:
        """Waits for a segment that allocate is making. False when it is not, fails, dies, or takes too long."""
        positions, clock = self._node.positions, self._node.clock
        if positions.get(Position.MAKING) < end:
            return False
        self._node.line.count(Counter.LATE)
        deadline = clock.monotonic_ms() + SEGMENT_WAIT_MS
        while positions.get(Position.ALLOCATED) < end:
            if clock.monotonic_ms() >= deadline or not self._allocate_works():
                return False
            select.select([], [], [], _SEGMENT_STEP_S)
        return True

    def _allocate_works(self) -> bool:
        line = self._node.positions.duty(Duty.ALLOCATE)
        if line.state is not State.RUNNING or line.flags & (Flag.SEGMENT_ERROR | Flag.DISK_FULL):
            return False
        try:
            os.kill(line.pid, 0)
        except OSError:
            return False
        return True


class _Buffers:
    """Borrows the buffers that the writer appends to, and waits for one as long as the settings allow."""

    def __init__(self, node: Node, pool: TransientPool) -> None:
        settings = node.settings
        self._pool, self._clock = pool, node.clock
        self._count = settings.transient_store_pool_size
        self._wait_ms = 0 if settings.fast_fail_if_no_buffer_in_store_pool else BUFFER_WAIT_MS
        self._ringer = node.ringer(Duty.FLUSH, Duty.ALLOCATE)

    def borrow(self, base: int) -> MappedFile:
        """Raises PoolEmpty. Whoever waits here has published all that it appended, so that flush can free a buffer."""
        if not self._pool.borrow(base):
            self._ringer.ring()
            deadline = self._clock.monotonic_ms() + self._wait_ms
            while not self._pool.borrow(base):
                if self._clock.monotonic_ms() >= deadline:
                    raise PoolEmpty(self._wait_ms, self._count, self._pool.size)
                select.select([], [], [], _BUFFER_STEP_S)
        return self._pool.open(base, writable=True)
