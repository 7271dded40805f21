"""The place of a record in what one producer sends to one queue: the property `__PSEQ__`, always of 66 bytes.

    at  len  part
     0    8  `__PSEQ__`
     8    1  0x01
     9   20  producer id, decimal digits
    29    1  `-`
    30   15  epoch of the producer, decimal digits
    45    1  `-`
    46   19  sequence, decimal digits: 0 for the first record of this epoch in its queue, one more for each that follows
    65    1  0x02

It ends the properties, before the property CRC where the store wants one, so it is found from a record's end alone. An
idempotent producer leaves room for it and writes the digits when it first sends a batch; put reads them, and never
writes them. Who reads the message does not see it.

An epoch is 256 times the moment when it was given out (ms since 1970), plus the number of the node that did
(`docs/decisions/0093`).
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from .columns import Bytes, Integers
from .properties import NAME_END, PAIR_END, SEQUENCE

PRODUCER_DIGITS: Final = 20
EPOCH_DIGITS: Final = 15
NUMBER_DIGITS: Final = 19
PRODUCER_MAX: Final = 2**63 - 1
EPOCH_MAX: Final = 10**EPOCH_DIGITS - 1
NUMBER_MAX: Final = 2**63 - 1
HEAD: Final = f"{SEQUENCE}{NAME_END}".encode()
TAIL: Final = PAIR_END.encode()
DASH: Final = ord("-")
PRODUCER_AT: Final = len(HEAD)
EPOCH_AT: Final = PRODUCER_AT + PRODUCER_DIGITS + 1
NUMBER_AT: Final = EPOCH_AT + EPOCH_DIGITS + 1
SIZE: Final = NUMBER_AT + NUMBER_DIGITS + len(TAIL)
assert SIZE == 66

_ZERO: Final = ord("0")
_POWERS: Final = 10 ** np.arange(NUMBER_DIGITS - 1, -1, -1, dtype=np.int64)
_WIDE: Final = np.uint64(10) ** np.arange(PRODUCER_DIGITS - 1, -1, -1, dtype=np.uint64)
_IS_DIGIT: Final = np.array([at not in (EPOCH_AT - 1, NUMBER_AT - 1) for at in range(PRODUCER_AT, SIZE - 1)])


class Place(NamedTuple):
    """Who sent a record, in which epoch, and which of his records in its queue it is."""

    producer: int
    epoch: int
    number: int


class Places(NamedTuple):
    """Columns of the records that have a place: their rows, and the parts of their places."""

    rows: Integers
    producers: Integers
    epochs: Integers
    numbers: Integers


def encode(place: Place) -> bytes:
    """The 66 bytes."""
    producer, epoch, number = place
    assert 0 <= producer <= PRODUCER_MAX
    assert 0 <= epoch <= EPOCH_MAX
    assert 0 <= number <= NUMBER_MAX
    return HEAD + f"{producer:020}-{epoch:015}-{number:019}".encode() + TAIL


ROOM: Final = encode(Place(0, 0, 0))


def appended(properties: bytes) -> bytes:
    """Encoded properties with room for a place behind them."""
    return properties + (TAIL if properties and not properties.endswith(TAIL) else b"") + ROOM


def decode(data: bytes) -> Place | None:
    """The place in 66 bytes; None where they are none."""
    if len(data) != SIZE or not (data.startswith(HEAD) and data.endswith(TAIL)):
        return None
    parts = data[PRODUCER_AT : SIZE - 1].split(b"-")
    if tuple(map(len, parts)) != (PRODUCER_DIGITS, EPOCH_DIGITS, NUMBER_DIGITS):
        return None
    if not all(part.isdigit() for part in parts):
        return None
    place = Place(*map(int, parts))
    return place if place.producer <= PRODUCER_MAX and place.number <= NUMBER_MAX else None


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


def find(log: Bytes, ends: Integers) -> Places:
    """The places of those records that have one. `ends` are where the properties that may hold it end, in `log`."""
    rows = np.flatnonzero(ends >= SIZE)
    for at, byte in ((0, HEAD[0]), (PRODUCER_AT - 1, HEAD[-1]), (SIZE - 1, TAIL[0])):
        rows = rows[log[ends[rows] - SIZE + at] == byte]
    wide = log[(ends[rows] - SIZE)[:, None] + np.arange(SIZE)]
    values = wide[:, PRODUCER_AT : SIZE - 1]
    sound = (wide[:, :PRODUCER_AT] == np.frombuffer(HEAD, np.uint8)).all(axis=1)
    sound &= (values[:, ~_IS_DIGIT] == DASH).all(axis=1)
    digits = values[:, _IS_DIGIT].astype(np.uint64) - np.uint64(_ZERO)
    sound &= (digits <= 9).all(axis=1)
    rows, digits = rows[sound], digits[sound]
    return Places(
        rows,
        _numbers(digits[:, :PRODUCER_DIGITS]),
        _numbers(digits[:, PRODUCER_DIGITS : PRODUCER_DIGITS + EPOCH_DIGITS]),
        _numbers(digits[:, PRODUCER_DIGITS + EPOCH_DIGITS :]),
    )


def _numbers(digits: npt.NDArray[np.uint64]) -> Integers:
    return (digits * _WIDE[-digits.shape[1] :]).sum(axis=1, dtype=np.uint64).astype(np.int64)
