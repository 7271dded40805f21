"""The broker as a whole, as RocketMQ's tools ask for it: its settings, its own topics, what came and went."""

from typing import Final

from towline.errors import BadSetting, FixedSetting, MalformedFrame, OverruledSetting
from towline.format.files.topics import SYSTEM_TOPICS, is_system_topic
from towline.format.remoting.admin_bodies import topic_list
from towline.format.remoting.broker_bodies import Counts, stats_data
from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import StatsOf, read_header
from towline.format.remoting.properties_text import read_properties
from towline.format.wire.frames import Buffer
from towline.runtime.settings import CAMELS

from .connections import Answer
from .questions import Facts, Questions, refusal_in
from .readers import SERVE_AWAY
from .topics import TopicDesk
from .traffic import DAY, HOUR, MINUTE, Traffic

TOPIC_PUTS = "TOPIC_PUT_NUMS"
GROUP_GETS = "GROUP_GET_NUMS"
_CODES: Final = {
    BadSetting.__name__: ResponseCode.INVALID_PARAMETER,
    FixedSetting.__name__: ResponseCode.NO_PERMISSION,
    OverruledSetting.__name__: ResponseCode.NO_PERMISSION,
}


class BrokerAdmin:
    """Handles what tools ask of a broker."""

    def __init__(self, serve: Questions, topics: TopicDesk, traffic: Traffic) -> None:
        self._serve, self._topics, self._traffic = serve, topics, traffic

    def system_topics(self, _: Command, answer: Answer) -> None:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER."""
        own = {name for name in self._topics.table.topics if is_system_topic(name)}
        answer(ResponseCode.SUCCESS, body=topic_list(sorted(own | SYSTEM_TOPICS)))

    def update(self, request: Command, answer: Answer) -> None:
        """UPDATE_BROKER_CONFIG: changes settings while the node runs, all or none, and keeps them, as a broker does.
        Raises MalformedFrame, RequestRefused."""
        wanted = read_properties(bytes(request.body))
        if not wanted:
            raise MalformedFrame("the body has lines of name=value")
        unknown = [name for name in wanted if name not in CAMELS]
        if unknown:
            why = f"no setting is called {unknown[0][:100]!r}"
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, why)

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(facts, "serve")
            late = ", ".join((facts or {}).get("waiting", ()))
            if late:
                problem = f"the change is kept, and not taken yet by {late}: that takes until one long call is over"
            if not problem:
                answer(ResponseCode.SUCCESS)
                return
            code = _CODES.get(str((facts or {}).get("error")), ResponseCode.SYSTEM_ERROR)
            answer(code, remark=problem)

        settings = {CAMELS[name]: value for name, value in wanted.items()}
        if not self._serve.ask("node_configure", {"settings": settings, "keep": True}, told):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, SERVE_AWAY)

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
