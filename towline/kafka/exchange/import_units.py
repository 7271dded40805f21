"""The work of an import: partitions are measured, written into staged segments, and those compared with the source.

Measuring and writing are one loop, so what is measured is what is written. A unit fills segments of its own: several
tasks write at once, each unit may be written again, and gets the same bytes. Which segments are whole is kept beside
them, so that what was broken off goes on.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from towline.errors import MalformedFile
from towline.format.record import blank
from towline.kafka.format.records import Bytes
from towline.kernels.kafka.message_compare import Differs
from towline.kernels.kafka.message_encode import State
from towline.log.files.config_file import ConfigFile
from towline.log.files.segment_files import create_segment, segment_name, sync_directory, sync_file
from towline.log.files.sparse_file import written_end
from towline.runtime.failpoints import ARMED, reach

from .encoding import MORE, Comparer, Rows, Shape, TooLargeRecord, Writer
from .import_errors import RecordTooLarge, StagedDiffers
from .import_plan import Choices, Counted, Part, Plan, Unit
from .import_rows import Piece, read_pieces

Progress = Callable[[int], None]  # bytes of the source's logs
_LEAVE_OUT: Final = "leave-out"


@dataclass(frozen=True, slots=True)
class Measured:
    """What partitions make, from byte `at` of a segment on: they end at byte `used` of the segment `segments` later."""

    counts: tuple[Counted, ...]
    segments: int
    used: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a unit goes on: its first `segments` are whole, then comes this offset of the part in this row."""

    segments: int = 0
    row: int = 0
    offset: int = -1
    expected: int = -1
    verified: bool = False


# --- measuring


def measure(shape: Shape, choices: Choices, at: int, parts: Sequence[Part], progress: Progress) -> Measured:
    """Raises MalformedLog, RecordTooLarge."""
    writer = _writer(shape, choices, 0)
    writer.segment(None, 0)
    writer.state[State.AT] = at
    segments, counts = 0, []
    for part in parts:
        before = _counted(writer)
        writer.queue(part.topic, part.number)
        dropped = Counted()
        for piece, end in _pieces(part, choices, part.start):
            writer.begin()
            while not _write(writer, part, piece.rows, end):
                segments += 1
                writer.segment(None, 0)
            dropped += piece.dropped
            progress(piece.size)
        counts.append(_less(_counted(writer), before) + dropped)
    return Measured(tuple(counts), segments, writer.at)


def _counted(writer: Writer) -> Counted:
    state = writer.state
    return Counted(
        records=int(state[State.RECORDS]),
        body_bytes=int(state[State.BODY_BYTES]),
        log_bytes=int(state[State.LOG_BYTES]),
        holes=int(state[State.HOLES]),
        hole_records=int(state[State.HOLE_RECORDS]),
        keys=int(state[State.KEYS]),
        largest=int(state[State.LARGEST]),
        left_out=int(state[State.LEFT_OUT]),
    )


def _less(now: Counted, before: Counted) -> Counted:
    found = {name: value - getattr(before, name) for name, value in asdict(now).items()}
    return Counted(**found | {"largest": now.largest})


def _pieces(part: Part, choices: Choices, start: int) -> Iterator[tuple[Piece, int]]:
    """With each the end of the partition, which the last one, without rows, brings."""
    for piece in read_pieces(part, choices, start):
        yield piece, MORE
    yield Piece(Rows.none(), Counted(), 0), part.end


def _write(writer: Writer, part: Part, rows: Rows, end: int) -> bool:
    try:
        return writer.write(rows, end)
    except TooLargeRecord as error:
        raise RecordTooLarge(part.directory, error.offset, error.what, error.limit) from None


def _writer(shape: Shape, choices: Choices, store_timestamp: int) -> Writer:
    return Writer(shape, store_timestamp, leave_out=choices.too_large == _LEAVE_OUT)


# --- writing


