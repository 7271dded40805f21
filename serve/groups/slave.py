"""What a slave answers about groups: the offsets and settings as they followed from its master, a second late or so."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from towline.errors import MalformedFile, UnknownTopic
from towline.format.files.groups import GroupTable, OffsetTable, group_members, read_groups, read_offsets
from towline.limits import RETRY_TOPIC_PREFIX
from towline.log.files.config_file import ConfigFile
from towline.places import Store

from . import questions
from .describing import describe, listed
from .errors import GroupRefused, Refusal
from .files import GROUPS, OFFSETS, backups_of, load, tell_left_out
from .offsets import Bounds, Offsets
from .table import check_group

ANSWERED: Final = ("group_offsets", "group_describe", "group_list")


class FollowedGroups:
    """Reads the files for each question: they are small, and a slave is rarely asked."""

    def __init__(self, store: Store, read_queues: Callable[[str], int], bounds: Bounds, log: logging.Logger) -> None:
        self._offsets_file = ConfigFile(store.config / OFFSETS)
        self._groups_file = ConfigFile(store.config / GROUPS)
        self._read_queues, self._bounds, self._log = read_queues, bounds, log

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """One of the ANSWERED questions, which change nothing. Raises GroupRefused, UnknownTopic."""
        op = question["op"]
        try:
            offsets = load(self._offsets_file, read_offsets, self._log) or OffsetTable()
            groups = load(self._groups_file, read_groups, self._log) or GroupTable()
            tell_left_out(self._offsets_file, offsets.left_out, self._log)
            tell_left_out(self._groups_file, groups.left_out, self._log)
        except MalformedFile as error:
            raise GroupRefused(Refusal.OFFSETS_UNREADABLE, error.describe()) from None
        table = Offsets(self._bounds)
        table.load(offsets.offsets)
        if op == "group_list":
            topics = table.by_group()
            lag = question.get("lag") is True
            names = sorted({*groups.groups, *topics})
            rows = [
                listed(name, None, topics.get(name, set()), table, self._read_queues, self._bounds, lag=lag)
                for name in names
            ]
            return {"groups": rows, "backups": backups_of((self._offsets_file, self._groups_file))}
        name = questions.text(question, "group")
        check_group(name)
        if name not in groups.groups and name not in table.groups():
            raise GroupRefused(Refusal.UNKNOWN_GROUP, f"there is no group {name!r}")
        if op == "group_offsets":
            return self._offsets(table, name, questions.names(question, "topics"))
        settings = group_members(groups.groups[name]) if name in groups.groups else {}
        return describe(name, None, settings, table, self._read_queues, self._bounds, 0)

    def _offsets(self, table: Offsets, name: str, topics: list[str]) -> dict[str, Any]:
        found = {}
        for topic in topics:
            count = self._read_queues(topic)
            if not count and topic != RETRY_TOPIC_PREFIX + name:
                raise UnknownTopic(topic)
            found[topic] = {str(queue): table.get(topic, name, queue) for queue in range(count)}
        return {"offsets": found}
