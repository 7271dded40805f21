"""The setting for the begin of an empty slave's log: `oldest`, `last`, `offset:N` or `time:MS`."""

from enum import StrEnum
from typing import NamedTuple


class SeedFrom(StrEnum):
    OLDEST = "oldest"  # with the master's oldest segment
    LAST = "last"  # with its newest
    OFFSET = "offset"  # with the one that holds a log offset
    TIME = "time"  # with the one that holds the first message stored at a time or after it


class Seed(NamedTuple):
    """`at`: a log offset, or epoch ms; 0 where neither is asked for."""

    begin: SeedFrom
    at: int = 0

    def __str__(self) -> str:
        return f"{self.begin}:{self.at}" if self.begin in (SeedFrom.OFFSET, SeedFrom.TIME) else str(self.begin)


OLDEST = Seed(SeedFrom.OLDEST)


def parse_seed(text: str) -> Seed:
    """Raises ValueError."""
    word, mark, number = text.partition(":")
    wants_number = word in (SeedFrom.OFFSET, SeedFrom.TIME)
    if word not in tuple(SeedFrom) or bool(mark) != wants_number:
        raise ValueError(f"{text!r} is none of oldest, last, offset:N and time:MS")
    if wants_number and not (number.isascii() and number.isdecimal() and int(number) < 1 << 63):
        raise ValueError(f"{number!r} is no log offset, or no time in ms since 1970")
    return Seed(SeedFrom(word), int(number or 0))
