"""Completes the commands that a remedy names with the node or store of the command that was refused."""

import re
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any, Final

from typer.core import TyperGroup
from typer.main import get_command

from .lazy import loaded
from .main import app

REMEDY: Final = "remedy"  # member of a document
NAMED: Final = re.compile(r"`towline (\w[^`]*)`")
_WHERE: Final = ("--store", "--endpoint")


def completed(remedy: str, arguments: Sequence[str], place: str = "") -> str:
    """The remedy as it can be typed: a command that asks for a store or an endpoint, and has none, gets that of
    `arguments`, the words of the refused command; unless the error is about a `place` that is not in that store.
    """
    typed, whole = _typed(arguments), get_command(app)
    if place.startswith("/") and "--store" in typed and not _is_below(Path(place), Path(typed["--store"])):
        return remedy

    def complete(named: re.Match[str]) -> str:
        words = named[1].split()
        known = _options(whole, words)
        found = next((option for option in _WHERE if option in typed and option in known), None)
        if found is None or any(word in _WHERE for word in words):
            return named[0]
        return f"`towline {named[1]} {found} {quote(typed[found])}`"

    return NAMED.sub(complete, remedy) if typed else remedy


def complete_all(document: Any, arguments: Sequence[str]) -> Any:
    """The document of a command with every remedy in it `completed`."""
    if isinstance(document, list):
        return [complete_all(each, arguments) for each in document]
    if not isinstance(document, dict):
        return document
    return {
        name: completed(value, arguments)
        if name == REMEDY and isinstance(value, str)
        else complete_all(value, arguments)
        for name, value in document.items()
    }


def words_of(endpoint: str | None, store: Path | None) -> tuple[str, ...]:
    """The words that name a node."""
    return ("--store", str(store)) if store is not None else ("--endpoint", endpoint) if endpoint is not None else ()


def _is_below(path: Path, directory: Path) -> bool:
    return path.resolve().is_relative_to(directory.resolve())


def _typed(arguments: Sequence[str]) -> dict[str, str]:
    """The node or store that the words name, by option."""
    found = {}
    for number, word in enumerate(arguments):
        option, equals, value = word.partition("=")
        if option in _WHERE:
            rest = arguments[number + 1 : number + 2]
            found[option] = value if equals else "".join(rest)
    return {option: value for option, value in found.items() if value}


def _options(whole: Any, words: Sequence[str]) -> set[str]:
    """Of the command that the words begin with."""
    command: Any = whole
    for word in words:
        if not isinstance(command, TyperGroup) or word not in command.commands:
            break
        command = loaded(command.commands[word])
    return {spelling for each in command.params for spelling in each.opts}
