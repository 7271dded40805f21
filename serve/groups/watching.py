"""Watches of members that wait for their group to change: all are held equally long, so the oldest is due first."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

Place: TypeAlias = tuple[str, str]  # group, member


@dataclass(frozen=True, slots=True)
class Asker:
    """Whom an answer goes to."""

    peer: bytes
    request_id: int


class Watches:
    """At most one of each member."""

    def __init__(self) -> None:
        self._held: OrderedDict[Place, tuple[Asker, int]] = OrderedDict()  # the one due first in front

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, place: Place, asker: Asker, due_ms: int) -> Asker | None:
        """The member's watch before, which is to be answered now. `due_ms` never goes back."""
        before = self.take(place)
        self._held[place] = (asker, due_ms)
        return before

    def take(self, place: Place) -> Asker | None:
        found = self._held.pop(place, None)
        return None if found is None else found[0]

    def take_of(self, group: str, members: Iterable[str]) -> list[tuple[Place, Asker]]:
        found = [((group, member), self.take((group, member))) for member in members]
        return [(place, asker) for place, asker in found if asker is not None]

    def overdue(self, now_ms: int) -> list[tuple[Place, Asker]]:
        found = []
        while self._held:
            place, (asker, due_ms) = next(iter(self._held.items()))
            if due_ms > now_ms:
                break
            del self._held[place]
            found.append((place, asker))
        return found

    def take_all(self) -> list[tuple[Place, Asker]]:
        found = [(place, asker) for place, (asker, _) in self._held.items()]
        self._held.clear()
        return found

    def due_ms(self) -> int | None:
        """When the first is due; None without any."""
        return next(iter(self._held.values()))[1] if self._held else None
