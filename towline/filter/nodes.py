"""The nodes of a filter expression: they check their operands when they are built, and are evaluated afterwards.

The rules are those of RocketMQ's evaluator, with its oddities (docs/decisions/0016-filters.md). The types that an
operand can yield are known before any message is seen, so the comparison is looked up once, in `_ORDER`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import eq, ge, gt, le, lt
from typing import Any, Final

from towline.limits import FILTER_DEPTH_MAX

from .errors import Incomparable
from .java_numbers import INT_MAX, LONG_MAX, double, integer, order_of_doubles

Values = Mapping[str, str]
Evaluation = Callable[[Values], Any]  # None is SQL's NULL


class Kind(Enum):
    """The type of a node's value, beside None."""

    TEXT = "text"
    INT = "int"  # an integer that Java keeps in 32 bits; text beside it is read as one, too
    LONG = "long"
    DOUBLE = "double"
    TRUTH = "truth"
    NOTHING = "nothing"


NUMBERS: Final = frozenset({Kind.INT, Kind.LONG, Kind.DOUBLE})


class Misplaced(Exception):
    """An operand that its operator does not accept. Facts: where it begins in the text, what is wrong."""

    def __init__(self, position: int, problem: str) -> None:
        self.position, self.problem = position, problem
        super().__init__(position, problem)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """`at`: character of the text. `value` is that of a literal, and of a number under minus signs.

    `count`: of the conditions in it, which is what evaluating it costs.
    """

    at: int
    kind: Kind
    evaluate: Evaluation
    names: frozenset[str] = frozenset()
    value: Any = None
    is_literal: bool = False
    is_property: bool = False
    depth: int = 1
    count: int = 0


# --- operands


def literal(at: int, kind: Kind, value: str | float | bool | None) -> Node:
    return Node(at, kind, lambda _: value, value=value, is_literal=True)


def prop(at: int, name: str) -> Node:
    return Node(at, Kind.TEXT, lambda values: values.get(name), names=frozenset({name}), is_property=True)


def negate(at: int, operand: Node) -> Node:
    """The number with the other sign; None for anything else, a property with digits too."""
    if operand.kind in NUMBERS:
        value = -operand.value
        return Node(at, operand.kind, lambda _: value, value=value, depth=_deeper(at, operand))

    def nothing(values: Values) -> None:
        operand.evaluate(values)  # it may fail

    return Node(at, Kind.NOTHING, nothing, operand.names, depth=_deeper(at, operand))


# --- truth


def truth(operand: Node) -> Node:
    """The operand as a truth value. A property is text, so it counts as false where the message has it."""
    if operand.kind is Kind.TRUTH:
        return operand
    if not operand.is_property:
        raise Misplaced(operand.at, "a condition is wanted here")

    def cast(values: Values) -> bool | None:
        return None if operand.evaluate(values) is None else False

    return _truth(operand.at, cast, operand)


def invert(at: int, operand: Node) -> Node:
    inner = truth(operand)
    evaluate = inner.evaluate

    def inverted(values: Values) -> bool | None:
        found: bool | None = evaluate(values)
        return None if found is None else not found

    return _truth(at, inverted, inner)


def all_of(operands: Sequence[Node]) -> Node:
    """AND: false as soon as one operand is false, else None if one is None.

    Operands behind a false one are not evaluated.
    """
    return _chain(operands, stops_at=False)


def any_of(operands: Sequence[Node]) -> Node:
    """OR: true as soon as one operand is true, else None if one is None."""
    return _chain(operands, stops_at=True)


def _chain(operands: Sequence[Node], *, stops_at: bool) -> Node:
    inner = [truth(operand) for operand in operands]
    evaluations = [operand.evaluate for operand in inner]

    def chained(values: Values) -> bool | None:
        unknown = False
        for evaluate in evaluations:
            found: bool | None = evaluate(values)
            if found is stops_at:
                return stops_at
            unknown = unknown or found is None
        return None if unknown else not stops_at

    return _truth(operands[0].at, chained, *inner)


