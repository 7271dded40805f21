"""The broker as a whole, as RocketMQ's tools ask for it: its settings, its own topics, what came and went."""

from collections.abc import Callable, Mapping

from towline.errors import MalformedFrame
from towline.format.files.topics import SYSTEM_TOPICS, is_system_topic
from towline.format.remoting.admin_bodies import topic_list
from towline.format.remoting.broker_bodies import Counts, stats_data
from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import StatsOf, read_header
from towline.format.remoting.properties_text import read_properties

from .connections import Answer
from .topics import TopicDesk
from .traffic import DAY, HOUR, MINUTE, Traffic

TOPIC_PUTS = "TOPIC_PUT_NUMS"
GROUP_GETS = "GROUP_GET_NUMS"


class BrokerAdmin:
    """Handles what tools ask of a broker. `settings`: those that it tells of, as text."""

    def __init__(self, topics: TopicDesk, traffic: Traffic, settings: Callable[[], Mapping[str, str]]) -> None:
        self._topics, self._traffic, self._settings = topics, traffic, settings

    def system_topics(self, _: Command, answer: Answer) -> None:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER."""
        own = {name for name in self._topics.table.topics if is_system_topic(name)}
        answer(ResponseCode.SUCCESS, body=topic_list(sorted(own | SYSTEM_TOPICS)))

    def update(self, request: Command, answer: Answer) -> None:
        """UPDATE_BROKER_CONFIG: every process reads its settings when it starts, so all that is taken is what is so
        already. Raises MalformedFrame, RequestRefused."""
        wanted = read_properties(bytes(request.body))
        if not wanted:
            raise MalformedFrame("the body has lines of name=value")
        known = self._settings()
        unknown = [name for name in wanted if name not in known]
        if unknown:
            why = f"no setting that RocketMQ has too is called {unknown[0][:100]!r}"
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, why)
        changed = [name for name, value in wanted.items() if known[name] != value]
        if changed:
            why = f"{changed[0]} is {known[changed[0]]!r} until the node is started with another value"
            raise RequestRefused(ResponseCode.NO_PERMISSION, why)
        answer(ResponseCode.SUCCESS)

    def stats(self, request: Command, answer: Answer) -> None:
        """VIEW_BROKER_STATS_DATA: messages that came to a topic, or that a group was sent of one. Raises
        MalformedFrame, RequestRefused."""
        header = read_header(StatsOf, request.fields)
        found = None
        if header.stats_name == TOPIC_PUTS:
            found = self._traffic.came(header.stats_key)
        elif header.stats_name == GROUP_GETS:
            found = self._traffic.went(*header.stats_key.split("@", 1)) if "@" in header.stats_key else None
        if found is None:
            why = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, why)
        counts = {span: Counts(rate.messages, rate.per_second) for span, rate in found.items()}
        answer(ResponseCode.SUCCESS, body=stats_data(counts[MINUTE], counts[HOUR], counts[DAY]))
