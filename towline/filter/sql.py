"""SQL92 expressions on properties (spec 7.3, 10.2): compiled once, evaluated in batches.

A message matches where the expression is true. NULL, and values that cannot be compared, do not match.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final
from weakref import WeakSet, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from towline.format.record.properties import NAME_END, PAIR_END
from towline.limits import FILTER_SIZE_MAX, MIB

from .errors import BadExpression, Incomparable
from .grammar import parse
from .nodes import Values

TYPE: Final = "SQL92"  # what subscriptions call it

_COMPILED_MAX: Final = 256
_REMEMBERED_MAX: Final = 32 * MIB  # of a process, for values of one property whose answer is kept
_REMEMBERED_SIZE_MAX: Final = 256  # bytes of such a value
_REMEMBERED_OVERHEAD: Final = 128  # bytes that each takes beside its own, about
_NAMES_IN_PATTERN: Final = 16  # with more of them all properties are taken: a pattern tries one name after the other
_PAIR_END: Final = PAIR_END.encode()


class Expression:
    """A compiled expression. `names` are the properties that it reads, `conditions` is how many it has."""

    def __init__(self, text: str) -> None:
        if len(text) > FILTER_SIZE_MAX:
            raise BadExpression(text, FILTER_SIZE_MAX, f"an expression has at most {FILTER_SIZE_MAX} characters")
        root = parse(text)
        self.text = text
        self.names = tuple(sorted(root.names))
        self.conditions = root.count
        self._evaluate = root.evaluate
        # A value is not empty and ends with its pair: an empty one is none (spec 2.3).
        few = len(self.names) <= _NAMES_IN_PATTERN
        names = "|".join(map(re.escape, self.names)) if few else f"[^{PAIR_END}{NAME_END}]*"
        self._pairs = re.compile(f"{PAIR_END}({names}){NAME_END}([^{PAIR_END}]+)")
        self._remembered: dict[bytes | None, bool] = {}

    def evaluate(self, properties: Values) -> bool | None:
        """The result for one message: True, False or NULL. Raises Incomparable, which RocketMQ takes for no match."""
        found: bool | None = self._evaluate(properties)
        return found

    def matches(self, properties: Values) -> bool | None:
        """The result as of `evaluate`, but None for values that cannot be compared."""
        try:
            return self.evaluate(properties)
        except Incomparable:
            return None

    def select(self, encoded: Sequence[bytes]) -> NDArray[np.bool_]:
        """Which of many messages match, by their properties as the log holds them (spec 2.3)."""
        if len(self.names) == 1:
            return self._select_by_value(encoded)
        find, matches = self._pairs.findall, self.matches
        texts = [PAIR_END + each.decode("utf-8", "replace") for each in encoded]
        return np.array([matches(dict(find(text))) is True for text in texts], np.bool_)

    def _select_by_value(self, encoded: Sequence[bytes]) -> NDArray[np.bool_]:
        """With one property the value says it all, and what it said is remembered."""
        mark = f"{PAIR_END}{self.names[0]}{NAME_END}".encode()
        known, judge = self._remembered, self._judge
        values = [_value(_PAIR_END + each, mark) for each in encoded]
        return np.array([judge(each) if (answer := known.get(each)) is None else answer for each in values], np.bool_)

    def _judge(self, value: bytes | None) -> bool:
        properties = {self.names[0]: value.decode("utf-8", "replace")} if value else {}
        answer = self.matches(properties) is True
        size = len(value or b"")
        if size <= _REMEMBERED_SIZE_MAX:
            _MEMORY.admit(self, size + _REMEMBERED_OVERHEAD)
            self._remembered[value] = answer
        return answer

    @property
    def remembers(self) -> bool:
        return bool(self._remembered)

    def clear_cache(self) -> None:
        """Drops the cached results."""
        self._remembered.clear()


class _Memory:
    """What all expressions remember together; when it is too much, all of them begin anew."""

    def __init__(self) -> None:
        self._size = 0
        self._holders: WeakSet[Expression] = WeakSet()

    def admit(self, holder: Expression, size: int) -> None:
        if self._size + size > _REMEMBERED_MAX:
            for each in self._holders:
                each.clear_cache()
            self._size = 0
            self._holders.clear()
        self._size += size
        if not holder.remembers:  # a weak set is slow
            self._holders.add(holder)


_MEMORY: Final = _Memory()
_ALIVE: Final[WeakValueDictionary[str, Expression]] = WeakValueDictionary()


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
    """The compiled expression: the same as long as somebody holds it, or it was among the last that were asked for.

    Raises BadExpression, naming the position.
    """
    found = _ALIVE.get(text)
    if found is None:
        found = _ALIVE[text] = Expression(text)
    return found
