"""Building one IndexFile of a log by itself, byte for byte the file that reput would write.

Keys stand in the index in the log's order and a file holds a fixed number of them, so it is enough to know how many
keys each segment has: then a file's first key is found by counting, and nobody waits for the file before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan

from .index_service import IndexService


@dataclass(frozen=True, slots=True)
class IndexPart:
    """File `number` of an index, from 0 on: `count` keys, the first of which is key `skip` behind offset `start`.

    With `follows` one more key stands before them, the last of the file before. `start` is a record's start.
    """

    number: int
    start: int
    skip: int
    count: int
    follows: bool


def index_parts(starts: Sequence[int], keys: Sequence[int], indexes: int) -> list[IndexPart]:
    """The files of an index, for stretches of the log that begin at `starts` and have so many `keys`, in order."""
    per_file, parts, total = indexes - 1, [], sum(keys)
    before, stretch = 0, 0  # keys before the stretch
    for number in range(-(-total // per_file)):
        first = number * per_file
        needed = max(first - 1, 0)
        while before + keys[stretch] <= needed:
            before += keys[stretch]
            stretch += 1
        count = min(per_file, total - first)
        parts.append(IndexPart(number, starts[stretch], needed - before, count, follows=first > 0))
    return parts


def build_index_file(log: CommitLogReader, end: int, part: IndexPart, scratch: Path, slots: int, indexes: int) -> Path:
    """Builds one file in `scratch`, an empty directory; synced. Returns its path.

    Raises CorruptLog, DiskFull, SyncFailed.
    """
    service = IndexService(scratch, slots, indexes, writable=True)
    service.load()
    try:
        skip, left, follows = part.skip, part.count, part.follows
        for batch in DispatchScan(log, QueueDirectory()).whole(part.start, end):
            if skip >= len(batch.keys):
                skip -= len(batch.keys)
                continue
            keys, skip = batch.keys[skip:], 0
            if follows:
                record = batch.rows[keys[0]["record"]]
                service.follow(int(record["store_timestamp"]), int(record["phy"]))
                keys, follows = keys[1:], False
            keys = keys[:left]
            service.put(batch.log, batch.rows, keys)
            left -= len(keys)
            if not left:
                break
        assert not left, f"the log up to {end} has {left} keys less than were counted"
        service.sync()
        return scratch / service.names[0]
    finally:
        service.close()
