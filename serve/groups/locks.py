"""Locks of queues, for consumption in order: one member at a time, until some time after its last renewal.

A process that takes the name of one that died does not take its locks: the dead may only be slow.

Locks are in memory, and whoever held one when the serve process before this one died may go on for as long as it lasts.
So until `unknown_until_ms` a queue of which nothing is known is somebody's: only whoever says that it was its own gets
it. That is true of one member at most: a claim is as old as a lock may be, and until that time is over nobody else got
the queue.
"""

from collections.abc import Collection, Iterable
from typing import TypeAlias

Queue: TypeAlias = tuple[str, int]
Holder: TypeAlias = tuple[str, str]  # member, instance

_FREE: tuple[Holder, int] = (("", ""), 0)


class QueueLocks:
    """Of one group. A lock whose time is over is nobody's; the next who asks gets it."""

    def __init__(self, live_ms: int, unknown_until_ms: int = 0) -> None:
        self._live_ms, self._unknown_until_ms = live_ms, unknown_until_ms
        self._held: dict[Queue, tuple[Holder, int]] = {}  # with the end of its time

    def __len__(self) -> int:
        return len(self._held)

    def lock(self, by: Holder, queues: Iterable[Queue], now_ms: int, claims: Collection[Queue] = ()) -> list[Queue]:
        """Those of `queues` that are the holder's from now on: new ones, and its own, which are renewed.

        `claims` are those that it held when it last heard of the process before this one.
        """
        found = []
        for queue in queues:
            held = self._held.get(queue)
            if held is None:
                free = now_ms >= self._unknown_until_ms or queue in claims
            else:
                free = held[0] == by or held[1] <= now_ms
            if free:
                self._held[queue] = (by, now_ms + self._live_ms)
                found.append(queue)
        return found

    def unlock(self, by: Holder, queues: Iterable[Queue], claims: Collection[Queue] = ()) -> None:
        """Gives up those that are the holder's."""
        for queue in queues:
            held = self._held.get(queue)
            if held[0] == by if held is not None else queue in claims:
                self._held[queue] = _FREE  # known to be free: not even a claim is needed

    def leave(self, by: Holder, busy: Collection[Queue] = ()) -> None:
        """The holder left in order: only the `busy` queues are being worked on, whose locks stay for their time."""
        self.unlock(by, [queue for queue, held in self._held.items() if held[0] == by and queue not in busy])

    def holder(self, queue: Queue, now_ms: int) -> str | None:
        """The member."""
        (member, _), until = self._held.get(queue, _FREE)
        return member if until > now_ms else None

    def forget(self, now_ms: int) -> None:
        """Drops what is over, so that queues of deleted topics do not stay."""
        if now_ms >= self._unknown_until_ms:  # before that, to be known as free is worth something
            self._held = {queue: held for queue, held in self._held.items() if held[1] > now_ms}
