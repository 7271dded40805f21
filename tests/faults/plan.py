"""What a row of the fault matrix is, and how often its faults are wanted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
WANTED: Final[Mapping[str, int]] = {  # of a whole run, by what a row counts
    "kills": 1_000,
    "power cuts": 200,
    "failovers": 100,
    "partitions": 200,
    "flipped bits": 10_000,
    "minutes of random faults": 30,
}


@dataclass(frozen=True)
class Tests:
    """A test, a class of tests, or a file. A whole run takes all of its cases, a short one those that are not slow.

    `short` and `whole` name one case instead; `short` None: left out. `only` is an expression of pytest's -k; `times`
    and `environment` are of a whole run.
    """

    name: str
    short: str | None = ""
    whole: str = ""
    only: str = ""
    times: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)

    __test__ = False

    def words(self, *, whole: bool) -> list[str]:
        """As pytest is told. Of a short run that leaves it out: nothing."""
        case = self.whole if whole else self.short
        if case is None:
            return []
        slow = ["-m", "" if whole or case else "not slow"]
        return [self.name + (f"[{case}]" if case else ""), *slow, *(["-k", self.only] if self.only else [])]


@dataclass(frozen=True)
class Drilled:
    """`towline drill WORDS`, and how many rounds of it."""

    words: str
    short: int
    whole: int

    @property
    def name(self) -> str:
        return f"towline drill {self.words}"


Step = Tests | Drilled


@dataclass(frozen=True)
class Row:
    """`what` is injected, and `how`. `counts` says what of; `lacks` what of the row nobody injects, or "".

    A row without steps is not run, and `lacks` is the reason.
    """

    name: str
    what: str
    how: str
    steps: tuple[Step, ...] = ()
    counts: str = "faults"
    lacks: str = ""
