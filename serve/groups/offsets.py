"""The committed offsets of groups, and what a commit may change (H15).

Resets are kept with the offsets: the generation of a group when its offsets of a topic were set by somebody else than a
member. Both are in one file, so that a member that was away, over a restart too, can never overrule a reset.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from towline.errors import MalformedFile

NONE: Final = -1  # no offset is stored
RESETS: Final = "towlineResets"  # member of consumerOffset.json; a real broker keeps no such thing, and drops it
GENERATION_MAX: Final = 1 << 62

Key: TypeAlias = tuple[str, str]  # topic, group
Bounds: TypeAlias = Callable[[str, int], tuple[int, int]]  # topic, queue -> lowest offset, end


@dataclass(slots=True)
class Committed:
    """The outcome of a commit to one topic, for queues where it differs from the request."""

    clamped: dict[int, int] = field(default_factory=dict)
    kept: dict[int, int] = field(default_factory=dict)


class Offsets:
    """The table of offsets. `changes` counts changes that a file should hold."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._table: dict[Key, dict[int, int]] = {}
        self._resets: dict[Key, int] = {}
        self.changes = 0
        self.clamped = 0

    def load(self, table: Mapping[Key, Mapping[int, int]], resets: Mapping[Key, int] | None = None) -> None:
        self._table = {key: dict(queues) for key, queues in table.items()}
        self._resets = dict(resets or {})

    def snapshot(self) -> dict[Key, dict[int, int]]:
        """A copy that a thread may read."""
        return {key: dict(queues) for key, queues in self._table.items()}

    def resets(self) -> dict[Key, int]:
        """A copy that a thread may read."""
        return dict(self._resets)

    def resets_of(self, group: str) -> dict[str, int]:
        """By topic: the generation of the newest reset."""
        return {topic: generation for (topic, of), generation in self._resets.items() if of == group}

    def was_reset(self, topic: str, group: str, generation: int) -> None:
        """Notes a reset, as long as the offsets are kept."""
        self._resets[topic, group] = generation
        self.changes += 1

    def last_reset(self, topic: str, group: str) -> int:
        """The generation of the last reset; 0 for none."""
        return self._resets.get((topic, group), 0)

    def get(self, topic: str, group: str, queue: int) -> int:
        """The offset; NONE when none is stored."""
        return self._table.get((topic, group), {}).get(queue, NONE)

    def topics_of(self, group: str) -> list[str]:
        return sorted(topic for topic, of in self._table if of == group)

    def by_group(self) -> dict[str, set[str]]:
        """The topics of every group."""
        found: dict[str, set[str]] = {}
        for topic, group in self._table:
            found.setdefault(group, set()).add(topic)
        return found

    def groups(self) -> set[str]:
        return {group for _, group in self._table}

    def topics(self) -> set[str]:
        return {topic for topic, _ in self._table}

    def commit(self, topic: str, group: str, asked: Mapping[int, int], *, forward_only: bool = False) -> Committed:
        """Stores offsets within their queue's bounds. With `forward_only` a greater stored offset stays."""
        done = Committed()
        stored = self._table.setdefault((topic, group), {})
        for queue, at in asked.items():
            low, end = self._bounds(topic, queue)
            allowed = min(max(at, low), end)
            if allowed != at:
                done.clamped[queue] = allowed
            before = stored.get(queue, NONE)
            if forward_only and before > allowed:
                done.kept[queue] = before
            elif before != allowed:
                stored[queue] = allowed
                self.changes += 1
        self.clamped += len(done.clamped)
        return done

    def begin(self, topic: str, group: str, queues: int, first: Callable[[int], int]) -> int:
        """Stores `first(queue)` for each queue without an offset, within its bounds; returns how many.

        Queues that a topic got after the group had begun to read it begin at their first message, whatever `first`
        returns: messages from before the members noticed are not skipped.
        """
        stored = self._table.get((topic, group), {})
        known = bool(stored)
        new = [queue for queue in range(queues) if queue not in stored]
        if new:
            self._table[topic, group] = stored
        for queue in new:
            low, end = self._bounds(topic, queue)
            stored[queue] = low if known else min(max(first(queue), low), end)
        self.changes += len(new)
        return len(new)

    def drop_group(self, group: str) -> int:
        """Drops a group's offsets; returns how many."""
        return self._drop([key for key in self._table if key[1] == group])

    def drop_topics(self, gone: Set[str]) -> Set[str]:
        """Drops and returns the offsets of these topics."""
        self._drop([key for key in self._table if key[0] in gone])
        return gone

    def _drop(self, keys: list[Key]) -> int:
        count = sum(len(self._table.pop(key)) for key in keys)
        self._resets = {key: generation for key, generation in self._resets.items() if key in self._table}
        self.changes += len(keys)
        return count


def resets_content(resets: Mapping[Key, int]) -> dict[str, Any]:
    """The content of RESETS: group -> topic -> generation."""
    content: dict[str, Any] = {}
    for (topic, group), generation in sorted(resets.items()):
        content.setdefault(group, {})[topic] = generation
    return content


def read_resets(content: Any, path: str) -> dict[Key, int]:
    """Raises MalformedFile."""
    match content:
        case dict() if all(isinstance(topics, dict) for topics in content.values()):
            found = {(topic, group): at for group, topics in content.items() for topic, at in topics.items()}
            if all(type(at) is int and 0 <= at < GENERATION_MAX for at in found.values()):
                return found
    raise MalformedFile(path, f"its {RESETS} does not hold generations of groups and topics")