# --- comparisons


def equal(left: Node, right: Node) -> Node:
    for operand in (left, right):
        if operand.is_literal and operand.value is None:
            raise Misplaced(operand.at, "NULL is compared with IS NULL and IS NOT NULL only")
    if left.is_literal and right.is_literal and left.kind is Kind.TRUTH and right.kind is not Kind.TRUTH:
        raise Misplaced(right.at, "a truth is compared with a number or a string")
    if left.is_property and right.is_literal and right.kind in _EASY:
        return _property_with_literal(left, right, eq)
    same = _SAME.get((left.kind, right.kind)) or _ordered_equal(_ORDER[left.kind, right.kind])
    return _equal(left, right, same)


def is_null(operand: Node) -> Node:
    evaluate = operand.evaluate
    return _truth(operand.at, lambda values: evaluate(values) is None, operand)


def less(left: Node, right: Node) -> Node:
    return _ordered(left, right, lt)


def less_equal(left: Node, right: Node) -> Node:
    return _ordered(left, right, le)


def greater(left: Node, right: Node) -> Node:
    return _ordered(left, right, gt)


def greater_equal(left: Node, right: Node) -> Node:
    return _ordered(left, right, ge)


def between(operand: Node, low: Node, high: Node) -> Node:
    """BETWEEN, with both ends. Literal ends must be in order; negative ones are no literals."""
    both = all_of([greater_equal(operand, low), less_equal(operand, high)])
    if low.is_literal and high.is_literal and _ORDER[high.kind, low.kind](high.value, low.value) < 0:
        raise Misplaced(low.at, f"{low.value} is above {high.value}, so nothing lies between them")
    return both


def not_between(operand: Node, low: Node, high: Node) -> Node:
    return any_of([less(operand, low), greater(operand, high)])


def within(operand: Node, texts: Sequence[str], *, wanted: bool) -> Node:
    """IN and, with `wanted` false, NOT IN."""
    if not operand.is_property:
        raise Misplaced(operand.at, "IN wants a property on its left side")
    evaluate, known = operand.evaluate, frozenset(texts)

    def found(values: Values) -> bool | None:
        text = evaluate(values)
        return None if text is None else (text in known) is wanted

    return _truth(operand.at, found, operand)


def searched(operand: Node, test: Callable[[str, str], bool], text: str, *, wanted: bool) -> Node:
    """CONTAINS, STARTSWITH, ENDSWITH and their NOT forms: never None, and false where nothing can be searched."""
    evaluate = operand.evaluate

    def found(values: Values) -> bool:
        if not text:
            return False
        value = evaluate(values)
        return isinstance(value, str) and test(value, text) is wanted

    return _truth(operand.at, found, operand)


def _truth(at: int, evaluate: Evaluation, *operands: Node) -> Node:
    names = frozenset().union(*(operand.names for operand in operands))
    count = 1 + sum(operand.count for operand in operands)
    return Node(at, Kind.TRUTH, evaluate, names, depth=_deeper(at, *operands), count=count)


def _deeper(at: int, *operands: Node) -> int:
    depth = 1 + max(operand.depth for operand in operands)
    if depth > FILTER_DEPTH_MAX:
        raise Misplaced(at, f"conditions are nested more than {FILTER_DEPTH_MAX} deep")
    return depth


def _equal(left: Node, right: Node, same: Callable[[Any, Any], bool]) -> Node:
    left_of, right_of = left.evaluate, right.evaluate

    def compared(values: Values) -> bool | None:
        a, b = left_of(values), right_of(values)
        if a is None:
            return True if b is None else None
        return b is not None and same(a, b)

    return _truth(left.at, compared, left, right)


