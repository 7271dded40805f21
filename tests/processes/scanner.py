"""A reader of files beside a live node, as a Spark task is one: maps segments by CommitLogReader and walks them.

`python -m tests.processes.scanner STORE SEGMENT_SIZE` scans from the log's beginning to what is dispatched, again and
again, until its input ends; then it writes what it met as JSON. Any wrong byte, and any fault of memory, ends it with
another status than 0.
"""

import json
import select
import sys
import zlib
from collections import Counter, deque
from pathlib import Path

from towline.errors import NotInLog
from towline.format.record.blank import MAGIC as BLANK_MAGIC
from towline.format.record.record import decode
from towline.log.commitlog.commit_log import CommitLogReader
from towline.node.process.context import runtime_of
from towline.runtime.positions import Position, Positions

HELD_MAX = 4  # segments whose bytes are looked at again after they were deleted


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


def main(store: Path, segment_size: int) -> Counter[str]:
    positions = Positions.open(runtime_of(store).positions, writable=False)
    log = CommitLogReader(store / "commitlog", segment_size)
    met: Counter[str] = Counter()
    held: deque[tuple[int, object, int]] = deque(maxlen=HELD_MAX)
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
                held.append((base, array, zlib.crc32(array)))
            base += segment_size
        for base, array, before in held:
            gone = not log.queue.path_of(base).exists()
            assert zlib.crc32(array) == before, f"segment {base} changed, deleted: {gone}"
            met["held after deletion"] += gone
        met["scans"] += 1
    return met


if __name__ == "__main__":
    json.dump(main(Path(sys.argv[1]), int(sys.argv[2])), sys.stdout)
