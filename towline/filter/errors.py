"""Errors of filter expressions, and of comparing two values."""

from typing import Final

from towline.errors import Remedy, TowlineError

_SHOWN: Final = 24  # characters of the text behind the place


class BadExpression(TowlineError):
    """A filter expression is not one. Facts: its text, index of the character where it goes wrong, what is wrong."""

    remedy = Remedy.FIX_CALL
    advice = "change the expression of the subscription; docs/decisions/0016-filters.md shows the grammar"

    def __init__(self, text: str, position: int, problem: str) -> None:
        self.text, self.position, self.problem = text, position, problem
        super().__init__(text, position, problem)

    def describe(self) -> str:
        rest = self.text[self.position : self.position + _SHOWN]
        return f"the filter expression is refused at character {self.position} ({rest!r}): {self.problem}"


class Incomparable(Exception):
    """Two values that cannot be compared, such as 'abc' > 5: it ends the evaluation, and the message does not match."""
