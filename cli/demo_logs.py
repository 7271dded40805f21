"""Two CommitLogs, byte for byte: the same over [the greater of both beginnings, the lesser of both ends) (H1)."""

from dataclasses import dataclass
from typing import Final

from towline.limits import MIB
from towline.places import Store

from .stored import read_log

_STEP: Final = 4 * MIB


@dataclass(frozen=True, slots=True)
class Span:
    """A CommitLog from its first byte to its end."""

    store: Store
    low: int
    end: int


@dataclass(frozen=True, slots=True)
class Compared:
    """`compared` bytes are in both logs; `differs_at` is the first that differs, or None."""

    compared: int
    differs_at: int | None
    same_end: bool

    @property
    def identical(self) -> bool:
        return self.differs_at is None and self.same_end


def compare_logs(one: Span, other: Span, segment_size: int) -> Compared:
    """Reads both, a few MiB at a time; a step never crosses a segment."""
    low, end = max(one.low, other.low), min(one.end, other.end)
    at = low
    while at < end:
        size = min(_STEP, end - at, segment_size - at % segment_size)
        left, right = read_log(one.store, at, size), read_log(other.store, at, size)
        if left != right or len(left) != size:
            return Compared(end - low, at + _first_difference(left, right), one.end == other.end)
        at += size
    return Compared(max(0, end - low), None, one.end == other.end)


def _first_difference(left: bytes, right: bytes) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(left), len(right)))
