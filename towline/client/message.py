"""`Message`, which a producer sends, and `ReceivedMessage`, which a reader gets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from towline.format.record.compression import decompress
from towline.format.record.message_id import encode_offset_id
from towline.format.record.properties import KEYS, OF_THE_STORE, SHARDING_KEY, TAGS, UNIQ_KEY
from towline.format.record.properties import decode as decode_properties
from towline.format.record.record import COMPRESSED, LAYOUT, Record, decode
from towline.format.wire.frames import Buffer
from towline.limits import DECOMPRESSED_SIZE_MAX

from .errors import UnreadableValue

ANY_TAG: Final = "*"
_NUMBER_TYPES: Final = {"queue_id": 4, "queue_offset": 8, "physical_offset": 8, "born_timestamp": 8}
_NUMBERS: Final = {
    name: slice(LAYOUT.offset[name], LAYOUT.offset[name] + size) for name, size in _NUMBER_TYPES.items()
}  # before any address, whose length varies


@dataclass(slots=True)
class Message:
    """A message to send.

    `body` is bytes, or what the producer's `value_serializer` makes bytes of.
    `key` (str, int, or bytes of UTF-8) is what other systems call so: messages of equal key go to the same queue, in
    their order. It is stored as RocketMQ's `sharding_key`, which may be given in its place. `keys` are others, by which
    the message can be looked up, none of them with a space; `tags` is one tag, by which consumers filter. `queue_id`
    chooses the queue itself. `flag` is the application's own number.
    A UNIQ_KEY among the `properties` is kept, which distinguishes a message sent again from a new one.
    `delay_level` has it delivered after that level's delay (1 is the shortest of the node's `message_delay_level`, more
    than the highest is the highest, 0 is none); `deliver_at` at that time by the node's clock: a datetime (without a
    zone it is local time), or ms since 1970.
    `broker_name` chooses the group of nodes, where there are several; a `queue_id` without it is of the group whose
    turn it is.
    """

    topic: str
    body: bytes | Any
    tags: str | None = field(default=None, kw_only=True)
    keys: Sequence[str] = field(default=(), kw_only=True)
    key: str | int | bytes | None = field(default=None, kw_only=True)
    sharding_key: str | None = field(default=None, kw_only=True)
    queue_id: int | None = field(default=None, kw_only=True)
    properties: Mapping[str, str] | None = field(default=None, kw_only=True)
    flag: int = field(default=0, kw_only=True)
    delay_level: int | None = field(default=None, kw_only=True)
    deliver_at: datetime | int | None = field(default=None, kw_only=True)
    broker_name: str | None = field(default=None, kw_only=True)

    @property
    def deliver_at_ms(self) -> int | None:
        """`deliver_at` in ms since 1970."""
        at = self.deliver_at
        return round(at.timestamp() * 1000) if isinstance(at, datetime) else at

    @property
    def unique_key(self) -> str | None:
        """The UNIQ_KEY among its properties, which a message has in the `execute` of its transaction."""
        return None if self.properties is None else self.properties.get(UNIQ_KEY)


@dataclass(frozen=True, slots=True)
class Rows:
    """Records back to back whose lengths were checked: where each and its parts stand in `data`, and its SYSFLAG.

    `deserialize` makes a value of a body.
    """

    data: bytes
    starts: list[int]
    ends: list[int]
    body_starts: list[int]
    body_ends: list[int]
    properties_starts: list[int]
    sys_flags: list[int]
    broker_name: str = ""
    deserialize: Callable[[bytes], Any] | None = None


class ReceivedMessage:
    """A record as a message. Each part is decoded when it is first read.

    Reading any of it raises MalformedRecord when the record's parts do not fit together.
    """

    __slots__ = ("_body", "_body_size_max", "_properties", "_record", "_row", "_rows", "_single", "_value")
    _value: Any  # not there before it is made

    def __init__(
        self,
        record: Buffer,
        *,
        body_size_max: int = DECOMPRESSED_SIZE_MAX,
        rows: "Rows | None" = None,
        row: int = 0,
    ) -> None:
        """`record` holds one record from its first byte on; `body_size_max` caps the decompressed body, in bytes.

        Or it is number `row` of `rows`, whose lengths were checked: then neither body nor properties need the rest of
        the record decoded, which is most of what a message costs.
        """
        self._single = record
        self._body_size_max = body_size_max
        self._rows = rows
        self._row = row
        self._record: Record | None = None
        self._body: bytes | None = None
        self._properties: dict[str, str] | None = None

    @property
    def _buffer(self) -> Buffer:
        rows, row = self._rows, self._row
        return self._single if rows is None else rows.data[rows.starts[row] : rows.ends[row]]

    @property
    def record(self) -> Record:
        """Every field as it is stored; the body is still compressed."""
        if self._record is None:
            self._record = decode(self._buffer, check_crc=False)
        return self._record

    @property
    def body(self) -> bytes:
        """The decompressed body. Raises DecompressedTooLarge, UnreadableBody."""
        if self._body is None:
            rows, row = self._rows, self._row
            if rows is None:
                self._body = decompress(self.record.body, self.record.sys_flag, self._body_size_max)
            else:
                self._body = rows.data[rows.body_starts[row] : rows.body_ends[row]]
                if rows.sys_flags[row] & COMPRESSED:
                    self._body = decompress(self._body, rows.sys_flags[row], self._body_size_max)
        return self._body

    @property
    def value(self) -> Any:
        """What the consumer's `value_deserializer` makes of the body, when it is first read; without one, the body.

        Raises UnreadableValue, which takes nothing away: the message is here, and the next one comes.
        """
        try:
            return self._value
        except AttributeError:
            deserialize = None if self._rows is None else self._rows.deserialize
            if deserialize is None:
                return self.body
        body = self.body
        try:
            self._value = deserialize(body)
        except Exception as error:
            raised = f"value_deserializer raised {type(error).__name__}: {error}"
            raise UnreadableValue(self.topic, self.queue_id, self.queue_offset, raised) from error
        return self._value

    @property
    def properties(self) -> dict[str, str]:
        """The properties, without a property CRC and the place of an idempotent producer's record, which are the
        store's: `record.properties` holds them."""
        if self._properties is None:
            rows, row = self._rows, self._row
            stored = self.record.properties if rows is None else rows.data[rows.properties_starts[row] : rows.ends[row]]
            found = decode_properties(stored)
            for name in OF_THE_STORE:
                found.pop(name, None)
            self._properties = found
        return self._properties

    @property
    def topic(self) -> str:
        return self.record.topic.decode("utf-8", "replace")

    @property
    def queue_id(self) -> int:
        return self._number("queue_id")

    @property
    def queue_offset(self) -> int:
        return self._number("queue_offset")

    @property
    def physical_offset(self) -> int:
        return self._number("physical_offset")

    @property
    def flag(self) -> int:
        return self.record.flag

    @property
    def born_timestamp(self) -> int:
        """The sender's clock when it made the message, in ms since 1970."""
        return self._number("born_timestamp")

    @property
    def store_timestamp(self) -> int:
        """The node's clock when it stored the message, in ms since 1970."""
        return self.record.store_timestamp

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.properties.get(KEYS, "").split())

    @property
    def key(self) -> str | None:
        """What the sender gave as `key`, as text: the sharding key."""
        return self.sharding_key

    @property
    def sharding_key(self) -> str | None:
        return self.properties.get(SHARDING_KEY)

    @property
    def unique_key(self) -> str | None:
        return self.properties.get(UNIQ_KEY)

    @property
    def message_id(self) -> str:
        """The offset id: the store host and where the record stands."""
        return encode_offset_id(self.record.store_host, self.record.physical_offset)

    @property
    def broker_name(self) -> str:
        """The group of nodes it was read from, "" where there is one."""
        return "" if self._rows is None else self._rows.broker_name

    @property
    def raw(self) -> bytes:
        """The record's bytes."""
        return bytes(self._buffer)

    def verify(self, *, property_crc: bool = False) -> None:
        """Raises MalformedRecord when BODYCRC does not fit the stored body.

        `property_crc` is for stores whose records all have one: this one must end with its own then.
        """
        decode(self._buffer, force_property_crc=property_crc)

    def _number(self, name: str) -> int:
        """A field that stands before any address."""
        if self._rows is None:
            return int(getattr(self.record, name))
        return int.from_bytes(self._buffer[_NUMBERS[name]], "big", signed=True)

    def __repr__(self) -> str:
        return f"<message {self.topic}/{self.queue_id}@{self.queue_offset}, {len(self.record.body)} bytes stored>"
