"""One record of the CommitLog, with IPv4 hosts (spec 2.1).

    at  len  field
     0  4  total_size                   the whole record, itself included
     4  4  magic                        DAA320A7 (V1) or DAA320AB (V2)
     8  4  body_crc                     CRC-32 of the stored body, without its top bit
    12  4  queue_id                     queue of the topic
    16  4  flag                         the application's own, opaque here
    20  8  queue_offset                 number of the message in its queue; stamped by put
    28  8  physical_offset              where the record stands in the log; stamped by put
    36  4  sys_flag                     compression, transaction, address families
    40  8  born_timestamp               the client's clock in ms
    48  4  born_address                 the client's address
    52  4  born_port                    the client's port
    56  8  store_timestamp              the broker's clock in ms; stamped by put
    64  4  store_address                the broker's address; stamped by put
    68  4  store_port                   the broker's port; stamped by put
    72  4  reconsume_times              how often the message was consumed again
    76  8  prepared_transaction_offset  where the half message stands
    84  4  body_size                    bytes of body that follow

Then the body, the topic behind its length (one byte in V1, two in V2), the properties behind their length (two bytes).
An IPv6 address takes 16 bytes in place of 4: SYSFLAG bit 0x10 says so of the born host, 0x20 of the store host.
Records stand back to back without alignment; TOTALSIZE is the sum of the parts.
"""

import ipaddress
import struct
import zlib
from dataclasses import dataclass
from typing import Final

from towline.errors import MalformedRecord
from towline.format.layout import Field, Layout
from towline.limits import PROPERTIES_SIZE_MAX, RETRY_TOPIC_SIZE_MAX, TOPIC_SIZE_MAX

from . import property_crc, sequence
from .rules import Rule

MAGIC_V1: Final = 0xDAA3_20A7
MAGIC_V2: Final = 0xDAA3_20AB

# --- SYSFLAG (spec 2.4)
COMPRESSED: Final = 0x001
MULTI_TAGS: Final = 0x002
TRANSACTION_MASK: Final = 0x00C
TRANSACTION_NONE: Final = 0x000
TRANSACTION_PREPARED: Final = 0x004
TRANSACTION_COMMIT: Final = 0x008
TRANSACTION_ROLLBACK: Final = 0x00C
BORN_HOST_IPV6: Final = 0x010
STORE_HOST_IPV6: Final = 0x020
NEED_UNWRAP: Final = 0x040
INNER_BATCH: Final = 0x080
COMPRESSION_MASK: Final = 0x700
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300  # 0 means ZLIB too


def _layout(born_size: int, store_size: int) -> Layout:
    return Layout(
        Field("total_size", "i", "the whole record, itself included"),
        Field("magic", "I", "DAA320A7 (V1) or DAA320AB (V2)"),
        Field("body_crc", "I", "CRC-32 of the stored body, without its top bit"),
        Field("queue_id", "i", "queue of the topic"),
        Field("flag", "i", "the application's own, opaque here"),
        Field("queue_offset", "q", "number of the message in its queue; stamped by put"),
        Field("physical_offset", "q", "where the record stands in the log; stamped by put"),
        Field("sys_flag", "i", "compression, transaction, address families"),
        Field("born_timestamp", "q", "the client's clock in ms"),
        Field("born_address", f"{born_size}s", "the client's address"),
        Field("born_port", "i", "the client's port"),
        Field("store_timestamp", "q", "the broker's clock in ms; stamped by put"),
        Field("store_address", f"{store_size}s", "the broker's address; stamped by put"),
        Field("store_port", "i", "the broker's port; stamped by put"),
        Field("reconsume_times", "i", "how often the message was consumed again"),
        Field("prepared_transaction_offset", "q", "where the half message stands"),
        Field("body_size", "i", "bytes of body that follow"),
    )


