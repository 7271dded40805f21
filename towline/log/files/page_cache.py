"""The page cache of segments: which advice the kernel gets for them (tables), and their warm-up (spec 6.1).

A log is written once and, as a rule, read once, right behind its end. A segment that all readers have would only push
others out of memory; and a reader far behind the end must not bring in more than it asks for.

RocketMQ warms a segment by writing a zero into each page. Here the segment is in the log already and its writer may
be in it, so no byte is touched: populating makes the pages present and dirty as a write would, and leaves their bytes.
"""

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from towline.limits import MIB

from .mapped_file import ADVICE_RANDOM, MappedFile

STEP: Final = 4 * MIB


class Advice(Enum):
    KEEP = "nothing is said"
    WILL_NEED = "it is brought into memory"
    DROP = "it leaves memory"
    READ_AHEAD = "who reads it gets what follows as well"
    NO_READ_AHEAD = "who reads it gets what it asks for"


class Place(Enum):
    """Where the log's end is, seen from a segment."""

    AHEAD = "the writer has not reached it"
    ACTIVE = "the writer is in it"
    FULL = "the writer has left it"


@dataclass(frozen=True, slots=True)
class SegmentState:
    """`replicated`: on every connected slave. `old`: it was filled so long ago that a late reader has it too."""

    place: Place
    flushed: bool
    dispatched: bool
    replicated: bool
    old: bool


Row = tuple[Place, bool | None, bool | None, bool | None, bool | None, Advice]

# The first row that fits; None fits both. A page that is not synced cannot be dropped, and what is not dispatched or
# replicated is read next.
#    place          flushed dispatched replicated old
SEGMENTS: Final[tuple[Row, ...]] = (
    (Place.AHEAD, None, None, None, None, Advice.WILL_NEED),
    (Place.ACTIVE, None, None, None, None, Advice.KEEP),
    (Place.FULL, True, True, True, True, Advice.DROP),
    (Place.FULL, None, None, None, None, Advice.KEEP),
)

# Whether the segment lies within the share of memory that the log's end may take: it is in memory, or it is not.
READING: Final = {True: Advice.READ_AHEAD, False: Advice.NO_READ_AHEAD}


@dataclass(frozen=True, slots=True)
class Marks:
    """Ends of the log in bytes: of what is written, synced, in queues and index, and on every connected slave."""

    appended: int
    flushed: int
    dispatched: int
    replicated: int


def state_of(base: int, size: int, marks: Marks, *, old: bool) -> SegmentState:
    end = base + size
    place = Place.FULL if end <= marks.appended else Place.ACTIVE if base <= marks.appended else Place.AHEAD
    return SegmentState(place, marks.flushed >= end, marks.dispatched >= end, marks.replicated >= end, old)


def for_segment(state: SegmentState) -> Advice:
    facts = (state.place, state.flushed, state.dispatched, state.replicated, state.old)
    for *wanted, advice in SEGMENTS:
        if all(want is None or want == fact for want, fact in zip(wanted, facts, strict=True)):
            return advice
    raise AssertionError(f"no row fits {state}")


def for_reader(end: int, log_end: int, in_memory_bytes: int) -> Advice:
    """For a reader that maps the segment which ends at `end`."""
    return READING[log_end - end < in_memory_bytes]


_FADVICE: Final = {Advice.WILL_NEED: os.POSIX_FADV_WILLNEED, Advice.DROP: os.POSIX_FADV_DONTNEED}


def advise_file(path: Path, advice: Advice, start: int = 0, size: int = 0) -> None:
    """For the bytes from `start`, `size` of them or all. Pages that are mapped or not synced stay. Raises OSError."""
    if advice not in _FADVICE:
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(fd, start, size, _FADVICE[advice])
    finally:
        os.close(fd)


def advise_reader(mapped: MappedFile, advice: Advice) -> None:
    """For one reader's mapping. Raises OSError."""
    if advice is Advice.NO_READ_AHEAD:
        mapped.advise(ADVICE_RANDOM)


class WarmUp:
    """One segment of `size` bytes, STEP bytes at a time from `begin` on. Holds a mapping until `release`."""

    def __init__(
        self, path: Path, size: int, *, begin: int = 0, sync_bytes: int = 0, lock: bool = False, large: bool = False
    ) -> None:
        """`sync_bytes`: write out whenever so many were populated. 0: never. `lock`: keep in memory until `release`.
        `large`: in large pages, which a sync writes out as a whole.

        Written pages do not count against the kernel's limits of dirty pages, at which it would stop the log's writer
        as well; and reserved blocks become written ones, which a later sync need not note in the journal.
        """
        self.size, self.at = size, begin
        self._sync_bytes = sync_bytes
        self._synced = begin
        self._lock = lock
        self.lock_error: OSError | None = None
        self._mapped = MappedFile.open(path, size, writable=True)
        if large:
            self._mapped.prefer_large_pages()
        advise_file(path, Advice.WILL_NEED, begin)

    def step(self, writer_at: int = 0) -> bool:
        """One step. `writer_at`: what lies before it needs no warming any more. False when nothing was left to do.

        Raises SyncFailed, StoreNotWritable. A page that cannot be locked ends the locking: see `lock_error`.
        """
        if writer_at > self.at:
            self.at = self._synced = min(writer_at, self.size)
        if self.at >= self.size:
            return False
        end = min(self.at + STEP, self.size)
        self._mapped.populate(self.at, end)
        self._lock_pages(self.at, end)
        self.at = end
        # Under the writer's hands a sync would protect the pages it is writing to, and each would fault again (H6).
        if self._sync_bytes and not writer_at and (end - self._synced >= self._sync_bytes or end == self.size):
            self._mapped.sync(self._synced, end)
            self._synced = end
        return True

    def release(self) -> None:
        """Unmaps the segment and unlocks it; its pages stay in memory as long as the kernel likes."""
        self._mapped.release()

    def _lock_pages(self, start: int, end: int) -> None:
        if self._lock and self.lock_error is None:
            try:
                self._mapped.lock(start, end)
            except OSError as error:
                self.lock_error = error


def warm(path: Path, size: int, *, sync_bytes: int = STEP) -> None:
    """All steps at once."""
    warming = WarmUp(path, size, sync_bytes=sync_bytes)
    try:
        while warming.step():
            pass
    finally:
        warming.release()
