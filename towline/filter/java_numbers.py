"""Numbers as Java parses and orders them: valueOf of Integer, Long and Double, and Double.compare."""

import math
import re
from typing import Final

from .errors import Incomparable

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_SPACE: Final = "".join(map(chr, range(0x21)))  # what String.trim takes off
_SHOWN: Final = 32  # characters
_DIGITS_MAX: Final = len(str(LONG_MAX))
_DIGITS_EASY: Final = len(str(INT_MAX)) - 1
_INTEGER: Final = re.compile(r"[+-]?(?P<digits>\d+)")  # any script's digits
_BEYOND_BMP: Final = re.compile("[\U00010000-\U0010ffff]")  # two units each in Java, neither of them a digit
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_NAMED: Final = re.compile(r"[+-]?(?:NaN|Infinity)")


def integer(text: str, largest: int) -> int:
    """The decimal integer `text`, from -largest - 1 to `largest`. Raises Incomparable for anything else."""
    if len(text) <= _DIGITS_EASY and text.isascii() and text.isdigit():  # most of them; the same answer, sooner
        return int(text)
    found = _INTEGER.fullmatch(text)
    if found and not _BEYOND_BMP.search(text):
        digits = found["digits"].lstrip("0") or "0"
        if len(digits) <= _DIGITS_MAX:
            number = -int(digits) if text[0] == "-" else int(digits)
            if -largest - 1 <= number <= largest:
                return number
    raise Incomparable(f"{text[:_SHOWN]!r} is no integer up to {largest}")


def double(text: str) -> float:
    """The double `text`, with Java's suffixes, hexadecimals, NaN and Infinity. Raises Incomparable if it is none."""
    trimmed = text.strip(_SPACE)
    if found := _DECIMAL.fullmatch(trimmed):
        return float(found[1])
    if _NAMED.fullmatch(trimmed):
        return float(trimmed)
    if found := _HEXADECIMAL.fullmatch(trimmed):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return -math.inf if trimmed.startswith("-") else math.inf
    raise Incomparable(f"{text[:_SHOWN]!r} is no number")


def order_of_doubles(left: float, right: float) -> int:
    """The order of two doubles as -1, 0 or 1: -0.0 comes before 0.0, and NaN after everything else."""
    if left < right:
        return -1
    if left > right:
        return 1
    rank_left, rank_right = _rank(left), _rank(right)
    return (rank_left > rank_right) - (rank_left < rank_right)


def _rank(number: float) -> int:
    """Of numbers that are neither less nor greater than each other."""
    if math.isnan(number):
        return 1
    return -1 if number == 0 and math.copysign(1, number) < 0 else 0
