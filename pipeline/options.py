"""Options of a job: fields of a frozen dataclass. The command, `python -m towline.pipeline` and --help follow.

A field is str, int, float, bool, Path or a Literal of strings, one of these or None, or a tuple of one of these, which
may be given several times. `option` documents it.
"""

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from .errors import IllegalOption

_TYPES: Final = (str, int, float, bool, Path)
_HELP, _METAVAR, _LEAST = "help", "metavar", "least"


def option(help: str, *, default: Any = MISSING, metavar: str | None = None, least: float | None = None) -> Any:
    """A documented field; without `default` the option has to be given. `least` is the smallest legal number."""
    return field(default=default, metadata={_HELP: help, _METAVAR: metavar, _LEAST: least})


def store_option(help: str = "Store directory: of a node, live or stopped, a backup, or of a real broker.") -> Any:
    """The option `--store` that most jobs have."""
    return option(help, metavar="DIR")


@dataclass(frozen=True, slots=True)
class OptionFacts:
    """One option. `type` is that of a single value; `choices` is empty where any value will do."""

    name: str
    help: str
    type: type[Any]
    choices: tuple[str, ...]
    many: bool
    default: Any
    metavar: str | None
    least: float | None

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def required(self) -> bool:
        return self.default is MISSING


def facts_of(options: type[Any]) -> tuple[OptionFacts, ...]:
    """The options of a job, in the order of its dataclass."""
    hints = get_type_hints(options)
    return tuple(_facts(one.name, hints[one.name], one.default, one.metadata) for one in fields(options))


def made(options: type[Any], values: Mapping[str, Any]) -> Any:
    """The job's options from values of the command line; a None counts as not given. Raises IllegalOption."""
    given: dict[str, Any] = {}
    for facts in facts_of(options):
        value = values.get(facts.name)
        if value is None or (facts.many and not value):
            if facts.required:
                raise IllegalOption(facts.name, "the job needs it")
            continue
        given[facts.name] = tuple(_checked(facts, one) for one in value) if facts.many else _checked(facts, value)
    unknown = values.keys() - {facts.name for facts in facts_of(options)}
    if unknown:
        raise IllegalOption(min(unknown), "the job has no such option")
    return options(**given)


def _facts(name: str, hint: Any, default: Any, metadata: Mapping[str, Any]) -> OptionFacts:
    many = get_origin(hint) is tuple
    one = get_args(hint)[0] if many else _without_none(hint)
    choices = get_args(one) if get_origin(one) is Literal else ()
    kind = str if choices else one
    assert kind in _TYPES, f"{name}: {hint} is no type of an option"
    assert metadata.get(_HELP), f"{name} is not documented"
    return OptionFacts(name, metadata[_HELP], kind, choices, many, default, metadata[_METAVAR], metadata[_LEAST])


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (types.UnionType,) and type(None) not in get_args(hint):
        return hint
    (one,) = (each for each in get_args(hint) if each is not type(None))
    return one


def _checked(facts: OptionFacts, value: Any) -> Any:
    read: Callable[[Any], Any] = facts.type
    try:
        found = value if isinstance(value, bool) else read(value)
    except ValueError:
        raise IllegalOption(facts.name, f"{value!r} is not of type {facts.type.__name__}") from None
    if facts.choices and found not in facts.choices:
        raise IllegalOption(facts.name, f"{value!r} is none of {', '.join(facts.choices)}")
    if facts.least is not None and found < facts.least:
        raise IllegalOption(facts.name, f"{value} is below {facts.least:g}")
    return found
