"""Records of a pull as columns: numpy arrays over the bytes, without a loop over records.

Every column has one value per record, in the order of the records. Times are ms since 1970.
"""

import importlib
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from towline.errors import MalformedRecord
from towline.format.record.columns import Integers, Parts, field, heads_at_once, parts_of, wider_by
from towline.format.record.compression import decompress
from towline.format.record.properties import NAME_END, PAIR_END, TAGS, UNIQ_KEY
from towline.format.record.property_crc import CRC_MASK
from towline.format.record.record import BORN_HOST_IPV6, COMPRESSED
from towline.format.record.rules import Rule
from towline.format.wire.frames import Buffer
from towline.limits import DECOMPRESSED_SIZE_MAX

from .body_crcs import body_crcs
from .kernels import loaded
from .message import ReceivedMessage, Rows

SIZES: Final = np.dtype(">u4")  # of the part `sizes` in answers
_CHECKED: Final = {"queue_offset": "i8", "physical_offset": "i8", "body_crc": "i4"}  # cached properties of `Columns`


class Columns:
    """Records of one answer: `sizes` holds their lengths as big-endian u4, `records` the records back to back.

    Raises MalformedRecord when they do not fit together; each record's own lengths are checked, its content is not.
    `queue_id` is that of the pull, or -1 when the records come from several queues; `broker_name` that of the group of
    nodes, where several are read.
    """

    def __init__(self, sizes: Buffer, records: Buffer, *, queue_id: int = -1, broker_name: str = "") -> None:
        self.queue_id = queue_id
        self.broker_name = broker_name
        self.records = memoryview(records)
        self._bytes = np.frombuffer(self.records, dtype=np.uint8)
        if len(sizes) % SIZES.itemsize:
            raise MalformedRecord(Rule.COUNT_MISMATCH.name, Rule.COUNT_MISMATCH.sentence, 0)
        self.size: Integers = np.frombuffer(sizes, dtype=SIZES).astype(np.int64)
        ends = np.cumsum(self.size)
        self.start: Integers = ends - self.size
        if (int(ends[-1]) if len(ends) else 0) != len(self._bytes):
            raise MalformedRecord(Rule.COUNT_MISMATCH.name, Rule.COUNT_MISMATCH.sentence, len(self._bytes))
        parts = self._read_at_once() or parts_of(self._bytes, self.start, self.size)
        self.sys_flag = parts.sys_flag
        self.body_start, self.body_size = parts.body_start, parts.body_size
        self.topic_start, self.topic_size = parts.topic_start, parts.topic_size
        self.properties_start = parts.properties_start

    def _read_at_once(self) -> Parts | None:
        """By the kernel, where it is loaded: then the fields that every reader checks are there too. None where a
        record is not sound."""
        kernels = loaded()
        if kernels is None:
            return None
        found = heads_at_once(kernels.read_heads, self._bytes, 0, self.start, _CHECKED)
        if found is None or not np.array_equal(found[0].size, self.size):
            return None
        self.__dict__ |= {name: values.astype(np.int64, copy=False) for name, values in found[1].items()}
        return found[0]

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def queue_offset(self) -> Integers:
        return self._field("queue_offset")

    @cached_property
    def physical_offset(self) -> Integers:
        return self._field("physical_offset")

    @cached_property
    def flag(self) -> Integers:
        return self._field("flag")

    @cached_property
    def body_crc(self) -> Integers:
        """The stored CRC-32 of each body, without its top bit."""
        return self._field("body_crc")

    @cached_property
    def born_timestamp(self) -> Integers:
        return self._field("born_timestamp")

    @cached_property
    def store_timestamp(self) -> Integers:
        moved = self.start + wider_by(self.sys_flag, BORN_HOST_IPV6)
        return field(self._bytes, moved, "store_timestamp")

    def stored_bodies(self) -> list[bytes]:
        """The bodies as they are stored."""
        return self._slices(self.body_start, self.body_start + self.body_size)

    def bodies(self, body_size_max: int = DECOMPRESSED_SIZE_MAX) -> list[bytes]:
        """The bodies, each decompressed to at most `body_size_max` bytes.

        Raises DecompressedTooLarge, UnreadableBody.
        """
        found = self.stored_bodies()
        for row in np.flatnonzero(self.sys_flag & COMPRESSED).tolist():
            found[row] = decompress(found[row], int(self.sys_flag[row]), body_size_max)
        return found

    def topics(self) -> list[bytes]:
        return self._slices(self.topic_start, self.topic_start + self.topic_size)

    def properties(self) -> list[bytes]:
        """The stored properties: name 0x01 value 0x02 for each pair."""
        return self._slices(self.properties_start, self.start + self.size)

    def unique_keys(self) -> list[bytes]:
        """The unique key of each message, empty without one."""
        return self._values(UNIQ_KEY)

    def tags(self) -> list[bytes]:
        """The tag of each message, empty without one."""
        return self._values(TAGS)

    def damaged(self) -> list[int]:
        """Rows whose BODYCRC does not fit the stored body."""
        found = body_crcs(self._bytes, self.body_start, self.body_size) & np.uint32(CRC_MASK)
        return np.flatnonzero(found != self.body_crc).tolist()

    def messages(
        self, body_size_max: int = DECOMPRESSED_SIZE_MAX, deserialize: Callable[[bytes], Any] | None = None
    ) -> list[ReceivedMessage]:
        """One lazy message per record; they share a copy of these bytes. `deserialize` makes their values."""
        return list(self.each(body_size_max, deserialize))

    def each(
        self, body_size_max: int = DECOMPRESSED_SIZE_MAX, deserialize: Callable[[bytes], Any] | None = None
    ) -> Iterator[ReceivedMessage]:
        """Lazy messages one by one: half the cost of a list where the caller drops each before the next."""
        rows = self.rows(deserialize)
        for row in range(len(self)):
            yield ReceivedMessage(b"", body_size_max=body_size_max, rows=rows, row=row)

    def rows(self, deserialize: Callable[[bytes], Any] | None = None) -> Rows:
        """The lengths and places from which lazy messages are made."""
        return Rows(
            bytes(self.records),  # a slice of bytes costs a third of one of a view
            self.start.tolist(),
            (self.start + self.size).tolist(),
            self.body_start.tolist(),
            (self.body_start + self.body_size).tolist(),
            self.properties_start.tolist(),
            self.sys_flag.tolist(),
            self.broker_name,
            deserialize,
        )

    def select(self, rows: NDArray[np.bool_]) -> "Columns":
        """The records where `rows` is true, copied."""
        starts = self.start[rows]
        kept = self._slices(starts, starts + self.size[rows])
        sizes = self.size[rows].astype(SIZES).tobytes()
        return Columns(sizes, b"".join(kept), queue_id=self.queue_id, broker_name=self.broker_name)

    @property
    def sizes(self) -> bytes:
        """The lengths as they came."""
        return self.size.astype(SIZES).tobytes()

    def with_records(self, records: Buffer) -> "Columns":
        """The same columns of other bytes of the same sizes."""
        return Columns(self.sizes, records, queue_id=self.queue_id, broker_name=self.broker_name)

    def to_arrow(self) -> Any:
        """The records as a pyarrow.Table: offsets and times as int64, topic, bodies and properties as binary.

        Needs pyarrow, which the extra `spark` installs.
        """
        pyarrow = importlib.import_module("pyarrow")
        return pyarrow.table(
            {
                "topic": pyarrow.array(self.topics(), type=pyarrow.binary()),
                "queue_offset": self.queue_offset,
                "physical_offset": self.physical_offset,
                "born_timestamp": self.born_timestamp,
                "store_timestamp": self.store_timestamp,
                "sys_flag": self.sys_flag,
                "flag": self.flag,
                "body": pyarrow.array(self.bodies(), type=pyarrow.binary()),
                "properties": pyarrow.array(self.properties(), type=pyarrow.binary()),
            }
        )

    def _field(self, name: str) -> Integers:
        """A field that stands before the first address."""
        return field(self._bytes, self.start, name)

    # --- slices

    def _slices(self, starts: Integers, ends: Integers) -> list[bytes]:
        view = self.records
        return [bytes(view[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]

    def _values(self, name: str) -> list[bytes]:
        find = _finder(name)
        return [find(encoded) for encoded in self.properties()]


def _finder(name: str) -> Callable[[bytes], bytes]:
    """Takes one value out of encoded properties without decoding the others. The last of equal names wins."""
    inside = f"{PAIR_END}{name}{NAME_END}".encode()
    first = inside[1:]
    pair_end = PAIR_END.encode()

    def find(encoded: bytes) -> bytes:
        at = encoded.rfind(inside)
        if at >= 0:
            at += len(inside)
        elif encoded.startswith(first):
            at = len(first)
        else:
            return b""
        end = encoded.find(pair_end, at)
        return encoded[at : end if end >= 0 else len(encoded)]

    return find
