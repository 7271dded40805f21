"""The place of a record in what one producer sends to one queue: the property `__PSEQ__`, always of 66 bytes.

    at  len  part
     0    8  `__PSEQ__`
     8    1  0x01
     9   20  producer id, decimal digits
    29    1  `-`
    30   19  epoch of the producer, decimal digits
    49    1  `-`
    50   15  number, decimal digits: 0 for the first record of this epoch in its queue, one more for each that follows
    65    1  0x02

It ends the properties, before the property CRC where the store wants one, so it is found from a record's end alone. An
idempotent producer leaves room for it and writes the digits when it first sends a batch; put reads them, and never
writes them. Who reads the message does not see it.

An epoch is 2^20 times the moment when it was given out (ms since 1970), plus 2^12 times the number of the node that
did, plus a random number (docs/decisions/0093).
"""

from typing import Final, NamedTuple

from .properties import NAME_END, PAIR_END, SEQUENCE

PRODUCER_DIGITS: Final = 20
EPOCH_DIGITS: Final = 19
NUMBER_DIGITS: Final = 15
PRODUCER_MAX: Final = 2**63 - 1
EPOCH_MAX: Final = 2**63 - 1
NUMBER_MAX: Final = 10**NUMBER_DIGITS - 1
HEAD: Final = f"{SEQUENCE}{NAME_END}".encode()
TAIL: Final = PAIR_END.encode()
PRODUCER_AT: Final = len(HEAD)
EPOCH_AT: Final = PRODUCER_AT + PRODUCER_DIGITS + 1
NUMBER_AT: Final = EPOCH_AT + EPOCH_DIGITS + 1
SIZE: Final = NUMBER_AT + NUMBER_DIGITS + len(TAIL)
assert SIZE == 66


class Place(NamedTuple):
    """Who sent a record, in which epoch, and which of his records in its queue it is."""

    producer: int
    epoch: int
    number: int


def encode(place: Place) -> bytes:
    """The 66 bytes."""
    producer, epoch, number = place
    assert 0 <= producer <= PRODUCER_MAX
    assert 0 <= epoch <= EPOCH_MAX
    assert 0 <= number <= NUMBER_MAX
    return HEAD + f"{producer:020}-{epoch:019}-{number:015}".encode() + TAIL


ROOM: Final = encode(Place(0, 0, 0))


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
    return place if place.producer <= PRODUCER_MAX and place.epoch <= EPOCH_MAX else None
