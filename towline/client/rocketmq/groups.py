"""Consumer groups of a broker, as an administrator asks for them."""

import json
from collections.abc import Generator, Mapping
from shlex import quote
from typing import Any, Final

from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.fastjson import loads
from towline.format.remoting.headers import (
    ConsumerGroup,
    ConsumeStats,
    DeleteGroup,
    ResetOffset,
)
from towline.limits import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX

from .offsets import offset_in, query, update
from .positions import bounds_of, first_of, queues_of
from .talk import NOT_IN_ROCKETMQ, Refused, Request, Session, Step, Talk, succeeded

IN_USE: Final = "GROUP_IN_USE"
NO_GROUP: Final = "NO_SUCH_GROUP"
LAST_MS: Final = -1
_SYSTEM: Final = ("CID_", "TOOLS_CONSUMER", "SELF_TEST_C_GROUP", "FILTERSRV_CONSUMER", "__MONITOR_CONSUMER")
_OTHER_NAMES: Final = {"groupName"}

Facts = Mapping[str, Any]
Rows = dict[str, dict[str, Any]]
Queues = dict[tuple[str, int], tuple[int, int]]  # -> broker's end, the group's offset


def listed(session: Session, facts: Facts) -> Talk:
    found = []
    for group in sorted((yield from _configs())):
        if group.startswith(_SYSTEM):
            continue
        said = yield from _connections(group)
        queues = yield from _progress(session, group)
        row: dict[str, Any] = {
            "group": group,
            "model": _model(said),
            "members": len(said.get("connectionSet", [])),
            "topics": sorted({topic for topic, _ in queues} | set(said.get("subscriptionTable", {}))),
        }
        if facts.get("lag"):
            row["lag"] = sum(end - max(0, offset) for end, offset in queues.values())
        found.append(row)
    return {"groups": found}, b""


def describe(session: Session, facts: Facts) -> Talk:
    group = facts["group"]
    configs = yield from _configs()
    if group not in configs:
        listed = "look at `towline group list`, or let a member join first"
        raise Refused(NO_GROUP, f"the broker has no group {group!r}", advised=listed)
    said = yield from _connections(group)
    queues = yield from _progress(session, group)
    lows: dict[str, list[tuple[int, int]]] = {}
    for topic in sorted({topic for topic, _ in queues}):
        known = yield from queues_of(session, topic)
        lows[topic] = yield from bounds_of(topic, known.read_queues)
    rows = [
        {
            "topic": topic,
            "queue": queue,
            "min": lows[topic][queue][0] if queue < len(lows[topic]) else 0,
            "max": end,
            "offset": offset,
            "lag": end - max(0, offset),
        }
        for (topic, queue), (end, offset) in sorted(queues.items())
    ]
    members = [
        {"member": row["clientId"], "address": row["clientAddr"], "language": row["language"]}
        for row in said.get("connectionSet", [])
    ]
    return {
        "group": group,
        "model": _model(said),
        "members": members,
        "settings": {name: value for name, value in configs[group].items() if name not in _OTHER_NAMES},
        "lag": sum(row["lag"] for row in rows),
        "queues": rows,
    }, b""


def offsets(session: Session, facts: Facts) -> Talk:
    """Of these topics, -1 where the group has none; or of all of which it has one."""
    group, table = facts["group"], {}
    for topic in facts["topics"]:
        known = yield from queues_of(session, topic)
        table[topic] = yield from _of_topic(group, topic, known.read_queues)
    if not facts["topics"]:
        found = yield from _progress(session, group)
        for (topic, queue), (_, offset) in found.items():
            table.setdefault(topic, {})[str(queue)] = offset
    return {"offsets": table}, b""


def _of_topic(group: str, topic: str, count: int) -> Generator[Step, list[Command], dict[str, int]]:
    if not count:
        return {}
    answers = yield [query(group, topic, queue) for queue in range(count)]
    return {str(queue): offset_in(answer) for queue, answer in enumerate(answers)}


