"""Segments ahead of the log's writer: made, linked into the log, then warmed, the most urgent step first (spec 6.1).

A segment is linked cold and warmed in the log. A writer that is early finds it there in milliseconds, the beginning
warm, and warming goes on ahead of it: nobody has to choose between waiting for a warm segment and making a cold one.
"""

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

from towline.errors import DiskFull, TowlineError
from towline.limits import PAGE
from towline.log.files.page_cache import WarmUp, advise_file, for_segment, state_of
from towline.log.files.segment_files import ensure_in_steps, segment_name
from towline.node.process.context import Node
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Counter, Duty, Flag, Position
from towline.runtime.settings_model import FlushDiskType
from towline.runtime.store_stats import SLOW_SEGMENT_MS

from .caching import marks_of
from .locks import SegmentLocks
from .requests import Kind, Request, RequestTable
from .space import DiskSpace

AHEAD: Final = 2  # next and next-next
BURST_MS: Final = 100  # of a writer that does not append for so long the burst is over
PAUSE_MS: Final = 100  # before what failed is tried again. RocketMQ: 1; a disk that fails is asked a hundred times less
FULL_DISK_PAUSE_MS: Final = 500


class SegmentsAhead:
    """`turn` does one step for the segment the writer is in and the two behind it."""

    def __init__(self, node: Node, space: DiskSpace, made: Callable[[int], None]) -> None:
        """`made` is told the base of each segment that is in the log."""
        settings = node.settings
        self._tell_made = made
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
        self._made: tuple[Request, Generator[None, None, bool]] | None = None
        self._warmed: tuple[Request, WarmUp] | None = None
        self._began_ms = 0  # of the segment under construction
        self._appended = -1  # where the writer was seen last
        self._still_ms = 0  # until then it counts as busy

    def start(self) -> None:
        """In the process that does the work."""
        self._ringer = self._node.ringer(Duty.PUT, Duty.RECEIVE)
        self._locks = SegmentLocks(self._node)

    @property
    def pending(self) -> bool:
        """Whether something is asked for that is not done yet, or is to be let go of later."""
        return len(self._table) > 0 or self._locks.pending

    def turn(self, now_ms: int) -> int:
        """How many things were done."""
        wanted = self._node.positions.get(Position.WANTED)
        self._ask(wanted)
        self._locks.turn(wanted, now_ms)
        request = self._table.first(now_ms)
        if request is None:
            return 0
        try:
            return self._make(request, now_ms) if request.kind is Kind.SEGMENT else self._warm_up(request, now_ms)
        except (TowlineError, OSError) as error:
            self._drop_made()
            if request.kind is Kind.SEGMENT:
                self._cannot_make(request, error, now_ms)
            else:
                self._cannot_warm(request, error)
            return 0

    def drain(self) -> None:
        """What is under construction is dropped; nothing stays locked."""
        self._drop_made()
        self._end_warm_up()
        self._locks.close()

    # --- what is wanted

    def _ask(self, wanted: int) -> None:
        """The window moves with the writer, and what lies behind it is wanted no more."""
        end = wanted + (AHEAD + 1) * self._size
        self._table.drop(lambda request: request.base < wanted)
        if self._made is not None and self._made[0] not in self._table:
            self._drop_made()
        if self._warmed is not None and self._warmed[0].base < wanted:
            self._end_warm_up()
        for base in range(max(wanted, self._allocated.get()), end, self._size):
            self._table.want(Request(Kind.SEGMENT, base, self._size))
        if self._warms:
            for base in range(max(wanted, self._warm.get()), min(end, self._allocated.get()), self._size):
                self._table.want(Request(Kind.WARM_UP, base, self._size))

    # --- made

    def _make(self, request: Request, now_ms: int) -> int:
        if self._made is None or self._made[0] != request:
            self._drop_made()
            store = self._node.store
            if request.base > max(self._node.positions.get(Position.WANTED), self._allocated.get()):
                self._table.put_off(request, now_ms + PAUSE_MS)  # ALLOCATED has no holes: the one before it failed
                return 0
            if not (self._path(request).exists() or self._space.has_room(request.base)):
                self._table.put_off(request, now_ms + FULL_DISK_PAUSE_MS)
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
                self._tell_slow(request)
        return 1

    def _publish(self, request: Request, *, made: bool) -> None:
        if ARMED:
            reach("allocate.after_link")
        self._made = None
        self._table.done(request)
        self._line.lower_flag(Flag.SEGMENT_ERROR)
        self._tell_made(request.base)
        if not self._warms:
            state = state_of(request.base, request.size, marks_of(self._node), old=False)
            advise_file(self._path(request), for_segment(state))
        self._allocated.advance(max(self._allocated.get(), request.end))
        self._line.count(Counter.BATCHES, int(made))
        self._ringer.ring()

    def _tell_slow(self, request: Request) -> None:
        """RocketMQ's bound, counted; the log hears of a segment for which a put may have waited."""
        took_ms = self._node.clock.monotonic_ms() - self._began_ms
        if took_ms <= SLOW_SEGMENT_MS:
            return
        self._line.count(Counter.LATE)
        tell = self._node.log.warning if request.base <= self._wanted() else self._node.log.info
        tell("making segment %s took %d ms", segment_name(request.base), took_ms)

    def _wanted(self) -> int:
        return self._node.positions.get(Position.WANTED)

    # --- warmed

    def _in_burst(self, base: int, appended: int, now_ms: int) -> bool:
        """Whether a segment may stay cold for now: what is warm ahead of the writer is there for its bursts.

        To warm a segment takes more CPU than to fill it, and all of it from those that a client waits for.
        """
        if appended != self._appended:
            self._still_ms = now_ms + BURST_MS if self._appended >= 0 else now_ms
            self._appended = appended
        return now_ms < self._still_ms and base - appended >= self._size + self._size // 2

    def _warm_up(self, request: Request, now_ms: int) -> int:
        """One step of a segment that is in the log; from where its writer is, if it is there already."""
        appended = self._node.positions.get(Position.APPENDED)
        if self._in_burst(request.base, appended, now_ms):
            self._table.put_off(request, now_ms + BURST_MS)
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

    def _warm_up_is_over(self, request: Request) -> None:
        self._table.done(request)
        self._warm.advance(max(self._warm.get(), request.end))

    def _end_warm_up(self) -> None:
        if self._warmed is not None:
            self._warmed[1].release()
            self._warmed = None

    # --- failures

    def _cannot_make(self, request: Request, error: TowlineError | OSError, now_ms: int) -> None:
        """A writer that needs it is told by the flag, and does not wait. It is said once, until a segment is made."""
        full = isinstance(error, DiskFull)
        if full:
            self._line.count(Counter.REFUSED)
            self._space.failed(request.base)
        elif not self._table.failing:
            self._node.log.error("segment %d cannot be made, it is tried again: %s", request.base, error)
        self._table.failed(request, now_ms + (FULL_DISK_PAUSE_MS if full else PAUSE_MS))
        self._line.raise_flag(Flag.SEGMENT_ERROR)

    def _cannot_warm(self, request: Request, error: TowlineError | OSError) -> None:
        """The writer gets the segment as it is. What a sync failed to write is flush's to find, and to stop for."""
        self._end_warm_up()
        self._warm_up_is_over(request)
        self._node.log.error("segment %d stays as warm as it is: %s", request.base, error)

    def _path(self, request: Request) -> Path:
        return self._node.store.commitlog / segment_name(request.base)

    def _drop_made(self) -> None:
        if self._made is not None:
            self._made[1].close()
            self._made = None
