"""The buffers of the transient pool, as allocate manages them: locked in memory, and freed after their commit."""

from collections.abc import Generator
from pathlib import Path
from typing import Final

from towline.limits import MIB
from towline.log.files.mapped_file import MappedFile
from towline.node.process.context import Node
from towline.node.store.transient_pool import TransientPool, pool_of
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Duty, Position

STEP: Final = 16 * MIB  # locked or zeroed in a turn


class BufferKeeper:
    """Holds a mapping of every buffer, which keeps it locked. Does nothing without a pool."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pool = pool_of(node)
        self._ringer = node.ringer(Duty.PUT)
        self._held: dict[int, MappedFile] = {}  # by inode: a buffer's name changes, its memory does not
        self._steps: Generator[None, None, None] | None = None
        self._locking = True
        self._returned_below = -1

    def cycle(self) -> int:
        """Does one step: zeroes a committed buffer first, as a writer may wait for it, else locks one."""
        if self._pool is None:
            return 0
        if self._steps is None:
            self._steps = self._next(self._pool)
        if self._steps is None:
            return 0
        if next(self._steps, self) is self:
            self._steps = None
        return 1

    def _next(self, pool: TransientPool) -> Generator[None, None, None] | None:
        committed = self._node.positions.get(Position.COMMITTED)
        below = committed - committed % pool.size
        if below > self._returned_below:
            for base in [base for base in pool.bases() if base < below]:
                pool.return_buffer(base)
            used = sorted(pool.used.iterdir())  # also what an earlier process of ours did not finish
            if used:
                return self._clean(pool, used[0])
            self._returned_below = below
        return self._lock_next(pool) if self._locking else None

    def _lock_next(self, pool: TransientPool) -> Generator[None, None, None] | None:
        for path in sorted(pool.files()):
            try:
                if path.stat().st_ino not in self._held:
                    return self._lock(pool, self._mapped(pool, path))
            except FileNotFoundError:  # the writer took it, and gave it another name: the next turn finds it there
                return None
        self._locking = False
        return None

    def _clean(self, pool: TransientPool, path: Path) -> Generator[None, None, None]:
        """Zeroes a buffer, so that none of its old bytes can return (H1), then frees it."""
        mapped = self._mapped(pool, path)
        if ARMED:
            reach("allocate.in_give_back")
        for start in range(0, pool.size, STEP):
            mapped.array[start : start + STEP] = 0
            yield
        pool.set_free(path)
        self._ringer.ring()

    def _lock(self, pool: TransientPool, mapped: MappedFile) -> Generator[None, None, None]:
        for start in range(0, pool.size, STEP):
            try:
                mapped.lock(start, min(start + STEP, pool.size))
            except OSError as error:
                self._node.log.warning("a buffer of the transient pool is used without being locked: %s", error)
                return
            yield

    def _mapped(self, pool: TransientPool, path: Path) -> MappedFile:
        inode = path.stat().st_ino
        if inode not in self._held:
            self._held[inode] = MappedFile.open(path, pool.size, writable=True)
        return self._held[inode]
