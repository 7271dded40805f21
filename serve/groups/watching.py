"""Held watches of members: requests that are answered when their group changes.

All are held equally long, so the oldest is due first.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

MemberKey: TypeAlias = tuple[str, str]  # group, member


@dataclass(frozen=True, slots=True)
class ReplyAddress:
    """Where an answer is sent."""

    peer: bytes
    request_id: int


class MemberWatches:
    """The held watches, at most one of each member."""

    def __init__(self) -> None:
        self._held: OrderedDict[MemberKey, tuple[ReplyAddress, int]] = OrderedDict()  # the one due first in front

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, place: MemberKey, reply_to: ReplyAddress, due_ms: int) -> ReplyAddress | None:
        """Holds a watch; returns the member's previous one, to be answered now. `due_ms` never decreases."""
        before = self.take(place)
        self._held[place] = (reply_to, due_ms)
        return before

    def take(self, place: MemberKey) -> ReplyAddress | None:
        found = self._held.pop(place, None)
        return None if found is None else found[0]

    def take_of(self, group: str, members: Iterable[str]) -> list[tuple[MemberKey, ReplyAddress]]:
        found = [((group, member), self.take((group, member))) for member in members]
        return [(place, reply_to) for place, reply_to in found if reply_to is not None]

    def overdue(self, now_ms: int) -> list[tuple[MemberKey, ReplyAddress]]:
        found = []
        while self._held:
            place, (reply_to, due_ms) = next(iter(self._held.items()))
            if due_ms > now_ms:
                break
            del self._held[place]
            found.append((place, reply_to))
        return found

    def take_all(self) -> list[tuple[MemberKey, ReplyAddress]]:
        found = [(place, reply_to) for place, (reply_to, _) in self._held.items()]
        self._held.clear()
        return found

    def due_ms(self) -> int | None:
        """When the first watch is due; None without any."""
        return next(iter(self._held.values()))[1] if self._held else None