IPV4_SIZE: Final = 4
IPV6_SIZE: Final = 16
LAYOUT: Final = _layout(IPV4_SIZE, IPV4_SIZE)
_LAYOUTS: Final = {
    0: LAYOUT,
    BORN_HOST_IPV6: _layout(IPV6_SIZE, IPV4_SIZE),
    STORE_HOST_IPV6: _layout(IPV4_SIZE, IPV6_SIZE),
    BORN_HOST_IPV6 | STORE_HOST_IPV6: _layout(IPV6_SIZE, IPV6_SIZE),
}
_FAMILY_MASK: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6
_V1_TOPIC_LENGTH: Final = struct.Struct(">B")
_WORD: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">H")  # of a V2 topic, and of the properties

SIZE_MIN: Final = LAYOUT.size + _V1_TOPIC_LENGTH.size + 1 + _LENGTH.size  # an empty body, a topic of one byte
assert LAYOUT.size == 88
assert SIZE_MIN == 92


@dataclass(frozen=True, slots=True)
class Host:
    """An address in network byte order (4 or 16 bytes) and a port."""

    address: bytes
    port: int

    def __post_init__(self) -> None:
        assert len(self.address) in (IPV4_SIZE, IPV6_SIZE), f"an address has 4 or 16 bytes, not {len(self.address)}"

    @property
    def is_ipv6(self) -> bool:
        return len(self.address) == IPV6_SIZE

    @property
    def packed(self) -> bytes:
        """8 or 20 bytes: address, then the port in four bytes."""
        return self.address + struct.pack(">i", self.port)

    def __str__(self) -> str:
        shown = str(ipaddress.ip_address(self.address))
        return f"[{shown}]:{self.port}" if self.is_ipv6 else f"{shown}:{self.port}"


