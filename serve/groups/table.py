"""The settings of consumer groups (RocketMQ's subscription groups)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from towline.format.groups import GroupTable, SubscriptionGroup, group_problem, read_group, setting_names
from towline.format.topics import DataVersion
from towline.format.transactions import TRANSACTION_GROUP

from .errors import GroupRefused, Refusal

GROUPS_MAX: Final = 10_000


class Groups:
    """By name. `changes` grows with everything that the file should know."""

    def __init__(self, *, auto_create: bool, groups_max: int = GROUPS_MAX) -> None:
        self._auto_create = auto_create
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
        """The settings of a group that a member joins, made when settings of the node allow it.

        Raises GroupRefused: ILLEGAL_GROUP, UNKNOWN_GROUP, TOO_MANY_GROUPS.
        """
        found = self._groups.get(name)
        if found is not None:
            return found
        check_group(name)
        if not self._auto_create and name != TRANSACTION_GROUP:
            raise GroupRefused(Refusal.UNKNOWN_GROUP, f"there is no group {name!r}, and joining does not create one")
        return self._store(SubscriptionGroup(group_name=name))

    def configure(self, name: str, members: Mapping[str, Any]) -> SubscriptionGroup:
        """The group with these settings, made if need be. Raises GroupRefused."""
        check_group(name)
        strange = sorted(members.keys() - set(setting_names()))
        if strange:
            known = ", ".join(setting_names())
            raise GroupRefused(Refusal.ILLEGAL_QUESTION, f"a group has no setting {strange[0]!r}, but {known}")
        try:
            changed = read_group(self._groups.get(name) or SubscriptionGroup(group_name=name), members)
        except ValueError as error:
            raise GroupRefused(Refusal.ILLEGAL_QUESTION, f"the group's setting {error}") from None
        return self._store(changed)

    def delete(self, name: str) -> bool:
        """Whether there was one."""
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


def check_group(name: str) -> None:
    """Raises GroupRefused for a name that no group may have."""
    problem = group_problem(name)
    if problem is not None:
        raise GroupRefused(Refusal.ILLEGAL_GROUP, f"group {name!r}: {problem}")
