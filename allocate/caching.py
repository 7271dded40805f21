"""Evicts segments that every reader has passed from the page cache, part by part."""

from pathlib import Path
from typing import Final

from towline.limits import MIB, PAGE
from towline.log.files.mapped_file import MappedFile
from towline.log.files.page_cache import Advice, Marks, advise_file, for_segment, state_of
from towline.log.files.segment_files import segment_base, segment_name
from towline.node.process.context import Node
from towline.runtime.positions import Position

CHECK_EVERY_MS: Final = 1000
STEP: Final = 64 * MIB  # 1 GiB takes 50 ms. Steps of 2 MiB or more: the kernel drops no part of a large page
EVICT_EVERY_MS: Final = 60_000  # late readers bring pages back
RETRY_MS: Final = 10_000  # pages that a reader maps cannot be dropped; it unmaps them in as many seconds
RESIDENT_MAX: Final = 0.01  # share of a dropped segment that may stay


class PageCacheEvictor:
    """Evicts pages of old segments; with `cached_after_filled_ms` 0 none."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._size = node.settings.mapped_file_size_commit_log
        self._age_ms = node.settings.cached_after_filled_ms
        self._check_at = 0
        self._evict_at: dict[int, int] = {}  # by base: when what was dropped is dropped again
        self._base: int | None = None  # of the segment that is being dropped
        self._at = 0

    def cycle(self, now_ms: int) -> int:
        """Evicts one part of a segment; returns 0 when nothing is to be evicted."""
        if self._base is None and (not self._age_ms or now_ms < self._check_at):
            return 0
        if self._base is None:
            self._base, self._at = self._next(now_ms), 0
            if self._base is None:
                self._check_at = now_ms + CHECK_EVERY_MS
                return 0
        try:
            advise_file(self._path(self._base), Advice.DROP, self._at, STEP)
        except FileNotFoundError:  # cleaned meanwhile
            self._at = self._size
        self._at += STEP
        if self._at >= self._size:
            self._evict_at[self._base] = now_ms + (
                EVICT_EVERY_MS if self._resident_share(self._base) <= RESIDENT_MAX else RETRY_MS
            )
            self._base = None
        return 1

    def _resident_share(self, base: int) -> float:
        """The share of a segment's pages that are still in memory."""
        try:
            mapped = MappedFile.open(self._path(base), self._size, writable=False)
        except FileNotFoundError:
            return 0.0
        pages = mapped.resident(0, self._size)
        mapped.release()
        return pages * PAGE / self._size

    def _next(self, now_ms: int) -> int | None:
        """The oldest segment to evict that was not evicted lately."""
        marks = marks_of(self._node)
        if marks.appended < self._size:
            return None
        found = (segment_base(path.name) for path in self._node.store.commitlog.iterdir())
        bases = sorted(base for base in found if base is not None and base + self._size <= marks.appended)
        self._evict_at = {base: self._evict_at[base] for base in bases if base in self._evict_at}
        for base in bases:
            if self._evict_at.get(base, 0) <= now_ms and self._advice(base, marks) is Advice.DROP:
                return base
        return None

    def _advice(self, base: int, marks: Marks) -> Advice:
        try:
            filled_ms = self._path(base).stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return Advice.KEEP
        old = self._node.clock.now_ms() - filled_ms >= self._age_ms
        return for_segment(state_of(base, self._size, marks, old=old))

    def _path(self, base: int) -> Path:
        return self._node.store.commitlog / segment_name(base)


def marks_of(node: Node) -> Marks:
    positions = node.positions
    appended = positions.get(Position.APPENDED)
    slaves = [slave.appended for slave in positions.slaves() if slave.connected]
    return Marks(
        appended=appended,
        flushed=positions.get(Position.FLUSHED),
        dispatched=min(positions.get(Position.DISPATCHED), positions.get(Position.INDEXED)),
        replicated=min(slaves, default=appended),
    )
