"""Chunks of cold segments that readers brought into memory: a few, those read last. Pure.

A reader far behind the log's end must not push out of memory what others still need: chunks that it has passed are
dropped, and the chunk ahead of it is read while it reads, no further.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from towline.limits import MIB

CHUNK: Final = 4 * MIB  # what is dropped at once, and how far ahead of a reader is read
CHUNKS_MAX: Final = 64  # kept: several readers of one range find what the first of them read


class ColdChunks:
    """Chunks by their first byte in the log, the one read last at the end; what of each was brought."""

    def __init__(self, chunks_max: int = CHUNKS_MAX) -> None:
        self._chunks: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._chunks_max = chunks_max
        self._touched = False

    def __len__(self) -> int:
        return len(self._chunks)

    def wanted(self, start: int, end: int, base: int, border: int) -> list[tuple[int, int]]:
        """[start, end) of the segment [base, border) is read next: the stretches of it to bring.

        Who reads on where something was brought finds in memory what follows, for the length of a chunk.
        """
        stop = min(border, end + CHUNK) if self._was_brought(start, base) else end
        found = []
        for chunk in range(_chunk_of(start, base), stop, CHUNK):
            first, last = max(start, chunk), min(stop, chunk + CHUNK)
            low, high = self._chunks.get(chunk, (first, first))
            if not low <= first <= high:
                found.append((first, last))
            elif last > high:
                found.append((high, last))
            self._touch(chunk, min(low, first), max(high, last))
        return found

    def read(self, starts: Iterable[int], base: int) -> None:
        """Something of the chunks that hold these places is read, though nothing that a later reader could count on."""
        for chunk in dict.fromkeys(_chunk_of(start, base) for start in starts):
            self._touch(chunk, *self._chunks.get(chunk, (chunk, chunk)))

    def leaving(self) -> list[int]:
        """Takes out the chunks that are too many, the one not read for longest first."""
        return [self._chunks.popitem(last=False)[0] for _ in range(len(self._chunks) - self._chunks_max)]

    def unused(self) -> list[int]:
        """Takes out all of them when none was read since the last call."""
        touched, self._touched = self._touched, False
        if touched:
            return []
        found = list(self._chunks)
        self._chunks.clear()
        return found

    def _was_brought(self, at: int, base: int) -> bool:
        for chunk in (_chunk_of(at, base), _chunk_of(at - 1, base)):
            low, high = self._chunks.get(chunk, (0, -1))
            if low < at <= high:
                return True
        return False

    def _touch(self, chunk: int, low: int, high: int) -> None:
        self._chunks[chunk] = (low, high)
        self._chunks.move_to_end(chunk)
        self._touched = True


def _chunk_of(at: int, base: int) -> int:
    """Chunks begin with their segment, whatever its size."""
    return at - (at - base) % CHUNK
