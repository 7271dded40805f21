"""Messages of every kind, and what a reader must see of them, whoever stored them."""

import base64
import ipaddress
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from towline.client.message import ReceivedMessage
from towline.format.record.properties import KEYS, TAGS, UNIQ_KEY
from towline.format.record.record import Host
from towline.limits import KIB

NOON: Final = 1_700_000_000_000  # ms
QUEUES: Final = 4
LONGEST: Final = "T" * 127
TOPICS: Final = ("Plain", "Orders-EU_1", "%RETRY%group", LONGEST)
RETRY_V2: Final = "%RETRY%" + "g" * 130  # its records are of version 2
# Java's hashes of these: positive, negative, from surrogates, the least int.
TAG_CHOICES: Final = (None, "TagA", "order-create", "😀tag", "中文", "polygenelubricants")
HOSTS: Final = ("10.0.0.9", "127.0.0.1", "255.1.2.3", "2001:db8::9", "fe80::1")
KEY_PREFIX: Final = "key-"  # no unique key begins like this
COMPRESSIONS: Final = (None, "zlib", "lz4", "zstd")


@dataclass(frozen=True)
class Sent:
    """A message as an application made it. `key` is its unique key; `compression` is for a large body."""

    topic: str
    queue_id: int
    body: bytes
    key: str
    tags: str | None = None
    keys: tuple[str, ...] = ()
    more: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    born_host: str = HOSTS[0]
    compression: str | None = None

    @property
    def properties(self) -> dict[str, str]:
        pairs = {KEYS: " ".join(self.keys), TAGS: self.tags or "", UNIQ_KEY: self.key, **self.more}
        return {name: value for name, value in pairs.items() if value}

    def check(self, seen: dict[str, Any]) -> None:
        """`seen` is this message and no other."""
        assert (seen["topic"], seen["queue_id"]) == (self.topic, self.queue_id)
        assert seen["body"] == sha256(self.body).hexdigest()
        assert seen["body_size"] == len(self.body)
        assert seen["flag"] == self.flag
        assert self.properties.items() <= seen["properties"].items()

    def spec(self, store_host: str = "10.0.0.1", *, batch: tuple["Sent", ...] = ()) -> dict[str, Any]:
        """The same for the Java programs; with `batch`, these messages as one request."""
        address = {
            "topic": self.topic,
            "queue_id": self.queue_id,
            "born_timestamp": NOON,
            "born_host": self.born_host,
            "born_port": 12345,
            "store_host": store_host,
            "store_port": 10911,
        }
        if batch:
            return {**address, "batch": [member.content() for member in batch]}
        compression = self.compression.upper() if self.compression else None
        return {**address, **self.content(), "compression": compression}

    def content(self) -> dict[str, Any]:
        return {"body": base64.b64encode(self.body).decode(), "properties": self.properties, "flag": self.flag}


