"""Batches of a segment decoded into columns, a few MiB of them at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from towline.kafka.errors import MalformedBytes, Rule
from towline.kafka.format import batch, message_set, records
from towline.kafka.format.batch import NONE
from towline.kafka.format.compression import DECOMPRESSED_SIZE_MAX, decompress
from towline.kafka.format.records import Bytes, Numbers, Records, Sections
from towline.limits import MIB

from .scan import Batches

PIECE_SIZE: Final = 4 * MIB
RESTORED_SIZE: Final = 64 * MIB  # of batches that are decompressed together, the last of them aside


@dataclass(frozen=True, slots=True)
class Columns:
    """Records with the batches that they stand in: `row[n]` is the row of `batches` that has record n.

    `batches` are rows of `towline.kafka.log.scan.BATCH`: producer, epoch, sequence, leader epoch, attributes.
    """

    batches: Batches
    row: Numbers
    records: Records

    def __len__(self) -> int:
        return len(self.records)

    def of_batch(self, name: str) -> Numbers:
        """A field of the batches, for each record."""
        found: Numbers = self.batches[name][self.row]
        return found

    def sequences(self) -> Numbers:
        """Of each record in its producer's epoch; -1 without a producer."""
        base = self.of_batch("base_sequence").astype(np.int64)
        later = (base + self.records.offset - self.of_batch("base_offset")) % (batch.SEQUENCE_MAX + 1)
        return np.where(base < 0, batch.NONE, later)

    def taken(self, rows: Numbers | slice) -> "Columns":
        """Those records; the batches stay."""
        return Columns(self.batches, self.row[rows], self.records.taken(rows))


def pieces(batches: Batches, size: int = PIECE_SIZE) -> Iterator[Batches]:
    """Runs of batches of about so many bytes, one at least."""
    ends = np.cumsum(batches["size"])
    at, before = 0, 0
    while at < len(batches):
        behind = max(int(np.searchsorted(ends, before + size, "right")), at + 1)
        yield batches[at:behind]
        at, before = behind, int(ends[behind - 1])


def decoded(
    data: Bytes, batches: Batches, size_max: int = DECOMPRESSED_SIZE_MAX, piece_size: int = PIECE_SIZE
) -> Iterator[Columns]:
    """The records of batches of a segment in pieces. Raises MalformedBytes at the byte of a bad batch, RecordsTooLarge.

    However much batches grow, no more than RESTORED_SIZE bytes and one batch of `size_max` are decompressed at once.
    """
    for piece in pieces(batches, piece_size):
        while len(piece):
            columns = decode(data, piece, size_max)
            yield columns
            piece = piece[len(columns.batches) :]


def decode(data: Bytes, batches: Batches, size_max: int = DECOMPRESSED_SIZE_MAX) -> Columns:
    """The records of batches of a segment, of as many of them as decompress to RESTORED_SIZE. Raises as `decoded`."""
    modern = batches["magic"] == batch.MAGIC
    if modern.all():
        return _modern(data, batches, size_max)
    edges = [0, *(np.flatnonzero(np.diff(modern)) + 1).tolist(), len(batches)]
    found, rows, taken = [], [], 0
    for begin, end in pairwise(edges):
        part = batches[begin:end]
        made = _modern(data, part, size_max) if modern[begin] else _messages(data, part, size_max)
        found.append(made.records)
        rows.append(made.row + begin)
        taken += len(made.batches)
        if taken < end:
            break
    return Columns(batches[:taken], np.concatenate(rows), records.joined(found))


def _messages(data: Bytes, batches: Batches, size_max: int) -> Columns:
    positions = batches["position"]
    made, row, count = message_set.decode(
        data, positions, positions + batches["size"], size_max=size_max, enough=RESTORED_SIZE
    )
    taken = batches[:count]
    # What is in a compressed message has offsets of its own, which no head says.
    before = np.concatenate([[NONE], made.offset[:-1]])
    wrong = (made.offset <= before) | (made.offset < taken["base_offset"][row])
    if len(odd := np.flatnonzero(wrong | (made.offset > taken["last_offset"][row]))):
        outer = taken[row[odd[0]]]
        said = f"offset {made.offset[odd[0]]} in a compressed message that ends with {outer['last_offset']}"
        raise MalformedBytes(Rule.RECORDS, int(outer["position"]), said)
    return Columns(taken, row, made)


def _modern(data: Bytes, batches: Batches, size_max: int) -> Columns:
    held, starts, ends = _restored(data, batches, size_max)
    batches = batches[: len(starts)]
    counts = batches["record_count"].astype(np.int64)
    deltas = batches["last_offset"] - batches["base_offset"]
    sections = Sections(starts, ends, counts, batches["base_offset"], deltas, batches["base_timestamp"])
    made, bad = records.decode(held, sections)
    if bad is not None:
        raise MalformedBytes(Rule.RECORDS, int(batches["position"][bad.batch]), bad.said)
    row = np.repeat(np.arange(len(batches)), counts)
    appended = batches["attributes"] & batch.LOG_APPEND_TIME != 0
    if appended.any():
        made.timestamp[:] = np.where(appended[row], batches["max_timestamp"][row], made.timestamp)
    return Columns(batches, row, made)


def _restored(data: Bytes, batches: Batches, size_max: int) -> tuple[Bytes, Numbers, Numbers]:
    """An array with the records of batches, and where those of each begin and end in it; of all or RESTORED_SIZE."""
    begins, behinds = batches["position"] + batch.SIZE, batches["position"] + batches["size"]
    kinds = batches["attributes"] & batch.COMPRESSION_MASK
    if not kinds.any():
        return data, begins, behinds
    parts, room = list[bytes](), RESTORED_SIZE
    for position, begin, behind, kind in zip(
        batches["position"].tolist(), begins.tolist(), behinds.tolist(), kinds.tolist(), strict=True
    ):
        packed = data[begin:behind].tobytes()
        try:
            # A head without records, which compaction keeps, has nothing to decompress.
            parts.append(decompress(packed, kind, size_max) if len(packed) else b"")
        except MalformedBytes as error:
            raise MalformedBytes(error.rule, position, error.found) from None
        room -= len(parts[-1])
        if room < 0:
            break
    ends = np.cumsum([len(part) for part in parts])
    starts = np.concatenate([[0], ends[:-1]])
    return np.frombuffer(b"".join(parts), np.uint8), starts, ends
