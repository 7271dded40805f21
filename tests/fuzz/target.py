"""A decoder under the fuzzer: where its inputs come from, what it may refuse, what holds of what it takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto


class Broken(AssertionError):
    """A rule that holds of whatever a decoder takes does not."""


class Grammar(Enum):
    """What the bytes are, as far as it helps to change them."""

    BYTES = auto()
    TEXT = auto()
    JSON = auto()  # anywhere in them


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One decoder, or several that are called one after the other.

    `run` gets an input, and returns, raises one of `refusals`, or has found a defect. What it returns is what kind of
    input it was, and may be anything with a hash: inputs of a new kind become seeds. `mend` makes checks fit that a
    change of bytes broke, so that what lies behind them is reached; some inputs stay as they are.
    """

    name: str
    covers: tuple[str, ...]  # module:function of each decoder that is called
    seeds: Callable[[], Sequence[bytes]]
    run: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = ()
    words: tuple[bytes, ...] = ()
    grammar: Grammar = Grammar.BYTES
    mend: Callable[[bytes], bytes] | None = None
    size_max: int = 8_192  # bytes of an input
    memory_mib: int = 64  # that one input may take
    is_compiled: bool = False  # a kernel does the work: coverage does not see it
    weight: float = 1.0  # of its share of the inputs


def hold(condition: object, rule: str) -> None:
    """Raises Broken with the rule that does not hold."""
    if not condition:
        raise Broken(rule)
