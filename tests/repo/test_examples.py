"""Programs of examples/ are short, say what they show and how they are run, and use what every program may use."""

import ast
import re

import pytest

import towline
import towline.aio

from .import_rules import edges
from .trees import EXAMPLES, ROOT, Source, sources

LINES_MAX = 60
PUBLIC = {"towline": set(towline.__all__), "towline.aio": set(towline.aio.__all__)}


def programs() -> list[Source]:
    return [source for source in sources() if source.path.parts[0] == EXAMPLES]


def test_there_are_ten() -> None:
    assert len(programs()) >= 10


@pytest.mark.parametrize("program", programs(), ids=lambda each: each.path.stem)
def test_a_program_is_short_and_says_what_it_shows_and_how_it_is_run(program: Source) -> None:
    text = (ROOT / program.path).read_text(encoding="utf-8")
    said = ast.get_docstring(program.tree) or ""
    assert len(text.splitlines()) <= LINES_MAX
    assert said.splitlines()[0].endswith(".")
    assert f"\n    python {program.path} " in said
    assert "sys.argv[1]" in text


@pytest.mark.parametrize("program", programs(), ids=lambda each: each.path.stem)
def test_a_program_imports_public_names_alone(program: Source) -> None:
    ours = [edge for edge in edges(program) if edge.module.split(".")[0] == "towline"]
    assert [(edge.module, edge.names) for edge in ours if not set(edge.names) <= PUBLIC.get(edge.module, set())] == []


def test_the_table_of_the_page_has_each_of_them() -> None:
    page = (ROOT / EXAMPLES / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+\.py)\]\((\w+\.py)\) \|", page, re.MULTILINE)
    assert sorted(rows) == sorted((each.path.name, each.path.name) for each in programs())
