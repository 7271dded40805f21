"""What a broker makes of a message that a producer sent: topic, queue and properties of what it stores (spec 5, 2.3).

A single message gets CLUSTER, MSG_REGION and TRACE_ON, and a UNIQ_KEY if it has none; a member of a batch gets nothing.
Names that only a broker writes are taken out of a single one, and of any the place of an idempotent producer's record:
whoever copies a message that was read sends them with it, and a place would have it judged in that producer's name.
DELAY, TIMER_* and TRAN_MSG ask for one of the forms (`towline.format.record.forms`).
"""

import base64
import binascii
import secrets
from dataclasses import dataclass
from typing import Final

from towline.format.record import properties as names
from towline.format.record import sequence
from towline.format.record.forms import (
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    StoredForm,
    cancelling,
    delayed,
    half,
    timed,
)
from towline.format.record.retries import RETRIES_DEFAULT
from towline.format.record.rules import Rule
from towline.limits import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX

from .codes import RequestRefused, ResponseCode
from .headers import SendMessage

TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
_KEY_SIZE: Final = 16  # bytes; RocketMQ's own keys have as many
_HANDLE_VERSION: Final = "v1"
_S: Final = 1_000  # ms
_LEVEL_DIGITS: Final = 9
_LEFT_OUT: Final = frozenset(
    name
    for name, rule in names.RESERVED.items()
    if rule
    in (
        Rule.PROPERTY_NEVER_STORED,
        Rule.PROPERTY_OF_THE_BROKER,
        Rule.PROPERTY_CRC_MISPLACED,
        Rule.SEQUENCE_MISPLACED,
    )
)


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What of a broker decides what it stores: its cluster's name, its number of delay levels, how far away a time may
    be (s)."""

    cluster: str
    levels: int
    timer_max_sec: int


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """Where a message is stored, with which properties. `deliver_at`: ms since 1970, 0 for one that is not timed."""

    topic: str
    queue_id: int
    properties: bytes
    unique_key: str
    deliver_at: int = 0


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """What recalls a timed message. Its text is base64 of `v1 topic broker deliver_at unique_key`."""

    topic: str
    broker: str
    deliver_at: int
    unique_key: str

    def __str__(self) -> str:
        text = f"{_HANDLE_VERSION} {self.topic} {self.broker} {self.deliver_at} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def read(cls, text: str) -> "RecallHandle":
        """The handle in a text. Raises RequestRefused."""
        try:
            parts = base64.urlsafe_b64decode(text.encode()).decode().split(" ")
        except (binascii.Error, UnicodeError):
            parts = []
        if len(parts) != 5 or parts[0] != _HANDLE_VERSION or not _is_time(parts[3]) or not (parts[1] and parts[4]):
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "recall failure, the handle is invalid")
        return cls(parts[1], parts[2], int(parts[3]), parts[4])


def stored_message(header: SendMessage, queue_id: int, now_ms: int, broker: BrokerFacts) -> StoredMessage:
    """What is stored of a single message to this queue. `now_ms`: the broker's clock. Raises RequestRefused."""
    found = names.decode(header.properties.encode())
    for name in _LEFT_OUT & found.keys():
        del found[name]
    found[names.CLUSTER] = broker.cluster
    found[names.MSG_REGION], found[names.TRACE_ON] = names.REGION_DEFAULT, names.TRACE_DEFAULT
    if names.UNIQ_KEY not in found:
        found[names.UNIQ_KEY] = secrets.token_hex(_KEY_SIZE).upper()
    unique_key = found[names.UNIQ_KEY]
    topic = header.topic
    if _is_given_up(header):
        topic = DEAD_LETTER_TOPIC_PREFIX + topic.removeprefix(RETRY_TOPIC_PREFIX)
        queue_id = 0
    form = _form(found, header, topic, queue_id, now_ms, broker)
    place, pairs = (topic, queue_id), {}
    deliver_at = 0
    if form is not None:
        place, pairs = (form.topic, form.queue_id), dict(form.pairs)
        deliver_at = int(pairs.get(TIMER_OUT_MS, 0))
    return StoredMessage(*place, _encoded({**found, **pairs}), unique_key, deliver_at)


