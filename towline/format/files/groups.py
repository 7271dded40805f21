"""Consumer groups: legal names, and the files consumerOffset.json and subscriptionGroup.json (spec 1.3, 1.4).

A member that this version does not know is kept and written again, so that a real broker loses nothing by our writing.
An entry that cannot be is left out alone, and named in `left_out`: the others are as good as before.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeAlias

from towline.errors import MalformedFile

from .topics import DataVersion

GROUP_SIZE_MAX: Final = 120  # characters, as RocketMQ 5's broker checks; %DLQ%group then is a legal topic too
MEMBER_SIZE_MAX: Final = 255
CUSTOMIZED: Final[Mapping[str, Any]] = {"type": "CUSTOMIZED"}

_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_SEPARATOR: Final = "@"
_SHOWN_MAX: Final = 60  # characters of an odd value
_OFFSET_MEMBERS: Final = ("dataVersion", "groupTopicMap", "offsetTable")

Offsets: TypeAlias = Mapping[int, int]  # queue id -> next offset to consume


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroup:
    """The settings of one group, with RocketMQ's defaults. `others` are members that are kept as they were read."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: Mapping[str, Any] = field(default_factory=lambda: dict(CUSTOMIZED))
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTable:
    """The content of subscriptionGroup.json. `forbidden` is RocketMQ's forbiddenTable, which is only kept.

    `left_out`: what was read and cannot be, a sentence each.
    """

    groups: Mapping[str, SubscriptionGroup] = field(default_factory=dict)
    forbidden: Mapping[str, Any] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetTable:
    """The content of consumerOffset.json: offsets of each (topic, group). `others` are only kept.

    `left_out`: what was read and cannot be, a sentence each.
    """

    offsets: Mapping[tuple[str, str], Offsets] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    others: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def group_problem(name: str) -> str | None:
    """What is wrong with a group's name; None for a legal one."""
    if not name:
        return "the name is empty"
    if not _LEGAL.fullmatch(name):
        return "only letters, digits, %, |, _ and - are legal in a name"
    if len(name) > GROUP_SIZE_MAX:
        return f"the name has {len(name)} characters, the limit is {GROUP_SIZE_MAX}"
    return None


def member_problem(name: str) -> str | None:
    """What is wrong with a member's id, in RocketMQ address@instance; None for a legal one."""
    if not name:
        return "the id is empty"
    if len(name) > MEMBER_SIZE_MAX:
        return f"the id has {len(name)} characters, the limit is {MEMBER_SIZE_MAX}"
    if not name.isprintable():
        return "the id holds characters that cannot be printed"
    return None


# --- consumerOffset.json


def offsets_content(table: OffsetTable) -> dict[str, Any]:
    """The object that consumerOffset.json holds, as RocketMQ 5 writes it."""
    topics: dict[str, list[str]] = {}
    for topic, group in sorted(table.offsets):
        topics.setdefault(group, []).append(topic)
    return dict(table.others) | {
        "dataVersion": _version_members(table.data_version),
        "groupTopicMap": topics,
        "offsetTable": {f"{topic}{_SEPARATOR}{group}": dict(of) for (topic, group), of in table.offsets.items()},
    }


def read_offsets(content: dict[str, Any], path: str) -> OffsetTable:
    """The offsets in the object of the file at `path`, of Towline, RocketMQ 4 or 5.

    Raises MalformedFile where there is no table at all.
    """
    left_out: list[str] = []
    try:
        offsets = {}
        for key, queues in content.get("offsetTable", {}).items():
            topic, separator, group = key.partition(_SEPARATOR)
            if not (topic and separator and group):
                left_out.append(f"{key!r} is not topic@group")
            elif not isinstance(queues, Mapping):
                left_out.append(f"of {key!r}: {_shown(queues)} are no offsets by queue")
            else:
                offsets[topic, group] = _offsets_of(key, queues, left_out)
        others = {name: value for name, value in content.items() if name not in _OFFSET_MEMBERS}
        version = _version(content)
        return OffsetTable(offsets=offsets, data_version=version, others=others, left_out=tuple(left_out))
    except (AttributeError, TypeError, ValueError) as problem:
        raise MalformedFile(path, f"it does not hold a table of offsets ({problem})") from problem


