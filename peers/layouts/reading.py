"""Reads one queue from its beginning to its end, as a server hands it out: its bytes found, and every CRC compared."""

from pathlib import Path
from typing import Final

import numpy as np

from towline.errors import BenchFailed
from towline.format.record.record import LAYOUT
from towline.kafka.log.partition import Partition
from towline.kernels.base.crc import crc32_each
from towline.kernels.scan.queues import gather
from towline.loadtest.bench.shapes import TOPIC
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.places import Store

from .load import Bytes, Load, Numbers
from .one_log import QUEUE_FILE

PULL: Final = 512  # messages of an answer: what serve has at most, where they are fetched one by one
_CRC_AT: Final = LAYOUT.offset["body_crc"]
_CRC_MASK: Final = 0x7FFF_FFFF


class QueueReader:
    """Of one CommitLog. `cold`: as serve reads a segment that is behind what memory holds, without read-ahead."""

    def __init__(self, directory: Path, load: Load, *, cold: bool) -> None:
        store, self._body, self._cold = Store(directory), load.body, cold
        self._log = CommitLogReader(store.commitlog, load.segment, in_memory_bytes=0 if cold else None)
        self._log.load()
        self._files = ConsumeQueueFiles(store.consumequeue, QUEUE_FILE, 1)

    def read(self, queue: int) -> int:
        """How many messages it has. Raises BenchFailed."""
        done = 0
        while len(entries := self._files.read(TOPIC, queue, done, PULL)):
            places = entries["physical_offset"].astype(np.int64)
            sizes = entries["record_size"].astype(np.int64)
            self._check(self._records(places, sizes), sizes)
            done += len(entries)
        return done

    def close(self) -> None:
        self._files.close()
        self._log.close()

    def _records(self, places: Numbers, sizes: Numbers) -> Bytes:
        """A view of the log where the records stand back to back, else a copy."""
        start, end = int(places[0]), int(places[-1] + sizes[-1])
        log = self._log.array(0)
        if (places[1:] == places[:-1] + sizes[:-1]).all():
            if self._cold:
                self._log.expect(start, end)
            return log[start:end]
        if self._cold:
            self._log.expect_scattered(places.tolist(), (places + sizes).tolist())
        target = np.empty(int(sizes.sum()), np.uint8)
        gather(log, places, sizes.astype(np.int32), len(places), target)
        return target

    def _check(self, records: Bytes, sizes: Numbers) -> None:
        """CRC-32 of each body."""
        starts = np.cumsum(sizes) - sizes
        found = np.zeros(len(sizes), np.int64)
        crc32_each(records, starts + LAYOUT.size, np.full(len(sizes), self._body, np.int64), found)
        stored = np.ascontiguousarray(records[(starts + _CRC_AT)[:, None] + np.arange(4)]).view(">u4")[:, 0]
        if (found & _CRC_MASK != stored).any():
            raise BenchFailed("a body has another CRC")


class PartitionReader:
    """Of a log per partition."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, queue: int) -> int:
        """How many messages it has. Raises MalformedLog."""
        scans = Partition(self._directory / f"{TOPIC}-{queue}").scans(check_crcs=True)
        return sum(int(batches["record_count"].sum()) for _, _, batches in scans)

    def close(self) -> None:
        """Every partition was closed when it was read."""
