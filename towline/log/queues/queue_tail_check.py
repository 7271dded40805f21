"""A check of the log's end by the queues of a closed store: every record that they point to was whole once.

Only a clean stop makes that sure: after a power cut the pages of queues may be on the disk and those of the log not.
"""

from pathlib import Path
from typing import Final

from towline.errors import ForeignFile, SegmentSizeMismatch
from towline.format.record.record import SIZE_MIN

from .consume_queue import ConsumeQueueFiles, is_filler

_FILES_OPEN_MAX: Final = 64
_ANY: Final = 1 << 62


def dispatched_behind(root: Path, file_size: int, at: int) -> int | None:
    """The end of the newest record that the queues below `root` point to, if an entry points to exactly `at`.

    None without such an entry. Queues whose files cannot be read are passed over.
    """
    files = ConsumeQueueFiles(root, file_size, _FILES_OPEN_MAX)
    newest, hit = at, False
    try:
        for topic, queue_id in files.list_queues():
            try:
                first, end = files.end_of(topic, queue_id, _ANY)
                number = files.min_offset_after(topic, queue_id, at, first, end)
                entries = [files.raw(topic, queue_id, one, 1) for one in (number, end - 1) if number < end]
            except (ForeignFile, SegmentSizeMismatch):
                continue
            for entry in entries:
                if not is_filler(entry)[0] and entry["record_size"][0] >= SIZE_MIN:
                    place = int(entry["physical_offset"][0])
                    hit = hit or place == at
                    newest = max(newest, place + int(entry["record_size"][0]))
    finally:
        files.close()
    return newest if hit else None
