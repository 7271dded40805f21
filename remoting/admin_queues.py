"""Queues as RocketMQ's tools ask for them: their entries, and how far all groups have read."""

from collections.abc import Mapping
from typing import Any

from towline.format.remoting.admin_bodies import QueueProgress, broker_consume_stats
from towline.format.remoting.broker_bodies import queue_entries
from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import BrokerConsumeStats, QueryQueue, read_header
from towline.format.wire.frames import Buffer
from towline.limits import QUEUE_ENTRIES_MAX

from .connections import Answer
from .consumers import Consumers
from .questions import Facts, Questions, Told, refusal_in
from .readers import SERVE_AWAY
from .store_times import Place, StoreTimes
from .topics import TopicDesk

Rows = list[dict[str, Any]]


class QueueAdmin:
    """Handles what tools ask about queues. `where`: `host:port` of the broker."""

    def __init__(
        self, serve: Questions, topics: TopicDesk, times: StoreTimes, consumers: Consumers, broker: str, where: str
    ) -> None:
        self._serve, self._topics, self._times, self._consumers = serve, topics, times, consumers
        self._broker, self._where = broker, where

    def entries(self, request: Command, answer: Answer) -> None:
        """QUERY_CONSUME_QUEUE. Raises MalformedFrame, RequestRefused."""
        header = read_header(QueryQueue, request.fields)
        topic = self._topics.find(header.topic)
        if topic is None or not 0 <= header.queue_id < topic.read_queue_nums:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{header.topic} is not exist!")

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(facts, "serve")
            if facts is None or problem:
                answer(ResponseCode.SYSTEM_ERROR, remark=problem)
                return
            said = self._consumers.subscription(header.consumer_group, header.topic)
            entries = [(int(offset), int(size), int(tags)) for offset, size, tags in facts["entries"]]
            low, end = int(facts["min"]), int(facts["max"])
            body = queue_entries(low, end, entries, header.consumer_group, header.topic, said)
            answer(ResponseCode.SUCCESS, body=body)

        count = max(0, min(header.count, QUEUE_ENTRIES_MAX))
        wish = {"topic": header.topic, "queue": header.queue_id, "offset": max(0, header.index), "count": count}
        self._ask("queue_entries", wish, told)

    def of_all_groups(self, request: Command, answer: Answer) -> None:
        """GET_BROKER_CONSUME_STATS: of each group with settings or offsets, one after the other. Raises MalformedFrame,
        RequestRefused."""
        header = read_header(BrokerConsumeStats, request.fields)

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(facts, "serve")
            if facts is None or problem:
                answer(ResponseCode.SYSTEM_ERROR, remark=problem)
                return
            names = [str(row["group"]) for row in facts["groups"]]
            AllGroups(self, answer, names, ordered=header.is_order).go_on()

        self._ask("group_list", {}, told)

    def describe(self, group: str, told: Told) -> bool:
        return self._serve.ask("group_describe", {"group": group}, told)

    def counts(self, group: str, topic: str, *, ordered: bool) -> bool:
        """Whether a group's reading of a topic is told of."""
        found = self._topics.find(topic)
        if found is None or (ordered and not found.order):
            return False
        return not self._consumers.members_of(group) or self._consumers.subscription(group, topic) is not None

    def tell(self, rows: Mapping[str, Rows], answer: Answer) -> None:
        """Answers with the progress of groups, by their names."""
        places = {
            (str(row["topic"]), int(row["queue"]), int(row["offset"]) - 1)
            for of_group in rows.values()
            for row in of_group
            if row["offset"] > 0
        }

        def found(times: Mapping[Place, int], problem: str) -> None:
            if problem:
                answer(ResponseCode.SYSTEM_ERROR, remark=problem)
                return
            groups = {group: _by_topic(of_group, times) for group, of_group in rows.items()}
            answer(ResponseCode.SUCCESS, body=broker_consume_stats(self._broker, self._where, groups))

        self._times.of(sorted(places), found)

    def _ask(self, op: str, facts: Facts, told: Told) -> None:
        if not self._serve.ask(op, facts, told):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, SERVE_AWAY)


class AllGroups:
    """One question after the other about groups, so that serve is not held up."""

    def __init__(self, admin: QueueAdmin, answer: Answer, names: list[str], *, ordered: bool) -> None:
        self._admin, self._answer, self._ordered = admin, answer, ordered
        self._left = list(reversed(names))
        self._rows: dict[str, Rows] = {}

    def go_on(self) -> None:
        if not self._left:
            self._admin.tell(self._rows, self._answer)
        elif not self._admin.describe(self._left[-1], self._told):
            self._answer(ResponseCode.SYSTEM_ERROR, remark=SERVE_AWAY)

    def _told(self, facts: Facts | None, _: list[Buffer]) -> None:
        if facts is None:
            self._answer(ResponseCode.SYSTEM_ERROR, remark=SERVE_AWAY)
            return
        group = self._left.pop()
        if "error" not in facts:  # one that has gone since is left out
            read = {row["topic"] for row in facts["queues"] if row["offset"] >= 0}
            counted = {topic for topic in read if self._admin.counts(group, topic, ordered=self._ordered)}
            self._rows[group] = [row for row in facts["queues"] if row["topic"] in counted]
        self.go_on()


def _by_topic(rows: Rows, times: Mapping[Place, int]) -> dict[str, dict[int, QueueProgress]]:
    found: dict[str, dict[int, QueueProgress]] = {}
    for row in rows:
        topic, queue, offset = str(row["topic"]), int(row["queue"]), max(0, int(row["offset"]))
        time = times.get((topic, queue, offset - 1), 0)
        found.setdefault(topic, {})[queue] = QueueProgress(int(row["max"]), offset, time, offset)
    return found
