"""What a RocketMQ master answers its slaves, as files of `config/` (spec 1.4). Pure.

Progress of deliveries is given the end of the log up to which it counts (`LOG_END`): it is saved when the slave's own
log is there.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

from towline.errors import MalformedFrame
from towline.format.record.forms import HALF_QUEUE, HALF_TOPIC, OP_TOPIC
from towline.format.record.transactions import TRANSACTION_GROUP
from towline.log.state.floors import HALF_FLOOR, OP_FLOOR

VERSION: Final = "dataVersion"
_OFFSETS: Final = "offsetTable"
# Of the time up to which the wheel was read, two positions of the broker's own files, how many timers of the queue are
# in the wheel; and a version (state, time, counter).
_TIMERS: Final = struct.Struct(">7q")
_EVERY: Final = 2**62  # more than there are messages of one time

Content = dict[str, Any]


def topics_file(told: Mapping[str, Any]) -> Content:
    """topics.json, by GET_ALL_TOPIC_CONFIG."""
    return _members(told, VERSION, "topicConfigTable")


def groups_file(told: Mapping[str, Any]) -> Content:
    """subscriptionGroup.json, by GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""
    return _members(told, VERSION, "forbiddenTable", "subscriptionGroupTable")


def offsets_file(told: Mapping[str, Any]) -> Content:
    """consumerOffset.json, by GET_ALL_CONSUMER_OFFSET."""
    return _members(told, VERSION, _OFFSETS)


def modes_file(told: Mapping[str, Any]) -> Content:
    """messageRequestMode.json, by GET_ALL_MESSAGE_REQUEST_MODE."""
    return _members(told, "messageRequestModeMap")


def delays_file(told: Mapping[str, Any]) -> Content:
    """delayOffset.json, by GET_ALL_DELAY_OFFSET."""
    return _members(told, VERSION, _OFFSETS)


def transactions_file(told: Mapping[str, Any]) -> Content:
    """transactionOffset.json: a broker keeps how far its halves are among the offsets of groups."""
    table = told.get(_OFFSETS) or {}
    half, op = (_offset(table.get(f"{topic}@{TRANSACTION_GROUP}")) for topic in (HALF_TOPIC, OP_TOPIC))
    return {HALF_FLOOR: half, OP_FLOOR: op}


def timers_file(body: bytes) -> Content:
    """timerOffset.json, by GET_TIMER_CHECK_POINT: of the timers that the wheel has, those due before the time up to
    which it was read are delivered. Raises MalformedFrame."""
    if len(body) != _TIMERS.size:
        raise MalformedFrame(f"a checkpoint of timers has {_TIMERS.size} bytes, not {len(body)}")
    read_until, _, _, in_wheel, *_ = _TIMERS.unpack(body)
    known = read_until > 0 and in_wheel > 0
    delivered = {"deliveredDue": read_until - 1, "deliveredOffset": _EVERY, "upTo": in_wheel}
    return {"cancelsFrom": 0, "from": 0, **(delivered if known else {})}


def text_of(content: Content) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def _members(told: Mapping[str, Any], *names: str) -> Content:
    """These members, where they are objects. Raises MalformedFrame for one that is something else."""
    found: Content = {}
    for name in names:
        member = told.get(name)
        if member is None:
            continue
        if not isinstance(member, dict):
            raise MalformedFrame(f"{name} is {type(member).__name__}")
        found[name] = member
    return found


def _offset(queues: object) -> int:
    found = queues.get(str(HALF_QUEUE), 0) if isinstance(queues, Mapping) else 0
    return found if type(found) is int else 0
