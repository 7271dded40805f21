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
COMPLETED = {"--store", "--endpoint"}  # by `towline.cli.remedies`
DRY = {("store", "repair"), ("store", "mend"), ("topic", "delete")}  # without --yes they do nothing
# Where a command is spoken of, and nobody is to type it.
SPOKEN_OF = {
    ("cli/put.py", "put --deliver-at"),
    ("cli/stored.py", "store repair"),
    ("pipeline/errors.py", "pipeline archive"),
    ("pipeline/rebuild.py", "store restore"),
    ("towline/cluster/sample.py", "keys new"),
    ("towline/cluster/units.py", "cluster units"),
    ("towline/link/tls.py", "keys new"),
    ("towline/node/process/kept_settings.py", "config set --keep"),
    ("towline/runtime/settings_doc.py", "config set --keep"),
    ("towline/runtime/settings_model.py", "keys new"),
    ("towline/runtime/settings_model.py", "pipeline archive"),
    ("towline/spark/stores.py", "store restore"),
}


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


def missing(line: str) -> str:
    """What `towline LINE` lacks to do what it is for, words of arguments in upper case; "" where it lacks nothing."""
    path = path_of(line)
    words, command = line.split()[len(path) :], commands()[path]
    if isinstance(command, TyperGroup) or "--help" in words:
        return ""
    options, arguments = given(command, words)
    needed = [each for each in command.params if each.required]
    lacking = [each.opts[0] for each in needed if each.param_type_name == "option" and not options & set(each.opts)]
    lacking += [str(each.name).upper() for each in needed if each.param_type_name == "argument"][arguments:]
    lacking += ["--yes"] if path in DRY and "--yes" not in options else []
    return " ".join(word for word in lacking if word not in COMPLETED)


def given(command: Command, words: list[str]) -> tuple[set[str], int]:
    """The options among the words, and how many arguments there are."""
    valued = {option for each in command.params if not getattr(each, "is_flag", True) for option in each.opts}
    options, arguments, rest = set(), 0, iter(words)
    for word in rest:
        option, is_whole, _ = word.partition("=")
        if not word.startswith("-"):
            arguments += 1
            continue
        options.add(option)
        if option in valued and not is_whole:
            next(rest, "")
    return options, arguments


def said(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """The commands of what the program says; docstrings are for who reads it."""
    docstrings = {id(node.value) for node in ast.walk(source.tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(source.tree):
        if id(node) not in docstrings:
            for line in NAMED.findall(text_of(node)):
                yield node, line


def named(source: Source) -> Iterator[Broken]:
    for node in ast.walk(source.tree):
        for line in NAMED.findall(text_of(node)):
            if unknown := wrong(line):
                yield source.broken(node, f"`towline {line}` has {unknown}", "name a command that there is")


def unfinished(source: Source) -> Iterator[Broken]:
    for node, line in said(source):
        if (lacking := missing(line)) and (str(source.path), line) not in SPOKEN_OF:
            how = "name what it needs, by its value or by a word in upper case"
            yield source.broken(node, f"`towline {line}` lacks {lacking}", how)


def test_every_command_that_the_program_names_can_be_typed() -> None:
    ours = [source for source in sources() if not source.is_test]
    assert not [str(broken) for source in ours for broken in unfinished(source)]
    spoken_of = {(str(source.path), line) for source in ours for _, line in said(source)}
    assert spoken_of >= SPOKEN_OF


@pytest.mark.parametrize(
    ("line", "lacking"),
    [
        ("store repair --yes --skip 5", ""),
        ("store repair --skip 5", "--yes"),
        ("store backup", ""),
        ("store restore --from BACKUP", ""),
        ("store restore --store DIR", "--from"),
        ("topic describe", "TOPIC"),
        ("topic delete orders", "--yes"),
        ("group reset-offset GROUP --to first", "TOPIC"),
        ("keys new NAME --dir DIR", "--role"),
        ("keys new --dir DIR --role=admin", "NAME"),
        ("keys new --help", ""),
        ("pipeline NAME --help", ""),
    ],
)
def test_what_a_command_lacks_is_found(line: str, lacking: str) -> None:
    assert missing(line) == lacking


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
    named = {path_of(line) for source in sources() if not source.is_test for _, line in said(source)}
    leaves = {path for path in named if path and not isinstance(commands()[path], TyperGroup)}
    assert len(leaves) > 30
    untyped = [" ".join(path) for path in sorted(leaves) if not re.search(as_typed(path), typed, re.MULTILINE)]
    assert untyped == []


def as_typed(path: tuple[str, ...]) -> str:
    """Where a shell reads the words, or the arguments of a call begin with them."""
    quoted, line = r",\s*".join(rf'"{word}"' for word in path), " ".join(path)
    helper = rf'|\b{path[0]}\(\s*"{path[1]}"' if len(path) > 1 else ""  # a function for one command's words
    return rf"[(\[*,]\s*{quoted}|^ *\$? ?towline {line}\b|f?\"towline {line}\b{helper}"
