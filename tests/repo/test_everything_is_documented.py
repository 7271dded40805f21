"""Whoever reads README and docs/ finds every command, option, setting and public name."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator
from functools import cache

import pytest
from typer.core import TyperGroup
from typer.main import get_command

import towline
import towline.aio
from tests.repo.trees import ROOT
from towline import pytest_plugin
from towline.aio.threaded import Threaded
from towline.cli.commands_doc import render
from towline.cli.lazy import every_command
from towline.cli.main import app
from towline.runtime.settings_model import GROUPS

COMMANDS = ROOT / "docs" / "commands.md"
HEADING = re.compile(r"^#{2,} (towline .*)$", re.MULTILINE)
CODE = re.compile(r"^```\w*\n.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


@cache
def pages() -> str:
    """All that users read: decisions are for who changes Towline."""
    return "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))


@cache
def named() -> frozenset[str]:
    """Every word that stands in code, in a block or between backticks."""
    return frozenset(re.findall(r"\w+", "\n".join(CODE.findall(pages()))))


def unnamed(names: Iterable[str], known: Iterable[str]) -> list[str]:
    return sorted(set(names) - set(known))


def sections() -> dict[str, str]:
    """The words of a command, without its arguments -> what the page says of it."""
    _, *parts = HEADING.split(COMMANDS.read_text(encoding="utf-8"))
    titles, texts = parts[::2], parts[1::2]
    return {re.split(r" [{\[]", title)[0]: text for title, text in zip(titles, texts, strict=True)}


def options() -> Iterator[tuple[str, str]]:
    """(command, option) of every command and each spelling of its options."""
    whole = get_command(app)
    assert isinstance(whole, TyperGroup)
    for path, command in [((), whole), *every_command(whole)]:
        for parameter in command.params:
            for spelling in (*parameter.opts, *parameter.secondary_opts):
                if spelling.startswith("-"):
                    yield " ".join(("towline", *path)), spelling


def test_the_page_of_commands_is_made_from_them() -> None:
    command = "python -m towline.cli.commands_doc docs/commands.md"
    assert COMMANDS.read_text(encoding="utf-8") == render(), f"run: {command}"


def test_every_command_has_a_section() -> None:
    whole = get_command(app)
    assert isinstance(whole, TyperGroup)
    assert not unnamed((" ".join(("towline", *path)) for path, _ in every_command(whole)), sections())


def test_every_option_stands_with_its_command() -> None:
    beginning = COMMANDS.read_text(encoding="utf-8").partition("\n## ")[0]
    said = sections()
    missing = [
        (command, option)
        for command, option in options()
        if f"{option}`" not in beginning and not re.search(rf"{option}\b", said.get(command, ""))
    ]
    assert not missing


def test_every_setting_has_a_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "settings.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert not unnamed((key for group in GROUPS for key in group.model_fields), rows)


def test_every_public_name_of_the_package_is_named() -> None:
    assert not unnamed(towline.__all__, named())


def test_every_client_for_asyncio_is_named() -> None:
    modules = [
        importlib.import_module(each.name) for each in pkgutil.iter_modules(towline.aio.__path__, "towline.aio.")
    ]
    clients = {
        name
        for module in modules
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, Threaded) and value is not Threaded and not name.startswith("_")
    }
    assert len(clients) >= 4
    assert not unnamed(clients, named())


def test_every_fixture_for_pytest_is_named() -> None:
    fixtures = [name for name, value in vars(pytest_plugin).items() if isinstance(value, type(_fixture))]
    assert len(fixtures) >= 2
    assert not unnamed(fixtures, named())


@pytest.fixture
def _fixture() -> None:
    """What pytest makes of a function."""


def test_the_readme_leads_to_every_page() -> None:
    """By itself, or by a page that it leads to."""
    seen, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        seen.add(page)
        links = re.findall(r"\]\((?!https?:)([\w./-]+\.md)", page.read_text(encoding="utf-8"))
        ahead += [found for found in ((page.parent / link).resolve() for link in links) if found not in seen]
    assert not unnamed(map(str, (ROOT / "docs").glob("*.md")), map(str, seen))


def test_what_is_not_there_is_told() -> None:
    assert unnamed(["Producer", "NoSuchName"], named()) == ["NoSuchName"]