class Mixture:
    """Messages of a seed, without end. No two have the same unique key; a key is shared by less than 64 of them."""

    def __init__(
        self, seed: int, *, topics: tuple[str, ...] = TOPICS, large: int = 48 * KIB, empty: float = 0.05
    ) -> None:
        """`large` bytes bound a body; `empty` is the share of messages without one."""
        self._random = random.Random(seed)
        self._topics = topics
        self._large = large
        self._empty = empty
        self._name = f"{seed:04X}"
        self._number = 0

    def take(self, count: int) -> list[Sent]:
        return [self.one() for _ in range(count)]

    def one(self) -> Sent:
        chosen = self._random
        self._number += 1
        body, compression = self._body()
        return Sent(
            topic=chosen.choice(self._topics),
            queue_id=chosen.randrange(QUEUES),
            body=body,
            key=f"{self._name}{self._number:028X}",
            tags=chosen.choice(TAG_CHOICES),
            keys=tuple(self._keys()),
            more=dict(self._properties()),
            flag=chosen.choice((0, 7, -1, 2**31 - 1, -(2**31))),
            born_host=chosen.choice(HOSTS),
            compression=compression,
        )

    def batch(self, count: int) -> tuple[Sent, ...]:
        """Messages of one topic that may be sent together: the same queue and host, nothing compressed."""
        first = self.one()
        topic = first.topic if not first.topic.startswith("%RETRY%") else "Plain"
        members = [self.one() for _ in range(count)]
        return tuple(
            Sent(
                topic, first.queue_id, member.body[:KIB], member.key, member.tags, member.keys, member.more, member.flag
            )
            for member in members
        )

    def _body(self) -> tuple[bytes, str | None]:
        kind = self._random.random()
        if kind < self._empty:
            return b"", None
        if kind < 0.90:
            return self._random.randbytes(self._random.randrange(1, 600)), None
        compression = self._random.choice(COMPRESSIONS)
        size = self._random.randrange(5 * KIB, self._large)
        return (self._random.randbytes(16) * (size // 16 + 1))[:size], compression

    def _keys(self) -> Iterator[str]:
        for _ in range(self._random.choice((0, 0, 1, 1, 2, 5))):
            yield f"{KEY_PREFIX}{self._name}-{self._number // 3}-{self._random.choice(('a', 'ü', '钥匙', '🔑'))}"

    def _properties(self) -> Iterator[tuple[str, str]]:
        for number in range(self._random.choice((0, 0, 1, 2, 20))):
            yield f"näme{number}", self._random.choice(("x", "wert mit Leerzeichen", "价值 €", "a=b;c", "🎈" * 9))
        if self._random.random() < 0.05:
            yield "large", "v" * self._random.randrange(1, 8000)


def host(text: str, port: int) -> Host:
    return Host(ipaddress.ip_address(text).packed, port)


def seen(message: ReceivedMessage) -> dict[str, Any]:
    """What Towline sees, in the form of the Java programs' `Messages.seen`."""
    record = message.record
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "size": len(message.raw),
        "record": sha256(message.raw).hexdigest(),
        "body": sha256(message.body).hexdigest(),
        "body_size": len(message.body),
        "body_crc": int.from_bytes(message.raw[8:12], "big"),
        "properties": dict(sorted(message.properties.items())),
        "flag": message.flag,
        "sys_flag": record.sys_flag,
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "born_host": f"{record.born_host.address.hex()}:{record.born_host.port}",
        "store_host": f"{record.store_host.address.hex()}:{record.store_host.port}",
        "reconsume_times": record.reconsume_times,
        "message_id": message.message_id,
    }


def check_all(sent: list[Sent], found: list[dict[str, Any]], *, unpromised: list[Sent] | None = None) -> None:
    """Everything that was acknowledged is there once, as it was made; beyond it only what was `unpromised`."""
    wanted = {message.key: message for message in sent}
    allowed = {message.key: message for message in unpromised or []}
    assert len(wanted) == len(sent)
    keys = [each["properties"][UNIQ_KEY] for each in found]
    assert len(set(keys)) == len(keys), "a message is there twice"
    lost = wanted.keys() - set(keys)
    assert not lost, f"{len(lost)} of {len(wanted)} messages are lost"
    for key, each in zip(keys, found, strict=True):
        known = wanted.get(key) or allowed.get(key)
        assert known is not None, f"nobody sent {key}"
        known.check(each)


def index_pairs(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Every topic and key by which one of the messages can be looked up."""
    pairs = {(each["topic"], each["properties"][UNIQ_KEY]) for each in found}
    pairs |= {(each["topic"], key) for each in found for key in each["properties"].get(KEYS, "").split(" ") if key}
    return sorted(pairs)


def check_index(found: list[dict[str, Any]], pairs: list[tuple[str, str]], led_to: list[list[int]]) -> None:
    """Every message is found by its unique key and by each of its keys; hashes may lead to others, too."""
    offsets = dict(zip(pairs, map(set, led_to), strict=True))
    for each in found:
        keys = [key for key in each["properties"].get(KEYS, "").split(" ") if key]
        for key in (each["properties"][UNIQ_KEY], *keys):
            assert each["physical_offset"] in offsets[each["topic"], key], f"{key!r} does not lead to {each}"
