"""Records of a stretch of a log, and of what was cut off and kept."""

from pathlib import Path
from typing import Final

import numpy as np

from towline.format.record.properties import UNIQ_KEY
from towline.format.record.properties import decode as decode_properties
from towline.format.record.record import MAGIC_V1, MAGIC_V2, SIZE_MIN, decode
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan
from towline.places import Store

_HEAD: Final = 8


def tail_of(store: Store, segment_size: int, start: int, end: int) -> int:
    """How many records stand in [start, end) of a log; `start` is a record's."""
    if start >= end:
        return 0
    log = CommitLogReader(store.commitlog, segment_size)
    log.load()
    scan, at, count = DispatchScan(log, QueueDirectory()), start, 0
    while at < end:
        batch = scan.read(at, end)
        count += len(batch.rows)
        if batch.end == at:
            break
        at = batch.end
    del batch, scan
    log.close()
    return count


def kept_keys(store: Store) -> list[str]:
    """Unique keys of the records in `diverged/`, each decoded whole. Raises MalformedRecord."""
    found = []
    for path in sorted(store.diverged.glob("*.log")) if store.diverged.is_dir() else ():
        found += _keys_of(path)
    return found


def _keys_of(path: Path) -> list[str]:
    data = np.memmap(path, dtype=np.uint8, mode="r")
    at, keys = 0, []
    while at <= len(data) - SIZE_MIN:
        head = data[at : at + _HEAD].tobytes()
        size, magic = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
        if magic not in (MAGIC_V1, MAGIC_V2) or size > len(data) - at:
            break  # a blank, or the end of what was written
        properties = decode_properties(decode(data[at : at + size].tobytes()).properties)
        keys.append(str(properties.get(UNIQ_KEY, "")))
        at += size
    return keys
