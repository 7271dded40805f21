"""Locks of queues for ordered consumption: one member at a time, until some time after its last renewal.

A process that takes the name of a dead one does not take its locks: the other may only be slow.

Locks are in memory, and a holder from before a restart of serve may go on for as long as its lock lasts. So until
`unknown_until_ms` an unknown queue counts as locked: only a member that claims it gets it. At most one member's claim
is true: a claim is as old as a lock may be, and nobody else got the queue meanwhile.
"""

from collections.abc import Collection, Iterable
from typing import TypeAlias

Queue: TypeAlias = tuple[str, int]
Holder: TypeAlias = tuple[str, str]  # member, instance

_FREE: tuple[Holder, int] = (("", ""), 0)


class QueueLocks:
    """The locks of one group. An expired lock is free for the next member."""

    def __init__(self, live_ms: int, unknown_until_ms: int = 0) -> None:
        self._live_ms, self._unknown_until_ms = live_ms, unknown_until_ms
        self._held: dict[Queue, tuple[Holder, int]] = {}  # with the end of its time

    def __len__(self) -> int:
        return len(self._held)

    def lock(self, by: Holder, queues: Iterable[Queue], now_ms: int, claims: Collection[Queue] = ()) -> list[Queue]:
        """Locks queues that are free or already the holder's; returns them.

        `claims` are those that it held when it last heard of the previous process.
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
        """Unlocks those that the holder has."""
        for queue in queues:
            held = self._held.get(queue)
            if held[0] == by if held is not None else queue in claims:
                self._held[queue] = _FREE  # known to be free: not even a claim is needed

    def leave(self, by: Holder, busy: Collection[Queue] = ()) -> None:
        """Unlocks the queues of a member that left, except the `busy` ones, which it is still working on: those
        expire."""
        self.unlock(by, [queue for queue, held in self._held.items() if held[0] == by and queue not in busy])

    def holder(self, queue: Queue, now_ms: int) -> str | None:
        """The member that holds the lock."""
        (member, _), until = self._held.get(queue, _FREE)
        return member if until > now_ms else None

    def evict_expired(self, now_ms: int) -> None:
        """Drops expired locks, so that queues of deleted topics do not stay."""
        if now_ms >= self._unknown_until_ms:  # before that, to be known as free is worth something
            self._held = {queue: held for queue, held in self._held.items() if held[1] > now_ms}
