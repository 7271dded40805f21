"""The allocate process: segments ahead of the writer, so that no put pays for creating one or for its page faults."""

from collections.abc import Callable
from typing import ClassVar

from towline.limits import LOOK_MS
from towline.log.files.mapped_file_queue import MappedFileQueue
from towline.log.files.segment_files import drop_abandoned
from towline.node.process.context import Node
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Duty, Position, State

from .buffers import BufferKeeper
from .caching import PageCacheEvictor
from .cleaning import STEP_MS, Cleaner
from .segments import SegmentsAhead
from .space import DiskSpace


class AllocateAgent:
    """The duty cycle of allocate."""

    duty: ClassVar[Duty] = Duty.ALLOCATE

    def __init__(self, node: Node) -> None:
        self._node = node
        self._size = node.settings.mapped_file_size_commit_log
        self._space = DiskSpace(node)
        self._cleaner = Cleaner(node, self._space)
        self._segments = SegmentsAhead(node, self._space, self._is_made)
        self._page_cache = PageCacheEvictor(node)
        self._pending = True

    def on_start(self, bell: Doorbell) -> None:
        self._bell = bell
        drop_abandoned(self._node.store.staging)
        self._space.start()
        self._segments.start()
        self._buffers = BufferKeeper(self._node)

    def adjust(self) -> None:
        self._space.adjust()
        self._cleaner.adjust()

    def do_work(self) -> int:
        """Deletes one segment at most, and does one step of creating a segment, of a pool buffer, and of page cache
        eviction."""
        now = self._node.clock.monotonic_ms()
        self._space.check(now)
        done = self._cleaner.cycle(now) + self._segments.cycle(now) + self._buffers.cycle()
        done = done or self._page_cache.cycle(now)
        self._pending = bool(done) or self._cleaner.pending or self._segments.pending
        return done

    def sleep_ms(self) -> int:
        return STEP_MS if self._pending else LOOK_MS

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        return self._bell.wait(timeout_ms, rest)

    def drain(self) -> bool:
        """Removes unused segments at a clean stop, once the writer has exited: it may have mapped the next one."""
        self._segments.drain()
        drop_abandoned(self._node.store.staging)
        positions = self._node.positions
        if all(positions.duty(writer).state in (State.ABSENT, State.STOPPED) for writer in Position.APPENDED.writers):
            end = positions.get(Position.APPENDED)
            self._remove(lambda base: base >= end)
        self._space.stop()
        return True

    def on_close(self) -> None:
        """Nothing is held between turns."""

    def _is_made(self, base: int) -> None:
        self._space.made()
        if base < self._node.positions.get(Position.LOG_MIN):  # a slave's log began further on meanwhile
            self._cleaner.rescan()

    def _remove(self, unwanted: Callable[[int], bool]) -> None:
        segments = MappedFileQueue(self._node.store.commitlog, self._size, writable=True)
        segments.load()
        for base in segments.bases:
            if unwanted(base):
                segments.remove(base)


def build(node: Node) -> AllocateAgent:
    return AllocateAgent(node)
