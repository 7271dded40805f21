"""Subscriptions by SQL92 expression on properties (spec 7.3, 10.2): compiled once, evaluated in batches.

A message matches where the expression is true. NULL, and two values that cannot be compared, do not match.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from towline.format.properties import NAME_END, PAIR_END
from towline.limits import FILTER_SIZE_MAX

from .errors import BadExpression, Incomparable
from .grammar import parse
from .nodes import Values

TYPE: Final = "SQL92"  # what subscriptions call it

_COMPILED_MAX: Final = 256
_REMEMBERED_MAX: Final = 16_384  # values of one expression whose answer is kept
_REMEMBERED_SIZE_MAX: Final = 256  # characters of such values
_PAIR_END: Final = PAIR_END.encode()

# What a message has of the properties that an expression names, None for a missing one; a single one has no tuple.
Found = bytes | None | tuple[bytes | None, ...]


class Expression:
    """A compiled expression. `names` are the properties it looks at, in the order in which `decide` wants them."""

    def __init__(self, text: str) -> None:
        if len(text) > FILTER_SIZE_MAX:
            raise BadExpression(text, FILTER_SIZE_MAX, f"an expression has at most {FILTER_SIZE_MAX} characters")
        root = parse(text)
        self.text = text
        self.names = tuple(sorted(root.names))
        self._evaluate = root.evaluate
        self._marks = [f"{PAIR_END}{name}{NAME_END}".encode() for name in self.names]
        self._remembered: dict[Found, bool] = {}

    def evaluate(self, properties: Values) -> bool | None:
        """True, false or NULL for one message. Raises Incomparable, which RocketMQ takes for no match."""
        found: bool | None = self._evaluate(properties)
        return found

    def matches(self, properties: Values) -> bool | None:
        """As `evaluate`, but None for values that cannot be compared."""
        try:
            return self.evaluate(properties)
        except Incomparable:
            return None

    def decide(self, found: Found) -> bool:
        """Whether a message matches that has these values of `names`. A short answer is remembered."""
        answer = self._remembered.get(found)
        return self._judge(found) if answer is None else answer

    def select(self, encoded: Sequence[bytes]) -> NDArray[np.bool_]:
        """Which of many messages match, by their properties as the log holds them (spec 2.3)."""
        found: Sequence[Found]
        if len(self._marks) == 1:
            (mark,) = self._marks
            found = [_value(_PAIR_END + each, mark) for each in encoded]
        else:
            found = [self._found(_PAIR_END + each) for each in encoded]
        known, judge = self._remembered, self._judge
        return np.array([judge(key) if (answer := known.get(key)) is None else answer for key in found], np.bool_)

    def _judge(self, found: Found) -> bool:
        if isinstance(found, tuple):
            values = {
                name: str(value, "utf-8", "replace") for name, value in zip(self.names, found, strict=True) if value
            }
            size = sum(map(len, values.values()))
        else:
            values = {self.names[0]: str(found, "utf-8", "replace")} if found else {}
            size = len(found or b"")
        answer = self.matches(values) is True
        if size <= _REMEMBERED_SIZE_MAX:
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[found] = answer
        return answer

    def _found(self, data: bytes) -> tuple[bytes | None, ...]:
        return tuple([_value(data, mark) for mark in self._marks])


def _value(data: bytes, mark: bytes) -> bytes | None:
    """The value behind `mark` in properties with a pair end in front: of equal names the last with a value."""
    at = data.rfind(mark)
    while at >= 0:
        begin = at + len(mark)
        end = data.find(_PAIR_END, begin)
        value = data[begin:] if end < 0 else data[begin:end]
        if value:
            return value
        at = data.rfind(mark, 0, at + 1)
    return None


@lru_cache(_COMPILED_MAX)
def compile(text: str) -> Expression:
    """The compiled expression; one that is used again is kept. Raises BadExpression, naming the position."""
    return Expression(text)


def select_decoded(expression: Expression, properties: Iterable[Values]) -> NDArray[np.bool_]:
    """Which of many messages match, by their decoded properties."""
    return np.array([expression.matches(each) is True for each in properties], np.bool_)
