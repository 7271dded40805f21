"""Bodies of administration requests, as RocketMQ's tools read them (spec 11.3).

Tables by queue have objects as keys, which no JSON library writes: `{{"brokerName":..,"queueId":0,"topic":..}:..}`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from towline.errors import MalformedFrame
from towline.format.files.groups import GroupTable, groups_content
from towline.format.files.topics import TopicConfig, TopicTable, topics_content

from .broker_bodies import subscription_members
from .consumers import ConsumerData
from .headers import MakeTopic

Queue: TypeAlias = tuple[str, int]  # topic, queue id
GROUP_NAME: Final = "groupName"
DEPTH_MAX: Final = 8  # objects and lists in each other, of what is passed on


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """A connected client. `address`: `host:port` from which it connects; `version`: RocketMQ's number for its own."""

    client_id: str
    address: str
    language: str
    version: int

    @property
    def members(self) -> dict[str, Any]:
        return {
            "clientAddr": self.address,
            "clientId": self.client_id,
            "language": self.language,
            "version": self.version,
        }


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A queue as topicStatus shows it: `last_ms` is the store time of its newest message, 0 where it has none."""

    low: int
    end: int
    last_ms: int

    @property
    def members(self) -> dict[str, Any]:
        return {"lastUpdateTimestamp": self.last_ms, "maxOffset": self.end, "minOffset": self.low}


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """A queue as consumerProgress shows it: `last_ms` is the store time of the message consumed last, 0 for none;
    `pulled` the offset behind what the group was sent."""

    end: int
    offset: int
    last_ms: int
    pulled: int

    @property
    def members(self) -> dict[str, Any]:
        return {
            "brokerOffset": self.end,
            "consumerOffset": self.offset,
            "lastTimestamp": self.last_ms,
            "pullOffset": max(self.offset, self.pulled),
        }


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A queue in time: store times in ms of its first and last message and of the one consumed last, -1 for none;
    `waits`: ms since the next one was stored, 0 for none."""

    first: int
    last: int
    consumed: int
    waits: int

    @property
    def members(self) -> dict[str, Any]:
        return {
            "consumeTimeStamp": self.consumed,
            "delayTime": self.waits,
            "maxTimeStamp": self.last,
            "minTimeStamp": self.first,
        }


GroupProgress: TypeAlias = Mapping[str, Mapping[int, QueueProgress]]  # by topic and queue id


# --- topics


def topic_list(names: Iterable[str], where: str = "") -> bytes:
    """`where`: `host:port` of the broker, if that is told."""
    return _json({**({"brokerAddr": where} if where else {}), "topicList": list(names)})


def topic_config(topic: TopicConfig) -> bytes:
    return _json(_topic_members([topic])[topic.topic_name])


