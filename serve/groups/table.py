"""The settings of consumer groups (RocketMQ's subscription groups)."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from towline.format.files.groups import GroupTable, SubscriptionGroup, group_problem, read_group, setting_names
from towline.format.files.topics import DataVersion
from towline.format.record.transactions import TRANSACTION_GROUP

from .errors import GroupRefused, Refusal
from .questions import BROADCASTING

GROUPS_MAX: Final = 10_000
SETTINGS_SIZE_MAX: Final = 16 * 1_024  # characters of JSON
SETTINGS_DEPTH_MAX: Final = 8
INT32_MAX: Final = 2**31 - 1


class Groups:
    """Settings by group name. `changes` counts changes that the file should hold."""

    def __init__(self, *, auto_create: bool, groups_max: int = GROUPS_MAX) -> None:
        self.auto_create = auto_create
        self._groups_max = groups_max
        self._table = GroupTable()
        self._groups: dict[str, SubscriptionGroup] = {}
        self.changes = 0

    def load(self, table: GroupTable) -> None:
        self._table = table
        self._groups = dict(table.groups)

    def snapshot(self, version: DataVersion) -> GroupTable:
        """A copy that a thread may read."""
        return replace(self._table, groups=dict(self._groups), data_version=version)

    def get(self, name: str) -> SubscriptionGroup | None:
        return self._groups.get(name)

    def names(self) -> list[str]:
        return sorted(self._groups)

    def joined(self, name: str) -> SubscriptionGroup:
        """The settings of a group that a member joins, created when the node's settings allow it.

        Raises GroupRefused: ILLEGAL_GROUP, UNKNOWN_GROUP, TOO_MANY_GROUPS.
        """
        found = self._groups.get(name)
        if found is not None:
            return found
        check_group(name)
        if not self.auto_create and name != TRANSACTION_GROUP:
            raise GroupRefused(Refusal.UNKNOWN_GROUP, f"there is no group {name!r}, and joining does not create one")
        return self._store(SubscriptionGroup(group_name=name))

    def configure(self, name: str, members: Mapping[str, Any]) -> SubscriptionGroup:
        """Changes a group's settings, or creates it with them, and returns it. Raises GroupRefused."""
        check_group(name)
        strange = sorted(members.keys() - set(setting_names()))
        if strange:
            known = ", ".join(setting_names())
            raise GroupRefused(Refusal.ILLEGAL_QUESTION, f"a group has no setting {strange[0]!r}, but {known}")
        problem = settings_problem(members)
        if problem is not None:
            raise GroupRefused(Refusal.ILLEGAL_QUESTION, f"the settings of a group {problem}")
        try:
            changed = read_group(self._groups.get(name) or SubscriptionGroup(group_name=name), members)
        except ValueError as error:
            raise GroupRefused(Refusal.ILLEGAL_QUESTION, f"the group's setting {error}") from None
        return self._store(changed)

    def delete(self, name: str) -> bool:
        """Deletes a group; returns whether there was one."""
        if self._groups.pop(name, None) is None:
            return False
        self.changes += 1
        return True

    def _store(self, group: SubscriptionGroup) -> SubscriptionGroup:
        if group.group_name not in self._groups and len(self._groups) >= self._groups_max:
            raise GroupRefused(Refusal.TOO_MANY_GROUPS, f"there are {self._groups_max} groups, which is the limit")
        self._groups[group.group_name] = group
        self.changes += 1
        return group


def settings_problem(members: Mapping[str, Any]) -> str | None:
    """Why these settings cannot be kept in a file that a broker reads; None where they can."""
    if _depth(members, SETTINGS_DEPTH_MAX) > SETTINGS_DEPTH_MAX:
        return f"are nested deeper than {SETTINGS_DEPTH_MAX} objects"
    try:
        encoded = json.dumps(members, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        return f"are no JSON in UTF-8 ({error})"
    if len(encoded) > SETTINGS_SIZE_MAX:
        return f"have {len(encoded)} bytes of JSON, the limit is {SETTINGS_SIZE_MAX}"
    numbers = sorted(name for name, value in members.items() if type(value) is int and not -1 <= value <= INT32_MAX)
    return f"hold {numbers[0]!r}, which is out of range" if numbers else None


def _depth(value: Any, limit: int) -> int:
    """The depth of nested objects and lists; not counted beyond the limit."""
    if not isinstance(value, dict | list) or limit < 0:
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max((_depth(each, limit - 1) for each in inner), default=0)


def check_allowed(settings: SubscriptionGroup, model: str) -> None:
    """Raises GroupRefused CONSUME_DISABLED for a member of this model."""
    broadcasting = model == BROADCASTING and not settings.consume_broadcast_enable
    if broadcasting or not settings.consume_enable:
        what, which = ("broadcast", "consumeBroadcastEnable") if broadcasting else ("consume", "consumeEnable")
        sentence = f"group {settings.group_name!r} may not {what}: {which} is off"
        raise GroupRefused(Refusal.CONSUME_DISABLED, sentence, about=settings.group_name)


def check_group(name: str) -> None:
    """Raises GroupRefused for a name that no group may have."""
    problem = group_problem(name)
    if problem is not None:
        raise GroupRefused(Refusal.ILLEGAL_GROUP, f"group {name!r}: {problem}")
