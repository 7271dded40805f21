"""A command that a sentence of the program names between backticks is one that the program has, with these options."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from tests.repo.trees import Broken, Source, sources, texts
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


def path_of(line: str) -> tuple[str, ...]:
    """The words of a line that call a command."""
    path: tuple[str, ...] = ()
    for word in line.split():
        if (*path, word) not in commands():
            break
        path = (*path, word)
    return path


def wrong(line: str) -> str:
    """What of `towline LINE` the program does not know; "" where it knows all."""
    path = path_of(line)
    words, command = line.split()[len(path) :], commands()[path]
    known = {spelling for each in command.params for spelling in (*each.opts, *each.secondary_opts)} | EVERYWHERE
    unknown = [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]
    if isinstance(command, TyperGroup) and words and not words[0].startswith("-") and words[0] not in ANY:
        unknown.insert(0, words[0])
    return " ".join(unknown)


def said(source: Source) -> Iterator[str]:
    """The commands of what the program says; docstrings are for who reads it."""
    docstrings = {id(node.value) for node in ast.walk(source.tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(source.tree):
        if id(node) not in docstrings:
            yield from NAMED.findall(text_of(node))


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


def test_every_command_that_the_program_names_is_typed_by_a_test_or_a_page() -> None:
    """Pages are typed by tests, too."""
    typed = "\n".join(text for path, text in texts() if path.startswith(("tests/", "docs/", "README")))
    named = {path_of(line) for source in sources() if not source.is_test for line in said(source)}
    leaves = {path for path in named if path and not isinstance(commands()[path], TyperGroup)}
    assert len(leaves) > 30
    untyped = [" ".join(path) for path in sorted(leaves) if not re.search(as_typed(path), typed, re.MULTILINE)]
    assert untyped == []


def as_typed(path: tuple[str, ...]) -> str:
    """Where a shell reads the words, or the arguments of a call begin with them."""
    quoted, line = r",\s*".join(rf'"{word}"' for word in path), " ".join(path)
    helper = rf'|\b{path[0]}\(\s*"{path[1]}"' if len(path) > 1 else ""  # a function for one command's words
    return rf"[(\[*,]\s*{quoted}|^ *\$? ?towline {line}\b|f?\"towline {line}\b{helper}"
