"""A partition after a crash: a torn batch is cut off, indexes and what is known of producers are derived anew.

Torn is what a crash leaves: the last segment's last batch, not whole, or with bytes that are not its own (`torn`).
Damage with a batch behind it is never cut away, as a broker would do: it raises.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from towline.kafka.errors import MalformedBytes, MalformedLog, OffsetOutOfRange, in_file
from towline.kafka.format import checkpoints, producer_snapshot
from towline.kafka.format.checkpoints import LeaderEpoch

from . import epochs as leader_epochs
from .files import DERIVED, LOG, SNAPSHOT, SegmentFiles, drop_snapshots, drop_staged, sync_directory, write_whole
from .indexes import Indexes
from .partition import Partition
from .producers import Producers
from .rolling import LogConfig
from .scan import mapped, scan
from .torn import is_torn


@dataclass(frozen=True, slots=True)
class Recovered:
    """`end` is the offset behind the last record; `cut` is how many bytes were torn, `torn` what was wrong there."""

    end: int
    cut: int
    torn: MalformedLog | None


def recover(directory: Path, config: LogConfig = LogConfig()) -> Recovered:  # noqa: B008
    """Leaves the partition as a clean stop would. Raises MalformedLog where a log is damaged before its end."""
    partition = Partition(directory)
    last = partition.segments[-1]
    data = mapped(last.log)
    found = scan(data, base=last.base, check_crcs=True)
    torn = in_file(str(last.log), found.fault) if found.fault is not None else None
    cut = last.size - found.end
    if torn is not None:
        if not is_torn(data, found, last.base):
            raise torn
        _shorten(last, found.end)
    return Recovered(_derive(Partition(directory), config), cut, torn)


def cut(directory: Path, end: int, config: LogConfig = LogConfig()) -> Recovered:  # noqa: B008
    """Cuts the log so that the batch with offset `end` and all behind it go, as a follower does before a new leader.

    Epochs that began there go too, indexes and snapshots of producers are derived anew. Raises OffsetOutOfRange, and
    what `recover` raises.
    """
    partition = Partition(directory)
    if not partition.segments[0].base <= end <= partition.end:
        raise OffsetOutOfRange(str(directory), end, partition.segments[0].base, partition.end)
    before = sum(segment.size for segment in partition.segments)
    for segment in reversed(partition.segments[1:]):
        if segment.base >= end:
            _remove(segment)
    left = Partition(directory)
    last = left.segments[-1]
    batches = scan(mapped(last.log), base=last.base).batches
    reached = batches[batches["last_offset"] >= end]
    if len(reached):
        _shorten(last, int(reached["position"][0]))
    whole = _derive(Partition(directory), config)
    after = sum(segment.size for segment in left.segments)
    return Recovered(whole, before - after, None)


def _shorten(segment: SegmentFiles, size: int) -> None:
    with segment.log.open("r+b") as file:
        file.truncate(size)
        os.fsync(file.fileno())


def _remove(segment: SegmentFiles) -> None:
    for suffix in (*DERIVED, SNAPSHOT, LOG):
        segment.path(suffix).unlink(missing_ok=True)


def _derive(partition: Partition, config: LogConfig) -> int:
    """Writes indexes, snapshots and epochs from the log; the offset behind its last record."""
    producers, seen = _before(partition), list[LeaderEpoch]()
    end = partition.segments[0].base
    drop_staged(partition.directory)
    drop_snapshots(partition.directory, {end})
    for row, (segment, data, batches) in enumerate(partition.scans(end, check_crcs=True)):
        if row:
            _snapshot(partition.directory, segment.base, producers)
        indexes = Indexes(segment.base, config.index_interval_bytes)
        indexes.add_all(batches)
        try:
            indexes.aborted += producers.add(data, batches)
        except MalformedBytes as error:
            raise in_file(str(segment.log), error) from None
        files = indexes.finished()
        for suffix in DERIVED:
            if suffix in files:
                write_whole(segment.path(suffix), files[suffix])
            else:
                segment.path(suffix).unlink(missing_ok=True)
        seen = leader_epochs.added(seen, batches)
        end = int(batches["last_offset"][-1]) + 1 if len(batches) else max(end, segment.base)
    _snapshot(partition.directory, end, producers)
    kept = leader_epochs.merged(leader_epochs.cut(partition.epochs, end), seen)
    write_whole(partition.directory / checkpoints.LEADER_EPOCHS, checkpoints.encode_epochs(kept))
    sync_directory(partition.directory)
    return end


def _before(partition: Partition) -> Producers:
    """By the snapshot at the first segment; one that is damaged is none, and goes."""
    try:
        return partition.producers()
    except MalformedLog:
        partition.segments[0].path(SNAPSHOT).unlink()
        return Producers()


def _snapshot(directory: Path, offset: int, producers: Producers) -> None:
    write_whole(SegmentFiles(directory, offset).path(SNAPSHOT), producer_snapshot.encode(producers.snapshot()))