def reset(session: Session, facts: Facts) -> Talk:
    """Sets offsets. Members that are there are told by the broker, which can do that for a whole topic and a time."""
    group, topic, to = facts["group"], facts["topic"], facts["to"]
    known = yield from queues_of(session, topic)
    queues = [facts["queue"]] if "queue" in facts else list(range(known.read_queues))
    targets = {}
    for queue in queues:
        targets[queue] = yield from _target(topic, queue, to)
    if (yield from _connections(group)).get("connectionSet"):
        if "queue" in facts or (isinstance(to, dict) and "offset" in to):
            raise Refused(NOT_IN_ROCKETMQ, f"{group!r} has members: a broker moves them in all queues of a topic alone")
        when = to["timestamp"] if isinstance(to, dict) else 0 if to == "first" else LAST_MS
        header = ResetOffset(group=group, topic=topic, timestamp=when, is_force=True)
        (answer,) = yield [Request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)]
        succeeded(answer)
        table = loads(answer.body).get("offsetTable", {}) if len(answer.body) else {}
        told = {json.loads(key)["queueId"]: int(offset) for key, offset in table.items()}
        return {"offsets": {str(queue): told.get(queue, targets[queue]) for queue in queues}}, b""
    answers = yield [update(group, topic, queue, offset) for queue, offset in targets.items()]
    for answer in answers:
        succeeded(answer)
    return {"offsets": {str(queue): offset for queue, offset in targets.items()}}, b""


def delete(session: Session, facts: Facts) -> Talk:
    group = facts["group"]
    if (yield from _connections(group)).get("connectionSet"):
        named = f"close its consumers first; `towline group describe {quote(group)}` names them"
        raise Refused(IN_USE, f"the group {group!r} has members", advised=named)
    header = DeleteGroup(group_name=group)
    (answer,) = yield [Request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header, more={"cleanOffset": "true"})]
    succeeded(answer)
    left = []
    for prefix in (RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX):
        topics = yield from _has(session, prefix + group)
        left += topics
    return {"topics": left}, b""


def configure(_: Session, facts: Facts) -> Talk:
    group, configs = facts["group"], (yield from _configs())
    settings = {**configs.get(group, {}), **facts["settings"], "groupName": group}
    body = json.dumps(settings).encode()
    (answer,) = yield [Request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)]
    succeeded(answer)
    configs = yield from _configs()
    return {"settings": {name: value for name, value in configs[group].items() if name not in _OTHER_NAMES}}, b""


# --- parts


def _configs() -> Generator[Step, list[Command], Rows]:
    """The settings of every group, by its name."""
    (answer,) = yield [Request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)]
    succeeded(answer)
    return dict(loads(answer.body).get("subscriptionGroupTable") or {})


def _connections(group: str) -> Generator[Step, list[Command], dict[str, Any]]:
    """What the members said last; empty where there are none."""
    (answer,) = yield [Request(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroup(consumer_group=group))]
    found = loads(answer.body) if succeeded(answer, ResponseCode.CONSUMER_NOT_ONLINE) else {}
    return found if isinstance(found, dict) else {}


def _progress(session: Session, group: str) -> Generator[Step, list[Command], Queues]:
    (answer,) = yield [Request(RequestCode.GET_CONSUME_STATS, ConsumeStats(consumer_group=group))]
    if not succeeded(answer, ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
        return {}
    found: Queues = {}
    for key, row in (loads(answer.body).get("offsetTable") or {}).items():
        queue = json.loads(key)
        if queue["brokerName"] == session.broker:
            found[queue["topic"], int(queue["queueId"])] = int(row["brokerOffset"]), int(row["consumerOffset"])
    return found


def _target(topic: str, queue: int, to: Any) -> Generator[Step, list[Command], int]:
    if isinstance(to, dict) and "offset" in to:
        low = yield from first_of(topic, queue, "first")
        end = yield from first_of(topic, queue, "last")
        if not low <= to["offset"] <= end:
            raise Refused("IllegalPlace", f"queue {queue} of {topic} has offsets {low} to {end}")
        return int(to["offset"])
    return (yield from first_of(topic, queue, to["timestamp"] if isinstance(to, dict) else to))


def _has(session: Session, topic: str) -> Generator[Step, list[Command], list[str]]:
    from_names = yield [Request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, names=True)]
    succeeded(from_names[0])
    return [topic] if topic in loads(from_names[0].body).get("topicList", []) else []


def _model(said: Mapping[str, Any]) -> str:
    return str(said.get("messageModel", "CLUSTERING")).lower()
