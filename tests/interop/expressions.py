"""Filter expressions at random: well-formed ones, ones that look so, and properties for them to judge."""

import random
from collections.abc import Callable
from typing import Final

NAMES: Final = ("a", "b", "c", "Color", "$x", "_y1", "inside", "nothing")
NUMBERS: Final = (
    *("0", "1", "2", "5", "12", "5L", "12l", "2147483647", "2147483648", "3000000000", "9223372036854775807"),
    *("1.5", "2.", ".5", "1e2", "2.5E-1", "5E+0", "4.9e-324", "1.7976931348623157e308"),
)
ODD_NUMBERS: Final = ("007", "0L", "0.0", "1e400", "1e-400", "9223372036854775808", "0x10", "1.5f", "1..2", "1_0")
TEXTS: Final = ("1", "2", "5", "1.5", "red", "it''s", "", "true", "TRUE", "-- no", "/* no */", "中文", "re", "d", "''")
VALUES: Final = (
    *("0", "1", "2", "5", "12", "-1", "-5", "+5", "007", "1.5", "2.5", ".5", "1e2", "2.0", "100", "0.25"),
    *("red", "reed", "it's", "", "true", "TRUE", "True", "false", "中文", "'", "-- no"),
    *(" 5", "5 ", "5L", "1f", "2D", "0x1p1", "0x.8p1", "0X1P-1", "NaN", "-NaN", "Infinity", "-Infinity", "+Infinity"),
    *("nan", "inf", "1_0", "٥", "５", "𝟓", "-", "+", "--5", "1e", "1e999", "-1e999", "1e-999", "-0.0", "0.0", "0"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "3000000000", "9007199254740993", "\u20285", "\x005"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "0000000000000000000000000000000005"),
)
WORDS: Final = (
    *("OR", "AND", "NOT", "IS", "NULL", "TRUE", "FALSE", "BETWEEN", "IN", "CONTAINS", "STARTSWITH", "ENDSWITH"),
    *("(", ")", ",", "=", "<>", "<", "<=", ">", ">=", "+", "-", "LIKE", "*", "/", "!=", "==", "#", "'", "é", "%"),
    *("--", "/*", "*/", "ESCAPE", "a", "5", "'red'", "1.5", "[", "\\", '"x"', ";"),
)
BLANKS: Final = (" ", " ", " ", "  ", "\t", "\n", " \r\n", "\f", " /* c */ ", " /***/", " -- c\n", "--\r\n", "/*''*/ ")
LATER_WORDS: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")  # of RocketMQ 5 only


class Expressions:
    """Each `seed` gives other ones, always the same."""

    def __init__(self, seed: int, *, later_words: bool = True) -> None:
        self._random = random.Random(seed)
        self._later_words = later_words

    def text(self) -> str:
        """One that the grammar allows, though its operands may not fit."""
        return self._spelled(self._condition(self._random.choice((0, 1, 1, 2, 3))))

    def broken(self) -> str:
        """One with words left out, doubled, exchanged or put in, or with a character changed."""
        words = self._condition(self._random.choice((0, 1, 2)))
        for _ in range(self._random.choice((1, 1, 2, 3))):
            at = self._random.randrange(len(words) + 1)
            self._change(words, at)
        text = self._spelled(words)
        if text and self._random.random() < 0.3:
            at = self._random.randrange(len(text))
            text = text[:at] + self._random.choice(("", "'", "-", "(", ")", "é", "0", " ", "\n", "=")) + text[at + 1 :]
        return text

    def properties(self) -> dict[str, str]:
        return {name: self._random.choice(VALUES) for name in NAMES if self._random.random() < 0.75}

    def _change(self, words: list[str], at: int) -> None:
        others = [word for word in (*WORDS, *ODD_NUMBERS) if self._later_words or word not in LATER_WORDS]
        match self._random.randrange(4):
            case 0:
                words.insert(at, self._random.choice(others))
            case 1 if at < len(words):
                del words[at]
            case 2 if at < len(words):
                words[at] = self._random.choice(others)
            case 3 if at < len(words):
                words.insert(self._random.randrange(len(words) + 1), words[at])

    def _spelled(self, words: list[str]) -> str:
        return "".join(self._cased(word) + self._random.choice(BLANKS) for word in words)

    def _cased(self, word: str) -> str:
        return word if word not in WORDS else self._random.choice((word, word, word.lower(), word.title()))

    def _condition(self, depth: int) -> list[str]:
        if depth == 0:
            return self._comparison()
        left, right = self._condition(depth - 1), self._condition(self._random.randrange(depth))
        forms: tuple[list[str], ...] = (
            [*left, "AND", *right],
            [*left, "OR", *right],
            ["(", *left, ")", "AND", *right],
            [*left, "OR", "(", *right, ")"],
            ["NOT", "(", *left, ")"],
            ["(", *left, ")", self._random.choice(("=", "<>")), "(", *right, ")"],
            ["(", *left, ")", "IS", *self._random.choice(([], ["NOT"])), "NULL"],
            ["(", *left, ")", "=", *self._operand()],
            [*self._operand(), "<>", "(", *left, ")"],
            ["-", "(", *left, ")", "IS", "NULL", "OR", *right],
        )
        return self._random.choice(forms)

    def _comparison(self) -> list[str]:
        forms: tuple[Callable[[], list[str]], ...] = (
            lambda: [*self._operand(), self._random.choice(("=", "<>")), *self._operand()],
            lambda: [self._name(), self._random.choice(("=", "<>")), *self._operand()],
            lambda: [self._name(), self._random.choice(("<", "<=", ">", ">=")), *self._number()],
            lambda: [*self._operand(), self._random.choice(("<", "<=", ">", ">=")), *self._operand()],
            lambda: [*self._operand(), *self._negation(), "BETWEEN", *self._number(), "AND", *self._number()],
            lambda: [self._name(), *self._negation(), "IN", "(", *self._list(), ")"],
            lambda: [*self._operand(), "IS", *self._negation(), "NULL"],
            lambda: [self._random.choice(("TRUE", "FALSE", "NULL", self._name()))],
            self._search,
        )
        return self._random.choice(forms)()

    def _search(self) -> list[str]:
        if not self._later_words:
            return [self._name(), "=", self._text()]
        return [*self._operand(), *self._negation(), self._random.choice(LATER_WORDS), self._text()]

    def _operand(self) -> list[str]:
        forms: tuple[list[str], ...] = (
            [self._name()],
            [self._name()],
            self._number(),
            [self._text()],
            [self._random.choice(("TRUE", "FALSE", "NULL"))],
            ["+", self._name()],
            ["-", self._random.choice((self._name(), self._text(), "TRUE"))],
            ["(", self._name(), ")"],
        )
        return self._random.choice(forms)

    def _number(self) -> list[str]:
        number = self._random.choice(ODD_NUMBERS if self._random.random() < 0.03 else NUMBERS)
        return [*self._random.choice(([], [], [], ["-"], ["+"], ["-", "-"])), number]

    def _list(self) -> list[str]:
        words = [self._text()]
        while self._random.random() < 0.6:
            words += [",", self._text()]
        return words

    def _negation(self) -> list[str]:
        return self._random.choice(([], ["NOT"]))

    def _name(self) -> str:
        return self._random.choice(NAMES)

    def _text(self) -> str:
        return f"'{self._random.choice(TEXTS)}'"
