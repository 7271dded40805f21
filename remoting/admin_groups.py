"""Consumer and producer groups as RocketMQ's tools ask for them: settings, progress, who is connected, new offsets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from towline.errors import MalformedFile
from towline.format.files.groups import GroupTable, read_groups
from towline.format.remoting.admin_bodies import (
    ClientFacts,
    QueueProgress,
    consume_stats,
    consumer_connections,
    group_config,
    group_configs,
    group_list,
    producer_connections,
    read_group_config,
    read_group_configs,
    reset_offsets,
)
from towline.format.remoting.codes import RequestCode, RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import (
    ConsumerGroup,
    ConsumeStats,
    DeleteGroup,
    GroupPage,
    OfGroup,
    OfTopic,
    ProducerGroup,
    ResetOffset,
    read_header,
)
from towline.format.wire.frames import Buffer
from towline.log.files.config_file import ConfigFile
from towline.places import Store

from .admin_topics import page_of
from .clients import Clients
from .connections import Answer, Connections
from .consumers import Consumers, Membership
from .questions import Facts, Questions, Told, ask_in_turn, refusal_in
from .readers import SERVE_AWAY
from .store_times import Place, StoreTimes
from .topics import TopicDesk
from .traffic import MINUTE, Traffic

SETTINGS_FILE: Final = "subscriptionGroup.json"  # serve writes it
NONE: Final = -1  # the offset of a queue of which nothing was committed
_UNKNOWN_GROUP: Final = "UNKNOWN_GROUP"
_ILLEGAL: Final = ("ILLEGAL_GROUP", "ILLEGAL_QUESTION")


class GroupAdmin:
    """Handles what tools ask about groups."""

    def __init__(
        self,
        serve: Questions,
        topics: TopicDesk,
        times: StoreTimes,
        consumers: Consumers,
        clients: Clients,
        connections: Connections,
        traffic: Traffic,
        group_changed: Callable[..., None],
        broker: str,
        store: Store,
    ) -> None:
        self._group_changed = group_changed
        self._serve, self._topics, self._times = serve, topics, times
        self._consumers, self._clients, self._connections = consumers, clients, connections
        self._traffic, self._broker = traffic, broker
        self._file = ConfigFile(store.config / SETTINGS_FILE)

    # --- who is connected

    def connections(self, request: Command, answer: Answer) -> None:
        """GET_CONSUMER_CONNECTION_LIST: of clients on this port. Raises MalformedFrame, RequestRefused."""
        group = read_header(ConsumerGroup, request.fields).consumer_group
        members = self._consumers.members_of(group)
        if not members:
            raise RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        newest = max(members, key=lambda member: max(_versions(member), default=0))
        subscribed = {topic for member in members for topic in member.data.subscriptions}
        found = {topic: self._consumers.subscription(group, topic) for topic in sorted(subscribed)}
        data = replace(newest.data, subscriptions={topic: said for topic, said in found.items() if said is not None})
        body = consumer_connections(map(self._facts_of, members), data)
        answer(ResponseCode.SUCCESS, body=body)

    def producers(self, request: Command, answer: Answer) -> None:
        """GET_PRODUCER_CONNECTION_LIST. Raises MalformedFrame, RequestRefused."""
        group = read_header(ProducerGroup, request.fields).producer_group
        found = self._clients.producers_of(group)
        if not found:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        facts = [
            ClientFacts(each.client_id, _address(each.connection.peer), each.language, each.version) for each in found
        ]
        answer(ResponseCode.SUCCESS, body=producer_connections(facts))

    def _facts_of(self, member: Membership) -> ClientFacts:
        client = self._clients.find(member.client_id)
        language, version = ("OTHER", 0) if client is None else (client.language, client.version)
        return ClientFacts(member.client_id, _address(member.connection.peer), language, version)

    # --- progress

    def of_topic(self, request: Command, answer: Answer) -> None:
        """QUERY_TOPIC_CONSUME_BY_WHO: groups that subscribe to a topic, or have an offset of it. Raises MalformedFrame,
        RequestRefused."""
        topic = read_header(OfTopic, request.fields).topic

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            if facts is None or "error" in facts:
                answer(ResponseCode.SYSTEM_ERROR, remark=refusal_in(facts, "serve"))
                return
            names = [str(row["group"]) for row in facts["groups"] if topic in row["topics"]]
            answer(ResponseCode.SUCCESS, body=group_list(names))

        self._ask("group_list", {}, told)

    def progress(self, request: Command, answer: Answer) -> None:
        """GET_CONSUME_STATS: of each queue its end, the group's offset, and when the message before that was stored.
        Raises MalformedFrame, RequestRefused."""
        header = read_header(ConsumeStats, request.fields)

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            if facts is None or facts.get("error") not in (None, _UNKNOWN_GROUP):
                answer(ResponseCode.SYSTEM_ERROR, remark=refusal_in(facts, "serve"))
                return
            rows = self._read_by(header, facts.get("queues", []))
            wanted = header.topic and header.topic not in {row["topic"] for row in rows}
            if wanted and self._counts(header.consumer_group, header.topic):
                self._nothing_read(header.consumer_group, header.topic, answer)
            else:
                self._with_times(header.consumer_group, rows, answer)

        self._ask("group_describe", {"group": header.consumer_group}, told)

    def _read_by(self, header: ConsumeStats, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows of the topics that are asked for: all with an offset where none is named."""
        read = {row["topic"] for row in rows if row["offset"] != NONE}
        topics = {header.topic} if header.topic else read
        return [row for row in rows if row["topic"] in topics and self._counts(header.consumer_group, row["topic"])]

    def _counts(self, group: str, topic: str) -> bool:
        """Whether a group reads a topic as far as is known: one that is connected reads what it says that it does."""
        if self._topics.find(topic) is None:
            return False
        return not self._consumers.members_of(group) or self._consumers.subscription(group, topic) is not None

    def _nothing_read(self, group: str, topic: str, answer: Answer) -> None:
        """Of a topic that the group has no offset of."""

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            if facts is None or "error" in facts:
                answer(ResponseCode.SYSTEM_ERROR, remark=refusal_in(facts, "serve"))
                return
            self._with_times(group, [{**row, "topic": topic, "offset": NONE} for row in facts["queues"]], answer)

        if not self._serve.ask("bounds", {"topic": topic}, told):
            answer(ResponseCode.SYSTEM_ERROR, remark=SERVE_AWAY)

    def _with_times(self, group: str, rows: list[dict[str, Any]], answer: Answer) -> None:
        places = [(str(row["topic"]), int(row["queue"]), int(row["offset"]) - 1) for row in rows]

        def found(times: Mapping[Place, int], problem: str) -> None:
            if problem:
                answer(ResponseCode.SYSTEM_ERROR, remark=problem)
                return
            progress = {
                place[:2]: QueueProgress(
                    int(row["max"]),
                    max(0, int(row["offset"])),
                    times.get(place, 0),
                    self._traffic.next_offset(group, *place[:2]),
                )
                for place, row in zip(places, rows, strict=True)
            }
            went = [self._traffic.went(topic, group) for topic in {topic for topic, _ in progress}]
            per_second = sum(rates[MINUTE].per_second for rates in went if rates is not None)
            answer(ResponseCode.SUCCESS, body=consume_stats(self._broker, progress, per_second))

        self._times.of([place for place in places if place[2] >= 0], found)

    # --- offsets

    def reset(self, request: Command, answer: Answer) -> None:
        """INVOKE_BROKER_TO_RESET_OFFSET: sets offsets, and tells the clients of the group. A group that is not there is
        made where a heartbeat would make it. Raises MalformedFrame, RequestRefused."""
        header = read_header(ResetOffset, request.fields)
        if self._topics.find(header.topic) is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if header.queue_id < 0 or header.offset < 0:
            self._make(header, answer)
            return

        def bounded(facts: Facts | None, _: list[Buffer]) -> None:
            rows = [] if facts is None else facts.get("queues", [])
            row = next((row for row in rows if row["queue"] == header.queue_id), {"min": 0, "max": 0})
            if row["min"] <= header.offset <= row["max"]:
                self._make(header, answer)
            else:
                why = f"Target offset {header.offset} not in consume queue range [{row['min']}-{row['max']}]"
                answer(ResponseCode.SYSTEM_ERROR, remark=why)

        self._ask("bounds", {"topic": header.topic}, bounded)

    def _make(self, header: ResetOffset, answer: Answer) -> None:
        """Makes the group where it is missing, then sets its offsets."""

        def made(facts: Facts | None, _: list[Buffer]) -> None:
            if facts is None or "error" in facts:
                answer.refuse(refused_by_serve(facts))
                return
            self._group_changed(header.group, header.topic)
            if not self._serve.ask("group_reset", _target(header), told):
                answer(ResponseCode.SYSTEM_ERROR, remark=SERVE_AWAY)

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            if facts is None or "error" in facts:
                answer.refuse(refused_by_serve(facts))
                return
            offsets = {(header.topic, int(queue)): int(offset) for queue, offset in facts["offsets"].items()}
            body = reset_offsets(self._broker, offsets)
            self._tell(header, body)
            answer(ResponseCode.SUCCESS, body=body)

        if not self._serve.ask("group_commit", {"group": header.group, "offsets": {}}, made):
            answer(ResponseCode.SYSTEM_ERROR, remark=SERVE_AWAY)

    def _tell(self, header: ResetOffset, body: bytes) -> None:
        """Clients hold their offsets themselves, and would commit the former ones again."""
        fields = {
            "topic": header.topic,
            "group": header.group,
            "timestamp": str(header.timestamp),
            "isForce": "true" if header.is_force else "false",
        }
        for member in self._consumers.members_of(header.group):
            if header.topic in member.data.subscriptions:
                code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
                self._connections.ask(member.connection, code, fields, body, one_way=True)

    # --- settings

    def configure(self, request: Command, answer: Answer) -> None:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP. Raises MalformedFrame, RequestRefused."""
        self._configure([read_group_config(request.json())], answer)

    def configure_list(self, request: Command, answer: Answer) -> None:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: one after the other, until one is refused; those before it are as
        they were said to be. Raises MalformedFrame, RequestRefused."""
        self._configure(read_group_configs(request.json()), answer)

    def _configure(self, wanted: Sequence[tuple[str, dict[str, Any]]], answer: Answer) -> None:
        if self._serve.link is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, SERVE_AWAY)

        def told(_: list[Facts], refused: Facts | None) -> None:
            if refused is None or "error" in refused:
                answer.refuse(refused_by_serve(refused))
            else:
                answer(ResponseCode.SUCCESS)

        for name, _ in wanted:
            self._group_changed(name)
        questions = (("group_configure", {"group": name, "settings": settings}) for name, settings in wanted)
        ask_in_turn(self._serve.ask, questions, told)

    def delete(self, request: Command, answer: Answer) -> None:
        """DELETE_SUBSCRIPTIONGROUP, with its offsets: a group that is not there is gone already. Raises MalformedFrame,
        RequestRefused."""
        name = read_header(DeleteGroup, request.fields).group_name

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            if facts is None or facts.get("error") not in (None, _UNKNOWN_GROUP):
                answer.refuse(refused_by_serve(facts))
            else:
                answer(ResponseCode.SUCCESS)

        self._group_changed(name)
        self._ask("group_delete", {"group": name}, told)

    def config(self, request: Command, answer: Answer) -> None:
        """GET_SUBSCRIPTIONGROUP_CONFIG: a group that is not there is made where a heartbeat would make it. Raises
        MalformedFrame, RequestRefused."""
        name = read_header(OfGroup, request.fields).group

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            if facts is None or "error" in facts:
                answer.refuse(refused_by_serve(facts))
            else:
                answer(ResponseCode.SUCCESS, body=group_config(facts["settings"]))

        def made(facts: Facts | None, _: list[Buffer]) -> None:
            if facts is None or "error" in facts:
                answer.refuse(refused_by_serve(facts))
            elif not self._serve.ask("group_describe", {"group": name}, told):
                answer(ResponseCode.SYSTEM_ERROR, remark=SERVE_AWAY)

        self._ask("group_commit", {"group": name, "offsets": {}}, made)

    def configs(self, request: Command, answer: Answer) -> None:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG, of all groups or a page of them. Raises MalformedFrame, RequestRefused."""
        header, table = read_header(GroupPage, request.fields), self._table()
        page = page_of(table.groups, header.group_seq, header.max_group_num)
        shown = replace(table, groups={group.group_name: group for group in page})
        answer(ResponseCode.SUCCESS, {"totalGroupNum": str(len(table.groups))}, group_configs(shown))

    def _table(self) -> GroupTable:
        """The settings of all groups. Raises RequestRefused."""
        try:
            content = self._file.load()
            return GroupTable() if content is None else read_groups(content, str(self._file.path))
        except MalformedFile as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, error.describe()) from None

    def _ask(self, op: str, facts: Facts, told: Told) -> None:
        if not self._serve.ask(op, facts, told):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, SERVE_AWAY)


def refused_by_serve(facts: Facts | None) -> RequestRefused:
    """What serve refuses, by RocketMQ's code."""
    error = "" if facts is None else facts.get("error")
    code = ResponseCode.INVALID_PARAMETER if error in _ILLEGAL else ResponseCode.SYSTEM_ERROR
    if error == _UNKNOWN_GROUP:
        code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    return RequestRefused(code, refusal_in(facts, "serve"))


def _target(header: ResetOffset) -> dict[str, Any]:
    """The question that sets the offsets."""
    facts: dict[str, Any] = {"group": header.group, "topic": header.topic}
    if header.queue_id >= 0:
        facts["queue"] = header.queue_id
        if header.offset >= 0:
            return {**facts, "to": {"offset": header.offset}}
    return {**facts, "to": {"timestamp": header.timestamp} if header.timestamp >= 0 else "last"}


def _versions(member: Membership) -> list[int]:
    return [said.version for said in member.data.subscriptions.values()]


def _address(peer: tuple[str, int]) -> str:
    return f"{peer[0]}:{peer[1]}"
