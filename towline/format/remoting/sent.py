"""The request that makes a broker store a record: what `stored` does, the other way round (spec 2.10, 5).

A record is taken as our clients encode it, with IPv4 hosts. One in a form (`towline.format.record.forms`) becomes a
message to its own topic and queue again, with the property that asks for the form. Several records of one topic, queue
and SYSFLAG become a batch.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from towline.errors import MalformedRecord
from towline.format.record import properties as names
from towline.format.record.forms import FORM_TOPICS, HALF_TOPIC, TIMER_DEL_UNIQKEY, TIMER_DELIVER_MS, TIMER_OUT_MS
from towline.format.record.record import (
    BORN_HOST_IPV6,
    LAYOUT,
    MAGIC_V2,
    STORE_HOST_IPV6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
)
from towline.format.record.rules import Rule
from towline.format.wire.frames import Buffer

from .batch import member
from .headers import SendMessage
from .stored import RecallHandle

TOPIC_TEMPLATE: Final = "TBW102"  # its settings are those of a topic that a broker makes by itself
TEMPLATE_QUEUES: Final = 4
_FAMILIES: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6
_REPLY: Final = f"{names.MESSAGE_TYPE}{names.NAME_END}{names.REPLY}".encode()
_LENGTH: Final = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class Sendable:
    """What of a record a producer sends. `size`: its bytes as it will stand in the log."""

    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int
    reconsume_times: int
    body: bytes
    properties: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Recall:
    """The cancelling of a timed message."""

    handle: RecallHandle


def sendables(data: Buffer, count: int) -> list[Sendable]:
    """`count` records that stand back to back. Raises MalformedRecord."""
    view, at, found = memoryview(data), 0, []
    for _ in range(count):
        each = _sendable(view, at)
        found.append(each)
        at += each.size
    if at != len(view):
        raise MalformedRecord(Rule.COUNT_MISMATCH.name, Rule.COUNT_MISMATCH.sentence, at)
    return found


def of_form(record: Sendable, broker: str) -> Sendable | Recall:
    """What a record of a form asks for, of the broker of this name. Raises MalformedRecord."""
    if record.topic not in FORM_TOPICS:
        return record
    pairs = names.decode(record.properties)
    try:
        topic, queue_id = pairs.pop(names.REAL_TOPIC), int(pairs.pop(names.REAL_QID))
        key = pairs.pop(TIMER_DEL_UNIQKEY, "")
        if key:
            return Recall(RecallHandle(topic, broker, int(pairs[TIMER_DELIVER_MS]), key))
    except (KeyError, ValueError):
        raise MalformedRecord(
            Rule.REAL_TOPIC.name, "the properties of its form are missing, or no numbers", 0
        ) from None
    pairs.pop(TIMER_OUT_MS, None)
    sys_flag = record.sys_flag & ~TRANSACTION_MASK
    if record.topic == HALF_TOPIC:
        sys_flag |= TRANSACTION_PREPARED
    return Sendable(
        topic,
        queue_id,
        record.flag,
        sys_flag,
        record.born_timestamp,
        record.reconsume_times,
        record.body,
        names.encode(pairs.items()),
        record.size,
    )


def is_reply(record: Sendable) -> bool:
    """Whether it is the reply to a request: a broker hands it to who waits for it."""
    if _REPLY not in record.properties:
        return False
    return names.decode(record.properties).get(names.MESSAGE_TYPE) == names.REPLY


def is_timed(record: Sendable) -> bool:
    return f"{TIMER_DELIVER_MS}{names.NAME_END}".encode() in record.properties


def send_header(records: Sequence[Sendable], producer_group: str, broker: str) -> SendMessage:
    """The header for records of one topic, queue and SYSFLAG: of a batch where there are several."""
    first, single = records[0], len(records) == 1
    return SendMessage(
        producer_group=producer_group,
        topic=first.topic,
        default_topic=TOPIC_TEMPLATE,
        default_topic_queue_nums=TEMPLATE_QUEUES,
        queue_id=first.queue_id,
        sys_flag=first.sys_flag,
        born_timestamp=first.born_timestamp,
        flag=first.flag if single else 0,
        properties=first.properties.decode() if single else "",
        reconsume_times=first.reconsume_times,
        batch=not single,
        broker_name=broker,
    )


def send_body(records: Sequence[Sendable]) -> bytes:
    if len(records) == 1:
        return records[0].body
    return b"".join([member(each.flag, each.body, each.properties) for each in records])


def _sendable(view: memoryview, at: int) -> Sendable:
    if len(view) - at < LAYOUT.size:
        raise MalformedRecord(Rule.COUNT_MISMATCH.name, Rule.COUNT_MISMATCH.sentence, at)
    (size, magic, _, queue_id, flag, _, _, sys_flag, born, _, _, _, _, _, times, _, body_size) = LAYOUT.unpack_from(
        view, at
    )
    begin = at + LAYOUT.size
    body_end = begin + body_size
    topic_begin = body_end + (2 if magic == MAGIC_V2 else 1)
    if sys_flag & _FAMILIES or not LAYOUT.size < size <= len(view) - at or topic_begin + 2 > at + size:
        raise MalformedRecord(Rule.COUNT_MISMATCH.name, Rule.COUNT_MISMATCH.sentence, at)
    topic_end = topic_begin + int.from_bytes(view[body_end:topic_begin], "big")
    properties_begin = topic_end + _LENGTH.size
    length = int.from_bytes(view[topic_end:properties_begin], "big")
    if body_size < 0 or properties_begin + length != at + size:
        raise MalformedRecord(Rule.COUNT_MISMATCH.name, Rule.COUNT_MISMATCH.sentence, at)
    try:
        topic = str(view[topic_begin:topic_end], "utf-8")
    except UnicodeDecodeError:
        raise MalformedRecord(Rule.TOPIC_FORM.name, "the topic is no UTF-8", at) from None
    return Sendable(
        topic,
        queue_id,
        flag,
        sys_flag,
        born,
        times,
        bytes(view[begin:body_end]),
        bytes(view[properties_begin : at + size]),
        size,
    )
