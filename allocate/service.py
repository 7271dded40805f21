"""The allocate process: segments ahead of the writer, so that no put pays for creating one or for its page faults."""

from collections.abc import Callable, Generator
from typing import ClassVar, Final

from towline.errors import DiskFull
from towline.limits import SLEEP_MAX_MS
from towline.log.mapped_file_queue import MappedFileQueue
from towline.log.next_segment import drop_abandoned, ensure_in_steps
from towline.log.segment_files import segment_name
from towline.node.context import Node
from towline.runtime.doorbell import Doorbell
from towline.runtime.positions import Counter, Duty, Position, State

from .cleaning import Cleaner
from .space import DiskSpace

AHEAD: Final = 2  # next and next-next
FULL_DISK_PAUSE_MS: Final = 500


class AllocateAgent:
    duty: ClassVar[Duty] = Duty.ALLOCATE

    def __init__(self, node: Node) -> None:
        self._node = node
        self._size = node.settings.mapped_file_size_commit_log
        self._line = node.line
        self._allocated = node.writer(Position.ALLOCATED)
        self._paused_until = 0
        self._space = DiskSpace(node)
        self._cleaner = Cleaner(node, self._space)
        self._base = 0  # of the segment under construction
        self._steps: Generator[None, None, bool] | None = None
        self._warmed = node.settings.warm_mapped_file_enable

    def on_start(self, bell: Doorbell) -> None:
        self._bell = bell
        drop_abandoned(self._node.store.staging)
        self._space.start()
        self._ringer = self._node.ringer(Duty.PUT, Duty.RECEIVE)

    def do_work(self) -> int:
        """At most one segment less, and one step of one more."""
        now = self._node.clock.monotonic_ms()
        self._space.look(now)
        return self._cleaner.turn(now) + self._allocate(now)

    def _allocate(self, now: int) -> int:
        """One step of the lowest segment that is missing, as the writer needs it first."""
        if now < self._paused_until:
            return 0
        if self._steps is None:
            wanted = self._node.positions.get(Position.WANTED)
            missing = range(max(wanted, self._allocated.get()), wanted + (AHEAD + 1) * self._size, self._size)
            if not missing:
                return 0
            store, self._base = self._node.store, missing[0]
            if not (store.commitlog / segment_name(self._base)).exists() and not self._space.has_room(self._base):
                self._paused_until = now + FULL_DISK_PAUSE_MS
                return 0
            self._steps = ensure_in_steps(store.commitlog, store.staging, self._base, self._size, warmed=self._warmed)
        return self._step(self._steps)

    def sleep_ms(self) -> int:
        return SLEEP_MAX_MS

    def wait(self, timeout_ms: int) -> bool:
        return self._bell.wait(timeout_ms)

    def drain(self) -> bool:
        """A clean stop leaves no unused segment behind, once the writer has gone: it may have mapped `next`."""
        if self._steps is not None:
            self._steps.close()
            self._steps = None
        drop_abandoned(self._node.store.staging)
        positions = self._node.positions
        if all(positions.duty(writer).state in (State.ABSENT, State.STOPPED) for writer in Position.APPENDED.writers):
            end = positions.get(Position.APPENDED)
            self._remove(lambda base: base >= end)
        return True

    def on_close(self) -> None:
        """Nothing is held between turns."""

    def _step(self, steps: Generator[None, None, bool]) -> int:
        try:
            next(steps)
            return 1
        except StopIteration as end:
            made = bool(end.value)
        except DiskFull as error:
            self._steps = None
            self._line.count(Counter.REFUSED)
            self._paused_until = self._node.clock.monotonic_ms() + FULL_DISK_PAUSE_MS
            self._node.log.error("%s", error)
            self._space.failed(self._base)
            return 0
        self._steps = None
        self._space.made()
        self._allocated.advance(self._base + self._size)
        if self._base < self._node.positions.get(Position.LOG_MIN):  # a slave's log began further on meanwhile
            self._cleaner.forget()
        self._line.count(Counter.BATCHES, int(made))
        self._ringer.ring()
        return 1

    def _remove(self, unwanted: Callable[[int], bool]) -> None:
        segments = MappedFileQueue(self._node.store.commitlog, self._size, writable=True)
        segments.load()
        for base in segments.bases:
            if unwanted(base):
                segments.remove(base)


def build(node: Node) -> AllocateAgent:
    return AllocateAgent(node)
