"""Encodes messages into records as they will stand in the CommitLog.

The node stamps offsets, store time and store host into the same bytes and changes nothing else.
"""

import zlib
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from time import time_ns
from typing import Any, Final

import numpy as np

from towline.client.body_crcs import body_crcs
from towline.client.errors import MessageTooLarge
from towline.client.link.keys import COUNTER_RANGE, NS_PER_MS, KeySource
from towline.client.message import Message
from towline.errors import IllegalProperty, MalformedRecord
from towline.format.record import property_crc
from towline.format.record.columns import Bytes, Integers
from towline.format.record.compression import Compressor
from towline.format.record.crcs import Crcs
from towline.format.record.forms import TIMER_DELIVER_MS
from towline.format.record.properties import (
    DELAY,
    KEY_SEPARATOR,
    KEYS,
    NAME_END,
    NEVER_STORED,
    PAIR_END,
    RESERVED,
    SHARDING_KEY,
    TAGS,
    UNIQ_KEY,
)
from towline.format.record.properties import encode as encode_properties
from towline.format.record.record import STORE_HOST_IPV6, Host, MessageEncoder, layout_of
from towline.format.record.rules import Rule
from towline.limits import PROPERTIES_SIZE_MAX

from .bodies import Bodies

BODIES_MAX: Final = COUNTER_RANGE  # of one call of `encode_bodies`
_KEY_SIZE: Final = 32
_LENGTH: Final = np.dtype(">u2")  # of the properties
_NO_KEY: Final = "0" * _KEY_SIZE
_NUL: Final = "\x00"
_CRC_MASK: Final = 0x7FFF_FFFF
_OWN_NAMES: Final = {
    TAGS: "tags",
    KEYS: "keys",
    SHARDING_KEY: "sharding_key",
    DELAY: "delay_level",
    TIMER_DELIVER_MS: "deliver_at",
}
# What names another broker depends on the value, which the node judges.
_REFUSED: Final = (name for name, rule in RESERVED.items() if rule is not Rule.PROPERTY_OF_ANOTHER_BROKER)
_NOT_TO_BE_SET: Final = frozenset([*_OWN_NAMES, *_REFUSED])


