"""The places of many records of idempotent producers (`sequence`), by numpy."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from .columns import Bytes, Integers
from .sequence import (
    EPOCH_AT,
    EPOCH_DIGITS,
    EPOCH_MAX,
    HEAD,
    NUMBER_AT,
    NUMBER_DIGITS,
    PRODUCER_AT,
    PRODUCER_DIGITS,
    PRODUCER_MAX,
    SIZE,
    TAIL,
    Place,
    encode,
)

_ZERO: Final = ord("0")
_DASH: Final = ord("-")
_POWERS: Final = 10 ** np.arange(NUMBER_DIGITS - 1, -1, -1, dtype=np.int64)
_WIDE: Final = np.uint64(10) ** np.arange(PRODUCER_DIGITS - 1, -1, -1, dtype=np.uint64)
_LENGTH_SIZE: Final = 2  # the length before the properties
_IS_DIGIT: Final = np.array([at not in (EPOCH_AT - 1, NUMBER_AT - 1) for at in range(PRODUCER_AT, SIZE - 1)])


class Places(NamedTuple):
    """Columns of the records that have a place: their rows, and the parts of their places."""

    rows: Integers
    producers: Integers
    epochs: Integers
    numbers: Integers


def numbered(records: bytes, ends: Integers, first: Place) -> bytes:
    """The records with their places: `first` for the first one. `ends` are where the properties that hold them end."""
    data = np.frombuffer(bytearray(records), np.uint8)
    last = first.number + len(ends) - 1
    values = np.tile(np.frombuffer(encode(first), np.uint8)[PRODUCER_AT : SIZE - 1], (len(ends), 1))
    powers = _POWERS[-len(str(last)) :]
    numbers = np.arange(first.number, last + 1, dtype=np.int64)
    values[:, -len(powers) :] = numbers[:, None] // powers % 10 + _ZERO
    data[(ends - SIZE + PRODUCER_AT)[:, None] + np.arange(values.shape[1])] = values
    return data.tobytes()


def find(log: Bytes, ends: Integers, behind: int = 0) -> Places:
    """The places of those records that have one, as the append knows them: a property of its own, of this name, at the
    end. `ends` are where the properties that may hold it end, in `log`; `behind` is what follows of them: 0, or the
    size of a property CRC.
    """
    rows = np.flatnonzero(ends >= SIZE + _LENGTH_SIZE)
    for at, byte in ((0, HEAD[0]), (PRODUCER_AT - 1, HEAD[-1]), (SIZE - 1, TAIL[0])):
        rows = rows[log[ends[rows] - SIZE + at] == byte]
    wide = log[(ends[rows] - SIZE)[:, None] + np.arange(SIZE)]
    values = wide[:, PRODUCER_AT : SIZE - 1]
    sound = (wide[:, :PRODUCER_AT] == np.frombuffer(HEAD, np.uint8)).all(axis=1)
    sound &= (values[:, ~_IS_DIGIT] == _DASH).all(axis=1)
    digits = values[:, _IS_DIGIT].astype(np.uint64) - np.uint64(_ZERO)
    sound &= (digits <= 9).all(axis=1)
    sound &= _begins(log, ends[rows] - SIZE, SIZE + behind)
    producers = _numbers(digits[:, 1:PRODUCER_DIGITS])  # with 20 digits it is above PRODUCER_MAX
    epochs = _numbers(digits[:, PRODUCER_DIGITS : PRODUCER_DIGITS + EPOCH_DIGITS])
    sound &= (digits[:, 0] == 0) & (producers <= PRODUCER_MAX) & (epochs <= EPOCH_MAX)
    numbers = _numbers(digits[:, PRODUCER_DIGITS + EPOCH_DIGITS :])
    return Places(rows[sound], *(each[sound].astype(np.int64) for each in (producers, epochs, numbers)))


def _begins(log: Bytes, starts: Integers, size: int) -> npt.NDArray[np.bool_]:
    """Whether a property begins at each of these: behind another one, or as the first of properties of `size` bytes,
    whose length stands before them."""
    before = log[starts[:, None] + np.arange(-_LENGTH_SIZE, 0)].astype(np.int64)
    found: npt.NDArray[np.bool_] = (before[:, 1] == TAIL[0]) | (before[:, 0] * 256 + before[:, 1] == size)
    return found


def _numbers(digits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    found: npt.NDArray[np.uint64] = (digits * _WIDE[-digits.shape[1] :]).sum(axis=1, dtype=np.uint64)
    return found
