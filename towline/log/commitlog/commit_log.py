"""The CommitLog: a reader for any process, and the tail of its one writer.

`CommitLogReader` maps segments read-only. How far it may read is its caller's to know: this module sees files, and the
last of them is full of zeros. `LogTail` is the writer's end; beyond it every byte of the segment is zero (hazard H1).
"""

import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.errors import AppendMismatch, MalformedRecord, NotInLog, StoreNotWritable, SyncFailed
from towline.format.record import blank, record
from towline.format.record.record import LAYOUT, layout_of
from towline.format.record.rules import Rule
from towline.limits import PAGE, POPULATE_STEP
from towline.log.files.first_word import store_first_word
from towline.log.files.mapped_file import ADVICE_WILL_NEED, MappedFile, PendingUnmaps
from towline.log.files.mapped_file_queue import OPEN_MAX, MappedFileQueue
from towline.log.files.page_cache import Advice, advise_file, advise_reader, for_reader
from towline.log.files.segment_files import segment_name

from .cold_reads import CHUNK, ColdChunks

AGE_MS: Final = 5000  # a reader unmaps a segment that it has not read for so long, or for twice so long
FIRST_WORD_SIZE: Final = 8  # TOTALSIZE and MAGICCODE: stored last, they make the bytes behind them a record
_MAGICS: Final = (record.MAGIC_V1, record.MAGIC_V2)

NextSegment = Callable[[int], MappedFile]
Foresee = Callable[[int], MappedFile | None]


class CommitLogReader:
    """Read-only bytes of the log by offset. Segments are mapped when first asked for and kept in an LRU."""

    def __init__(
        self, directory: Path, segment_size: int, *, open_max: int = OPEN_MAX, in_memory_bytes: int | None = None
    ) -> None:
        """Segments that end further behind the log's end than `in_memory_bytes` are read without read-ahead."""
        self.segment_size = segment_size
        self.queue = MappedFileQueue(directory, segment_size, open_max=open_max)
        self._in_memory_bytes = in_memory_bytes
        self._cold: set[int] = set()
        self._chunks = ColdChunks()
        self._age_at_ms = 0
        if in_memory_bytes is not None:
            self.queue.on_open = self._advise

    def load(self) -> None:
        """Reads the directory. Raises SegmentSizeMismatch, ForeignFile."""
        self.queue.load()

    def refresh(self) -> bool:
        """Picks up segments that appeared or were deleted; whether there were any."""
        return self.queue.refresh()

    def release_below(self, offset: int) -> None:
        """Unmaps segments that end at or before `offset`; for a reader that does not come back to them."""
        self.queue.release_below(offset)

    def release_idle(self, now_ms: int) -> bool:
        """Unmaps what was not read for a while, one step per duty cycle of a steady reader. Whether there was one.

        Pages of a segment leave the page cache only when no process maps them.
        """
        if now_ms >= self._age_at_ms:
            self._age_at_ms = now_ms + AGE_MS
            self.queue.age()
            self._drop(self._chunks.unused())
        return self.queue.unmap_idle()

    def expect(self, start: int, end: int) -> None:
        """[start, end) of one segment is read next: of a segment without read-ahead it is read in large chunks.

        Page by page it would come at a thirtieth of the speed (docs/decisions/0012). What was read long before leaves
        memory again.
        """
        base = self.segment_of(start)
        mapped = self._mapped(start)
        if base not in self._cold:
            return
        border = base + self.segment_size
        for first, last in self._chunks.wanted(start, min(end, border), base, border):
            mapped.advise(ADVICE_WILL_NEED, first - base, last - base)
        self._drop(self._chunks.leaving())

    def expect_scattered(self, starts: Iterable[int], ends: Iterable[int]) -> None:
        """The same for stretches of one segment that stand far from each other: only they are brought."""
        starts = list(starts)
        base = self.segment_of(starts[0])
        mapped = self._mapped(base)
        if base in self._cold:
            for start, end in zip(starts, ends, strict=True):
                mapped.advise(ADVICE_WILL_NEED, start - base, min(end - base, self.segment_size))
            self._chunks.read(starts, base)
            self._drop(self._chunks.leaving())

    def is_cold(self, base: int) -> bool:
        """Whether the segment, which was asked for before, is read without read-ahead."""
        return base in self._cold

    def _drop(self, chunks: Iterable[int]) -> None:
        """Drops chunks from the page cache, unless another process maps them or they were read again."""
        for chunk in chunks:
            base = self.segment_of(chunk)
            start, end = chunk - base, min(chunk - base + CHUNK, self.segment_size)
            self.queue.drop_pages(base, start, end)
            try:
                advise_file(self.queue.path_of(base), Advice.DROP, start, end - start)
            except FileNotFoundError:  # cleaned meanwhile
                continue

    def _advise(self, base: int, mapped: MappedFile) -> None:
        assert self._in_memory_bytes is not None
        advice = for_reader(base + self.segment_size, self.queue.end, self._in_memory_bytes)
        advise_reader(mapped, advice)
        (self._cold.add if advice is Advice.NO_READ_AHEAD else self._cold.discard)(base)

    def segment_of(self, offset: int) -> int:
        """Base of the segment in which `offset` lies, whether its file exists or not."""
        return offset - offset % self.segment_size

    def array(self, base: int) -> npt.NDArray[np.uint8]:
        """The segment that begins at `base`, read-only. Raises NotInLog when its file does not exist."""
        return self._mapped(base).array

    def file_of(self, base: int) -> tuple[int, int] | None:
        """Device and inode of the segment that begins at `base`; None where its file has gone."""
        try:
            found = self.queue.path_of(base).stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def slice(self, offset: int, end: int) -> memoryview:
        """The bytes from `offset` to `end` or to the end of the segment, whichever comes first: no copy, read-only."""
        assert end >= offset
        base = self.segment_of(offset)
        view = self._mapped(offset).view
        return view[offset - base : min(end - base, self.segment_size)]

    def record(self, offset: int, end_limit: int) -> memoryview:
        """The record at `offset`, which must end at or before `end_limit` and inside its segment.

        Size and magic are checked, the content is not. Raises NotInLog; MalformedRecord, its `at` the log offset.
        """
        view = self.slice(offset, end_limit)
        if len(view) < record.SIZE_MIN:
            raise _malformed(Rule.ENDS_INSIDE, offset)
        if int.from_bytes(view[4:8], "big") not in _MAGICS:
            raise _malformed(Rule.MAGIC, offset)
        size = int.from_bytes(view[:4], "big", signed=True)
        if size < record.SIZE_MIN:
            raise _malformed(Rule.SIZE_TOO_SMALL, offset)
        if size > len(view):
            raise _malformed(Rule.SIZE_PAST_END, offset)
        return view[:size]

    def close(self) -> bool:
        """Unmaps everything. False while bytes are still referenced; `queue.sweep()` tries again."""
        return self.queue.close()

    def _mapped(self, offset: int) -> MappedFile:
        mapped = self.queue.find(offset)
        if mapped is None and self.queue.refresh():
            mapped = self.queue.find(offset)
        if mapped is None:
            raise NotInLog(offset, self.queue.min_offset, self.queue.end)
        return mapped


