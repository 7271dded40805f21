"""Errors of filter expressions, and of comparing two values."""

from typing import Final

from towline.errors import Remedy, TowlineError

_SHOWN: Final = 24  # characters of the text behind the place


class BadExpression(TowlineError, remedy=Remedy.FIX_CALL):
    """A filter expression is not one."""

    text: str
    position: int
    problem: str
    advice = "change the expression of the subscription; docs/decisions/0016-filters.md shows the grammar"

    def describe(self) -> str:
        rest = self.text[self.position : self.position + _SHOWN]
        return f"the filter expression is refused at character {self.position} ({rest!r}): {self.problem}"


class Incomparable(Exception):
    """Two values that cannot be compared, such as 'abc' > 5: it ends the evaluation, and the message does not match."""
