"""Flush on a simulated node: one sync at a time, by the product's policy, and the marks that a start goes by."""

from collections.abc import Callable
from typing import Final

from towline.flush.syncing import policy_of
from towline.node.store.confirmed import confirmed_of
from towline.runtime.positions import Duty, Position

from .disk import CHECKPOINT, QUEUES
from .machine import Machine

CHECKPOINT_MS: Final = 1000
QUEUES_MS: Final = 4000  # a minute in the product


class Flush:
    """`synced` is called after each sync."""

    def __init__(self, machine: Machine, role: str, synced: Callable[[], None]) -> None:
        view = machine.view(Duty.FLUSH, role)
        self._machine, self._synced = machine, synced
        self._flushed, self._committed = view.writer(Position.FLUSHED), view.writer(Position.COMMITTED)
        self._confirmed = confirmed_of(view)
        now = machine.clock.monotonic_ms()
        self._policy = policy_of(view.settings, now, pooled=False)
        self._syncing = False
        self._checkpoint_at, self._queues_at = now + CHECKPOINT_MS, now + QUEUES_MS

    def turn(self) -> None:
        machine, now = self._machine, self._machine.clock.monotonic_ms()
        end = machine.positions.get(Position.APPENDED)
        if not self._syncing and self._policy.due(end, self._flushed.get(), now):
            self._syncing = True
            took_ms = machine.world.random.expovariate(0.7) + machine.stall_ms
            machine.after(took_ms * 1000, lambda: self._done(end))
        if now >= self._checkpoint_at:
            self._checkpoint_at = now + CHECKPOINT_MS
            machine.disk.files[CHECKPOINT] = max(machine.disk.files.get(CHECKPOINT, 0), self._confirmed())
        if now >= self._queues_at:
            self._queues_at = now + QUEUES_MS
            queues = min(machine.positions.get(Position.DISPATCHED), self._flushed.get())
            machine.disk.files[QUEUES] = max(machine.disk.files.get(QUEUES, 0), queues)

    def _done(self, end: int) -> None:
        self._syncing = False
        self._machine.disk.flushed = max(self._machine.disk.flushed, end)
        self._policy = self._policy.after(self._machine.clock.monotonic_ms())
        self._flushed.advance(max(end, self._flushed.get()))
        self._committed.advance(self._flushed.get())
        self._synced()
        self.turn()
