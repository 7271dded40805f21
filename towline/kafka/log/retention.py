"""Which segments a topic's retention lets go: the oldest first, by age, by size, or below the log's start."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from towline.kafka.format import checkpoints

from . import epochs as leader_epochs
from .files import DELETED, DERIVED, LOG, SNAPSHOT, SegmentFiles, sync_directory, write_whole
from .lookup import greatest_time
from .partition import Partition
from .rolling import LogConfig
from .scan import mapped


@dataclass(frozen=True, slots=True)
class Aged:
    """A segment: bytes of its log, and its greatest time, or when its file was last changed where it has none."""

    base: int
    size: int
    timestamp: int


def expired(
    known: Sequence[Aged], config: LogConfig, now_ms: int, high_watermark: int, log_start: int = 0
) -> list[Aged]:
    """A run of segments from the oldest on. The last one stays, and what is not wholly below the high watermark."""
    size = sum(segment.size for segment in known)
    gone: list[Aged] = []
    for segment, following in pairwise(known):
        old = config.retention_ms >= 0 and now_ms - segment.timestamp > config.retention_ms
        large = config.retention_bytes >= 0 and size - config.retention_bytes >= segment.size
        if following.base > high_watermark or not (old or large or following.base <= log_start):
            break
        gone.append(segment)
        size -= segment.size
    return gone


def apply(directory: Path, config: LogConfig, now_ms: int, high_watermark: int, log_start: int = 0) -> int:
    """Deletes what is expired; the offset that the log then starts at, which `log-start-offset-checkpoint` is to have.

    Files are renamed first, as a broker does it: what a crash leaves under its new name is no segment any more.
    """
    partition = Partition(directory, log_start)
    gone = {each.base for each in expired(ages(partition), config, now_ms, high_watermark, log_start)}
    going = [segment for segment in partition.segments if segment.base in gone]
    for segment in going:
        for path in _files(segment):
            path.rename(path.with_name(path.name + DELETED))
    start = max(log_start, next(each.base for each in partition.segments if each.base not in gone))
    if partition.epochs:
        kept = leader_epochs.begun(partition.epochs, start)
        write_whole(directory / checkpoints.LEADER_EPOCHS, checkpoints.encode_epochs(kept))
    sync_directory(directory)
    for path in directory.glob(f"*{DELETED}"):
        path.unlink()
    return start


def ages(partition: Partition) -> list[Aged]:
    """Of each segment. Raises MalformedLog where a time index names another time than its log."""
    return [_aged(segment) for segment in partition.segments]


def _aged(segment: SegmentFiles) -> Aged:
    facts = segment.log.stat()
    timestamp = greatest_time(segment, mapped(segment.log))
    return Aged(segment.base, facts.st_size, timestamp if timestamp >= 0 else int(facts.st_mtime * 1000))


def _files(segment: SegmentFiles) -> list[Path]:
    return [path for suffix in (LOG, *DERIVED, SNAPSHOT) if (path := segment.path(suffix)).exists()]
