"""Whether the file system of a new store has room for the first segment of its log."""

from towline.errors import NoFirstSegment
from towline.log.commitlog.reserve_file import ReserveFile, disk_use
from towline.log.files.segment_files import segment_name
from towline.places import Store
from towline.runtime.settings import Settings


def need_first_segment(store: Store, settings: Settings) -> None:
    """Raises NoFirstSegment. A log that has a segment can be read whatever the disk, so it may always start."""
    if store.commitlog.is_dir() and any(store.commitlog.iterdir()):
        return
    reserve = ReserveFile(store.root, settings.reserve_file_size)
    needed = settings.mapped_file_size_commit_log + (0 if reserve.held else reserve.size)
    available = disk_use(store.root).available
    if available < needed:
        raise NoFirstSegment(str(store.commitlog / segment_name(0)), needed, available)