def _offsets_of(key: str, queues: Mapping[str, Any], left_out: list[str]) -> Offsets:
    found = {}
    for queue, at in queues.items():
        try:
            found[_ranged(queue, _INT32_MAX)] = _ranged(at, _INT64_MAX)
        except (TypeError, ValueError):
            left_out.append(f"of {key!r}: queue {_shown(queue)} at {_shown(at)} is no queue and offset")
    return found


def _shown(value: Any) -> str:
    """As it stands in a sentence; a long one is cut."""
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


# --- subscriptionGroup.json


def groups_content(table: GroupTable) -> dict[str, Any]:
    """The object that subscriptionGroup.json holds."""
    return {
        "dataVersion": _version_members(table.data_version),
        "forbiddenTable": dict(table.forbidden),
        "subscriptionGroupTable": {name: group_members(group) for name, group in table.groups.items()},
    }


def read_groups(content: dict[str, Any], path: str) -> GroupTable:
    """The groups in the object of the file at `path`, of Towline, RocketMQ 4 or 5.

    A setting that cannot be has its default. Raises MalformedFile where there is no table at all.
    """
    left_out: list[str] = []
    try:
        groups = {}
        for name, members in content.get("subscriptionGroupTable", {}).items():
            if isinstance(members, Mapping):
                problems = _problems(members)
                left_out.extend(f"of group {name!r}: {problem}" for problem in problems.values())
                sound = {member: value for member, value in members.items() if member not in problems}
                groups[name] = read_group(SubscriptionGroup(group_name=name), sound)
            else:
                left_out.append(f"of group {name!r}: {_shown(members)} are no settings")
        forbidden = dict(content.get("forbiddenTable", {}))
        version = _version(content)
        return GroupTable(groups=groups, forbidden=forbidden, data_version=version, left_out=tuple(left_out))
    except (AttributeError, TypeError, ValueError) as problem:
        raise MalformedFile(path, f"it does not hold a table of groups ({problem})") from problem


def group_members(group: SubscriptionGroup) -> dict[str, Any]:
    """A group's settings under RocketMQ's names."""
    return dict(group.others) | {rocketmq: getattr(group, ours) for ours, rocketmq in _NAMES.items()}


def read_group(group: SubscriptionGroup, members: Mapping[str, Any]) -> SubscriptionGroup:
    """`group` with the settings that `members` names, under RocketMQ's names; its own name stays.

    Raises ValueError with the member whose value is of the wrong kind.
    """
    for problem in _problems(members).values():
        raise ValueError(problem)
    changed: dict[str, Any] = {_SETTINGS[name]: members[name] for name in members.keys() & _SETTINGS.keys()}
    others = {name: value for name, value in members.items() if name not in _SETTINGS and name != _NAMES["group_name"]}
    return replace(group, others=dict(group.others) | others, **changed)


def _problems(members: Mapping[str, Any]) -> dict[str, str]:
    """Member -> a sentence, of those whose value is of the wrong kind."""
    return {
        name: f"{name} is {_shown(members[name])}"
        for name in sorted(members.keys() & _SETTINGS.keys())
        if type(members[name]) is not _KINDS[name]
    }


def setting_names() -> Iterable[str]:
    """RocketMQ's names of what `group_configure` may change."""
    return sorted(_SETTINGS)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


_NAMES: Final = {each.name: _camel(each.name) for each in fields(SubscriptionGroup) if each.name != "others"}
_SETTINGS: Final = {rocketmq: ours for ours, rocketmq in _NAMES.items() if ours != "group_name"}
_KINDS: Final = {name: type(getattr(SubscriptionGroup(group_name=""), ours)) for name, ours in _SETTINGS.items()}


def _version_members(version: DataVersion) -> dict[str, int]:
    return {"counter": version.counter, "stateVersion": version.state_version, "timestamp": version.timestamp}


def _version(content: Mapping[str, Any]) -> DataVersion:
    """RocketMQ 4 writes none."""
    found = content.get("dataVersion") or {}
    return DataVersion(
        counter=int(found.get("counter", 0)),
        state_version=int(found.get("stateVersion", 0)),
        timestamp=int(found.get("timestamp", 0)),
    )


def _ranged(value: Any, highest: int) -> int:
    number = int(value)
    if isinstance(value, float | bool) or not 0 <= number <= highest:
        raise ValueError(f"{value!r} is no queue or offset")
    return number
