"""Documents say what is there: the index of decisions, the paths that guides name, links from page to page."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.trees import ROOT

DECISIONS = ROOT / "docs" / "decisions"
ROW = re.compile(r"^\| \[(\d{4})\]\((\d{4}-[\w-]+\.md)\) \| (.+) \| (.+) \|$", re.MULTILINE)
LINK = re.compile(r"\[(\d{4})\]\((\d{4}-[\w-]+\.md)\)")
STATUS = re.compile(rf"accepted|(?:amended|replaced) by {LINK.pattern}(?:(?:,| and) {LINK.pattern})*")
GUIDES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md", "examples/README.md")
QUOTED = re.compile(r"`([\w./-]+)(?::(\w+))?`")
FOLDERS = ("towline/", "tests/", "docs/", "loadtest/", "pipeline/", "cli/")  # a store has a folder `ha` too
ADDRESS = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


def decisions() -> list[Path]:
    return sorted(DECISIONS.glob("[0-9]*.md"))


def status_of(decision: Path) -> str:
    """The third line of its file."""
    title, _, status, *_ = decision.read_text(encoding="utf-8").splitlines()
    assert title.startswith(f"# {decision.name[:4]}: "), f"{decision.name}: {title}"
    assert status.startswith("Status: "), f"{decision.name}: its third line says its status"
    return status.removeprefix("Status: ")


def index() -> str:
    return (DECISIONS / "README.md").read_text(encoding="utf-8")


def test_the_index_has_each_decision_with_the_status_that_it_carries():
    listed = [(row[1], row[3]) for row in ROW.findall(index())]
    assert listed == [(each.name, status_of(each)) for each in decisions()]


@pytest.mark.parametrize("decision", decisions(), ids=lambda each: each.name[:4])
def test_a_status_names_later_decisions_that_exist(decision):
    status = status_of(decision)
    assert STATUS.fullmatch(status), f"write accepted, amended by N or replaced by N: {status}"
    for number, name in LINK.findall(status):
        assert name.startswith(f"{number}-"), f"{decision.name} names {name}"
        assert (DECISIONS / name).is_file(), f"{decision.name} names {name}"
        assert number > decision.name[:4]


def test_the_index_says_which_numbers_do_not_exist():
    there = {int(each.name[:4]) for each in decisions()}
    missing = [f"{number:04}" for number in range(1, max(there)) if number not in there]
    (said,) = re.findall(r"((?:\d{4}(?:, | and )?)+) do not exist", index())
    assert re.findall(r"\d{4}", said) == missing


def named_in(text: str) -> Iterator[tuple[str, str]]:
    """(path, name) of what a guide names in backticks: a file or folder of the repository, and what stands in it."""
    for path, name in QUOTED.findall(text):
        if "/" in path and (path.endswith(".py") or path.startswith(FOLDERS)):
            yield path, name


def is_there(path: str, name: str) -> bool:
    file = ROOT / path
    return file.exists() and (not name or re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")) is not None)


@pytest.mark.parametrize("guide", GUIDES)
def test_what_a_guide_names_is_there(guide):
    named = set(named_in((ROOT / guide).read_text(encoding="utf-8")))
    missing = sorted(f"{path}:{name}".rstrip(":") for path, name in named if not is_there(path, name))
    assert not missing, f"{guide} names what is not there: {missing}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`flush/policy.py`", [("flush/policy.py", "")]),
        ("`flush/nowhere.py:build`", [("flush/nowhere.py", "build")]),
        ("`tests/interop` and `ha/role.json`", [("tests/interop", "")]),
        ("`make test`, `py-spy`, `<store>/run/`", []),
    ],
)
def test_names_are_found(text, found):
    assert list(named_in(text)) == found


@pytest.mark.parametrize(
    ("path", "name", "there"),
    [
        ("flush/__init__.py", "FLUSHED", True),
        ("flush/__init__.py", "REPLICATED_", False),
        ("flush/nowhere.py", "", False),
        ("tests/interop", "", True),
    ],
)
def test_a_name_that_is_not_there_is_told(path, name, there):
    assert is_there(path, name) is there


def documents() -> list[Path]:
    return [*(ROOT / name for name in GUIDES), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", documents(), ids=lambda each: str(each.relative_to(ROOT)))
def test_a_link_leads_to_a_file(page):
    links = ADDRESS.findall(page.read_text(encoding="utf-8"))
    broken = [link for link in links if not (page.parent / link).exists()]
    assert not broken, f"{page.relative_to(ROOT)}: {broken}"


def test_readme_has_120_lines_at_most():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
