"""Records of a batch, end to end behind its head, as columns.

    length           varint  bytes behind it
    attributes       1 byte  0: no bit of it is used
    timestamp delta  varlong from the head's base timestamp
    offset delta     varint  from the head's base offset
    key size, key    varint  -1 for null
    value size, value
    header count     varint
      name size, name, value size, value   of each header; a name is never null

Headers stay one run of bytes, from their count on, until somebody asks for them: `decode_headers`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from towline.kafka.errors import MalformedBytes, Rule
from towline.kernels.kafka import records as kernels

from . import varints

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
Header = tuple[str, bytes | None]

NO_HEADERS: Final = varints.encode(0)
SIZE_MIN: Final = kernels.RECORD_SIZE_MIN
OVERHEAD_MAX: Final = kernels.OVERHEAD_MAX
_SAID: Final = {
    kernels.RecordRule.LENGTH: "a record and what is in it do not end at the same byte",
    kernels.RecordRule.VARINT: "a number does not end in time",
    kernels.RecordRule.SIZE: "a size or a count is none",
    kernels.RecordRule.OFFSET: "offsets of records do not rise up to the batch's last one",
    kernels.RecordRule.REST: "bytes stand behind the last record",
}


class Blobs(NamedTuple):
    """Byte strings as places in an array: `sizes` of -1 are nulls."""

    data: Bytes
    starts: Numbers
    sizes: Numbers

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> Self:
        """Of a list, end to end."""
        sizes = np.fromiter((-1 if value is None else len(value) for value in values), np.int64, len(values))
        held = np.maximum(sizes, 0)
        data = np.frombuffer(b"".join(value for value in values if value), np.uint8)
        return cls(data, np.cumsum(held) - held, sizes)

    @classmethod
    def nulls(cls, count: int) -> Self:
        return cls(np.empty(0, np.uint8), np.zeros(count, np.int64), np.full(count, -1))

    def at(self, row: int) -> bytes | None:
        """One of them."""
        size, start = int(self.sizes[row]), int(self.starts[row])
        return None if size < 0 else self.data[start : start + size].tobytes()

    def to_list(self) -> list[bytes | None]:
        """All of them, for tests and small things."""
        return [self.at(row) for row in range(len(self.sizes))]

    def contiguous(self) -> Self:
        """As kernels take it, which do not look at bounds. Raises ValueError for a place outside of the bytes."""
        starts, sizes = (np.ascontiguousarray(column, np.int64) for column in (self.starts, self.sizes))
        held = sizes > 0
        if (sizes < -1).any() or (starts[held] < 0).any() or (starts[held] > len(self.data) - sizes[held]).any():
            raise ValueError(f"{len(starts)} byte strings are not all within {len(self.data)} bytes")
        return type(self)(np.ascontiguousarray(self.data), starts, sizes)

    def taken(self, rows: NDArray[np.generic] | slice) -> Self:
        """Those rows: an index, a mask or a slice."""
        return type(self)(self.data, self.starts[rows], self.sizes[rows])


@dataclass(frozen=True, slots=True)
class Records:
    """Columns of records in the order of their offsets. Times are ms since 1970; no headers may be no bytes."""

    offset: Numbers
    timestamp: Numbers
    key: Blobs
    value: Blobs
    headers: Blobs

    def __len__(self) -> int:
        return len(self.offset)

    def taken(self, rows: NDArray[np.generic] | slice) -> "Records":
        """Those rows: an index, a mask or a slice."""
        blobs = (self.key.taken(rows), self.value.taken(rows), self.headers.taken(rows))
        return Records(self.offset[rows], self.timestamp[rows], *blobs)

    @classmethod
    def of(
        cls,
        offset: Sequence[int] | Numbers,
        timestamp: Sequence[int] | Numbers,
        key: Sequence[bytes | None],
        value: Sequence[bytes | None],
        headers: Sequence[Sequence[Header]] | None = None,
    ) -> "Records":
        """Of lists."""
        encoded = Blobs.of([encode_headers(each) for each in headers or [()] * len(key)])
        numbers = np.asarray(offset, np.int64), np.asarray(timestamp, np.int64)
        return cls(*numbers, Blobs.of(key), Blobs.of(value), encoded)


class Sections(NamedTuple):
    """Where the records of batches lie in one array, and what their deltas count from; a number for each batch."""

    starts: Numbers
    ends: Numbers
    counts: Numbers
    base_offsets: Numbers
    last_deltas: Numbers
    base_timestamps: Numbers


class BadRecord(NamedTuple):
    batch: int  # row of the sections
    at: int  # byte in the array
    said: str


def decode(data: Bytes, sections: Sections) -> tuple[Records, BadRecord | None]:
    """The records of many batches. Where one is bad, those before it and what is wrong with it."""
    room = (sections.ends - sections.starts) // SIZE_MIN
    if len(wrong := np.flatnonzero((sections.counts < 0) | (sections.counts > room))):
        batch = int(wrong[0])
        before, bad = decode(data, Sections(*(column[:batch] for column in sections)))
        said = f"{sections.counts[batch]} records do not fit into {sections.ends[batch] - sections.starts[batch]} bytes"
        return before, bad or BadRecord(batch, int(sections.starts[batch]), said)
    total = int(sections.counts.sum())
    columns = np.empty(total * len(kernels.COLUMNS), np.int64)
    fault = np.zeros(3, np.int64)
    known = Sections(*(np.ascontiguousarray(column, np.int64) for column in sections))
    done = kernels.decode_records(
        data,
        known.starts,
        known.ends,
        known.counts,
        known.base_offsets,
        known.last_deltas,
        known.base_timestamps,
        total,
        columns,
        fault,
    )
    rows = columns.reshape(len(kernels.COLUMNS), total)[:, :done]
    made = Records(rows[0], rows[1], *(Blobs(data, rows[n], rows[n + 1]) for n in (2, 4, 6)))
    if fault[2]:
        return made, BadRecord(int(fault[0]), int(fault[1]), _SAID[kernels.RecordRule(int(fault[2]))])
    return made, None


def encode(records: Records, firsts: Numbers, head_size: int) -> tuple[Bytes, Numbers]:
    """Batches with `head_size` free bytes before their records: an array, and the byte behind each batch.

    Batch n has the records from row `firsts[n]` up to `firsts[n + 1]`. Offsets rise, by less than 2**31 in a batch.
    """
    key, value, headers = (blob.contiguous() for blob in (records.key, records.value, records.headers))
    room = sum(int(np.maximum(blob.sizes, 0).sum()) for blob in (key, value, headers))
    target = np.empty(room + len(records) * OVERHEAD_MAX + len(firsts) * head_size, np.uint8)
    ends = np.empty(len(firsts) - 1, np.int64)
    end = kernels.encode_batches(
        key.data,
        key.starts,
        key.sizes,
        value.data,
        value.starts,
        value.sizes,
        headers.data,
        headers.starts,
        headers.sizes,
        np.ascontiguousarray(records.offset),
        np.ascontiguousarray(records.timestamp),
        firsts,
        head_size,
        target,
        ends,
    )
    return target[:end], ends


def joined(pieces: Sequence[Records]) -> Records:
    """Records of several pieces as one; their bytes are copied."""

    def blobs(name: str) -> Blobs:
        columns: list[Blobs] = [getattr(piece, name) for piece in pieces]
        shifts = np.cumsum([0, *(len(column.data) for column in columns)])[: len(columns)]
        return Blobs(
            np.concatenate([column.data for column in columns]),
            np.concatenate([column.starts + shift for column, shift in zip(columns, shifts, strict=True)]),
            np.concatenate([column.sizes for column in columns]),
        )

    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return Records.of([], [], [], [])
    return Records(
        np.concatenate([piece.offset for piece in pieces]),
        np.concatenate([piece.timestamp for piece in pieces]),
        blobs("key"),
        blobs("value"),
        blobs("headers"),
    )


# --- headers


def encode_headers(headers: Iterable[Header]) -> bytes:
    """Their count and each of them."""
    found = list(headers)
    parts = [varints.encode(len(found))]
    for name, value in found:
        encoded = name.encode(errors="surrogateescape")
        parts += [varints.encode(len(encoded)), encoded]
        parts += [varints.encode(-1)] if value is None else [varints.encode(len(value)), value]
    return b"".join(parts)


def decode_headers(blob: bytes | None) -> list[Header]:
    """Names and values (None: null) of the headers of a record. No bytes are no headers. Raises MalformedBytes."""
    if not blob:
        return []
    count, at = varints.decode(blob, 0, varints.INT_BYTES)
    found: list[Header] = []
    for _ in range(count):
        name, at = _part(blob, at)
        value, at = _part(blob, at)
        if name is None:
            raise MalformedBytes(Rule.RECORDS, at, "a header has no name")
        found.append((name.decode(errors="surrogateescape"), value))
    if at != len(blob):
        raise MalformedBytes(Rule.RECORDS, at, "bytes stand behind the last header")
    return found


def _part(blob: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = varints.decode(blob, at, varints.INT_BYTES)
    if size > len(blob) - at:
        raise MalformedBytes(Rule.RECORDS, at, f"{size} bytes do not fit")
    return (None, at) if size < 0 else (blob[at : at + size], at + size)
