"""What the kernel is told about the memory of a segment, as tables: pure. `page_cache` does what they say.

A log is written once and, as a rule, read once, right behind its end. What everybody has would only push out of memory
what somebody still needs; and a reader far behind must not bring in more than it asks for.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


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
