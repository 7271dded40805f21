"""Segments that are kept in memory from their warm-up until their writer has left them (spec 6.1)."""

from typing import Final

from towline.log.files import memory
from towline.log.files.page_cache import WarmUp
from towline.node.process.context import Node

UNLOCK_AFTER_MS: Final = 6000  # as long as RocketMQ waits after a segment was filled


class SegmentLocks:
    """Holds the mappings that lock segments; with `lock_mapped_files` off it holds nothing."""

    def __init__(self, node: Node) -> None:
        self._log = node.log
        self._size = node.settings.mapped_file_size_commit_log
        self.wanted = node.settings.lock_mapped_files
        self._held: dict[int, WarmUp] = {}
        self._left_ms: dict[int, int] = {}  # when its writer was first seen to have left a segment
        if self.wanted:
            memory.raise_lock_limit()

    def keep(self, base: int, warmed: WarmUp) -> None:
        """A warm segment, locked as far as that went. Takes the mapping over."""
        if not self.wanted or warmed.lock_error is not None:
            warmed.release()
        else:
            self._held[base] = warmed
        if warmed.lock_error is not None:
            self.wanted = False
            self._log.warning(
                "segments are not locked in memory any more: %s; raise the limit of locked memory (ulimit -l) to %d MiB"
                " and what other locks need, or turn lock_mapped_files off",
                warmed.lock_error.strerror,
                3 * self._size >> 20,
            )

    @property
    def pending(self) -> bool:
        """Whether a segment that the writer has left is still locked."""
        return bool(self._left_ms)

    def turn(self, writer_base: int, now_ms: int) -> None:
        """Lets go of what the writer, now in the segment of `writer_base`, has left long enough ago."""
        for base in [base for base in self._held if base < writer_base]:
            if now_ms - self._left_ms.setdefault(base, now_ms) >= UNLOCK_AFTER_MS:
                self._held.pop(base).release()
                del self._left_ms[base]

    def close(self) -> None:
        """Lets go of everything."""
        for warmed in self._held.values():
            warmed.release()
        self._held.clear()
        self._left_ms.clear()
