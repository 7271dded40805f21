"""How groups read topics, where somebody has said so: by pulls or by pops (RocketMQ's messageRequestMode.json)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from towline.errors import MalformedFile

from .errors import GroupRefused, Refusal

FILE: Final = "messageRequestMode.json"
PULL: Final = "PULL"
POP: Final = "POP"
ENTRIES_MAX: Final = 65_536
_TABLE: Final = "messageRequestModeMap"


@dataclass(frozen=True, slots=True)
class RequestMode:
    """`share`: a member that pops reads the queues of so many others too; 0: all queues."""

    mode: str
    share: int


class RequestModes:
    """By topic and group. `changes` counts changes that the file should hold."""

    def __init__(self) -> None:
        self._table: dict[str, dict[str, RequestMode]] = {}
        self.changes = 0

    def get(self, topic: str, group: str) -> RequestMode | None:
        return self._table.get(topic, {}).get(group)

    def set(self, topic: str, group: str, mode: RequestMode) -> None:
        """Raises GroupRefused."""
        if self.get(topic, group) is None and sum(map(len, self._table.values())) >= ENTRIES_MAX:
            raise GroupRefused(Refusal.TOO_MANY_GROUPS, f"{ENTRIES_MAX} groups and topics have a mode already")
        if self.get(topic, group) != mode:
            self._table.setdefault(topic, {})[group] = mode
            self.changes += 1

    def drop_group(self, group: str) -> None:
        for groups in self._table.values():
            self.changes += groups.pop(group, None) is not None

    def content(self) -> dict[str, Any]:
        """The object that the file holds."""
        return {_TABLE: {topic: _rows(topic, groups) for topic, groups in self._table.items() if groups}}

    def load(self, content: Mapping[str, Any], path: str) -> None:
        """Raises MalformedFile."""
        table: dict[str, dict[str, RequestMode]] = {}
        match content.get(_TABLE, {}):
            case dict(topics):
                for topic, groups in topics.items():
                    for group, said in _items(groups, path):
                        table.setdefault(str(topic), {})[group] = _read(said, path)
            case _:
                raise MalformedFile(path, f"its {_TABLE} is no table")
        self._table = table


def _rows(topic: str, groups: Mapping[str, RequestMode]) -> dict[str, Any]:
    return {
        group: {"consumerGroup": group, "mode": said.mode, "popShareQueueNum": said.share, "topic": topic}
        for group, said in groups.items()
    }


def _items(groups: Any, path: str) -> list[tuple[str, Any]]:
    if not isinstance(groups, dict):
        raise MalformedFile(path, f"its {_TABLE} does not hold groups by topic")
    return list(groups.items())


def _read(said: Any, path: str) -> RequestMode:
    match said:
        case {"mode": ("PULL" | "POP") as mode}:
            share = said.get("popShareQueueNum", 0)
            if type(share) is int:
                return RequestMode(mode, share)
    raise MalformedFile(path, f"{str(said)[:80]} is no mode of a group")
