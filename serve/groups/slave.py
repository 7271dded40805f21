"""Groups on a slave: reads are answered from the files that follow the master's, about a second late; the rest is
forwarded."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from towline.clock import Clock
from towline.errors import MalformedFile, TowlineError, UnknownTopic
from towline.filter.subscriptions import FilterData
from towline.format.files.groups import GroupTable, OffsetTable, group_members, read_groups, read_offsets
from towline.limits import RETRY_TOPIC_PREFIX
from towline.log.files.config_file import ConfigFile
from towline.places import Store
from towline.runtime.settings import Settings

from . import questions
from .describing import describe, listed
from .errors import GroupRefused, Refusal
from .files import GROUPS, OFFSETS, backups_of, load, log_left_out
from .forwarding import Forwarder
from .offsets import Bounds, Offsets
from .service import ReplyChannel
from .table import check_group
from .watching import ReplyAddress

ANSWERED: Final = ("group_offsets", "group_describe", "group_list")
_NEVER_MS: Final = 1 << 62
_POLL_MS: Final = 5  # while an answer of the master is awaited


class FollowedGroups:
    """Reads the files for each question: they are small, and a slave is rarely asked."""

    def __init__(self, store: Store, read_queues: Callable[[str], int], bounds: Bounds, log: logging.Logger) -> None:
        self._offsets_file = ConfigFile(store.config / OFFSETS)
        self._groups_file = ConfigFile(store.config / GROUPS)
        self._read_queues, self._bounds, self._log = read_queues, bounds, log

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Answers one of the ANSWERED questions, which change nothing. Raises GroupRefused, UnknownTopic."""
        op = question["op"]
        try:
            offsets = load(self._offsets_file, read_offsets, self._log) or OffsetTable()
            groups = load(self._groups_file, read_groups, self._log) or GroupTable()
            log_left_out(self._offsets_file, offsets.left_out, self._log)
            log_left_out(self._groups_file, groups.left_out, self._log)
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


class SlaveGroups:
    """The `Groups` of a slave: answers reads, forwards the rest to the master."""

    def __init__(self, followed: FollowedGroups, forwarder: Forwarder, clock: Clock, line: ReplyChannel) -> None:
        self._followed, self._forwarder, self._clock, self._line = followed, forwarder, clock, line
        self.due_ms = _NEVER_MS

    def ask(self, peer: bytes, request_id: int, question: dict[str, Any]) -> None:
        reply_to = ReplyAddress(peer, request_id)
        try:
            if question["op"] in ANSWERED:
                self._line.send(reply_to, self._followed.answer(question))
                return
            self._forwarder.submit(reply_to, question)
        except TowlineError as error:
            self._line.refuse(reply_to, error)
            return
        self.due_ms = min(self.due_ms, self._clock.monotonic_ms() + _POLL_MS)

    def subscription(self, topic: str, group: str) -> FilterData | None:
        """None: this node's reput may have read a subscription later than the master's did."""
        return None

    def cycle(self, now_ms: int) -> int:
        done = self._forwarder.finished()
        for reply_to, answer in done:
            if isinstance(answer, TowlineError):
                self._line.refuse(reply_to, answer)
            else:
                self._line.send(reply_to, answer)
        self.due_ms = now_ms + _POLL_MS if self._forwarder.waiting else _NEVER_MS
        return len(done)

    def gone(self, peer: bytes) -> None:
        return

    def adjust(self, settings: Settings) -> None:
        return

    def close(self) -> None:
        self._forwarder.close()
