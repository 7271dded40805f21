"""Transactions as RocketMQ keeps them in the log (spec 5.4).

    RMQ_SYS_TRANS_HALF_TOPIC     queue 0: a half message, of type none, with REAL_TOPIC, REAL_QID, PGROUP, TRAN_MSG. A
                                 check stores it again at the end, with TRANSACTION_CHECK_TIMES, and in
                                 TRAN_PREPARED_QUEUE_OFFSET where it stood first; so is one, without being checked,
                                 that many op records lie behind
    RMQ_SYS_TRANS_OP_HALF_TOPIC  queue 0: tag `d`, the body is the queue offset of a half that is through, as text;
                                 RocketMQ 5 may write several, each followed by a comma
    TRANS_CHECK_MAX_TIME_TOPIC   queue 0: halves that were checked too often
    consumer group CID_RMQ_SYS_TRANS: up to where both system topics need not be read again

A committed message is a new record of the real topic, of type commit, which names where the half stands. Its properties
are the half's, REAL_TOPIC and the others included.
Towline says more in properties, which RocketMQ ignores: an op record how the transaction ended and where it began; a
half that was stored again without a check when it was stored first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from . import property_crc
from .forms import HALF_TOPIC, OP_TOPIC, TRANS_CHECK_TOPIC
from .properties import NAME_END, PAIR_END, PRODUCER_GROUP, REAL_QID, REAL_TOPIC, TAGS, UNIQ_KEY, decode
from .properties import encode as encode_properties
from .record import TRANSACTION_COMMIT, TRANSACTION_MASK, Host, Record, encode

HALF: Final = HALF_TOPIC.encode()
OP: Final = OP_TOPIC.encode()
CHECKED: Final = TRANS_CHECK_TOPIC.encode()
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
OP_TAG: Final = "d"
OP_SEPARATOR: Final = ","
CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
FIRST_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
OUTCOME: Final = "TOWLINE_OUTCOME"
STORED: Final = "TOWLINE_STORED"  # ms since 1970
DIGITS_MAX: Final = 18
_QUEUE_MAX: Final = 2**31 - 1


class Outcome(Enum):
    """How a transaction ended."""

    COMMITTED = "COMMITTED"
    ROLLED_BACK = "ROLLED_BACK"
    PUT_ASIDE = "PUT_ASIDE"  # it was checked too often
    ENDED = "ENDED"  # another broker's op record does not say how


@dataclass(frozen=True, slots=True)
class Half:
    """A half message as the log keeps it. Offsets count messages of the half queue, except `physical`, which is bytes.

    `first` is the offset of the record that the producer sent, `offset` that of this one, stored again by a check.
    `stored_ms` is when the first was stored, as far as this one says so.
    `immunity_ms` is -1 where the message does not say for how long it is not to be checked.
    """

    first: int
    offset: int
    physical: int
    group: str
    unique_key: str
    topic: str
    queue_id: int
    stored_ms: int
    checks: int
    immunity_ms: int

    def on_its_own(self) -> "Half":
        """The same record as one that a producer sent."""
        return replace(self, first=self.offset)


@dataclass(frozen=True, slots=True)
class Op:
    """An op record: the offsets of halves that are through. `first` is -1 where it does not say."""

    offsets: tuple[int, ...]
    first: int
    outcome: Outcome


def read_half(record: Record) -> Half:
    """Numbers that are none count as missing."""
    found = decode(record.properties)
    immunity = _number(found, IMMUNITY, -1)
    return Half(
        first=_number(found, FIRST_OFFSET, record.queue_offset),
        offset=record.queue_offset,
        physical=record.physical_offset,
        group=found.get(PRODUCER_GROUP, ""),
        unique_key=found.get(UNIQ_KEY, ""),
        topic=found.get(REAL_TOPIC, ""),
        queue_id=_number(found, REAL_QID, 0, _QUEUE_MAX),
        stored_ms=_number(found, STORED, record.store_timestamp),
        checks=_number(found, CHECK_TIMES, 0),
        immunity_ms=1000 * immunity if immunity >= 0 else -1,
    )


def read_op(record: Record) -> Op:
    """What the body holds beside numbers is ignored, as RocketMQ does."""
    words = record.body.decode("utf-8", "replace").split(OP_SEPARATOR)
    found = decode(record.properties)
    try:
        outcome = Outcome(found.get(OUTCOME, Outcome.ENDED.value))
    except ValueError:
        outcome = Outcome.ENDED
    offsets = tuple(int(word) for word in words if _is_number(word))
    return Op(offsets, _number(found, FIRST_OFFSET, -1), outcome)


def committed(half: Record, store_host: Host) -> bytes:
    """The real message. `store_host` has the broker's address family; put stamps it. Raises MalformedRecord."""
    known = read_half(half)
    return encode(
        _unstamped(
            half,
            store_host,
            topic=known.topic.encode(),
            queue_id=known.queue_id,
            sys_flag=half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
            prepared_transaction_offset=half.physical_offset,
        )
    )