def staged_segment(staging: Path, unit: Unit, shape: Shape, number: int) -> Path:
    """The file of one segment of a unit, when it is whole."""
    return staging / segment_name(unit.base + number * shape.segment_size)


def mark_of(staging: Path, unit: Unit) -> Mark:
    """How far a unit is; at its beginning where that is not known."""
    try:
        found = ConfigFile(_mark_path(staging, unit)).load()
        return Mark() if found is None else Mark(**found)
    except (MalformedFile, TypeError):
        return Mark()


def keep_mark(staging: Path, unit: Unit, mark: Mark) -> None:
    """Durably."""
    ConfigFile(_mark_path(staging, unit)).save(asdict(mark))


def stage(plan: Plan, staging: Path, unit: Unit, progress: Progress) -> None:
    """Writes what is missing of a unit's segments. Raises DiskFull, SyncFailed, MalformedLog."""
    mark = mark_of(staging, unit)
    if mark.segments == unit.segments:
        progress(sum(plan.parts[row].size for row in unit.parts))
        return
    writer = _writer(plan.shape, plan.choices, plan.store_timestamp)
    segments = _Segments(plan, staging, unit, writer, mark.segments)
    try:
        for row in range(mark.row, len(unit.parts)):
            part = plan.parts[unit.parts[row]]
            resumed = row == mark.row and mark.offset >= 0
            writer.queue(part.topic, part.number, mark.expected if resumed else -1)
            for piece, end in _pieces(part, plan.choices, mark.offset if resumed else part.start):
                writer.begin()
                while not _write(writer, part, piece.rows, end):
                    left = piece.rows.offset[writer.row :]
                    following = int(left[0]) if len(left) else part.end
                    segments.roll(Mark(segments.number + 1, row, following, writer.expected))
                progress(piece.size)
        segments.end(Mark(unit.segments, len(unit.parts)))
    finally:
        segments.close()


class _Segments:
    """The segments of a unit, one at a time: under a name of the attempt's own until it is whole."""

    def __init__(self, plan: Plan, staging: Path, unit: Unit, writer: Writer, number: int) -> None:
        self._shape, self._staging, self._unit, self._writer = plan.shape, staging, unit, writer
        self.number = number
        self._data: Bytes | None = None
        self._open()

    def roll(self, mark: Mark) -> None:
        """A blank ends the segment, which is whole; the next one begins."""
        self._blank()
        self._finish(mark)
        self.number += 1
        self._open()

    def end(self, mark: Mark) -> None:
        """The unit is whole. Where the log goes on behind it, a blank ends its last segment."""
        assert (self.number + 1, self._writer.at) == (self._unit.segments, self._unit.used), "as it was measured"
        if not self._unit.last:
            self._blank()
        self._finish(mark)

    def close(self) -> None:
        """Of a segment that is not whole nothing is left."""
        if self._data is not None:
            self._data = None
            self._path.unlink(missing_ok=True)

    def _open(self) -> None:
        base = self._unit.base + self.number * self._shape.segment_size
        name = f"{segment_name(base)}.{uuid.uuid4().hex}"
        self._path = create_segment(self._staging, self._shape.segment_size, name)
        self._data = np.asarray(np.memmap(self._path, np.uint8, mode="r+"))
        self._writer.segment(self._data, base)

    def _blank(self) -> None:
        assert self._data is not None
        at, size = self._writer.at, self._shape.segment_size
        self._data[at : at + blank.SIZE] = np.frombuffer(blank.encode(size - at), np.uint8)

    def _finish(self, mark: Mark) -> None:
        self._writer.segment(None, 0)
        self._data = None
        sync_file(self._path)
        _reach("written")
        self._path.rename(staged_segment(self._staging, self._unit, self._shape, self.number))
        sync_directory(self._staging)
        _reach("named")
        keep_mark(self._staging, self._unit, mark)
        _reach("noted")


def _reach(step: str) -> None:
    if ARMED:
        reach(f"kafka_import.{step}")


# --- comparing


