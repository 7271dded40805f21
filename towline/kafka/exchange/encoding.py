"""Records of Kafka into segments of a CommitLog: the columns of a piece, and the kernel that writes what they say."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from towline.format.record import blank, property_crc, skipped
from towline.kafka.format import batch
from towline.kafka.format.records import Blobs, Bytes, Numbers
from towline.kafka.log.reading import Columns
from towline.kafka.log.scan import is_transactional
from towline.kernels.kafka import message_compare, message_encode
from towline.kernels.kafka.message_compare import Seen
from towline.kernels.kafka.message_encode import APPEND_TIME, SCRATCH_SIZE, TRANSACTIONAL, Done, Fixed, Name, State
from towline.limits import PROPERTIES_SIZE_MAX

from . import names

HOLE_MAX: Final = 1_000_000  # numbers that one record says no message has: reput takes them in one step
MORE: Final = -1  # in place of a partition's end, where pieces follow
_ROWS: Final = (
    names.KEYS,
    names.KEY,
    names.HEADERS,
    names.TOMBSTONE,
    names.TIMESTAMP,
    names.TIMESTAMP_TYPE,
    names.PRODUCER,
    names.TRANSACTIONAL,
    names.PREFIX,
    names.SYSTEM_PREFIX,
    names.TRUE,
    names.LOG_APPEND_TIME,
    property_crc.PLACEHOLDER.decode(),
    *sorted(names.RESERVED),
)
assert _ROWS[Name.PROPERTY_CRC] == property_crc.PLACEHOLDER.decode()
_NAMES: Final = np.frombuffer("".join(_ROWS).encode(), np.uint8)
_BOUNDS: Final = np.cumsum([0, *(len(row.encode()) for row in _ROWS)], dtype=np.int64)


_Columns = tuple[
    Numbers,
    Numbers,
    Bytes,
    Numbers,
    Numbers,
    Bytes,
    Numbers,
    Numbers,
    Bytes,
    Numbers,
    Numbers,
    Numbers,
    Numbers,
    Numbers,
    Numbers,
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the log of a store is made of: bytes of a segment and of the largest body, its host (8 or 20 bytes)."""

    segment_size: int
    body_max: int
    store_host: bytes
    property_crc: bool = False


class Rows(NamedTuple):
    """Columns of records as the kernels take them, each contiguous."""

    offset: Numbers
    timestamp: Numbers
    key: Blobs
    value: Blobs
    headers: Blobs
    flags: Numbers
    producer: Numbers
    epoch: Numbers
    sequence: Numbers

    @classmethod
    def of(cls, columns: Columns, kept: NDArray[np.bool_]) -> "Rows":
        """Of the records of a piece that are to become messages."""
        taken = columns if kept.all() else columns.taken(np.flatnonzero(kept))
        records, batches = taken.records, taken.batches
        flags = np.where(batches["attributes"] & batch.LOG_APPEND_TIME != 0, APPEND_TIME, 0)
        flags[batches["magic"] == 0] = 0
        flags += np.where(is_transactional(batches), TRANSACTIONAL, 0)
        numbers = (
            flags[taken.row],
            taken.of_batch("producer_id"),
            taken.of_batch("producer_epoch"),
            taken.sequences(),
        )
        blobs = (records.key.contiguous(), records.value.contiguous(), records.headers.contiguous())
        return cls(_plain(records.offset), _plain(records.timestamp), *blobs, *(_plain(column) for column in numbers))

    @classmethod
    def none(cls) -> "Rows":
        """Of no records: what is left is the end of a partition."""
        empty = np.empty(0, np.int64)
        blobs = Blobs.of([])
        return cls(empty, empty, blobs, blobs, blobs, empty, empty, empty, empty)

    def taken(self, kept: NDArray[np.bool_]) -> "Rows":
        """Those records."""
        key, value, headers = (blob.taken(kept).contiguous() for blob in (self.key, self.value, self.headers))
        rest = (self.flags[kept], self.producer[kept], self.epoch[kept], self.sequence[kept])
        return Rows(self.offset[kept], self.timestamp[kept], key, value, headers, *rest)

    def columns(self) -> _Columns:
        """In the order of the kernels' arguments."""
        key, value, headers = self.key, self.value, self.headers
        rest = (self.flags, self.producer, self.epoch, self.sequence)
        return (self.offset, self.timestamp, *key, *value, *headers, *rest)