def _ordered(left: Node, right: Node, wanted: Callable[[int, int], bool]) -> Node:
    for operand in (left, right):
        if operand.kind is Kind.TRUTH or (operand.is_literal and operand.kind not in NUMBERS):
            raise Misplaced(operand.at, "only numbers and properties are ordered")
    if left.is_property and right.kind in _EASY and right.value is not None:
        return _property_with_literal(left, right, wanted)
    left_of, right_of = left.evaluate, right.evaluate
    order = _ORDER[left.kind, right.kind]

    def compared(values: Values) -> bool | None:
        a = left_of(values)
        if a is None:
            return None
        b = right_of(values)
        return None if b is None else wanted(order(a, b), 0)

    return _truth(left.at, compared, left, right)


def _property_with_literal(left: Node, right: Node, wanted: Callable[[Any, Any], bool]) -> Node:
    """What most conditions are, with fewer calls than the general form; the answers are the same."""
    (name,) = left.names
    known, largest = right.value, _EASY[right.kind]

    def compared_text(values: Values) -> bool | None:
        text = values.get(name)
        return None if text is None else wanted(text, known)

    def compared_number(values: Values) -> bool | None:
        text = values.get(name)
        return None if text is None else wanted(integer(text, largest), known)

    return _truth(left.at, compared_number if largest else compared_text, left)


# The largest integer of a kind; texts are compared as they are. Doubles have NaN, whose order Python does not know.
_EASY: Final = {Kind.TEXT: 0, Kind.INT: INT_MAX, Kind.LONG: LONG_MAX}


# --- how two values are ordered, neither of them None: negative, 0 or positive; raises Incomparable


def _numbers(left: int, right: int) -> int:
    return (left > right) - (left < right)


def _doubles(left: float, right: float) -> int:
    return order_of_doubles(float(left), float(right))  # a long loses digits, as in Java


def _unlike(_: object, __: object) -> int:
    return -1  # so that they are not equal


def _refused(left: object, right: object) -> int:
    raise Incomparable(f"{left!r} with {right!r}")


def _text_as_truth(text: str, known: bool) -> int:
    return _numbers(text.lower() == "true", known)


_READ: Final[dict[Kind, Callable[[str], float]]] = {
    Kind.INT: lambda text: integer(text, INT_MAX),
    Kind.LONG: lambda text: integer(text, LONG_MAX),
    Kind.DOUBLE: double,
}


def _number_order(left: Kind, right: Kind) -> Callable[[Any, Any], int]:
    return _doubles if Kind.DOUBLE in (left, right) else _numbers


def _text_first(kind: Kind) -> Callable[[Any, Any], int]:
    read, order = _READ[kind], _number_order(kind, kind)
    return lambda text, number: order(read(text), number)


def _text_last(kind: Kind) -> Callable[[Any, Any], int]:
    read, order = _READ[kind], _number_order(kind, kind)
    return lambda number, text: order(number, read(text))


_ORDER: Final[dict[tuple[Kind, Kind], Callable[[Any, Any], int]]] = {
    **{(kind, Kind.NOTHING): _unlike for kind in Kind},
    **{(Kind.NOTHING, kind): _unlike for kind in Kind},
    **{(kind, Kind.TRUTH): _unlike for kind in NUMBERS},
    **{(Kind.TRUTH, kind): _unlike for kind in NUMBERS},
    **{(left, right): _number_order(left, right) for left in NUMBERS for right in NUMBERS},
    **{(Kind.TEXT, kind): _text_first(kind) for kind in NUMBERS},
    **{(kind, Kind.TEXT): _text_last(kind) for kind in NUMBERS},
    (Kind.TEXT, Kind.TEXT): lambda left, right: order_of_doubles(double(left), double(right)),
    (Kind.TEXT, Kind.TRUTH): _text_as_truth,
    (Kind.TRUTH, Kind.TEXT): _refused,  # a cast of RocketMQ's that always fails
}
# Equality of two texts, or of two truths, needs no order.
_SAME: Final[dict[tuple[Kind, Kind], Callable[[Any, Any], bool]]] = {
    (Kind.TEXT, Kind.TEXT): eq,
    (Kind.TRUTH, Kind.TRUTH): eq,
}


def _ordered_equal(order: Callable[[Any, Any], int]) -> Callable[[Any, Any], bool]:
    return lambda left, right: order(left, right) == 0