class TopicEncoder:
    """Encodes messages of one topic. Any thread may use it.

    `store_host_ipv6` says which address family the node stamps, `append_property_crc` that it ends each record with a
    CRC, for which room is left; `body_size_max` counts bytes after compression. `sequenced`: records have room for the
    place of an idempotent producer's (`towline.format.record.sequence`).
    Raises MalformedRecord for a topic outside the limits.
    """

    def __init__(
        self,
        topic: str,
        born_host: Host,
        keys: KeySource,
        compressor: Compressor,
        *,
        store_host_ipv6: bool,
        body_size_max: int,
        append_property_crc: bool = False,
        sequenced: bool = False,
    ) -> None:
        self._encoder = MessageEncoder(
            topic.encode(),
            born_host,
            store_host_ipv6=store_host_ipv6,
            append_property_crc=append_property_crc,
            sequenced=sequenced,
        )
        self._encode = self._encoder.encode
        self._property_crc = append_property_crc
        self._keys = keys
        self._compressor = compressor
        self._compress_above = compressor.above
        self._body_size_max = body_size_max
        layout = layout_of(STORE_HOST_IPV6 if store_host_ipv6 else 0)
        self._head_size = layout.size
        varying = ("total_size", "body_crc", "queue_id", "flag", "sys_flag", "body_size")
        self._head = np.dtype(
            {
                "names": list(varying),
                "formats": [">u4"] * len(varying),
                "offsets": [layout.offset[name] for name in varying],
                "itemsize": layout.size,
            }
        )

    def born_from(self, host: Host) -> None:
        """Sets the born host of later records: the same address with another port."""
        self._encoder.born_from(host)

    def encode(self, message: Message, queue_id: int, pairs: Iterable[tuple[str, str]] = ()) -> tuple[bytes, str]:
        """The record and its unique key. Raises MessageTooLarge, IllegalProperty, MalformedRecord.

        `pairs` are a form's properties (`towline.client.send.forms`), which the message itself may not have.
        """
        body = message.body
        sys_flag = 0
        if len(body) > self._compress_above:
            body, sys_flag = self._compressor.compress(body)
        if len(body) > self._body_size_max:
            raise MessageTooLarge(len(body), self._body_size_max)
        now = time_ns() // NS_PER_MS
        properties, key = _properties(message, self._keys, now)
        if pairs:
            properties += encode_properties(pairs)
        return self._encode(queue_id, body, properties, message.flag, sys_flag, now), key

    def overhead(self, tags: str | None) -> int:
        """Bytes of a record of `encode_bodies` beside its body."""
        message = Message("", b"", tags=tags, properties={UNIQ_KEY: _NO_KEY})
        return len(self._encode(0, b"", _properties(message, self._keys, 0)[0], 0, 0, 0))

    def encode_bodies(
        self, bodies: Bodies, queue_id: int, *, tags: str | None = None, flag: int = 0
    ) -> tuple[memoryview, str]:
        """The records of at most BODIES_MAX bodies back to back, and the first one's unique key. Raises the same."""
        count = len(bodies)
        bodies, flags = self._compress_bodies(bodies)
        sizes = bodies.sizes
        size_max = int(sizes.max())
        if size_max > self._body_size_max:
            raise MessageTooLarge(size_max, self._body_size_max)
        now = time_ns() // NS_PER_MS
        properties, _ = _properties(Message("", b"", tags=tags, properties={UNIQ_KEY: _NO_KEY}), self._keys, now)
        pattern = np.frombuffer(self._encode(queue_id, b"", properties, flag, 0, now), dtype=np.uint8)
        head_size = self._head_size
        keys = self._keys.next_many(count)
        key_at = pattern.tobytes().rindex(_NO_KEY.encode())
        data = bodies.data
        crcs = body_crcs(data, np.cumsum(sizes) - sizes, sizes, bodies.given)
        even = size_max == int(sizes.min())
        body_size = size_max if even else 0
        # Bodies of one size stand in their records already; others are put between heads and tails.
        rows = np.empty((count, len(pattern) + body_size), dtype=np.uint8)
        rows[:, :head_size] = pattern[:head_size]
        rows[:, head_size + body_size :] = pattern[head_size:]
        key_at += body_size
        rows[:, key_at : key_at + _KEY_SIZE] = np.frombuffer(keys, dtype=np.uint8).reshape(count, _KEY_SIZE)
        heads = rows[:, :head_size].view(self._head)[:, 0]
        _set_heads(heads, sizes, sizes, crcs, flags)
        first_key = keys[:_KEY_SIZE].decode()
        if even:
            rows[:, head_size : head_size + body_size] = data.reshape(count, body_size)
            return rows.reshape(-1).data, first_key
        parts = zip(_split(rows[:, :head_size]), bodies.items, _split(rows[:, head_size:]), strict=True)
        return memoryview(b"".join(chain.from_iterable(parts))), first_key

    def encode_rows(
        self,
        bodies: Sequence[bytes],
        properties: Sequence[bytes],
        queue_ids: Integers,
        flags: Integers,
    ) -> list[bytes]:
        """A record for each row; the caller vouches for the properties, which are encoded, a unique key among them.

        Raises MessageTooLarge, MalformedRecord for properties that are too large.
        """
        if not len(bodies):
            return []
        bodies, sys_flags = self._compress_all(bodies)
        sizes = np.fromiter(map(len, bodies), dtype=np.int64, count=len(bodies))
        if int(sizes.max()) > self._body_size_max:
            raise MessageTooLarge(int(sizes.max()), self._body_size_max)
        if self._property_crc:
            properties = [property_crc.appended(one) for one in properties]
        lengths = np.fromiter(map(len, properties), dtype=np.int64, count=len(bodies))
        if int(lengths.max()) > PROPERTIES_SIZE_MAX:
            rule = Rule.PROPERTIES_TOO_LARGE
            raise MalformedRecord(rule.name, rule.sentence, 0)
        pattern = self._encode(0, b"", b"", 0, 0, time_ns() // NS_PER_MS)
        own = property_crc.SIZE if self._property_crc else 0  # what stands in the pattern in their place
        # Repeated as bytes: copying structured rows would leave out the fields that are not named.
        rows = np.tile(np.frombuffer(pattern, dtype=np.uint8, count=self._head_size), (len(bodies), 1))
        heads = rows.view(self._head)[:, 0]
        crcs = np.fromiter(map(zlib.crc32, bodies), dtype=np.uint32, count=len(bodies))
        _set_heads(heads, sizes + lengths - own, sizes, crcs, sys_flags)
        heads["queue_id"], heads["flag"] = queue_ids, flags
        topic = pattern[self._head_size : len(pattern) - own - _LENGTH.itemsize]
        ends = _split(lengths.astype(_LENGTH).view(np.uint8).reshape(-1, _LENGTH.itemsize))
        parts = zip(_split(rows), bodies, repeat(topic), ends, properties, strict=False)
        return list(map(b"".join, parts))

    def _compress_all(self, bodies: Sequence[bytes]) -> tuple[Sequence[bytes], Sequence[int] | int]:
        if max(map(len, bodies)) <= self._compress_above:
            return bodies, 0
        pairs = [self._compressor.compress(body) for body in bodies]
        return [body for body, _ in pairs], [flag for _, flag in pairs]

    def _compress_bodies(self, bodies: Bodies) -> tuple[Bodies, Sequence[int] | int]:
        if int(bodies.sizes.max()) <= self._compress_above:
            return bodies, 0
        items, flags = self._compress_all(bodies.items)
        return Bodies.of_items(items), flags


def _set_heads(
    heads: "np.ndarray[Any, Any]",
    more: Integers,
    sizes: Integers,
    crcs: Crcs,
    flags: Sequence[int] | int,
) -> None:
    """Sets each head's own fields. `more` are the bytes that each record has beyond the pattern, `sizes` its body's."""
    heads["total_size"] += more.astype(np.uint32)
    heads["body_crc"] = crcs & _CRC_MASK
    heads["sys_flag"] |= np.asarray(flags, dtype=np.uint32)
    heads["body_size"] = sizes


def _split(rows: Bytes) -> list[bytes]:
    """Each row as bytes."""
    return list(np.ascontiguousarray(rows).view(f"V{rows.shape[1]}")[:, 0].tolist())


def _properties(message: Message, keys: KeySource, now: int) -> tuple[bytes, str]:
    """The encoded properties of a message made at `now` (epoch ms), and its unique key."""
    if message.properties is not None or message.sharding_key is not None:
        return _all_properties(message, keys.next(now))
    key = keys.next(now)
    text = f"{UNIQ_KEY}{NAME_END}{key}{PAIR_END}"
    if message.tags is None and not message.keys:
        return text.encode(), key
    count = 1
    if message.tags:
        text = f"{TAGS}{NAME_END}{message.tags}{PAIR_END}{text}"
        count += 1
    if message.keys:
        text = f"{KEYS}{NAME_END}{_joined(message.keys)}{PAIR_END}{text}"
        count += 1
    # The separators add up unless a value holds one; then the slow way finds and names it.
    if text.count(NAME_END) != count or text.count(PAIR_END) != count or _NUL in text or message.tags == "":
        return _all_properties(message, key)
    try:
        return text.encode(), key
    except UnicodeEncodeError:
        return _all_properties(message, key)


def _all_properties(message: Message, key: str) -> tuple[bytes, str]:
    own = dict(message.properties or {})
    if not _NOT_TO_BE_SET.isdisjoint(own):
        _drop_or_refuse(own)
    key = own.setdefault(UNIQ_KEY, key)
    pairs = [
        (KEYS, _joined(message.keys) if message.keys else None),
        (TAGS, message.tags),
        (SHARDING_KEY, message.sharding_key),
        *own.items(),
    ]
    return encode_properties(pairs), key


def check_properties(message: Message) -> None:
    """Raises IllegalProperty for what could not be stored."""
    _all_properties(message, _NO_KEY)


def _drop_or_refuse(own: dict[str, str]) -> None:
    """Takes out what is never stored. Raises IllegalProperty for what is set otherwise, or not by a client."""
    for name in _NOT_TO_BE_SET.intersection(own):
        if name in _OWN_NAMES:
            raise IllegalProperty(name, f"it is set by the message's {_OWN_NAMES[name]}, not among its properties")
        if name not in NEVER_STORED:
            raise IllegalProperty(name, RESERVED[name].sentence)
        del own[name]


def _joined(keys: Sequence[str]) -> str:
    if isinstance(keys, str):
        return keys
    joined = KEY_SEPARATOR.join(keys)
    if joined.count(KEY_SEPARATOR) != len(keys) - 1 or "" in keys:
        raise IllegalProperty(KEYS, "one of the keys is empty or holds a space, which separates keys")
    return joined