class Writer:
    """One queue after the other into segments, or (without a segment) a count of what that would take."""

    def __init__(self, shape: Shape, store_timestamp: int, *, leave_out: bool) -> None:
        """`leave_out`: records that are too large are left out, and counted."""
        self._shape, self._leave_out = shape, leave_out
        self._untouched, self._written_before = True, 0
        self._host = np.frombuffer(shape.store_host, np.uint8)
        self._fixed = np.zeros(Fixed.SIZE, np.int64)
        self._fixed[Fixed.STORE_TIMESTAMP] = store_timestamp
        self._fixed[Fixed.SEGMENT_SIZE] = shape.segment_size
        self._fixed[Fixed.BODY_MAX] = shape.body_max
        self._fixed[Fixed.PROPERTY_CRC] = shape.property_crc
        self._fixed[Fixed.LEAVE_OUT] = leave_out
        self._fixed[Fixed.HOLE_FLAG] = skipped.HOLE_FLAG
        self._fixed[Fixed.HOLE_MAX] = HOLE_MAX
        self._scratch = np.zeros(SCRATCH_SIZE, np.uint8)
        self._topic = np.empty(0, np.uint8)
        self._segment = np.empty(0, np.uint8)
        self.state = np.zeros(State.SIZE, np.int64)

    def queue(self, topic: str, queue_id: int, expected: int = -1) -> None:
        """What follows is of this queue, whose next number is `expected`, -1 for any."""
        self._topic = np.frombuffer(topic.encode(), np.uint8)
        self._fixed[Fixed.QUEUE_ID] = queue_id
        self.state[State.EXPECTED] = expected
        self._untouched, self._written_before = expected < 0, self._written()

    def segment(self, target: Bytes | None, base: int) -> None:
        """What follows goes into a segment with this log offset, from its first byte on; None: nothing is written."""
        self._segment = np.empty(0, np.uint8) if target is None else target
        self._fixed[Fixed.WRITE] = target is not None
        self._fixed[Fixed.BASE] = base
        self.state[State.AT] = 0

    @property
    def at(self) -> int:
        """The next byte of the segment."""
        return int(self.state[State.AT])

    @property
    def expected(self) -> int:
        """The queue's next number, -1 for any."""
        return -1 if self._is_empty() else int(self.state[State.EXPECTED])

    @property
    def row(self) -> int:
        """How many rows of the piece are done."""
        return int(self.state[State.ROW])

    def begin(self) -> None:
        """The next call begins a piece."""
        self.state[State.ROW] = 0

    def write(self, rows: Rows, end: int = MORE) -> bool:
        """Goes on with a piece; False where the segment is full. `end`: of the partition, with its last piece.

        Raises TooLargeRecord for one that the store does not take.
        """
        self._fixed[Fixed.END] = end
        while (done := self._encode(rows)) == Done.SEGMENT_FULL and not self.at:  # nor has an empty one room
            if not self._leave_out:
                raise TooLargeRecord(int(rows.offset[self.row]), "a message", self._shape.segment_size - blank.SIZE)
            self.state[State.EXPECTED] = self.expected
            self.state[State.LEFT_OUT] += 1
            self.state[State.ROW] += 1
        if done == Done.TOO_LARGE:
            is_body = self.state[State.WHY] >= 0
            limit = ("the body", self._shape.body_max) if is_body else ("key and headers", PROPERTIES_SIZE_MAX)
            raise TooLargeRecord(int(rows.offset[self.row]), *limit)
        return bool(done == Done.ALL)

    def _encode(self, rows: Rows) -> int:
        return message_encode.encode_messages(
            *rows.columns(),
            self._topic,
            self._host,
            _NAMES,
            _BOUNDS,
            self._fixed,
            self._scratch,
            self._segment,
            self.state,
        )

    def _is_empty(self) -> bool:
        """Whether nothing of the queue was written yet: then its first message may have any number."""
        return self._untouched and self._written() == self._written_before

    def _written(self) -> int:
        return int(self.state[State.RECORDS] + self.state[State.HOLE_RECORDS])


class TooLargeRecord(Exception):
    """The offset of a record that a store does not take, and what of it is above which limit in bytes."""

    def __init__(self, offset: int, what: str, limit: int) -> None:
        super().__init__(offset, what, limit)
        self.offset, self.what, self.limit = offset, what, limit


class Comparer:
    """Reads what a `Writer` wrote, beside the records that it was made of."""

    def __init__(self, shape: Shape, store_timestamp: int) -> None:
        self._host = np.frombuffer(shape.store_host, np.uint8)
        self._fixed = np.zeros(Fixed.SIZE, np.int64)
        self._fixed[Fixed.STORE_TIMESTAMP] = store_timestamp
        self._fixed[Fixed.PROPERTY_CRC] = shape.property_crc
        self._fixed[Fixed.HOLE_FLAG] = skipped.HOLE_FLAG
        self._topic = np.empty(0, np.uint8)
        self._segment = np.empty(0, np.uint8)
        self.state = np.zeros(Seen.SIZE, np.int64)

    def queue(self, topic: str, queue_id: int) -> None:
        """What follows is of this queue."""
        self._topic = np.frombuffer(topic.encode(), np.uint8)
        self._fixed[Fixed.QUEUE_ID] = queue_id
        self.state[Seen.EXPECTED] = -1

    def segment(self, source: Bytes, base: int) -> None:
        """What follows stands in this segment, from its first byte on."""
        self._segment = source
        self._fixed[Fixed.BASE] = base
        self.state[Seen.AT] = 0

    def counted(self) -> tuple[int, int, int]:
        """Records, numbers without one, and bytes of bodies."""
        return int(self.state[Seen.RECORDS]), int(self.state[Seen.HOLES]), int(self.state[Seen.BODY_BYTES])

    @property
    def at(self) -> int:
        """The next byte of the segment."""
        return int(self.state[Seen.AT])

    @property
    def row(self) -> int:
        """How many rows of the piece were found."""
        return int(self.state[Seen.ROW])

    def begin(self) -> None:
        """The next call begins a piece."""
        self.state[Seen.ROW] = 0

    def compare(self, rows: Rows, end: int = MORE) -> message_compare.Differs:
        """Goes on with a piece: OK where all of it was found, BLANK where the segment ends, or what differs at `at`."""
        self._fixed[Fixed.END] = end
        done = message_compare.compare_messages(
            self._segment,
            len(self._segment),
            *rows.columns(),
            self._topic,
            self._host,
            _NAMES,
            _BOUNDS,
            self._fixed,
            self.state,
        )
        return message_compare.Differs(done)


def _plain(column: NDArray[np.generic] | Sequence[int]) -> Numbers:
    return np.ascontiguousarray(column, np.int64)
