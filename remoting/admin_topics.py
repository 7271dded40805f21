"""Topics as RocketMQ's tools ask for them: which there are, what they hold; and their end."""

from collections.abc import Mapping
from typing import Any, TypeVar

from towline.format.files.topics import is_system_topic
from towline.format.remoting.admin_bodies import QueueStats, topic_config, topic_configs, topic_stats
from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import OfTopic, TopicPage, read_header
from towline.format.wire.frames import Buffer

from .connections import Answer
from .questions import Facts, Questions, refusal_in
from .readers import SERVE_AWAY
from .store_times import Place, StoreTimes
from .topics import TopicDesk
from .traffic import MINUTE, Traffic

Row = TypeVar("Row")


class TopicAdmin:
    """Handles what tools ask about topics."""

    def __init__(self, serve: Questions, topics: TopicDesk, times: StoreTimes, traffic: Traffic, broker: str) -> None:
        self._serve, self._topics, self._times, self._broker = serve, topics, times, broker
        self._traffic = traffic

    def configs(self, request: Command, answer: Answer) -> None:
        """GET_ALL_TOPIC_CONFIG, of all topics or a page of them. Raises MalformedFrame."""
        header = read_header(TopicPage, request.fields)
        self._topics.refresh()
        table = self._topics.table
        page = page_of(table.topics, header.topic_seq, header.max_topic_num)
        answer(ResponseCode.SUCCESS, {"totalTopicNum": str(len(table.topics))}, topic_configs(table, page))

    def config(self, request: Command, answer: Answer) -> None:
        """GET_TOPIC_CONFIG. Raises MalformedFrame, RequestRefused."""
        name = read_header(OfTopic, request.fields).topic
        topic = self._topics.find(name)
        if topic is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        answer(ResponseCode.SUCCESS, body=topic_config(topic))

    # --- statistics

    def stats(self, request: Command, answer: Answer) -> None:
        """GET_TOPIC_STATS_INFO: bounds of each queue, and when its newest message was stored. Raises MalformedFrame,
        RequestRefused."""
        name = read_header(OfTopic, request.fields).topic
        if self._topics.find(name) is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(facts, "serve")
            if facts is None or problem:
                answer(ResponseCode.SYSTEM_ERROR, remark=problem)
            else:
                self._with_times(name, facts["queues"], answer)

        if not self._serve.ask("bounds", {"topic": name}, told):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, SERVE_AWAY)

    def _with_times(self, name: str, rows: list[dict[str, Any]], answer: Answer) -> None:
        ends = {int(row["queue"]): (int(row["min"]), int(row["max"])) for row in rows}
        last = {queue: (name, queue, end - 1) for queue, (low, end) in ends.items()}

        def found(times: Mapping[Place, int], problem: str) -> None:
            if problem:
                answer(ResponseCode.SYSTEM_ERROR, remark=problem)
                return
            stats = {(name, queue): QueueStats(*ends[queue], times.get(last[queue], 0)) for queue in ends}
            came = self._traffic.came(name)
            per_second = came[MINUTE].per_second if came is not None else 0.0
            answer(ResponseCode.SUCCESS, body=topic_stats(self._broker, stats, per_second))

        self._times.of([last[queue] for queue, (low, end) in ends.items() if low < end], found)

    # --- the end of a topic

    def delete(self, request: Command, answer: Answer) -> None:
        """DELETE_TOPIC_IN_BROKER: one that is not there is gone already. Raises MalformedFrame, RequestRefused."""
        name = read_header(OfTopic, request.fields).topic
        if not name.strip():
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        if is_system_topic(name):
            why = f"The topic[{name}] is conflict with system topic."
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, why)
        if self._topics.find(name) is None:
            answer(ResponseCode.SUCCESS)
            return

        def done(problem: str) -> None:
            answer(ResponseCode.SYSTEM_ERROR if problem else ResponseCode.SUCCESS, remark=problem)

        self._topics.delete(name, done)


def page_of(table: Mapping[str, Row], first: int, count: int) -> list[Row]:
    """The rows of a table by name, from number `first` on; all that follow where `count` is 0 or less."""
    names = sorted(table)[max(0, first) :]
    return [table[name] for name in (names[:count] if count > 0 else names)]
