"""Which pieces of cold segments a reader brought into memory: few, and those read last. Pure.

A reader far behind the log's end takes the place of nothing that others still need: what it has passed leaves memory
again, and it is brought as far ahead as keeps the disk busy, no further.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from towline.limits import MIB

PIECE: Final = 4 * MIB  # what leaves at once, and how far ahead of a reader is brought what follows
PIECES_MAX: Final = 64  # kept: several readers of one stretch find what the first of them brought


class ColdPieces:
    """Pieces by their first byte in the log, the one read last at the end; what of each was brought."""

    def __init__(self, pieces_max: int = PIECES_MAX) -> None:
        self._pieces: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._pieces_max = pieces_max
        self._touched = False

    def __len__(self) -> int:
        return len(self._pieces)

    def wanted(self, start: int, end: int, base: int, border: int) -> list[tuple[int, int]]:
        """[start, end) of the segment [base, border) is read next: the stretches of it to bring.

        Who reads on where something was brought finds in memory what follows, for the length of a piece.
        """
        stop = min(border, end + PIECE) if self._was_brought(start, base) else end
        found = []
        for piece in range(_piece_of(start, base), stop, PIECE):
            first, last = max(start, piece), min(stop, piece + PIECE)
            low, high = self._pieces.get(piece, (first, first))
            if not low <= first <= high:
                found.append((first, last))
            elif last > high:
                found.append((high, last))
            self._touch(piece, min(low, first), max(high, last))
        return found

    def read(self, starts: Iterable[int], base: int) -> None:
        """Something of the pieces that hold these places is read, though nothing that a later reader could count on."""
        for piece in dict.fromkeys(_piece_of(start, base) for start in starts):
            self._touch(piece, *self._pieces.get(piece, (piece, piece)))

    def leaving(self) -> list[int]:
        """Takes out the pieces that are too many, the one not read for longest first."""
        return [self._pieces.popitem(last=False)[0] for _ in range(len(self._pieces) - self._pieces_max)]

    def unused(self) -> list[int]:
        """Takes out all of them when none was read since the last call."""
        touched, self._touched = self._touched, False
        if touched:
            return []
        found = list(self._pieces)
        self._pieces.clear()
        return found

    def _was_brought(self, at: int, base: int) -> bool:
        for piece in (_piece_of(at, base), _piece_of(at - 1, base)):
            low, high = self._pieces.get(piece, (0, -1))
            if low < at <= high:
                return True
        return False

    def _touch(self, piece: int, low: int, high: int) -> None:
        self._pieces[piece] = (low, high)
        self._pieces.move_to_end(piece)
        self._touched = True


def _piece_of(at: int, base: int) -> int:
    """Pieces begin with their segment, whatever its size."""
    return at - (at - base) % PIECE
