"""Writes a partition as a broker leaves it after a clean stop: segments with their indexes, epochs, producers."""

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self
from uuid import UUID

import numpy as np

from towline.kafka.errors import MalformedBytes, NotAppended
from towline.kafka.format import batch, checkpoints, partition_metadata, producer_snapshot
from towline.kafka.format.building import Form, build
from towline.kafka.format.checkpoints import LeaderEpoch
from towline.kafka.format.records import Bytes, Records

from . import epochs as leader_epochs
from .files import DERIVED, LOG, SNAPSHOT, SegmentFiles, check_topic, drop_snapshots, sync_directory, write_whole
from .indexes import Indexes
from .partition import Partition
from .producers import Producers
from .rolling import Active, LogConfig, must_roll
from .scan import Batches, mapped, scan

_STEP: Final = 64 * 1024  # batches that are looked at together


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _no_jitter() -> int:
    return 0


class PartitionWriter:
    """Appends to the directory `<topic>-<number>` below `root`, which is made, or was left by a clean stop.

    Nothing else may write there. `jitter` gives the ms by which a new segment is rolled sooner (segment.jitter.ms);
    `now_ms` stands in where batches have no times. What was appended is durable after `close`. Before, the segment that
    is written has no index, so that a broker which finds it after a crash recovers it, and so does `recover`. The same
    holds where the disk refuses a write (OSError): the writer is closed then.
    """

    def __init__(
        self,
        root: Path,
        topic: str,
        number: int,
        config: LogConfig = LogConfig(),  # noqa: B008
        *,
        topic_id: UUID | None = None,
        start: int = 0,
        now_ms: Callable[[], int] = _now_ms,
        jitter: Callable[[], int] = _no_jitter,
    ) -> None:
        """`start` is the offset at which a new partition begins. Raises IllegalTopicName, and for one that is there
        what Partition raises."""
        check_topic(topic)
        self.directory = root / f"{topic}-{number}"
        self._config, self._now_ms, self._jitter = config, now_ms, jitter
        self._producers = Producers()
        self._epochs: list[LeaderEpoch] = []
        self._log: BinaryIO | None = None
        self.end = start
        if any(self.directory.glob(f"*{LOG}")):
            self._resume()
        else:
            self.directory.mkdir(parents=True, exist_ok=True)
            if topic_id is not None:
                write_whole(self.directory / partition_metadata.NAME, partition_metadata.encode(topic_id))
            self._open(start)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(self, records: Records, form: Form = Form()) -> None:  # noqa: B008
        """Records as batches of this form, at the offsets that they have. Raises NotAppended."""
        if len(records) and (records.offset[0] < self.end or (np.diff(records.offset) <= 0).any()):
            raise NotAppended(str(self.directory), f"offsets that rise from {self.end} on are wanted")
        self._take(build(records, form), checked=True)

    def append_batches(self, data: Bytes) -> None:
        """Batches end to end, as they stand in another log, with their offsets and CRCs. Raises NotAppended."""
        self._take(data, checked=False)

    def close(self) -> None:
        """Makes everything durable, with the files that a clean stop leaves. A second time does nothing."""
        if self._log is None:
            return
        self._end_segment()
        self._write_snapshot()
        write_whole(self.directory / checkpoints.LEADER_EPOCHS, checkpoints.encode_epochs(self._epochs))

    def _take(self, data: Bytes, *, checked: bool) -> None:
        if self._log is None:
            raise NotAppended(str(self.directory), "the writer is closed")
        found = scan(data, check_crcs=not checked)
        if found.fault is not None:
            raise NotAppended(str(self.directory), str(found.fault.describe()))
        if not len(found.batches):
            return
        if (found.batches["magic"] != batch.MAGIC).any():
            raise NotAppended(str(self.directory), "messages of magic 0 and 1 are read, and never written")
        if int(found.batches["base_offset"][0]) < self.end:
            said = f"offset {found.batches['base_offset'][0]}, the partition ends at {self.end}"
            raise NotAppended(str(self.directory), said)
        if int(found.batches["size"].max()) > self._config.segment_bytes:
            raise NotAppended(str(self.directory), f"a batch is larger than a segment of {self._config.segment_bytes}")
        try:
            deque(Producers(self._producers.snapshot()).add(data, found.batches), maxlen=0)
        except MalformedBytes as error:
            raise NotAppended(str(self.directory), error.describe()) from None
        try:
            for at in range(0, len(found.batches), _STEP):
                self._place(data, found.batches[at : at + _STEP])
        except OSError:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Nobody knows how much of the last write is there: no file may say that it all is."""
        log, self._log = self._log, None
        if log is not None:
            with suppress(OSError):
                log.close()

    def _place(self, data: Bytes, batches: Batches) -> None:
        """Writes runs of batches, each into one segment."""
        begin = 0
        names = ("base_offset", "last_offset", "size", "max_timestamp")
        for row, (first, last, size, timestamp) in enumerate(
            zip(*(batches[name].tolist() for name in names), strict=True)
        ):
            if must_roll(self._active(), self._config, size, timestamp, last, self._now_ms()):
                self._write(data, batches[begin:row])
                begin = row
                self._roll(first)
            if not self._size:
                self._first_timestamp = timestamp
            self._indexes.add(self._size, size, last, timestamp)
            self._size += size
            self.end = last + 1
        self._write(data, batches[begin:])

    def _write(self, data: Bytes, batches: Batches) -> None:
        if not len(batches):
            return
        assert self._log is not None
        start, last = int(batches["position"][0]), batches[-1]
        self._log.write(data[start : int(last["position"]) + int(last["size"])].data)
        self._epochs = leader_epochs.added(self._epochs, batches)
        self._indexes.aborted += self._producers.add(data, batches)

    # --- segments

    def _active(self) -> Active:
        return Active(
            base=self._files.base,
            size=self._size,
            created_ms=self._created_ms,
            first_timestamp=self._first_timestamp,
            offset_entries=len(self._indexes.offsets),
            time_entries=len(self._indexes.timestamps),
            jitter_ms=self._segment_jitter_ms,
        )

    def _open(self, base: int) -> None:
        self._files = SegmentFiles(self.directory, base)
        self._indexes = Indexes(base, self._config.index_interval_bytes)
        self._size, self._first_timestamp, self._created_ms = 0, batch.NONE, self._now_ms()
        self._segment_jitter_ms = min(self._jitter(), self._config.segment_ms)
        self._log = self._files.log.open("ab")

    def _roll(self, first: int) -> None:
        """The next segment begins with the batch whose first offset this is; what is between was never there."""
        empty = not self._size
        self._end_segment()
        if empty:  # its name says an offset too far away
            for path in self.directory.glob(f"{self._files.base:020d}.*"):
                path.unlink()
        self.end = max(first, self.end)
        self._write_snapshot()
        self._open(self.end)

    def _end_segment(self) -> None:
        assert self._log is not None
        try:
            self._log.flush()
            os.fsync(self._log.fileno())
        finally:
            self._give_up()
        for suffix, data in self._indexes.finished().items():
            write_whole(self._files.path(suffix), data)
        sync_directory(self.directory)

    def _write_snapshot(self) -> None:
        path = SegmentFiles(self.directory, self.end).path(SNAPSHOT)
        write_whole(path, producer_snapshot.encode(self._producers.snapshot()))

    def _resume(self) -> None:
        """Goes on in the last segment: epochs, producers and its index entries come from the log."""
        known = Partition(self.directory)
        self._producers = known.producers()
        for segment, data, batches in known.scans(known.segments[0].base):
            self._indexes = Indexes(segment.base, self._config.index_interval_bytes)
            self._indexes.add_all(batches)
            self._indexes.aborted += self._producers.add(data, batches)
            self._epochs = leader_epochs.added(self._epochs, batches)
            self._first_timestamp = int(batches["max_timestamp"][0]) if len(batches) else batch.NONE
            self.end = int(batches["last_offset"][-1]) + 1 if len(batches) else max(self.end, segment.base)
        self._epochs = leader_epochs.merged(known.epochs, self._epochs)
        self._files = known.segments[-1]
        drop_snapshots(self.directory, {segment.base for segment in known.segments})
        for suffix in DERIVED:
            self._files.path(suffix).unlink(missing_ok=True)
        sync_directory(self.directory)
        self._size = len(mapped(self._files.log))
        self._created_ms = int(self._files.log.stat().st_mtime * 1000)
        self._segment_jitter_ms = min(self._jitter(), self._config.segment_ms)
        self._log = self._files.log.open("ab")
