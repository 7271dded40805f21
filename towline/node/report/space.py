"""Room on a node's disk, and when it will be full: for status."""

from typing import Any, Final

from towline.log.commitlog.cleaning import full_in_s
from towline.log.commitlog.reserve_file import ReserveFile, disk_use
from towline.log.files.segment_files import segment_name
from towline.node.process.context import Node
from towline.runtime.positions import Position

SEGMENTS: Final = 8  # how many full ones the rate is taken from


def space_of(node: Node) -> dict[str, Any]:
    """Bytes and percent. `full_in_s`: until puts are refused if the log grows on as it did and nothing is deleted."""
    settings, use = node.settings, disk_use(node.store.root)
    size, appended = settings.mapped_file_size_commit_log, node.positions.get(Position.APPENDED)
    level = settings.disk_space_warning_level_ratio
    full = None
    for back in range(SEGMENTS, 0, -1):
        filled = appended - appended % size - (back - 1) * size  # end of a segment that was filled
        path = node.store.commitlog / segment_name(filled - size)
        if filled > node.positions.get(Position.LOG_MIN) and path.exists():
            grown_ms = node.clock.now_ms() - path.stat().st_mtime_ns // 1_000_000
            full = full_in_s(use, level, appended - filled, grown_ms)
            break
    held = ReserveFile(node.store.root, settings.reserve_file_size).held
    return {
        "used_percent": use.percent,
        "available": use.available,
        "warning_level_percent": level,
        "reserve_held": held,
        "full_in_s": full,
    }
