"""Locks of queues, for consumption in order: one member at a time, until some time after its last renewal.

A process that takes the name of one that died does not take its locks: the dead may only be slow.
"""

from collections.abc import Iterable
from typing import TypeAlias

Queue: TypeAlias = tuple[str, int]
Holder: TypeAlias = tuple[str, str]  # member, instance


class QueueLocks:
    """Of one group. A lock whose time is over is nobody's; the next who asks gets it."""

    def __init__(self, live_ms: int) -> None:
        self._live_ms = live_ms
        self._held: dict[Queue, tuple[Holder, int]] = {}  # with the end of its time

    def __len__(self) -> int:
        return len(self._held)

    def lock(self, by: Holder, queues: Iterable[Queue], now_ms: int) -> list[Queue]:
        """Those of `queues` that are the holder's from now on: new ones, and its own, which are renewed."""
        found = []
        for queue in queues:
            holder, until = self._held.get(queue, (by, 0))
            if holder == by or until <= now_ms:
                self._held[queue] = (by, now_ms + self._live_ms)
                found.append(queue)
        return found

    def unlock(self, by: Holder, queues: Iterable[Queue]) -> None:
        """Gives up those that are the holder's."""
        for queue in queues:
            if queue in self._held and self._held[queue][0] == by:
                del self._held[queue]

    def leave(self, by: Holder) -> None:
        """The holder left in order: nothing of it is being worked on any more."""
        self._held = {queue: held for queue, held in self._held.items() if held[0] != by}

    def holder(self, queue: Queue, now_ms: int) -> str | None:
        """The member."""
        (member, _), until = self._held.get(queue, (("", ""), 0))
        return member if until > now_ms else None

    def forget(self, now_ms: int) -> None:
        """Drops what is over, so that queues of deleted topics do not stay."""
        self._held = {queue: held for queue, held in self._held.items() if held[1] > now_ms}
