"""The entries of docs/client.md are the words of the classes themselves. TOWLINE_REWRITE=1 writes them anew."""

import inspect
import os
import re
import textwrap
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import towline
from tests.repo.trees import ROOT
from towline import TowlineError

PAGE = ROOT / "docs" / "client.md"
PLACE = re.compile(r"^<!-- name (\w+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
WIDTH = 120
PIPE = r"\|"
NO_BREAK = "\0"
OF_ERRORS = ("template", "advice", "fields", "remedy", "describe")  # said of TowlineError alone


def entry(name: str, value: Any) -> str:
    """What the page says of a class or a function."""
    first, _, rest = words(value).partition("\n\n")
    parts = [f"### `{name if inspect.isclass(value) else called(name, value)}`", "", textwrap.fill(first, WIDTH), ""]
    if is_a_client(value):
        parts += ["```text", textwrap.fill(called(name, value), WIDTH, subsequent_indent="    "), "```", ""]
    if rest:
        parts += ["```text", rest, "```", ""]
    if is_error(value) and isinstance(value.advice, str):
        parts += [textwrap.fill(f"What to do: {value.advice}.", WIDTH), ""]
    if inspect.isclass(value):
        parts += members(value)
    return "\n".join(parts).rstrip()


def is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, TowlineError) and value is not TowlineError


def is_a_client(value: Any) -> bool:
    """Whether its constructor takes an endpoint: what else it takes has its defaults on the page."""
    return inspect.isclass(value) and "endpoint" in inspect.signature(value).parameters


def members(kind: type[Any]) -> list[str]:
    """The public ones of its own: those with words of theirs in a table, the others by name."""
    told, named = [], []
    for name, value in vars(kind).items():
        if name.startswith("_") or (is_error(kind) and name in OF_ERRORS):
            continue
        usage = called(name, getattr(kind, name)) if is_call(value) else name
        first = words(value).partition("\n\n")[0] if is_documented(value) else ""
        if first:
            told.append(f"| `{usage}` | {' '.join(first.split()).replace('|', PIPE)} |")
        else:
            named.append(f"`{usage}`".replace(" ", NO_BREAK))
    table = ["| | |", "|---|---|", *told, ""] if told else []
    more = f"{'Also' if told else 'It has'} {', '.join(named)}."
    return table + ([textwrap.fill(more, WIDTH, break_on_hyphens=False).replace(NO_BREAK, " ")] if named else [])


def words(value: Any) -> str:
    """Its own, and not those of what it overrides."""
    return inspect.cleandoc(value.__doc__ or "")


def is_call(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, classmethod | staticmethod)


def is_documented(value: Any) -> bool:
    """A constant, a slot or a member of an enumeration has but the words of its type."""
    return is_call(value) or isinstance(value, property | cached_property)


def called(name: str, value: Any) -> str:
    """As it is called: the names of what it takes, and what they are without being given."""
    parameters = inspect.signature(value).parameters.values()
    return f"{name}({', '.join(parameter(each) for each in parameters if each.name not in ('self', 'cls'))})"


def parameter(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    return stars + one.name if one.default is one.empty else f"{one.name}={one.default!r}"


def names() -> Iterator[str]:
    yield from (name for name in towline.__all__ if name != "__version__")


def test_the_page_says_of_each_name_what_it_says_of_itself() -> None:
    before = PAGE.read_text(encoding="utf-8")
    assert sorted(PLACE.findall(before)) == sorted(names()), (
        "docs/client.md: give each name of `towline` one place: <!-- name NAME -->, and <!-- end --> in the next line"
    )
    wanted = PLACE.sub(
        lambda place: f"<!-- name {place[1]} -->\n\n{entry(place[1], getattr(towline, place[1]))}\n\n<!-- end -->",
        before,
    )
    if os.environ.get("TOWLINE_REWRITE"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted, "TOWLINE_REWRITE=1 pytest tests/repo/test_client_page.py"
