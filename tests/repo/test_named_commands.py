"""A command that a sentence of the program names between backticks is one that the program has, with these options."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from tests.repo.trees import Broken, Source, sources
from towline.cli.lazy import Command, every_command
from towline.cli.main import app

NAMED = re.compile(r"`towline ([\w-][^`]*)`")
EVERYWHERE = {"--help", "--install-completion", "--show-completion", "--version"}
ANY = ("VALUE", "NAME")  # a word that the sentence leaves open


@cache
def commands() -> dict[tuple[str, ...], Command]:
    whole = get_command(app)
    assert isinstance(whole, TyperGroup)
    return {(): whole, **dict(every_command(whole))}


def text_of(node: ast.AST) -> str:
    """What a literal says; what an f-string puts in is a VALUE."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "VALUE" for part in parts)
    return ""


def wrong(line: str) -> str:
    """What of `towline LINE` the program does not know; "" where it knows all."""
    words, path = line.split(), ()
    while words and (*path, words[0]) in commands():
        path = (*path, words.pop(0))
    command = commands()[path]
    known = {spelling for each in command.params for spelling in (*each.opts, *each.secondary_opts)} | EVERYWHERE
    unknown = [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]
    if isinstance(command, TyperGroup) and words and not words[0].startswith("-") and words[0] not in ANY:
        unknown.insert(0, words[0])
    return " ".join(unknown)


def named(source: Source) -> Iterator[Broken]:
    for node in ast.walk(source.tree):
        for line in NAMED.findall(text_of(node)):
            if unknown := wrong(line):
                yield source.broken(node, f"`towline {line}` has {unknown}", "name a command that there is")


def test_every_command_that_the_program_names_is_there() -> None:
    ours = [source for source in sources() if not source.is_test]
    assert sum(len(NAMED.findall(text_of(node))) for source in ours for node in ast.walk(source.tree)) > 100
    assert not [str(broken) for source in ours for broken in named(source)]


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("store repair --yes --skip 5", ""),
        ("store repair --sure", "--sure"),
        ("stoer repair", "stoer"),
        ("store heal", "heal"),
        ("pipeline NAME --help", ""),
    ],
)
def test_an_unknown_word_is_found(line: str, unknown: str) -> None:
    assert wrong(line) == unknown
