"""Topics as clients ask for them: their routes, as from a name server, and making them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import methodcaller
from typing import Final

from towline.errors import IllegalTopic
from towline.format.files.topics import (
    PERM_INHERIT,
    PERM_READ_WRITE,
    PERM_WRITE,
    TEMPLATE_TOPIC,
    TopicConfig,
    TopicTable,
    check_topic,
    is_system_topic,
)
from towline.format.remoting.admin_bodies import read_topic_configs
from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import MakeTopic, OfTopic, read_header
from towline.format.remoting.routes import Broker, cluster_of, route_of, system_topics_of
from towline.format.wire.frames import Buffer
from towline.log.state.topics_file import TopicsFile
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole

from .connections import Answer
from .put_client import PutClient
from .questions import Facts, ask_in_turn, refusal_in

EVERY_MS: Final = 100  # a change of the topics is known this late at most
QUEUES_DEFAULT: Final = 4  # of a topic whose producer does not say
PUT_AWAY: Final = "put is away; try again"


class TopicRoutes:
    """Topics of this node, and where they are: `broker` says it, and may raise RequestRefused."""

    def __init__(self, file: TopicsFile, broker: Callable[[], Broker], settings: Settings) -> None:
        self._file, self._broker = file, broker
        self.adjust(settings)
        # A broker has topics of these names: by their routes a proxy finds the brokers of a cluster, and one of them;
        # tools send to them, which makes them.
        self._own_names = settings.broker_cluster_name, settings.broker_name
        self.changes = 0  # of the topics, that were seen
        self.writable = True  # what routes say of the whole broker, unless its settings forbid to write

    def adjust(self, settings: Settings) -> None:
        """Answers by these settings from now on."""
        # Queues of the topic from which others are made, 0 while none are made.
        self._template_queues = settings.default_topic_queue_nums if settings.auto_create_topic_enable else 0
        self._dots = settings.dots_in_topic_names
        # What its master allows, a slave does not know.
        self._permission = PERM_READ_WRITE if settings.broker_role is BrokerRole.SLAVE else settings.broker_permission

    def refresh(self) -> bool:
        """Learns of what has changed; whether anything has."""
        if not self._file.refresh():
            return False
        self.changes += 1
        return True

    @property
    def table(self) -> TopicTable:
        """All topics, as they were read last."""
        return self._file.table

    def find(self, name: str) -> TopicConfig | None:
        found = self._file.table.topics.get(name)
        if found is None and self.refresh():
            found = self._file.table.topics.get(name)
        if found is None and name == TEMPLATE_TOPIC and self._template_queues:
            queues, perm = self._template_queues, PERM_READ_WRITE | PERM_INHERIT
            return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        return found

    def has(self, name: str) -> bool:
        """Whether there is such a topic, as was read last: `find` looks whether it has come meanwhile."""
        return name in self._file.table.topics

    def count_of(self, prefix: str) -> int:
        """Topics whose names begin so."""
        return sum(map(methodcaller("startswith", prefix), self._file.table.topics))

    def route(self, request: Command, answer: Answer) -> None:
        """GET_ROUTEINFO_BY_TOPIC. Raises MalformedFrame, RequestRefused."""
        name = read_header(OfTopic, request.fields).topic
        topic = self.find(name)
        if topic is None and name in self._own_names:
            perm = PERM_INHERIT | (PERM_READ_WRITE if self._template_queues else 0)
            topic = TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1, perm=perm)
        if topic is None:
            why = f"No topic route info in name server for the topic: {name}"
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, why)
        is_writable = self.writable and self._permission & PERM_WRITE
        told = topic if is_writable else replace(topic, perm=topic.perm & ~PERM_WRITE)
        answer(ResponseCode.SUCCESS, body=route_of(told, self._broker()))

    def cluster(self, _: Command, answer: Answer) -> None:
        """GET_BROKER_CLUSTER_INFO."""
        answer(ResponseCode.SUCCESS, body=cluster_of(self._broker()))

    def own_names(self, _: Command, answer: Answer) -> None:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS: topics named after cluster and broker, and who tells of further ones."""
        answer(ResponseCode.SUCCESS, body=system_topics_of(self._broker()))


