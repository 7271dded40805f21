"""Properties of a message: name 0x01 value 0x02 for each pair, in UTF-8 (spec 2.3).

Towline writes the last 0x02, as RocketMQ does since 5.2; it reads both forms.

Who writes which property. A record stands in the log as its sender made it: put writes over bytes, never adds any.
A Towline put is therefore what RocketMQ calls a batch, whose members get no property from the broker either.

    name                                  written by               in a put
    KEYS TAGS WAIT __SHARDINGKEY PGROUP   client                   as it comes; put waits whatever WAIT says
    RETRY_TOPIC ORIGIN_MESSAGE_ID ...     client                   as it comes, like every other name not below
    UNIQ_KEY                              client library, always   as it comes; a raw record may be without
    __CRC32#                              client library leaves    wanted as the last one where the node appends it,
                                          room, put writes digits  refused anywhere else: stamping would make it wrong
    CLUSTER MSG_REGION TRACE_ON           nobody here; RocketMQ's  taken with the value that this broker would write,
                                          broker on single ones    refused with another: it is another broker's
    REAL_TOPIC REAL_QID                   client, in a form of     taken in the form alone (`forms`)
    DELAY, TIMER_*, TRAN_MSG              `forms`; schedule leaves
                                          them in what it delivers
    INNER_* TIMER_ROLL_TIMES              broker, when it bundles  refused
    __PSEQ__                              client library, of an    taken as the last one (`sequence`) of every record of
                                          idempotent producer      a request that put has judged; refused elsewhere
    POP_CK MIN_OFFSET MAX_OFFSET          nobody: never stored     left out by the client library, refused in a raw
    __RMQ.TRANSIENT.*                                              record

`RESERVED` is the refused part of it, by the rule that names the reason.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from towline.errors import IllegalProperty

from .rules import Rule

NAME_END: Final = "\x01"
PAIR_END: Final = "\x02"
KEY_SEPARATOR: Final = " "  # between the keys inside KEYS

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQ_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
PRODUCER_GROUP: Final = "PGROUP"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
TRANSACTION_ID: Final = "__transactionId__"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
CLUSTER: Final = "CLUSTER"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
SHARDING_KEY: Final = "__SHARDINGKEY"
CRC32: Final = "__CRC32#"
SEQUENCE: Final = "__PSEQ__"  # of an idempotent producer (`sequence`)
TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."  # names that are never stored
MESSAGE_TYPE: Final = "MSG_TYPE"
POP_CHECK_POINT: Final = "POP_CK"

REPLY: Final = "reply"  # MESSAGE_TYPE of a reply
REGION_DEFAULT: Final = "DefaultRegion"  # MSG_REGION of every broker that does not say otherwise
TRACE_DEFAULT: Final = "true"

RESERVED: Final[Mapping[str, Rule]] = {
    CRC32: Rule.PROPERTY_CRC_MISPLACED,
    CLUSTER: Rule.PROPERTY_OF_ANOTHER_BROKER,
    MSG_REGION: Rule.PROPERTY_OF_ANOTHER_BROKER,
    TRACE_ON: Rule.PROPERTY_OF_ANOTHER_BROKER,
    REAL_TOPIC: Rule.PROPERTY_OF_THE_BROKER,
    REAL_QID: Rule.PROPERTY_OF_THE_BROKER,
    "INNER_NUM": Rule.PROPERTY_OF_THE_BROKER,
    "INNER_BASE": Rule.PROPERTY_OF_THE_BROKER,
    "INNER_MULTI_DISPATCH": Rule.PROPERTY_OF_THE_BROKER,
    "INNER_MULTI_QUEUE_OFFSET": Rule.PROPERTY_OF_THE_BROKER,
    "TIMER_OUT_MS": Rule.PROPERTY_OF_THE_BROKER,
    "TIMER_ROLL_TIMES": Rule.PROPERTY_OF_THE_BROKER,
    POP_CHECK_POINT: Rule.PROPERTY_NEVER_STORED,
    MIN_OFFSET: Rule.PROPERTY_NEVER_STORED,
    MAX_OFFSET: Rule.PROPERTY_NEVER_STORED,
    DELAY: Rule.DELAY_MISPLACED,
    "TIMER_DELAY_SEC": Rule.TIMER_MISPLACED,
    "TIMER_DELAY_MS": Rule.TIMER_MISPLACED,
    "TIMER_DELIVER_MS": Rule.TIMER_MISPLACED,
    "TIMER_DEL_UNIQKEY": Rule.TIMER_MISPLACED,
    TRANSACTION_PREPARED: Rule.TRANSACTION_MISPLACED,
    SEQUENCE: Rule.SEQUENCE_MISPLACED,
}
OF_THE_STORE: Final = (CRC32, SEQUENCE)  # what a record is kept by: no reader of the message sees it
# What a client library leaves out of a message: it says where another message stood.
NEVER_STORED: Final = frozenset(
    name for name, rule in RESERVED.items() if rule in (Rule.PROPERTY_NEVER_STORED, Rule.SEQUENCE_MISPLACED)
)


def encode(pairs: Iterable[tuple[str, str | None]]) -> bytes:
    """The bytes of the pairs, in their order. Pairs without a value (None) and transient names are left out.

    Raises IllegalProperty for a name or value that a reader would not give back: empty, or with 0x00, 0x01 or 0x02.
    """
    kept = [pair for pair in pairs if pair[1] is not None]
    text = "".join([f"{name}\x01{value}\x02" for name, value in kept])
    if TRANSIENT_PREFIX in text:
        kept = [pair for pair in kept if not pair[0].startswith(TRANSIENT_PREFIX)]
        text = "".join([f"{name}\x01{value}\x02" for name, value in kept])
    # The text is checked once for all pairs; only when it is not sound is the guilty pair searched for.
    sound = text.count(NAME_END) == len(kept) == text.count(PAIR_END) and "\x00" not in text
    if not sound or "\x01\x02" in text or "\x02\x01" in text or text.startswith(NAME_END):
        raise _illegal(kept)
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _illegal(kept) from None


def decode(encoded: bytes) -> dict[str, str]:
    """Name to value; the last of equal names wins. Items without a name, a value or a separator are ignored.

    Never fails: bytes that are not UTF-8 become U+FFFD, as in Java.
    """
    found: dict[str, str] = {}
    for item in encoded.decode("utf-8", "replace").split(PAIR_END):
        name, _, value = item.partition(NAME_END)
        if name and value:
            found[name] = value
    return found


def _illegal(pairs: list[tuple[str, str | None]]) -> IllegalProperty:
    for name, value in pairs:
        for part, text in (("name", name), ("value", value or "")):
            problem = _problem(text)
            if problem:
                return IllegalProperty(name, f"its {part} {problem}")
    raise AssertionError("every pair is legal, yet together they are not")


def _problem(text: str) -> str:
    if not text:
        return "is empty"
    for mark in "\x00\x01\x02":
        if mark in text:
            return f"holds the byte 0x{ord(mark):02x}"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "is not valid Unicode"
    return ""
