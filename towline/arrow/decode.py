"""Decodes the records of a segment into Arrow RecordBatches: boundaries, selection, columns; bounded by rows and bytes.

A batch holds copies only, so the segment may be unmapped or deleted when its batches are made.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypedDict, Unpack

import numpy as np
import pyarrow as pa

from towline.format.record import record
from towline.format.record.columns import Bytes, Integers
from towline.format.record.record import SIZE_MIN
from towline.format.record.rules import Rule
from towline.limits import MIB

from .batch import fields_of, make_batch
from .bodies import Restored, compressed_rows, restored
from .boundaries import Found, boundaries, next_plausible
from .columns import schema_of
from .errors import DamagedBody, DamagedRecord, damaged
from .heads import Heads, damaged_rows
from .kernels import expect_read
from .selection import Selection

ROWS: Final = 16_384  # of a batch at most: fewer cost time, more cost memory and bring nothing
BYTES: Final = 32 * MIB  # of a batch's records, and of its restored bodies
WINDOW: Final = 64 * MIB  # bytes whose boundaries are found at once

# A damaged record ends the read with an error; or ends it, what stands before it being read; or is left out. Behind a
# broken chain the next record counts that names its own place and whose CRC is right.
OnCorruption = Literal["fail", "stop", "skip"]
Damage = DamagedRecord | DamagedBody
_EVERYTHING: Final = Selection()


class How(TypedDict, total=False):
    """The options of a read; every one has a default."""

    rows: int  # of a batch at most
    bytes: int  # of the records of a batch at most, and of its restored bodies; one record may be larger
    check_crcs: bool  # BODYCRC
    force_property_crc: bool  # with `check_crcs`: a record that does not end with its property CRC is damaged
    on_corruption: OnCorruption
    whole: bool  # `log` goes to its segment's border: a record that it cuts off is damage, none that is being written
    broker_name: str
    decompress: bool  # bodies by SYSFLAG
    delays_ms: tuple[int, ...]  # by level - 1, for the tagsCode of delayed messages; without them they have a tag's
    on_damage: Callable[[Damage], None] | None  # called where something is left out, or ends a read


def decode(
    log: Bytes,
    base: int,
    positions: Integers,
    columns: Sequence[str],
    *,
    broker_name: str = "",
    decompress: bool = True,
    delays_ms: tuple[int, ...] = (),
) -> pa.RecordBatch:
    """The records at `positions` (bytes of `log`, whose first byte has the log offset `base`), in this order.

    `columns` are names of SCHEMA; `delays_ms` by level - 1 are for the tagsCode of delayed messages. Lengths are
    checked, BODYCRC is not. Raises UnknownColumn, DamagedRecord, DamagedBody, and BatchTooLarge where a column would
    hold 2 GiB.
    """
    schema_of(columns)
    heads = Heads(log, base, positions, fields_of(columns))
    bodies = {row: restored(heads, row) for row in compressed_rows(heads)} if decompress and "body" in columns else {}
    return make_batch(heads, columns, bodies, broker_name, delays_ms)


def batches(
    log: Bytes,
    base: int,
    start: int,
    end: int,
    columns: Sequence[str],
    selection: Selection = _EVERYTHING,
    **how: Unpack[How],
) -> Iterator[pa.RecordBatch]:
    """The wanted records that begin in [start, end) of `log`, in batches.

    `start` and `end` are records' first bytes, the segment's border, or where it is confirmed, up to where `log` goes:
    a record that reaches over `end` is damage, unless the log ends inside it. So is a TOTALSIZE of 0. A body that
    cannot be restored is damage for who reads bodies. Raises as `decode`.
    """
    expect_read(end - start)
    reader = _Reader(log, base, columns, selection, **how)
    yield from reader.walk(start, end)
    yield from reader.flush()


def chosen(
    log: Bytes,
    base: int,
    positions: Integers,
    columns: Sequence[str],
    selection: Selection = _EVERYTHING,
    **how: Unpack[How],
) -> Iterator[pa.RecordBatch]:
    """The records at these positions in batches, in any order, which is kept."""
    expect_read(len(positions) * SIZE_MIN)
    reader = _Reader(log, base, columns, selection, **how)
    yield from reader.read(positions)
    yield from reader.flush()


class _HeadsUnsound(Exception):
    """Among the records from byte `at` on. What stands before it was read."""

    def __init__(self, at: int) -> None:
        self.at = at
        super().__init__(at)


@dataclass
class _Reader:
    """One read. Wanted records wait in `_held` until they fill a batch."""

    log: Bytes
    base: int
    columns: Sequence[str]
    selection: Selection
    rows: int = ROWS
    bytes: int = BYTES
    check_crcs: bool = False
    force_property_crc: bool = False
    on_corruption: OnCorruption = "fail"
    whole: bool = False
    broker_name: str = ""
    decompress: bool = True
    delays_ms: tuple[int, ...] = ()
    on_damage: Callable[[Damage], None] | None = None
    _held: list[Heads] = field(default_factory=list)
    _ended: bool = False
    _lost: int = -1  # position of the last record whose lengths do not add up
    _taken: int = 0

    def __post_init__(self) -> None:
        schema_of(self.columns)
        self._fields = fields_of(self.columns) | self.selection.fields | ({"body_crc"} if self.check_crcs else set())
        self._restores = self.decompress and "body" in self.columns

    def walk(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        at, check_heads = start, False
        while at < end and not self._ended:
            stop = min(at + WINDOW, end)
            some = boundaries(self.log, self.base, at, stop, check_heads=check_heads, enough=self.rows)
            found = self._inside(some, end)
            try:
                yield from self.read(found.positions, checked=check_heads)
            except _HeadsUnsound as unsound:
                at, check_heads = unsound.at, True
                continue
            at, check_heads = found.end, False
            if len(found.positions) and self._lost == int(found.positions[-1]):
                # Nothing bears out the size of the last record, which is damaged: others may stand where it claims to.
                at = self._next_sound(self._lost + 1, end)
                continue
            cut_off = found.rule is Rule.ENDS_INSIDE
            if found.blank or (cut_off and found.waits and not self.whole) or self._ended:
                return
            if found.rule is not Rule.OK:
                self._report(damaged(self.base + at, Rule.SIZE_PAST_END if cut_off and self.whole else found.rule))
                at = self._next_sound(at + 1, end)

    def read(self, positions: Integers, *, checked: bool = True) -> Iterator[pa.RecordBatch]:
        """Reads the heads of some records and yields full batches.

        Raises _HeadsUnsound for unsound heads, unless `checked`.
        """
        for first in range(0, len(positions), self.rows):
            if self._ended:
                return
            some = positions[first : first + self.rows]
            kept = self.selection.keep(self._sound(some) if checked else self._in_place(some))
            if sum(map(len, self._held)) + len(kept) > self.rows:
                yield from self.flush()
            if len(kept):
                self._held.append(kept)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yields the records that are left, in batches of bounded bytes."""
        held, self._held = self._held, []
        if not held:
            return
        heads = Heads.joined(held)
        while len(heads):
            filled = np.cumsum(heads.size)
            count = max(1, int(np.searchsorted(filled, self.bytes, side="right")))
            restored, bodies = self._restored(heads if count == len(heads) else heads.keep(slice(0, count)))
            if len(restored):
                yield make_batch(restored, self.columns, bodies, self.broker_name, self.delays_ms)
            heads = heads.keep(slice(self._taken, None))

    def _restored(self, heads: Heads) -> tuple[Heads, Restored]:
        """Of these records as many as fit a batch when their bodies are restored, without those that cannot be.

        `_taken` is then how many of them are done with.
        """
        self._taken = len(heads)
        bodies: Restored = {}
        lost: list[int] = []
        filled = 0
        for row in compressed_rows(heads) if self._restores else ():
            try:
                body = restored(heads, row)
            except DamagedBody as problem:
                self._report(problem)
                if self._ended:
                    self._taken = row
                    break
                lost.append(row)
                continue
            filled += len(body)
            if bodies and filled > self.bytes:
                self._taken = row
                break
            bodies[row] = body
        if not lost and self._taken == len(heads):
            return heads, bodies
        kept = np.delete(np.arange(self._taken), [row for row in lost if row < self._taken])
        if self._ended:
            self._taken = len(heads)
        return heads.keep(kept), {place: bodies[row] for place, row in enumerate(kept.tolist()) if row in bodies}

    # --- damage

    def _inside(self, found: Found, end: int) -> Found:
        """Without a last record that reaches over `end`, where others begin to read."""
        if found.end <= end or end == len(self.log):
            return found
        return Found(found.positions[:-1], int(found.positions[-1]), Rule.SIZE_PAST_END)

    def _in_place(self, positions: Integers) -> Heads:
        try:
            heads = Heads(self.log, self.base, positions, self._fields, placed=True)
        except DamagedRecord:
            raise _HeadsUnsound(int(positions[0])) from None
        return self._with_right_crc(heads) if self.check_crcs else heads

    def _sound(self, positions: Integers) -> Heads:
        """Those of the records that are sound; up to the first that is not, where such a one ends the read."""
        try:
            heads = Heads(self.log, self.base, positions, self._fields)
        except DamagedRecord:
            kept = []
            for row in range(len(positions)):  # which of them is damaged, is asked one by one
                try:
                    Heads(self.log, self.base, positions[row : row + 1])
                except DamagedRecord as problem:
                    self._lost = int(positions[row])
                    self._report(problem)
                    if self._ended:
                        break
                    continue
                kept.append(row)
            heads = Heads(self.log, self.base, positions[kept], self._fields)
        return self._with_right_crc(heads) if self.check_crcs else heads

    def _with_right_crc(self, heads: Heads) -> Heads:
        damage = damaged_rows(heads, force_property_crc=self.force_property_crc)
        if not damage:
            return heads
        for row, rule in damage:
            self._report(damaged(self.base + int(heads.positions[row]), rule, _named(heads, row)))
            if self._ended:
                return heads.keep(slice(0, row))
        return heads.keep(np.delete(np.arange(len(heads)), [row for row, _ in damage]))

    def _next_sound(self, start: int, end: int) -> int:
        """Where to go on behind a broken chain; `end` if there is nothing to go on with."""
        at = start
        while not self._ended and (at := next_plausible(self.log, self.base, at, end)) >= 0:
            try:
                heads = Heads(self.log, self.base, np.array([at]), ["body_crc"])
            except DamagedRecord:
                at += 1
                continue
            if not damaged_rows(heads, force_property_crc=self.force_property_crc):
                return at
            at += 1
        return end

    def _report(self, problem: Damage) -> None:
        """Reports it, and raises it or notes that it ends the read, as the options say."""
        if self.on_damage is not None:
            self.on_damage(problem)
        if self.on_corruption == "fail":
            raise problem
        self._ended = self.on_corruption == "stop"


def _named(heads: Heads, row: int) -> str:
    """A record as its readers know it."""
    start = int(heads.positions[row])
    found = record.decode(heads.log.data[start : start + int(heads.size[row])], check_crc=False)
    return f"message {found.queue_offset} of queue {found.queue_id} of {found.topic.decode(errors='replace')}"