class TopicDesk(TopicRoutes):
    """Routes of topics, and the way to make topics."""

    def __init__(self, file: TopicsFile, put: PutClient, broker: Callable[[], Broker], settings: Settings) -> None:
        super().__init__(file, broker, settings)
        self._put = put
        self._making: dict[str, list[Callable[[str], None]]] = {}  # who waits for a topic, in their order

    def make(self, request: Command, answer: Answer) -> None:
        """UPDATE_AND_CREATE_TOPIC: makes a topic, or changes the one that is there. Raises MalformedFrame,
        RequestRefused."""
        self._make_all([read_header(MakeTopic, request.fields)], answer)

    def make_list(self, request: Command, answer: Answer) -> None:
        """UPDATE_AND_CREATE_TOPIC_LIST: one after the other, until one is refused; those before it are made. Raises
        MalformedFrame, RequestRefused."""
        self._make_all(read_topic_configs(request.json()), answer)

    def _make_all(self, wanted: Sequence[MakeTopic], answer: Answer) -> None:
        if self._put.link is None:
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, PUT_AWAY)

        def made(_: list[Facts], refused: Facts | None) -> None:
            problem = refusal_in(refused, "put")
            self.refresh()
            answer(ResponseCode.INVALID_PARAMETER if problem else ResponseCode.SUCCESS, remark=problem)

        ask_in_turn(self._put.ask, map(self._question, wanted), made)

    def _question(self, wanted: MakeTopic) -> tuple[str, Facts]:
        """What makes a topic, or changes it."""
        facts = {
            "topic": wanted.topic,
            "read_queues": wanted.read_queue_nums,
            "write_queues": wanted.write_queue_nums,
            "perm": wanted.perm,
        }
        if self.find(wanted.topic) is not None:
            return "alter_topic", facts
        return "create_topic", {**facts, "queues": wanted.write_queue_nums}

    def delete(self, name: str, then: Callable[[str], None]) -> None:
        """Deletes a topic. `then` gets why it was not, or "". Raises RequestRefused."""

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            self._file.refresh()
            then(refusal_in(facts, "put"))

        if not self._put.ask("delete_topic", {"topic": name}, told):
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, PUT_AWAY)

    def check_name(self, name: str) -> None:
        """Raises RequestRefused, with a broker's codes, for a name that no client's topic may have."""
        try:
            check_topic(name, dots=self._dots)
        except IllegalTopic as error:
            code = ResponseCode.NO_PERMISSION if is_system_topic(name) else ResponseCode.INVALID_PARAMETER
            raise RequestRefused(code, error.describe()) from None

    def count_of(self, prefix: str) -> int:
        """Topics whose names begin so, with those that are being made."""
        making = sum(name.startswith(prefix) and not self.has(name) for name in self._making)
        return super().count_of(prefix) + making

    def is_being_made(self, name: str) -> bool:
        """Whether somebody waits for the topic: who sends to it now comes after them."""
        return name in self._making

    def make_for(self, name: str, template: str, queues: int, then: Callable[[str], None]) -> None:
        """Makes a topic for who sends to it. `then` gets why it was not made, or "". Raises RequestRefused."""
        if name in self._making:
            self._making[name].append(then)
            return

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(facts, "put")
            if not problem and self.find(name) is None:
                problem = f"the topic {name!r} was made, and is not there"
            for waiting in self._making.pop(name):
                waiting(problem)

        wish = {"topic": name, "queues": queues or QUEUES_DEFAULT, "template": template or TEMPLATE_TOPIC}
        self._making[name] = [then]
        if not self._put.ask("route", wish, told):
            del self._making[name]
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, PUT_AWAY)
