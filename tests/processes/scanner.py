"""A reader of files beside a live node, as a Spark task is one: maps segments by CommitLogReader and walks them.

`python -m tests.processes.scanner STORE SEGMENT_SIZE` scans from the log's beginning to what is dispatched, again and
again, until its input ends; then it writes what it met as JSON. Any wrong byte, and any fault of memory, ends it with
another status than 0.
"""

import json
import select
import sys
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from towline.errors import NotInLog
from towline.format.record.blank import MAGIC as BLANK_MAGIC
from towline.format.record.record import decode
from towline.log.commitlog.commit_log import CommitLogReader
from towline.node.process.context import runtime_of
from towline.runtime.positions import Position, Positions


def scan_segment(log: CommitLogReader, base: int, low: int, end: int) -> int:
    """Checks every record of one segment that ends at or before `end`; how many."""
    at, found = max(base, low), 0
    while at < min(end, base + log.segment_size):
        head = log.slice(at, at + 8)
        if int.from_bytes(head[4:8], "big") == BLANK_MAGIC:
            break
        view = log.record(at, end)
        record = decode(view)  # checks the body's CRC
        assert record.physical_offset == at, f"{record.physical_offset} stands at {at}"
        at += len(view)
        found += 1
    return found


class HeldSegments:
    """Segments that were read to their end: each stays mapped until its file is deleted, then it is looked at again."""

    def __init__(self, log: CommitLogReader) -> None:
        self._log = log
        self._held: dict[int, tuple[NDArray[np.uint8], int]] = {}

    def hold(self, base: int, array: NDArray[np.uint8]) -> None:
        if base not in self._held:
            self._held[base] = array, zlib.crc32(array)

    def check(self) -> int:
        """Every one has the bytes it had; how many were deleted since the last look. These go."""
        gone = [base for base in self._held if not self._log.queue.path_of(base).exists()]
        for base, (array, before) in self._held.items():
            assert zlib.crc32(array) == before, f"segment {base} changed, deleted: {base in gone}"
        for base in gone:
            del self._held[base]
        return len(gone)


def main(store: Path, segment_size: int) -> Counter[str]:
    positions = Positions.open(runtime_of(store).positions, writable=False)
    log = CommitLogReader(store / "commitlog", segment_size)
    held = HeldSegments(log)
    met: Counter[str] = Counter()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], 0)[0]:
        low, end = positions.get(Position.LOG_MIN), positions.get(Position.DISPATCHED)
        base = low
        while base < end:
            try:
                array = log.array(base)
                met["records"] += scan_segment(log, base, low, end)
            except NotInLog:
                met["not in log"] += 1
                break
            if base + segment_size <= end:
                held.hold(base, array)
            base += segment_size
        met["held after deletion"] += held.check()
        met["scans"] += 1
    met["held after deletion"] += held.check()
    return met


if __name__ == "__main__":
    json.dump(main(Path(sys.argv[1]), int(sys.argv[2])), sys.stdout)