def checked_again(half: Record, store_host: Host) -> bytes:
    """The half to be stored again, checked once more. Raises MalformedRecord when its properties grow too long."""
    known = read_half(half)
    changed = {CHECK_TIMES: str(known.checks + 1), FIRST_OFFSET: str(known.first)}
    return encode(_unstamped(half, store_host, properties=_with(half.properties, changed)))


def moved(half: Record, store_host: Host) -> bytes:
    """The half to be stored again as it is, not checked. Raises MalformedRecord when its properties grow too long."""
    known = read_half(half)
    changed = {FIRST_OFFSET: str(known.first), STORED: str(known.stored_ms)}
    return encode(_unstamped(half, store_host, properties=_with(half.properties, changed)))


def put_aside(half: Record, store_host: Host) -> bytes:
    """The half for TRANS_CHECK_MAX_TIME_TOPIC."""
    return encode(_unstamped(half, store_host, topic=CHECKED, queue_id=0))


def as_sent(half: Record) -> bytes:
    """What a producer of the group is asked about: the half under its real topic and queue, without a property CRC."""
    known = read_half(half)
    properties = half.properties
    if property_crc.ends_with(properties):
        properties = properties[: -property_crc.SIZE]
    return encode(replace(half, topic=known.topic.encode(), queue_id=known.queue_id, properties=properties))


def op_record(
    offset: int, first: int, outcome: Outcome, store_host: Host, now_ms: int, *, append_property_crc: bool
) -> bytes:
    """One offset and no comma: RocketMQ 4 reads no other form."""
    properties = encode_properties([(TAGS, OP_TAG), (OUTCOME, outcome.value), (FIRST_OFFSET, str(first))])
    return encode(
        Record(
            topic=OP,
            body=str(offset).encode(),
            properties=property_crc.appended(properties) if append_property_crc else properties,
            born_timestamp=now_ms,
            born_host=store_host,
            store_host=store_host,
        )
    )


def _unstamped(
    half: Record,
    store_host: Host,
    *,
    topic: bytes | None = None,
    queue_id: int | None = None,
    sys_flag: int | None = None,
    properties: bytes | None = None,
    prepared_transaction_offset: int = 0,
) -> Record:
    return replace(
        half,
        topic=half.topic if topic is None else topic,
        queue_id=half.queue_id if queue_id is None else queue_id,
        sys_flag=half.sys_flag if sys_flag is None else sys_flag,
        properties=half.properties if properties is None else properties,
        prepared_transaction_offset=prepared_transaction_offset,
        queue_offset=0,
        physical_offset=0,
        store_timestamp=0,
        store_host=store_host,
    )


def _with(properties: bytes, changed: Mapping[str, str]) -> bytes:
    """Encoded properties with these values; the others keep their bytes, and a property CRC its place at the end."""
    crc = property_crc.ends_with(properties)
    body = properties[: -property_crc.SIZE] if crc else properties
    mark = PAIR_END.encode()
    heads = tuple(f"{name}{NAME_END}".encode() for name in changed)
    kept = [item for item in body.split(mark) if item and not item.startswith(heads)]
    whole = b"".join(item + mark for item in kept) + encode_properties(changed.items())
    return property_crc.appended(whole) if crc else whole


def _number(found: Mapping[str, str], name: str, otherwise: int, most: int = 10**DIGITS_MAX) -> int:
    text = found.get(name, "")
    number = int(text) if _is_number(text) else otherwise
    return number if number <= most else otherwise


def _is_number(text: str) -> bool:
    """Of 63 bits: a client may write any digits, and Python refuses to read thousands of them."""
    return len(text) <= DIGITS_MAX and text.isascii() and text.isdecimal()
