"""Changes of sound inputs: bits, lengths at their extremes, cuts, splices, words, values of JSON."""

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from .target import Grammar

Change = Callable[[bytearray, "Mutation"], None]

CHANGES_MAX: Final = 4  # of one input
_EXTREMES: Final = tuple(
    (value & (1 << 8 * width) - 1).to_bytes(width, order)
    for width in (1, 2, 4, 8)
    for order in ("big", "little")
    for value in (0, 1, -1, -2, 1 << 8 * width - 1, (1 << 8 * width - 1) - 1, 0x7F, 0x80, 0x100, 0xFFFF, 0x10000)
)
_DIGITS: Final = re.compile(rb"[0-9]+")
_NUMBERS: Final = (
    *(b"0", b"-1", b"00", b"1.5", b"1e999", b"-1e999", b"NaN", b"+1", b"2147483648", b"9223372036854775808"),
    *(b"9" * 18, b"9" * 19, b"9" * 20, b"9" * 400, b"9" * 5_000, b"\xd9\xa3", b""),
)
_VALUE: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null|\[\]|\{\}')
_VALUES: Final = (
    *(
        b"null",
        b"true",
        b"false",
        b"[]",
        b"{}",
        b"[null]",
        b'""',
        b'"\\ud800"',
        b'"\\u0000"',
        b'"\\u0001"',
        b"Infinity",
    ),
    *(b"0", b"-1", b"1e999", b"-1e999", b"1.5", b"NaN", b"9" * 5_000, b"2147483648", b"9223372036854775808"),
    *(
        b'"1"',
        b'"9999999999999999999999"',
        b'"\xff"',
        b'"' + b"x" * 300 + b'"',
        b'[{"a":1}]',
        b'{"a":[1,2]}',
        b"[[1,2],[3,4]]",
    ),
)
_DEPTHS: Final = (9, 33, 130, 330, 490, 700, 930, 960, 980, 990, 1_000, 1_020)


class Mutation:
    """Makes inputs from others. The same chance makes the same inputs."""

    def __init__(self, chance: Random, grammar: Grammar, words: Sequence[bytes], size_max: int) -> None:
        self._random = chance.random
        self.words = tuple(words)
        self.other = b""  # what is spliced into an input
        self._size_max = size_max
        changes: list[Change] = [*_ANY, *((_word, _word) if words else ())]
        if grammar is not Grammar.BYTES:
            changes += [_number, _number]
        if grammar is Grammar.JSON:
            changes += [_value, _value, _value, _nest]
        self._changes = tuple(changes)

    def below(self, end: int) -> int:
        """A number in [0, end); 0 where that is empty."""
        return int(self._random() * end)

    def short(self, end: int) -> int:
        """The same, small ones more often."""
        return int(self._random() ** 3 * end)

    def one_of(self, values: Sequence[bytes]) -> bytes:
        return values[self.below(len(values))]

    def changed(self, data: bytes, other: bytes) -> bytes:
        """`data` with one to CHANGES_MAX changes, for which `other` may lend bytes."""
        made, self.other = bytearray(data), other
        for _ in range(1 + self.short(CHANGES_MAX)):
            self._changes[self.below(len(self._changes))](made, self)
        return bytes(made[: self._size_max])


def _flip(data: bytearray, chance: Mutation) -> None:
    if data:
        data[chance.below(len(data))] ^= 1 << chance.below(8)


def _byte(data: bytearray, chance: Mutation) -> None:
    if data:
        data[chance.below(len(data))] = chance.below(256)


def _extreme(data: bytearray, chance: Mutation) -> None:
    value = chance.one_of(_EXTREMES)
    at = chance.below(len(data) - len(value) + 1)
    data[at : at + len(value)] = value


def _near(data: bytearray, chance: Mutation) -> None:
    """A length that is a little too long or too short."""
    width = 1 << chance.below(4)
    at = chance.below(len(data) - width + 1)
    value = int.from_bytes(data[at : at + width], "big") + chance.below(17) - 8
    data[at : at + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "big")


def _insert(data: bytearray, chance: Mutation) -> None:
    at = chance.below(len(data) + 1)
    data[at:at] = bytes(chance.below(256) for _ in range(1 + chance.short(16)))


def _delete(data: bytearray, chance: Mutation) -> None:
    at = chance.below(len(data))
    del data[at : at + 1 + chance.short(len(data))]


def _double(data: bytearray, chance: Mutation) -> None:
    begin = chance.below(len(data))
    part = data[begin : begin + 1 + chance.short(len(data))]
    at = chance.below(len(data) + 1)
    data[at:at] = part * (1 + chance.short(8))


def _cut(data: bytearray, chance: Mutation) -> None:
    del data[chance.below(len(data) + 1) :]


def _splice(data: bytearray, chance: Mutation) -> None:
    data[chance.below(len(data) + 1) :] = chance.other[chance.below(len(chance.other) + 1) :]


def _word(data: bytearray, chance: Mutation) -> None:
    at, word = chance.below(len(data) + 1), chance.one_of(chance.words)
    data[at : at + chance.below(2) * len(word)] = word


def _number(data: bytearray, chance: Mutation) -> None:
    found = _DIGITS.search(data, chance.below(len(data))) or _DIGITS.search(data)
    if found is not None:
        data[found.start() : found.end()] = chance.one_of(_NUMBERS)


def _value(data: bytearray, chance: Mutation) -> None:
    found = _VALUE.search(data, chance.below(len(data))) or _VALUE.search(data)
    if found is not None:
        data[found.start() : found.end()] = chance.one_of(_VALUES)


def _nest(data: bytearray, chance: Mutation) -> None:
    """A value as deep as readers and writers of JSON just take, or just do not."""
    found = _VALUE.search(data, chance.below(len(data))) or _VALUE.search(data)
    if found is None:
        return
    depth = _DEPTHS[chance.below(len(_DEPTHS))] + chance.below(20)
    begin, end = ((b"[", b"]"), (b'{"a":', b"}"), (b"{", b":1}"))[chance.below(3)]
    data[found.start() : found.end()] = begin * depth + b"1" + end * depth


_ANY: Final[tuple[Change, ...]] = (
    _flip, _flip, _byte, _extreme, _extreme, _near, _near, _insert, _delete, _double, _cut, _splice,
)  # fmt: skip
