"""The grammar of RocketMQ's SQL92 filters, and the node that each rule builds.

Keywords and names are ASCII, keywords in any case. There is no arithmetic and no LIKE. A line comment ends with its
line; one that ends the text is allowed where the expression is complete.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken
from lark.visitors import v_args

from . import nodes
from .errors import BadExpression, Incomparable
from .java_numbers import INT_MAX, LONG_MAX, double, integer
from .nodes import Kind, Misplaced, Node

_GRAMMAR: Final = r"""
?start: disjunction
?disjunction: conjunction (_OR conjunction)*
?conjunction: equality (_AND equality)*
?equality: comparison
    | equality "=" comparison -> equal
    | equality "<>" comparison -> not_equal
    | equality _IS NULL -> is_null
    | equality _IS NOT NULL -> is_not_null
?comparison: unary
    | comparison ">" unary -> greater
    | comparison ">=" unary -> greater_equal
    | comparison "<" unary -> less
    | comparison "<=" unary -> less_equal
    | comparison _BETWEEN unary _AND unary -> between
    | comparison NOT _BETWEEN unary _AND unary -> not_between
    | comparison _IN texts -> within
    | comparison NOT _IN texts -> not_within
    | comparison CONTAINS STRING -> searched
    | comparison STARTSWITH STRING -> searched
    | comparison ENDSWITH STRING -> searched
    | comparison NOT CONTAINS STRING -> not_searched
    | comparison NOT STARTSWITH STRING -> not_searched
    | comparison NOT ENDSWITH STRING -> not_searched
texts: "(" STRING ("," STRING)* ")"
?unary: primary
    | "+" unary
    | MINUS unary -> negate
    | NOT unary -> invert
?primary: "(" disjunction ")"
    | STRING -> string
    | DECIMAL -> decimal
    | FLOAT -> floating
    | TRUE -> true
    | FALSE -> false
    | NULL -> null
    | NAME -> name