NO_HOST: Final = Host(bytes(IPV4_SIZE), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The content of a record. Times are epoch ms, offsets bytes (`queue_offset`: messages), `body` as stored."""

    topic: bytes
    body: bytes = b""
    properties: bytes = b""
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: Host = NO_HOST
    store_timestamp: int = 0
    store_host: Host = NO_HOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


def layout_of(sys_flag: int) -> Layout:
    """The layout of a head whose SYSFLAG is this one: 88, 100 or 112 bytes."""
    return _LAYOUTS[sys_flag & _FAMILY_MASK]


def body_crc(body: bytes | memoryview) -> int:
    """CRC-32 of the stored body without its top bit (spec 2.6)."""
    return zlib.crc32(body) & property_crc.CRC_MASK


def record_size(body_size: int, topic_size: int, properties_size: int, sys_flag: int = 0) -> int:
    """Bytes of the whole record. A topic above 127 bytes makes it a V2 record."""
    topic_length_size = _LENGTH.size if topic_size > TOPIC_SIZE_MAX else _V1_TOPIC_LENGTH.size
    return layout_of(sys_flag).size + body_size + topic_length_size + topic_size + _LENGTH.size + properties_size


def encode(record: Record) -> bytes:
    """The record's bytes. The address family bits of SYSFLAG are set from the hosts.

    RocketMQ chooses V2 by the topic's count of UTF-16 units, which writes an unreadable V1 record when a topic has up
    to 127 units but more bytes. Towline counts bytes; for topics of legal characters both are the same.
    Raises MalformedRecord for a topic or properties outside the limits, struct.error for a number too large.
    """
    sys_flag = record.sys_flag & ~_FAMILY_MASK
    sys_flag |= BORN_HOST_IPV6 if record.born_host.is_ipv6 else 0
    sys_flag |= STORE_HOST_IPV6 if record.store_host.is_ipv6 else 0
    topic, magic = _topic_part(record.topic)
    if len(record.properties) > PROPERTIES_SIZE_MAX:
        raise _malformed(Rule.PROPERTIES_TOO_LARGE, 0)
    head = layout_of(sys_flag).pack(
        record_size(len(record.body), len(record.topic), len(record.properties), sys_flag),
        magic,
        body_crc(record.body),
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        sys_flag,
        record.born_timestamp,
        record.born_host.address,
        record.born_host.port,
        record.store_timestamp,
        record.store_host.address,
        record.store_host.port,
        record.reconsume_times,
        record.prepared_transaction_offset,
        len(record.body),
    )
    return b"".join((head, record.body, topic, _LENGTH.pack(len(record.properties)), record.properties))


def decode(
    buffer: bytes | bytearray | memoryview, at: int = 0, *, check_crc: bool = True, force_property_crc: bool = False
) -> Record:
    """The record at byte `at` of `buffer`, which may go on behind it. Body, topic and properties are copies.

    Raises MalformedRecord with the first broken rule: sizes, magic, topic length, body CRC; for who insists on it the
    property CRC. What else the topic and the properties hold is not checked.
    """
    room = len(buffer) - at
    if room < SIZE_MIN:
        raise _malformed(Rule.ENDS_INSIDE, at)
    (magic,) = _WORD.unpack_from(buffer, at + LAYOUT.offset["magic"])
    (sys_flag,) = _WORD.unpack_from(buffer, at + LAYOUT.offset["sys_flag"])
    layout = layout_of(sys_flag)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise _malformed(Rule.MAGIC, at)
    if room < layout.size:
        raise _malformed(Rule.ENDS_INSIDE, at)
    head = layout.unpack_from(buffer, at)
    total_size, body_size = head[0], head[-1]
    if total_size < SIZE_MIN - LAYOUT.size + layout.size:
        raise _malformed(Rule.SIZE_TOO_SMALL, at)
    if total_size > room:
        raise _malformed(Rule.SIZE_PAST_END, at)
    body_at = at + layout.size
    topic_at, topic_size, properties_at = _parts(buffer, at, at + total_size, magic, body_at, body_size)
    body = bytes(buffer[body_at : body_at + body_size])
    if check_crc and body_crc(body) != head[2]:
        raise _malformed(Rule.BODY_CRC, at)
    properties = bytes(buffer[properties_at : at + total_size])
    if force_property_crc:
        rule = property_crc.broken(bytes(buffer[at : at + total_size]), properties)
        if rule is not Rule.OK:
            raise _malformed(rule, at)
    return Record(
        topic=bytes(buffer[topic_at : topic_at + topic_size]),
        body=body,
        properties=properties,
        queue_id=head[3],
        flag=head[4],
        queue_offset=head[5],
        physical_offset=head[6],
        sys_flag=head[7],
        born_timestamp=head[8],
        born_host=Host(head[9], head[10]),
        store_timestamp=head[11],
        store_host=Host(head[12], head[13]),
        reconsume_times=head[14],
        prepared_transaction_offset=head[15],
    )


class MessageEncoder:
    """Encodes messages of one producer for one topic: offsets, store time and store host stay zero until put stamps
    them.

    Calling it once per message is the producer's hot path, so everything constant is prepared here.
    Raises MalformedRecord for a topic outside the limits.
    """

    __slots__ = ("_born", "_fixed_size", "_magic", "_pack_head", "_room", "_sys_flag", "_topic")

    def __init__(
        self,
        topic: bytes,
        born_host: Host = NO_HOST,
        *,
        store_host_ipv6: bool = False,
        append_property_crc: bool = False,
        sequenced: bool = False,
    ) -> None:
        """`store_host_ipv6` is the broker's address family: the head leaves room for its address.

        `append_property_crc`: the broker writes a property CRC, for which the properties leave room. `sequenced`: an
        idempotent producer writes a place (`sequence`), likewise.
        """
        self._room = (sequence.ROOM if sequenced else b"") + (property_crc.PLACEHOLDER if append_property_crc else b"")
        self._topic, self._magic = _topic_part(topic)
        self._born = born_host.packed
        self._sys_flag = (BORN_HOST_IPV6 if born_host.is_ipv6 else 0) | (STORE_HOST_IPV6 if store_host_ipv6 else 0)
        self._fixed_size = record_size(0, len(topic), 0, self._sys_flag)
        layout = layout_of(self._sys_flag)
        offset = layout.offset
        stamped_first = offset["sys_flag"] - offset["queue_offset"]
        stamped_last = offset["body_size"] - offset["store_timestamp"]  # with reconsume times and prepared offset
        head = struct.Struct(f">iIIii{stamped_first}xiq{len(self._born)}s{stamped_last}xi")
        assert head.size == layout.size
        self._pack_head = head.pack

    def born_from(self, host: Host) -> None:
        """From now on; of the same address family."""
        assert len(host.packed) == len(self._born)
        self._born = host.packed

    def encode(
        self,
        queue_id: int,
        body: bytes,
        properties: bytes = b"",
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int = 0,
    ) -> bytes:
        """The bytes of one record. `sys_flag` comes without address family bits; `born_timestamp` is epoch ms.

        Raises MalformedRecord for properties above 32,767 bytes, a property CRC counted. The size of the body is the
        caller's to check.
        """
        if self._room:
            properties = property_crc.separated(properties) + self._room
        body_size = len(body)
        properties_size = len(properties)
        if properties_size > PROPERTIES_SIZE_MAX:
            raise _malformed(Rule.PROPERTIES_TOO_LARGE, 0)
        head = self._pack_head(
            self._fixed_size + body_size + properties_size,
            self._magic,
            zlib.crc32(body) & 0x7FFF_FFFF,
            queue_id,
            flag,
            sys_flag | self._sys_flag,
            born_timestamp,
            self._born,
            body_size,
        )
        return b"".join((head, body, self._topic, _LENGTH.pack(properties_size), properties))


def _topic_part(topic: bytes) -> tuple[bytes, int]:
    """The topic behind its length, and the magic of the version that holds it."""
    if not 0 < len(topic) <= RETRY_TOPIC_SIZE_MAX:
        raise _malformed(Rule.TOPIC_LENGTH, 0)
    if len(topic) > TOPIC_SIZE_MAX:
        return _LENGTH.pack(len(topic)) + topic, MAGIC_V2
    return _V1_TOPIC_LENGTH.pack(len(topic)) + topic, MAGIC_V1


def _parts(
    buffer: bytes | bytearray | memoryview, at: int, end: int, magic: int, body_at: int, body_size: int
) -> tuple[int, int, int]:
    """Where topic and properties begin, and the topic's size, in a record that spans [at, end)."""
    length = _LENGTH if magic == MAGIC_V2 else _V1_TOPIC_LENGTH
    topic_at = body_at + body_size + length.size
    if body_size < 0 or topic_at > end:
        raise _malformed(Rule.PARTS_DO_NOT_ADD_UP, at)
    (topic_size,) = length.unpack_from(buffer, topic_at - length.size)
    if not 0 < topic_size <= (RETRY_TOPIC_SIZE_MAX if magic == MAGIC_V2 else TOPIC_SIZE_MAX):
        raise _malformed(Rule.TOPIC_LENGTH, at)
    properties_at = topic_at + topic_size + _LENGTH.size
    if properties_at > end:
        raise _malformed(Rule.PARTS_DO_NOT_ADD_UP, at)
    (properties_size,) = _LENGTH.unpack_from(buffer, properties_at - _LENGTH.size)
    if properties_at + properties_size != end:
        raise _malformed(Rule.PARTS_DO_NOT_ADD_UP, at)
    if properties_size > PROPERTIES_SIZE_MAX:
        raise _malformed(Rule.PROPERTIES_TOO_LARGE, at)
    return topic_at, topic_size, properties_at


def _malformed(rule: Rule, at: int) -> MalformedRecord:
    return MalformedRecord(rule.name, rule.sentence, at)
