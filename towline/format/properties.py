"""Properties of a message: name 0x01 value 0x02 for each pair, in UTF-8 (spec 2.3).

Towline writes the last 0x02, as RocketMQ does since 5.2; it reads both forms.
"""

from collections.abc import Iterable
from typing import Final

from towline.errors import IllegalProperty

from .java_hash import unsigned_hash

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
TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."  # names that are never stored

_LOAD_FACTOR: Final = 0.75  # a Java HashMap doubles when it holds more than this share of its buckets


def encode(pairs: Iterable[tuple[str, str | None]]) -> bytes:
    """The bytes of the pairs, in their order. Pairs without a value (None) and transient names are left out.

    Raises IllegalProperty for a name or value that a reader would not give back: empty, or with 0x00, 0x01 or 0x02.
    """
    kept = [pair for pair in pairs if pair[1] is not None]
    text = "".join([f"{name}\x01{value}\x02" for name, value in kept])
    if TRANSIENT_PREFIX in text:
        kept = [pair for pair in kept if not pair[0].startswith(TRANSIENT_PREFIX)]
        text = "".join([f"{name}\x01{value}\x02" for name, value in kept])
    # The text is checked once for all pairs; only when it is not sound is the guilty pair looked for.
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


def java_hash_map_order(pairs: Iterable[tuple[str, str]], capacity: int) -> list[tuple[str, str]]:
    """The pairs as a Java HashMap created with `capacity` (a power of two) iterates over them.

    RocketMQ 5 writes properties in this order with 128, RocketMQ 4 with 16. Buckets so full that Java turns them into
    trees (8 names in one of at least 64 buckets) are not modelled.
    """
    latest = dict(pairs)
    while len(latest) > _LOAD_FACTOR * capacity:
        capacity *= 2
    return sorted(latest.items(), key=lambda pair: _bucket(pair[0], capacity))


def _bucket(name: str, capacity: int) -> int:
    hashed = unsigned_hash(name)
    return (hashed ^ (hashed >> 16)) & (capacity - 1)


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