class LogTail:
    """The writer's end of the log. One process holds one: put on a master, the ha receiver on a slave.

    What is appended is stored in a `window` behind `position`, the log's end, by the append of put (H2) or by
    `append_raw`; to publish it as APPENDED is not done here.

    `next_segment(base)` hands over the writable mapping of the segment that begins at `base`, making it if need be;
    what it raises leaves the tail as it was. `foresee(base)` hands over the same mapping before it is needed, or None:
    what of it was populated by then is not populated in the roll.

    Only a window of the segment is held in the page tables: what the next request needs, what `prepare` populated
    ahead, and the step behind. So a request meets no page fault, and the unmapping of a full segment takes no time.
    """

    __slots__ = (
        "_ahead",
        "_at",
        "_left",
        "_let_go",
        "_next",
        "_next_populated",
        "_populated",
        "_segment",
        "_step",
        "_unmaps",
        "_zero_next",
        "base",
        "foresee",
        "next_segment",
        "segment_size",
    )

    def __init__(
        self,
        segment: MappedFile | None,
        segment_size: int,
        position: int,
        next_segment: NextSegment,
        *,
        populate_ahead: int = POPULATE_STEP,
        step: int = 0,
        foresee: Foresee | None = None,
    ) -> None:
        """`segment` holds `position`; None if the segment that begins at `position` is still to be asked for.

        `populate_ahead`: bytes that `prepare` keeps populated. 0: nothing ever is, pages fault when they are written.
        `step`: bytes that are populated, and unmapped, at once; 0: POPULATE_STEP.
        """
        self.segment_size = segment_size
        self.next_segment, self.foresee = next_segment, foresee
        self._left: MappedFile | None = None  # the full segment, to be unmapped when there is time
        self._next: MappedFile | None = None
        self._next_populated = 0
        self._ahead, self._step = populate_ahead, step or POPULATE_STEP
        self._unmaps = PendingUnmaps()
        self._zero_next = 0
        self._segment = segment
        if segment is None:
            assert position % segment_size == 0, f"byte {position} lies inside a segment that is not there"
            self.base, self._at = position - segment_size, segment_size  # as if the segment before were full
        else:
            assert segment.writable
            assert segment.size == segment_size
            self._at = position % segment_size
            self.base = position - self._at
        self._populated = self._let_go = self._at - self._at % PAGE

    @classmethod
    def open(
        cls,
        directory: Path,
        segment_size: int,
        position: int,
        next_segment: NextSegment,
        *,
        populate_ahead: int = POPULATE_STEP,
        step: int = 0,
        foresee: Foresee | None = None,
    ) -> "LogTail":
        """The tail at `position` of the log in `directory`. Raises NotInLog if `position` lies inside a missing file.

        The blocks from `position` on must be reserved already (H7) and be zero, or be zeroed by `zero_after` first.
        """
        base = position - position % segment_size
        path = directory / segment_name(base)
        if position != base and not path.exists():
            raise NotInLog(position, base, base)
        segment = MappedFile.open(path, segment_size, writable=True) if path.exists() else None
        return cls(
            segment, segment_size, position, next_segment, populate_ahead=populate_ahead, step=step, foresee=foresee
        )

    @property
    def position(self) -> int:
        """The log's end."""
        return self.base + self._at

    @property
    def room(self) -> int:
        """Bytes left in the active segment."""
        return self.segment_size - self._at

    @property
    def segment(self) -> MappedFile:
        """The active segment. Only after the first `roll` where the log began without one."""
        assert self._segment is not None, "no segment is open yet: roll first"
        return self._segment

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """The bytes of the active segment, for the kernel that validates and stamps in place."""
        return self.segment.array

    def fits(self, size: int) -> bool:
        """Whether a request of `size` bytes may be copied here; otherwise `blank` and `roll` (spec 2.2)."""
        return blank.fits(size, self.room)

    def window(self, size: int) -> tuple[int, int]:
        """Where in `array` requests may be appended: from the end on, `size` bytes or what the segment has left.

        The pages are populated. What a kernel has stored there is reported to `moved`.
        """
        if self._segment is None:
            return self._at, self._at
        end = min(self._at + size, self.segment_size)
        self._populate_to(end)
        return self._at, min(end, self.segment_size - blank.SIZE)

    def moved(self, at: int) -> None:
        """A kernel has published everything up to there."""
        assert self._at <= at <= self.segment_size
        self._at = at

    def blank(self) -> int:
        """Ends the active segment with a blank and moves to its end, which is returned. Does nothing at the end."""
        if self.room:
            self._populate_to(self._at + blank.SIZE)
            store_first_word(self.segment, self._at, blank.encode(self.room))
            self._at = self.segment_size
        return self.position

    def roll(self) -> int:
        """Goes on in the next segment, whose base is returned. What `next_segment` raises leaves the tail as it was."""
        assert self.room == 0, f"{self.room} bytes are left in the active segment"
        base = self.base + self.segment_size
        segment = self.next_segment(base)
        assert segment.writable
        assert segment.size == self.segment_size
        self._zero_beginning(segment)
        self._unmap_left()
        self._left = self._segment
        self._populated = self._next_populated if segment is self._next else 0
        self._segment, self._next, self.base = segment, None, base
        self._at = self._let_go = 0
        return base

    def prepare(self) -> bool:
        """Populates one step ahead, for when the writer has nothing else to do. False when there is nothing left to."""
        wanted = self._at + self._ahead
        if self._unmap_left():
            return True
        if not self._ahead:
            return False
        try:
            if self._segment is not None and self._populated < min(wanted, self.segment_size):
                self._populate_to(self._populated + 1)
                return True
            return wanted > self.segment_size and self._prepare_next(wanted - self.segment_size)
        except (StoreNotWritable, SyncFailed):
            return False  # the request that needs the page meets the error

    def _prepare_next(self, wanted: int) -> bool:
        """The same at the beginning of the next segment, as soon as it can be had."""
        if self._next is None:
            self._next = None if self.foresee is None else self.foresee(self.base + self.segment_size)
            self._next_populated = 0
            if self._next is None:
                return False
            self._zero_beginning(self._next)
            return True
        if self._next_populated >= min(wanted, self.segment_size):
            return False
        end = self._step_after(self._next_populated)
        self._next.populate(self._next_populated, end)
        self._next_populated = end
        return True

    def append_raw(self, offset: int, data: bytes | memoryview) -> int:
        """Appends bytes of the master's log, blanks included, and returns the new end. A full segment is rolled first.

        A slice may end inside a record, not beyond the segment. Raises AppendMismatch if it does, or if `offset` is not
        the end; what `next_segment` raises.
        """
        room = self.room or self.segment_size
        if offset != self.position or len(data) > room:
            raise AppendMismatch(offset, len(data), self.position, room)
        if not self.room:
            self.roll()
        end = self._at + len(data)
        self._populate_to(end)
        self.segment.view[self._at : end] = data
        self._at = end
        return self.position

    def zero_after(self, position: int, length: int) -> None:
        """Zeroes what a killed writer may have left behind the log's end, and syncs it; before the first append.

        For a restart of the writer alone (H11): it goes on at the published APPENDED. A writer publishes that before it
        copies the next request, so at most one request was copied behind it: `length` is request_size_max and the
        blank, for the ha receiver the longest slice. The writer may have rolled before it copied, so the first `length`
        bytes of the next segment are zeroed when the tail gets there. A whole-node start does not come here: recovery
        zeroes everything. Raises SyncFailed.
        """
        assert position == self.position, f"the end is {self.position}, not {position}"
        if self._segment is not None:
            _zero(self._segment, self._at, min(self._at + length, self.segment_size))
        self._zero_next = min(length, self.segment_size)

    def close(self) -> bool:
        """Unmaps the active segment. False while bytes of any segment are still referenced."""
        for mapped in (self._left, self._segment, self._next):
            if mapped is not None:
                self._unmaps.add(mapped)
        self._left = self._segment = self._next = None
        return self._unmaps.sweep() == 0

    def _unmap_left(self) -> bool:
        if self._left is None:
            return False
        self._unmaps.add(self._left)
        self._left = None
        return True

    def _step_after(self, at: int) -> int:
        """Where the step that holds `at` ends: steps begin at multiples of their size, as large pages do."""
        return min(at - at % self._step + self._step, self.segment_size)

    def _zero_beginning(self, segment: MappedFile) -> None:
        """Of the first segment after a restart; see `zero_after`."""
        if self._zero_next:
            _zero(segment, 0, self._zero_next)
            self._zero_next = 0

    def _populate_to(self, end: int) -> None:
        """Populates in steps up to the one that holds `end`, so that no page of the request faults (H6).

        As much is unmapped behind: the page tables of a full segment of 1 GiB take 20 ms to take down in one go.
        """
        if not self._ahead:
            return
        while self._populated < end:
            step_end = self._step_after(self._populated)
            self.segment.populate(self._populated, step_end)
            self._populated = step_end
        if self._at - self._let_go >= 2 * self._step:
            behind = self._at - self._at % self._step
            self.segment.drop_pages(self._let_go, behind)
            self._let_go = behind


def _zero(segment: MappedFile, start: int, end: int) -> None:
    """Nearly always it is zero: then nothing is written, and no sync of megabytes waits for the disk."""
    if not segment.array[start:end].any():
        return
    segment.array[start:end] = 0
    segment.sync(start, end)


def _malformed(rule: Rule, at: int) -> MalformedRecord:
    return MalformedRecord(rule.name, rule.sentence, at)


_WORD: Final = struct.Struct(">I")
_TIME: Final = struct.Struct(">q")
_HEAD_MAX: Final = 128  # bytes that hold the field whatever the hosts' families


def store_time(log: CommitLogReader, physical_offset: int) -> int:
    """Epoch ms of the record that begins there, which is not checked; -1 if the log does not hold it."""
    try:
        head = log.slice(physical_offset, physical_offset + _HEAD_MAX)
    except NotInLog:
        return -1
    if len(head) < LAYOUT.size:
        return -1
    (sys_flag,) = _WORD.unpack_from(head, LAYOUT.offset["sys_flag"])
    at = layout_of(sys_flag).offset["store_timestamp"]
    if len(head) < at + _TIME.size:
        return -1
    (timestamp,) = _TIME.unpack_from(head, at)
    return int(timestamp)
