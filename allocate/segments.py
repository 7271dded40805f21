"""Segments ahead of the log's writer: created, linked into the log, then warmed and locked (spec 6.1).

A segment is linked cold and warmed in the log. An early writer finds it there within milliseconds, the beginning warm,
while warming goes on ahead of it: nobody has to choose between waiting for a warm segment and creating a cold one.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

from towline.errors import DiskFull, TowlineError
from towline.limits import PAGE
from towline.log.files import memory
from towline.log.files.page_cache import WarmUp, advise_file, for_segment, state_of
from towline.log.files.segment_files import ensure_in_steps, segment_name
from towline.node.process.context import Node
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Counter, Duty, Flag, Position
from towline.runtime.settings_model import FlushDiskType
from towline.runtime.store_stats import SLOW_SEGMENT_MS

from .caching import marks_of
from .space import DiskSpace

AHEAD: Final = 2  # next and next-next
BURST_MS: Final = 100  # of a writer that does not append for so long the burst is over
PAUSE_MS: Final = 100  # before what failed is tried again. RocketMQ: 1; a disk that fails is asked a hundred times less
FULL_DISK_PAUSE_MS: Final = 500


UNLOCK_AFTER_MS: Final = 6000  # as long as RocketMQ waits after a segment was filled


class RequestKind(IntEnum):
    """What is asked for. Lower numbers go first: a missing segment stops the writer, a cold one only slows it."""

    SEGMENT = 0  # to be made and linked into the log
    WARM_UP = 1  # to be brought into memory


@dataclass(frozen=True, slots=True)
class SegmentRequest:
    """A segment to be created or warmed."""

    kind: RequestKind
    base: int
    size: int

    @property
    def end(self) -> int:
        return self.base + self.size

    @property
    def urgency(self) -> tuple[int, int, int]:
        """The sort key, least first: by kind, then the larger, then the lower offset, which the writer reaches
        first."""
        return self.kind, -self.size, self.base


class RequestTable:
    """Requests of the log's writer, each once, until they are done or not wanted any more. Times are monotonic ms.

    `failing`: a segment could not be created, and none was since. A writer that needs one should not wait for it.
    """

    def __init__(self) -> None:
        self.failing = False
        self._paused_until: dict[SegmentRequest, int] = {}

    def __len__(self) -> int:
        return len(self._paused_until)

    def __contains__(self, request: SegmentRequest) -> bool:
        return request in self._paused_until

    def add(self, request: SegmentRequest) -> None:
        """Adds a request unless the table has it."""
        self._paused_until.setdefault(request, 0)

    def first(self, now_ms: int) -> SegmentRequest | None:
        """The most urgent request that is not paused."""
        ready = [request for request, until in self._paused_until.items() if until <= now_ms]
        return min(ready, key=lambda request: request.urgency, default=None)

    def done(self, request: SegmentRequest) -> None:
        self._paused_until.pop(request, None)
        if request.kind is RequestKind.SEGMENT:
            self.failing = False

    def failed(self, request: SegmentRequest, again_ms: int) -> None:
        """Pauses a failed request until `again_ms`; others go on."""
        self.postpone(request, again_ms)
        self.failing = self.failing or request.kind is RequestKind.SEGMENT

    def postpone(self, request: SegmentRequest, again_ms: int) -> None:
        """Pauses a request that has not failed."""
        if request in self._paused_until:
            self._paused_until[request] = again_ms

    def drop(self, unwanted: Callable[[SegmentRequest], bool]) -> None:
        """Drops requests that nobody waits for any more."""
        for request in [request for request in self._paused_until if unwanted(request)]:
            del self._paused_until[request]


class SegmentLocks:
    """Mappings that keep segments locked in memory from their warm-up until their writer has left them.

    Holds nothing where `lock_mapped_files` is off.
    """

    def __init__(self, node: Node) -> None:
        self._log = node.log
        self._size = node.settings.mapped_file_size_commit_log
        self.wanted = node.settings.lock_mapped_files
        self._held: dict[int, WarmUp] = {}
        self._left_ms: dict[int, int] = {}  # when its writer was first seen to have left a segment
        if self.wanted:
            memory.raise_lock_limit()

    def keep(self, base: int, warmed: WarmUp) -> None:
        """Takes over the mapping of a warm segment, locked as far as that succeeded."""
        if not self.wanted or warmed.lock_error is not None:
            warmed.release()
        else:
            self._held[base] = warmed
        if warmed.lock_error is not None:
            self.wanted = False
            self._log.warning(
                "segments are not locked in memory any more: %s; raise the limit of locked memory (ulimit -l) to %d MiB"
                " and what other locks need, or turn lock_mapped_files off",
                warmed.lock_error.strerror,
                3 * self._size >> 20,
            )

    @property
    def pending(self) -> bool:
        """Whether a segment that the writer has left is still locked."""
        return bool(self._left_ms)

    def cycle(self, writer_base: int, now_ms: int) -> None:
        """Unlocks segments that the writer, now in the segment of `writer_base`, left long enough ago."""
        for base in [base for base in self._held if base < writer_base]:
            if now_ms - self._left_ms.setdefault(base, now_ms) >= UNLOCK_AFTER_MS:
                self._held.pop(base).release()
                del self._left_ms[base]

    def close(self) -> None:
        """Unlocks all segments."""
        for warmed in self._held.values():
            warmed.release()
        self._held.clear()
        self._left_ms.clear()


class SegmentsAhead:
    """Keeps the writer's segment and the two behind it ready, one step per `cycle`."""

    def __init__(self, node: Node, space: DiskSpace, made: Callable[[int], None]) -> None:
        """`made` is called with the base of each segment that was linked into the log."""
        settings = node.settings
        self._on_made = made
        self._node, self._space = node, space
        self._size = settings.mapped_file_size_commit_log
        self._line = node.line
        self._allocated = node.writer(Position.ALLOCATED)
        self._making = node.writer(Position.MAKING)
        self._warm = node.writer(Position.WARM)
        self._warms = settings.warm_mapped_file_enable
        self._sync_bytes = settings.flush_least_pages_when_warm_mapped_file * PAGE
        self._large = settings.flush_disk_type is not FlushDiskType.SYNC_FLUSH
        self._table = RequestTable()
        self._made: tuple[SegmentRequest, Generator[None, None, bool]] | None = None
        self._warmed: tuple[SegmentRequest, WarmUp] | None = None
        self._began_ms = 0  # of the segment under construction
        self._appended = -1  # where the writer was seen last
        self._still_ms = 0  # until then it counts as busy

    def start(self) -> None:
        """Creates what belongs to the process that does the work."""
        self._ringer = self._node.ringer(Duty.PUT, Duty.RECEIVE)
        self._locks = SegmentLocks(self._node)

    @property
    def pending(self) -> bool:
        """Whether a request is open, or a segment is to be unlocked later."""
        return len(self._table) > 0 or self._locks.pending

    def cycle(self, now_ms: int) -> int:
        """Does one step; returns how many."""
        wanted = self._node.positions.get(Position.WANTED)
        self._request_ahead(wanted)
        self._locks.cycle(wanted, now_ms)
        request = self._table.first(now_ms)
        if request is None:
            return 0
        try:
            return (
                self._make(request, now_ms) if request.kind is RequestKind.SEGMENT else self._warm_up(request, now_ms)
            )
        except (TowlineError, OSError) as error:
            self._drop_made()
            if request.kind is RequestKind.SEGMENT:
                self._handle_make_error(request, error, now_ms)
            else:
                self._handle_warm_error(request, error)
            return 0

    def drain(self) -> None:
        """Drops a segment under construction and unlocks the others."""
        self._drop_made()
        self._end_warm_up()
        self._locks.close()

    # --- what is wanted

    def _request_ahead(self, wanted: int) -> None:
        """Moves the window of requests with the writer, and drops those behind it."""
        end = wanted + (AHEAD + 1) * self._size
        self._table.drop(lambda request: request.base < wanted)
        if self._made is not None and self._made[0] not in self._table:
            self._drop_made()
        if self._warmed is not None and self._warmed[0].base < wanted:
            self._end_warm_up()
        for base in range(max(wanted, self._allocated.get()), end, self._size):
            self._table.add(SegmentRequest(RequestKind.SEGMENT, base, self._size))
        if self._warms:
            for base in range(max(wanted, self._warm.get()), min(end, self._allocated.get()), self._size):
                self._table.add(SegmentRequest(RequestKind.WARM_UP, base, self._size))

    # --- made

    def _make(self, request: SegmentRequest, now_ms: int) -> int:
        if self._made is None or self._made[0] != request:
            self._drop_made()
            store = self._node.store
            if request.base > max(self._node.positions.get(Position.WANTED), self._allocated.get()):
                self._table.postpone(request, now_ms + PAUSE_MS)  # ALLOCATED has no holes: the one before it failed
                return 0
            if not (self._path(request).exists() or self._space.has_room(request.base)):
                self._table.postpone(request, now_ms + FULL_DISK_PAUSE_MS)
                return 0
            self._making.advance(max(self._making.get(), request.end))
            self._made = request, ensure_in_steps(store.commitlog, store.staging, request.base, request.size)
            self._began_ms = now_ms
        try:
            next(self._made[1])
            if ARMED:
                reach("allocate.before_link")
        except StopIteration as end:
            self._publish(request, made=bool(end.value))
            if end.value:
                self._log_slow(request)
        return 1

    def _publish(self, request: SegmentRequest, *, made: bool) -> None:
        if ARMED:
            reach("allocate.after_link")
        self._made = None
        self._table.done(request)
        self._line.lower_flag(Flag.SEGMENT_ERROR)
        self._on_made(request.base)
        if not self._warms:
            state = state_of(request.base, request.size, marks_of(self._node), old=False)
            advise_file(self._path(request), for_segment(state))
        self._allocated.advance(max(self._allocated.get(), request.end))
        self._line.count(Counter.BATCHES, int(made))
        self._ringer.ring()

    def _log_slow(self, request: SegmentRequest) -> None:
        """Counts a slow segment by RocketMQ's bound, and logs one for which a put may have waited."""
        took_ms = self._node.clock.monotonic_ms() - self._began_ms
        if took_ms <= SLOW_SEGMENT_MS:
            return
        self._line.count(Counter.LATE)
        write = self._node.log.warning if request.base <= self._wanted() else self._node.log.info
        write("making segment %s took %d ms", segment_name(request.base), took_ms)

    def _wanted(self) -> int:
        return self._node.positions.get(Position.WANTED)

    # --- warmed

    def _in_burst(self, base: int, appended: int, now_ms: int) -> bool:
        """Whether a segment may stay cold for now: the warm pages ahead of the writer are there for its bursts.

        Warming a segment takes more CPU than filling it, and takes it from the processes that a client waits for.
        """
        if appended != self._appended:
            self._still_ms = now_ms + BURST_MS if self._appended >= 0 else now_ms
            self._appended = appended
        return now_ms < self._still_ms and base - appended >= self._size + self._size // 2

    def _warm_up(self, request: SegmentRequest, now_ms: int) -> int:
        """Does one step of warming a segment in the log; starts at the writer, if it is there already."""
        appended = self._node.positions.get(Position.APPENDED)
        if self._in_burst(request.base, appended, now_ms):
            self._table.postpone(request, now_ms + BURST_MS)
            return 0
        begin = min(max(0, appended - request.base), request.size)
        begin -= begin % PAGE
        if self._warmed is None or self._warmed[0] != request:
            self._end_warm_up()
            path = self._path(request)
            lock = self._locks.wanted
            self._warmed = (
                request,
                WarmUp(path, request.size, begin=begin, sync_bytes=self._sync_bytes, lock=lock, large=self._large),
            )
        warming = self._warmed[1]
        if not warming.step(begin):
            self._warmed = None
            self._warm_up_is_over(request)
            self._locks.keep(request.base, warming)
        return 1

    def _warm_up_is_over(self, request: SegmentRequest) -> None:
        self._table.done(request)
        self._warm.advance(max(self._warm.get(), request.end))

    def _end_warm_up(self) -> None:
        if self._warmed is not None:
            self._warmed[1].release()
            self._warmed = None

    # --- failures

    def _handle_make_error(self, request: SegmentRequest, error: TowlineError | OSError, now_ms: int) -> None:
        """Raises the flag for the writer, which then does not wait; logged once until a segment is created."""
        full = isinstance(error, DiskFull)
        if full:
            self._line.count(Counter.REFUSED)
            self._space.failed(request.base)
        elif not self._table.failing:
            self._node.log.error("segment %d cannot be made, it is tried again: %s", request.base, error)
        self._table.failed(request, now_ms + (FULL_DISK_PAUSE_MS if full else PAUSE_MS))
        self._line.raise_flag(Flag.SEGMENT_ERROR)

    def _handle_warm_error(self, request: SegmentRequest, error: TowlineError | OSError) -> None:
        """Gives the writer the segment as it is. Pages that a sync failed to write are flush's to find, and to stop
        for."""
        self._end_warm_up()
        self._warm_up_is_over(request)
        self._node.log.error("segment %d stays as warm as it is: %s", request.base, error)

    def _path(self, request: SegmentRequest) -> Path:
        return self._node.store.commitlog / segment_name(request.base)

    def _drop_made(self) -> None:
        if self._made is not None:
            self._made[1].close()
            self._made = None