def topic_configs(table: TopicTable, page: Sequence[TopicConfig]) -> bytes:
    """Some topics of a table, with its version. There are no topics whose queues are mapped to other brokers."""
    version = topics_content(TopicTable(data_version=table.data_version))["dataVersion"]
    members = {
        "dataVersion": version,
        "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0},
        "topicConfigTable": _topic_members(page),
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    return _json(members)


def topic_stats(broker: str, queues: Mapping[Queue, QueueStats], per_second: float) -> bytes:
    rows = {queue: stats.members for queue, stats in queues.items()}
    return b'{"offsetTable":%s,"topicPutTps":%s}' % (_by_queue(broker, rows), _json(round(per_second, 6)))


def read_topic_configs(said: Any) -> list[MakeTopic]:
    """The topics of a CreateTopicListRequestBody, one at least. Raises MalformedFrame."""
    match said:
        case {"topicConfigList": [_, *_] as rows}:
            return [_read_topic_config(row) for row in rows]
    raise MalformedFrame("a topicConfigList of topics is wanted")


def _read_topic_config(row: Any) -> MakeTopic:
    match row:
        case {"topicName": str(name), "readQueueNums": read, "writeQueueNums": write, "perm": perm} if all(
            type(each) is int and 0 <= each < 1 << 31 for each in (read, write, perm)
        ):
            return MakeTopic(topic=name, read_queue_nums=read, write_queue_nums=write, perm=perm)
    raise MalformedFrame("a topic has a topicName, and the numbers readQueueNums, writeQueueNums and perm")


def _topic_members(topics: Sequence[TopicConfig]) -> dict[str, Any]:
    table = TopicTable(topics={topic.topic_name: topic for topic in topics})
    found: dict[str, Any] = topics_content(table)["topicConfigTable"]
    return found


# --- groups


def group_list(names: Iterable[str]) -> bytes:
    return _json({"groupList": list(names)})


def group_configs(table: GroupTable) -> bytes:
    return _json(groups_content(table))


def group_config(settings: Mapping[str, Any]) -> bytes:
    return _json(dict(settings))


def consume_stats(broker: str, queues: Mapping[Queue, QueueProgress], per_second: float = 0.0) -> bytes:
    rows = {queue: progress.members for queue, progress in queues.items()}
    return b'{"consumeTps":%s,"offsetTable":%s}' % (_json(round(per_second, 6)), _by_queue(broker, rows))


def broker_consume_stats(broker: str, where: str, groups: Mapping[str, GroupProgress]) -> bytes:
    """Of all groups, a table for each topic. `where`: `host:port` of the broker."""
    total = sum(
        row.end - row.offset for topics in groups.values() for queues in topics.values() for row in queues.values()
    )
    rows = (
        b"{%s:[%s]}"
        % (
            _json(group),
            b",".join(
                consume_stats(broker, {(topic, queue): row for queue, row in queues.items()})
                for topic, queues in sorted(topics.items())
            ),
        )
        for group, topics in sorted(groups.items())
    )
    head = b'{"brokerAddr":%s,"consumeStatsList":[%s],"totalDiff":%d}'
    return head % (_json(where), b",".join(rows), total)


def time_spans(broker: str, queues: Mapping[Queue, TimeSpan]) -> bytes:
    rows = [{**span.members, "messageQueue": _queue(broker, *queue)} for queue, span in sorted(queues.items())]
    return _json({"consumeTimeSpanSet": rows})


def reset_offsets(broker: str, offsets: Mapping[Queue, int]) -> bytes:
    return b'{"offsetTable":%s}' % _by_queue(broker, offsets)


def read_group_config(said: Any) -> tuple[str, dict[str, Any]]:
    """The name of a group, and the settings that a SubscriptionGroupConfig names beside it. Raises MalformedFrame."""
    match said:
        case {"groupName": str(name)}:
            settings = {key: value for key, value in said.items() if key != GROUP_NAME and value is not None}
            if not _is_shallow(settings, DEPTH_MAX):
                raise MalformedFrame(f"the settings of a group are nested deeper than {DEPTH_MAX} objects")
            return name, settings
    raise MalformedFrame("the settings of a group have a groupName")


def read_group_configs(said: Any) -> list[tuple[str, dict[str, Any]]]:
    """The groups of a SubscriptionGroupList, one at least, each as of `read_group_config`. Raises MalformedFrame."""
    match said:
        case {"groupConfigList": [_, *_] as rows}:
            return [read_group_config(row) for row in rows]
    raise MalformedFrame("a groupConfigList of groups is wanted")


def _is_shallow(value: Any, levels: int) -> bool:
    """Whether a value can be written as JSON again, at whatever depth of calls."""
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_shallow(each, levels - 1) for each in inner)


# --- clients


def producer_connections(clients: Iterable[ClientFacts]) -> bytes:
    return _json({"connectionSet": [client.members for client in clients]})


def consumer_connections(clients: Iterable[ClientFacts], group: ConsumerData) -> bytes:
    """`group`: what the newest heartbeat says of it."""
    subscriptions = {topic: subscription_members(topic, said) for topic, said in group.subscriptions.items()}
    facts = {"messageModel": group.model, **group.facts}
    return _json({"connectionSet": [client.members for client in clients], **facts, "subscriptionTable": subscriptions})


# --- the node


def runtime_info(table: Mapping[str, str]) -> bytes:
    return _json({"table": dict(table)})


def _by_queue(broker: str, rows: Mapping[Queue, Any]) -> bytes:
    """An object by queue, in the order of topics and queues."""
    members = (_json(_queue(broker, topic, queue)) + b":" + _json(row) for (topic, queue), row in sorted(rows.items()))
    return b"{" + b",".join(members) + b"}"


def _queue(broker: str, topic: str, queue: int) -> dict[str, Any]:
    return {"brokerName": broker, "queueId": queue, "topic": topic}


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