MINUS: "-"
FLOAT.2: /[0-9]+\.[0-9]*(E[+-]?[0-9]+)?|\.[0-9]+(E[+-]?[0-9]+)?|[0-9]+E[+-]?[0-9]+/
DECIMAL: /0|[1-9][0-9]*L?/
STRING: /'(''|[^'])*'/
NAME: /[A-Z_$][A-Z0-9_$]*/
BLANK: /[ \t\n\r\f]+/
LINE_COMMENT.3: /--[^\n\r]*(\r\n|\n|\r)/
BLOCK_COMMENT.3: /\/\*[^*]*\*(\*|[^*\/][^*]*\*)*\//
%ignore BLANK
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
%declare _OR _AND _IS _BETWEEN _IN NOT NULL TRUE FALSE CONTAINS STARTSWITH ENDSWITH
"""

_KEYWORDS: Final = {
    terminal.lstrip("_"): terminal
    for terminal in (
        *("_OR", "_AND", "_IS", "_BETWEEN", "_IN", "NOT", "NULL", "TRUE", "FALSE"),
        *("CONTAINS", "STARTSWITH", "ENDSWITH"),
    )
}
_SEARCHES: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_OPEN_COMMENT: Final = "--"
_END: Final = "$END"


def _keyword_or_name(token: Token) -> Token:
    terminal = _KEYWORDS.get(token.upper())
    return token if terminal is None else Token.new_borrow_pos(terminal, token, token)


@v_args(inline=True)
class _Builder(Transformer[Token, Node]):
    """One node for each rule, from the leaves up."""

    def disjunction(self, *operands: Node) -> Node:
        return nodes.any_of(operands)

    def conjunction(self, *operands: Node) -> Node:
        return nodes.all_of(operands)

    def equal(self, left: Node, right: Node) -> Node:
        return nodes.equal(left, right)

    def not_equal(self, left: Node, right: Node) -> Node:
        return nodes.invert(left.at, nodes.equal(left, right))

    def is_null(self, operand: Node, _: Token) -> Node:
        return nodes.is_null(operand)

    def is_not_null(self, operand: Node, *_: Token) -> Node:
        return nodes.invert(operand.at, nodes.is_null(operand))

    def greater(self, left: Node, right: Node) -> Node:
        return nodes.greater(left, right)

    def greater_equal(self, left: Node, right: Node) -> Node:
        return nodes.greater_equal(left, right)

    def less(self, left: Node, right: Node) -> Node:
        return nodes.less(left, right)

    def less_equal(self, left: Node, right: Node) -> Node:
        return nodes.less_equal(left, right)

    def between(self, operand: Node, low: Node, high: Node) -> Node:
        return nodes.between(operand, low, high)

    def not_between(self, operand: Node, _: Token, low: Node, high: Node) -> Node:
        return nodes.not_between(operand, low, high)

    def texts(self, *strings: Token) -> list[str]:
        return [_unquoted(string) for string in strings]

    def within(self, operand: Node, texts: list[str]) -> Node:
        return nodes.within(operand, texts, wanted=True)

    def not_within(self, operand: Node, _: Token, texts: list[str]) -> Node:
        return nodes.within(operand, texts, wanted=False)

    def searched(self, operand: Node, how: Token, string: Token) -> Node:
        return nodes.searched(operand, _SEARCHES[how.type], _unquoted(string), wanted=True)

    def not_searched(self, operand: Node, _: Token, how: Token, string: Token) -> Node:
        return nodes.searched(operand, _SEARCHES[how.type], _unquoted(string), wanted=False)

    def negate(self, sign: Token, operand: Node) -> Node:
        return nodes.negate(_at(sign), operand)

    def invert(self, word: Token, operand: Node) -> Node:
        return nodes.invert(_at(word), operand)

    def string(self, token: Token) -> Node:
        return nodes.literal(_at(token), Kind.TEXT, _unquoted(token))

    def decimal(self, token: Token) -> Node:
        try:
            number = integer(token.rstrip("lL"), LONG_MAX)
        except Incomparable as problem:
            raise Misplaced(_at(token), f"an integer is at most {LONG_MAX}") from problem
        return nodes.literal(_at(token), Kind.INT if number <= INT_MAX else Kind.LONG, number)

    def floating(self, token: Token) -> Node:
        number = double(token)
        if not 0 < number < float("inf"):
            raise Misplaced(_at(token), "a decimal that is 0, or too large or too small for a double")
        return nodes.literal(_at(token), Kind.DOUBLE, number)

    def true(self, token: Token) -> Node:
        return nodes.literal(_at(token), Kind.TRUTH, True)

    def false(self, token: Token) -> Node:
        return nodes.literal(_at(token), Kind.TRUTH, False)

    def null(self, token: Token) -> Node:
        return nodes.literal(_at(token), Kind.TRUTH, None)

    def name(self, token: Token) -> Node:
        return nodes.prop(_at(token), str(token))


def _at(token: Token) -> int:
    assert token.start_pos is not None
    return token.start_pos


def _unquoted(string: Token) -> str:
    return string[1:-1].replace("''", "'")


_PARSER: Final = Lark(
    _GRAMMAR,
    parser="lalr",
    lexer="basic",
    transformer=_Builder(),
    lexer_callbacks={"NAME": _keyword_or_name},
    g_regex_flags=re.ASCII | re.IGNORECASE,
)


def parse(text: str) -> Node:
    """The condition in `text`. Raises BadExpression."""
    try:
        found: Any = _PARSER.parse(text)
        return nodes.truth(found)
    except UnexpectedCharacters as problem:
        at = problem.pos_in_stream or 0
        raise BadExpression(text, at, _unreadable(text[at:])) from None
    except UnexpectedToken as problem:
        token = problem.token
        at = len(text) if token.type == _END else _at(token)
        if text.startswith(_OPEN_COMMENT, at):
            return parse(text[:at])
        raise BadExpression(text, at, _unexpected(token, problem.accepts or problem.expected)) from None
    except Misplaced as problem:
        raise BadExpression(text, problem.position, problem.problem) from None


def _unreadable(rest: str) -> str:
    if rest.startswith("'"):
        return "the string has no end"
    if rest.startswith("/*"):
        return "the comment has no end"
    return f"{rest[0]!r} begins nothing that an expression holds"


def _unexpected(token: Token, expected: set[str]) -> str:
    if token.type == _END:
        return "the expression is not complete"
    return "the expression is complete before it" if _END in expected else f"{str(token)!r} does not fit here"
