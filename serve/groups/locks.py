"""Locks of queues, for consumption in order: one member at a time, until some time after its last renewal."""

from collections.abc import Iterable
from typing import TypeAlias

Queue: TypeAlias = tuple[str, int]


class QueueLocks:
    """Of one group. A lock whose time is over is nobody's; the next who asks gets it."""

    def __init__(self, live_ms: int) -> None:
        self._live_ms = live_ms
        self._held: dict[Queue, tuple[str, int]] = {}  # queue -> member, end of its time

    def __len__(self) -> int:
        return len(self._held)

    def lock(self, member: str, queues: Iterable[Queue], now_ms: int) -> list[Queue]:
        """Those of `queues` that are the member's from now on: new ones, and its own, which are renewed."""
        found = []
        for queue in queues:
            holder, until = self._held.get(queue, (member, 0))
            if holder == member or until <= now_ms:
                self._held[queue] = (member, now_ms + self._live_ms)
                found.append(queue)
        return found

    def unlock(self, member: str, queues: Iterable[Queue]) -> None:
        """Gives up those that are the member's."""
        for queue in queues:
            if self._held.get(queue, ("", 0))[0] == member:
                del self._held[queue]

    def leave(self, member: str) -> None:
        """The member left in order: nothing of it is being worked on any more."""
        self._held = {queue: held for queue, held in self._held.items() if held[0] != member}

    def holder(self, queue: Queue, now_ms: int) -> str | None:
        holder, until = self._held.get(queue, (None, 0))
        return holder if until > now_ms else None

    def forget(self, now_ms: int) -> None:
        """Drops what is over, so that queues of deleted topics do not stay."""
        self._held = {queue: held for queue, held in self._held.items() if held[1] > now_ms}
