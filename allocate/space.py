"""Free space on the disk, checked a few times a second, with the flag DISK_FULL and the reserve file."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from towline.log.commitlog.cleaning import DiskUse
from towline.log.commitlog.reserve_file import ReserveFile, disk_use
from towline.node.process.context import Node
from towline.runtime.positions import Flag, Position

CHECK_EVERY_MS: Final = 250
PLENTY: Final = 3  # the reserve is made again where so many times its size is available


class DiskSpace:
    """Checks the disk in each cycle. `use` is the last result; `use_of` asks the file system."""

    def __init__(self, node: Node, use_of: Callable[[Path], DiskUse] = disk_use) -> None:
        settings = node.settings
        self._node = node
        self._use_of = use_of
        self._segment_size = settings.mapped_file_size_commit_log
        self._warning = settings.disk_space_warning_level_ratio
        self._reserve = ReserveFile(node.store.root, settings.reserve_file_size)
        self._held = False
        self._failed: int | None = None  # base of a segment for which there was no room
        self._check_at = 0
        self.use = DiskUse(0, 0)

    def adjust(self) -> None:
        """Judges by the settings as they are now."""
        self._warning = self._node.settings.disk_space_warning_level_ratio
        self._signal()

    @property
    def lacking(self) -> int:
        """Bytes missing for the segment that had no room; 0 where none failed, or there is room by now."""
        if self._failed is None:
            return 0
        return max(0, self._segment_size + self._headroom - self.use.available)

    def start(self) -> None:
        self._held = self._reserve.held
        self._check_at = 0
        self.check(self._node.clock.monotonic_ms())

    def check(self, now_ms: int) -> None:
        """Checks the disk, at most once every CHECK_EVERY_MS."""
        if now_ms < self._check_at:
            return
        self._check_at = now_ms + CHECK_EVERY_MS
        self.use = self._use_of(self._node.store.root)
        self._keep_reserve()
        self._signal()

    def has_room(self, base: int) -> bool:
        """Whether the segment of `base` may be created: space given up for state files and queues is left to them."""
        if self.available() >= self._segment_size + self._headroom:
            return True
        self.failed(base)
        return False

    def available(self) -> int:
        """Free bytes as of now; `use` and `lacking` follow."""
        self.use = self._use_of(self._node.store.root)
        return self.use.available

    def failed(self, base: int) -> None:
        """Notes that the segment of `base` had no room."""
        if self._failed is None:
            self._node.log.error(
                "no room for segment %d: %d bytes are wanted and %d available",
                base,
                self._segment_size + self._headroom,
                self.use.available,
            )
        self._failed = base
        self._signal()

    def made(self) -> None:
        """Notes that the wanted segment was created."""
        if self._failed is not None:
            self._failed = None
            self._signal()

    def stop(self) -> None:
        """Makes the reserve file again for the next start, if it was given up, as large as there is room for."""
        if not self._held and self._reserve.size:
            self._reserve.make()

    @property
    def _headroom(self) -> int:
        return 0 if self._held else self._reserve.size

    def _keep_reserve(self) -> None:
        available, size = self.use.available, self._reserve.size
        if self._held and available < size:
            self._reserve.give_up()
            self._held = False
            self.use = self._use_of(self._node.store.root)
            message = "%d bytes are available: the %d of %s are given up, but for the share of a start"
            self._node.log.error(message, available, size, self._reserve.path)
        elif not self._held and size and self._failed is None and available >= PLENTY * size:
            self._held = self._reserve.make()
            self.use = self._use_of(self._node.store.root)

    def _signal(self) -> None:
        """Raises DISK_FULL above the warning level, or when the segment behind the current one has no room."""
        line, use = self._node.line, self.use
        following = self._node.positions.get(Position.WANTED) + self._segment_size
        blocked = self._failed is not None and self._failed <= following
        full = blocked or use.percent > self._warning
        if full == bool(line.flags & Flag.DISK_FULL):
            return
        facts = (use.percent, use.available, self._warning)
        if full:
            line.raise_flag(Flag.DISK_FULL)
            why = f"segment {self._failed} has no room" if blocked else "the disk is above its warning level"
            message = "DISK_FULL, puts are refused: %s (%d percent used, %d bytes available, warning level %d percent)"
            self._node.log.error(message, why, *facts)
        else:
            line.lower_flag(Flag.DISK_FULL)
            message = "there is room again (%d percent used, %d bytes available, warning level %d percent)"
            self._node.log.warning(message, *facts)