def verify(plan: Plan, staging: Path, unit: Unit, progress: Progress) -> None:
    """Reads a unit back beside its source, which is read again. Raises StagedDiffers, MalformedLog."""
    if mark_of(staging, unit).verified:
        progress(sum(plan.parts[row].size for row in unit.parts))
        return
    reader = _Staged(plan, staging, unit)
    found = Counted()
    for row in unit.parts:
        part = plan.parts[row]
        reader.comparer.queue(part.topic, part.number)
        for piece, end in _pieces(part, plan.choices, part.start):
            reader.comparer.begin()
            while (differs := reader.comparer.compare(_taken(piece.rows, part, plan), end)) is Differs.BLANK:
                reader.roll(part)
            if differs is not Differs.OK:
                raise reader.differs(part, differs)
            progress(piece.size)
        found += plan.counts[row]
    reader.end(found)
    keep_mark(staging, unit, replace(mark_of(staging, unit), verified=True))


def _taken(rows: Rows, part: Part, plan: Plan) -> Rows:
    """Without those that are left out: found by measuring with a refusal of each."""
    if plan.choices.too_large != _LEAVE_OUT:
        return rows
    writer, kept = Writer(plan.shape, 0, leave_out=False), np.ones(len(rows.offset), np.bool_)
    writer.segment(None, 0)
    writer.queue(part.topic, part.number)
    done = False
    while not done:
        try:
            done = writer.write(rows)
            writer.segment(None, 0)
        except TooLargeRecord:
            kept[writer.row] = False
            writer.state[State.ROW] += 1
    return rows if kept.all() else rows.taken(kept)


class _Staged:
    """The segments of a unit while they are read back."""

    def __init__(self, plan: Plan, staging: Path, unit: Unit) -> None:
        self._plan, self._staging, self._unit = plan, staging, unit
        self.comparer = Comparer(plan.shape, plan.store_timestamp)
        self._number = -1
        self._next()

    def _next(self) -> None:
        self._number += 1
        self._path = staged_segment(self._staging, self._unit, self._plan.shape, self._number)
        self._data: Bytes = np.asarray(np.memmap(self._path, np.uint8, mode="r"))
        self.comparer.segment(self._data, self._unit.base + self._number * self._plan.shape.segment_size)

    def roll(self, part: Part) -> None:
        at = self.comparer.at
        wanted = blank.encode(len(self._data) - at)
        if self._number + 1 == self._unit.segments or self._data[at : at + blank.SIZE].tobytes() != wanted:
            raise self.differs(part, Differs.FORM)
        self._next()

    def end(self, found: Counted) -> None:
        """Behind the last record stands nothing, or a blank, and as much was found as was measured."""
        part, at = self._plan.parts[self._unit.parts[-1]], self.comparer.at
        if (self._number + 1, at) != (self._unit.segments, self._unit.used):
            raise self.differs(part, Differs.FORM)
        rest = b"" if self._unit.last else blank.encode(len(self._data) - at)
        if self._data[at : at + len(rest)].tobytes() != rest or self._written_end(at) > at + len(rest):
            raise self.differs(part, Differs.FORM)
        if self.comparer.counted() != (found.records, found.holes, found.body_bytes):
            raise self.differs(part, Differs.OFFSET)

    def _written_end(self, at: int) -> int:
        """Behind the last byte that is not zero, without a read of what was never written."""
        with self._path.open("rb") as file:
            return written_end(file.fileno(), at, len(self._data))

    def differs(self, part: Part, rule: Differs) -> StagedDiffers:
        return StagedDiffers(str(self._path), self.comparer.at, rule.name, part.directory)


def _mark_path(staging: Path, unit: Unit) -> Path:
    return staging / f"unit-{unit.number:06d}.json"


def written_bytes(staging: Path) -> int:
    """Of segments that are whole already."""
    return sum(path.stat().st_blocks * 512 for path in staging.glob("[0-9]*")) if staging.is_dir() else 0