def member_properties(properties: bytes) -> bytes:
    """The properties of a batch's member: as they came, without a place, with the last separator, which some clients
    leave out."""
    if sequence.HEAD in properties:
        pairs = properties.split(sequence.TAIL)
        properties = sequence.TAIL.join([pair for pair in pairs if not pair.startswith(sequence.HEAD)])
    return properties + b"\x02" if properties and not properties.endswith(b"\x02") else properties


def recalling(handle: RecallHandle, broker: BrokerFacts) -> StoredMessage:
    """What is stored to recall a timed message."""
    form = cancelling(handle.topic, 0, handle.deliver_at, handle.unique_key)
    own = {
        names.UNIQ_KEY: handle.unique_key,
        names.CLUSTER: broker.cluster,
        names.MSG_REGION: names.REGION_DEFAULT,
        names.TRACE_ON: names.TRACE_DEFAULT,
    }
    return StoredMessage(form.topic, form.queue_id, _encoded({**own, **dict(form.pairs)}), handle.unique_key)


def _is_given_up(header: SendMessage) -> bool:
    """Whether a message that is consumed again was consumed often enough."""
    most = header.max_reconsume_times if header.max_reconsume_times >= 0 else RETRIES_DEFAULT
    return header.topic.startswith(RETRY_TOPIC_PREFIX) and header.reconsume_times > most


def _form(
    found: dict[str, str], header: SendMessage, topic: str, queue_id: int, now_ms: int, broker: BrokerFacts
) -> StoredForm | None:
    """The form that the properties ask for; the names that ask are taken out of `found`."""
    level = found.pop(names.DELAY, "0")
    times = {
        name: found.pop(name)
        for name in (TIMER_DEL_UNIQKEY, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
        if name in found
    }
    prepared = found.pop(names.TRANSACTION_PREPARED, "").lower() == "true"
    if topic.startswith(DEAD_LETTER_TOPIC_PREFIX):
        return None
    if prepared:
        return half(topic, queue_id, found.pop(names.PRODUCER_GROUP, header.producer_group))
    key = times.pop(TIMER_DEL_UNIQKEY, "")
    if times:
        deliver_at = _deliver_at(times, now_ms, broker)
        return cancelling(topic, queue_id, deliver_at, key) if key else timed(topic, queue_id, deliver_at)
    if level.isascii() and level.isdecimal() and (number := _level(level)) > 0:
        return delayed(topic, queue_id, number, broker.levels)
    return None


def _level(digits: str) -> int:
    """A level of the delay: of more digits than any has, the first ones, which are above every level too."""
    return int(digits.lstrip("0")[:_LEVEL_DIGITS] or "0")


def _deliver_at(times: dict[str, str], now_ms: int, broker: BrokerFacts) -> int:
    (name, text) = next(iter(times.items()))
    if not _is_time(text):
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"{name} is {text[:40]!r}, and not a number")
    number = int(text)
    deliver_at = number
    if name != TIMER_DELIVER_MS:
        deliver_at = now_ms + (number * _S if name == TIMER_DELAY_SEC else number)
    if deliver_at > now_ms + broker.timer_max_sec * _S:
        why = f"timer message illegal, the delay time should not be bigger than the max delay {broker.timer_max_sec}s"
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, why)
    return deliver_at


def _is_time(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 15


def _encoded(pairs: dict[str, str]) -> bytes:
    """The bytes of pairs that were decoded: a value may hold 0x01, as RocketMQ has it."""
    kept = [f"{name}\x01{value}\x02" for name, value in pairs.items() if not name.startswith(names.TRANSIENT_PREFIX)]
    text = "".join(kept)
    if "\0" in text:
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "the properties hold a NUL byte")
    return text.encode()
