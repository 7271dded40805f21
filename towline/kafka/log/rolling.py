"""When a segment ends and the next begins, as a broker decides it. Nothing here acts."""

from dataclasses import dataclass
from typing import Final

from towline.kafka.format import offset_index, time_index
from towline.limits import DAY_S, GIB, MIB

OFFSETS_MAX: Final = 2**31 - 1  # from a segment's base on: indexes have 4 bytes for them


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of a topic, with Kafka's defaults; sizes are bytes. A retention of -1 has no bound."""

    segment_bytes: int = GIB
    segment_ms: int = 7 * DAY_S * 1000
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 * MIB
    retention_ms: int = 7 * DAY_S * 1000
    retention_bytes: int = -1

    @property
    def offset_entries_max(self) -> int:
        return self.segment_index_bytes // offset_index.SIZE

    @property
    def time_entries_max(self) -> int:
        """One is kept for the roll."""
        return self.segment_index_bytes // time_index.SIZE - 1


@dataclass(frozen=True, slots=True)
class Active:
    """The segment that is written: when it was made, and the greatest time of its first batch (-1 for none)."""

    base: int
    size: int
    created_ms: int
    first_timestamp: int
    offset_entries: int
    time_entries: int
    jitter_ms: int = 0


def must_roll(active: Active, config: LogConfig, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
    """Whether a batch of `size` bytes begins a new segment.

    By size, by full indexes, by an offset that is too far from the base. By time, counted from the first batch to this
    one, or from the making of the segment to `now_ms` where batches have no times.
    """
    timed = active.first_timestamp >= 0
    waited_ms = max_timestamp - active.first_timestamp if timed else now_ms - active.created_ms
    return (
        active.size > config.segment_bytes - size
        or (active.size > 0 and waited_ms > config.segment_ms - active.jitter_ms)
        or active.offset_entries >= config.offset_entries_max
        or active.time_entries >= config.time_entries_max
        or not 0 <= last_offset - active.base <= OFFSETS_MAX
    )
