"""The segments of a running node's log: age, share in memory, whether they are archived, and which age lets them go.

Read from the directory and from positions; no process is asked, and no byte of the log is read.
"""

from pathlib import Path
from typing import Any, Final

from towline.errors import MalformedFile
from towline.limits import PAGE
from towline.log.files.mapped_file import MappedFile
from towline.log.files.segment_files import segment_base, segment_name
from towline.log.state.archived import archived_until
from towline.node.process.context import Node
from towline.runtime.positions import Position

from .running import open_running

SEGMENTS_MAX: Final = 1_000  # in one answer: the newest
MS_PER_HOUR: Final = 3_600_000
_BLOCK: Final = 512  # bytes of st_blocks

Row = tuple[int, int, int, float, bool]


def read_segments(store_root: Path) -> dict[str, Any]:
    """For JSON. Raises NodeNotRunning, NodeNotReadable.

    size          bytes of each segment
    log_min, end  the log's first byte, and the one behind its last
    now_ms        the node's clock
    reserved_ms   the age from which a segment is due to be deleted
    keeps         whether it waits for the archive then
    older         how many older segments are not in `segments`
    segments      rows, the oldest first: base, modified_ms, allocated bytes, share in memory from 0 to 1, archived
    """
    _, node = open_running(store_root)
    try:
        size = node.settings.mapped_file_size_commit_log
        found = _bases(node)
        until = _archived_until(node, size)
        rows = [row for base in found[-SEGMENTS_MAX:] if (row := _row(node, base, size, until)) is not None]
        return {
            "size": size,
            "log_min": node.positions.get(Position.LOG_MIN),
            "end": node.positions.get(Position.APPENDED),
            "now_ms": node.clock.now_ms(),
            "reserved_ms": node.settings.file_reserved_time * MS_PER_HOUR,
            "keeps": node.settings.keep_until_archived,
            "older": max(0, len(found) - SEGMENTS_MAX),
            "segments": rows,
        }
    finally:
        node.positions.close()


def _bases(node: Node) -> list[int]:
    names = (path.name for path in node.store.commitlog.iterdir())
    return sorted(base for name in names if (base := segment_base(name)) is not None)


def _archived_until(node: Node, size: int) -> int:
    try:
        return archived_until(node.store, size)
    except MalformedFile:  # then no segment counts as archived: `status` says why
        return 0


def _row(node: Node, base: int, size: int, until: int) -> Row | None:
    """None for one that was removed meanwhile."""
    path = node.store.commitlog / segment_name(base)
    try:
        found = path.stat()
        share = _share_in_memory(path, found.st_size)
    except FileNotFoundError:
        return None
    return base, found.st_mtime_ns // 1_000_000, _BLOCK * found.st_blocks, share, base + size <= until


def _share_in_memory(path: Path, size: int) -> float:
    if not size:
        return 0.0
    mapped = MappedFile.open(path, size, writable=False)
    try:
        return round(mapped.resident(0, size) * PAGE / size, 3)
    finally:
        mapped.release()
